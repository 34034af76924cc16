import assert from "node:assert/strict";
import test from "node:test";

import { bytes, frameCount, seconds, sentence } from "../js/words.js";

test("a time never has sixty seconds or sixty minutes", () => {
  assert.equal(seconds(0.4), "a second");
  assert.equal(seconds(59.4), "59 s");
  assert.equal(seconds(59.6), "1 min");
  assert.equal(seconds(61.6), "1 min 2 s");
  assert.equal(seconds(119.7), "2 min");
  assert.equal(seconds(3599.9), "1 h");
  assert.equal(seconds(3700), "1 h 2 min");
  for (let value = 0; value < 8000; value += 0.1) assert.doesNotMatch(seconds(value), /\b60\b/);
});

test("a line begins with a capital, unless it begins with a file", () => {
  assert.equal(sentence("the server does not answer"), "The server does not answer");
  assert.equal(sentence("f3.png cannot be aligned: it shows no detail"), "f3.png cannot be aligned: it shows no detail");
  assert.equal(sentence("shot 2.tif is too small"), "shot 2.tif is too small");
  assert.equal(sentence("sizes differ: 64.png is 64x48"), "Sizes differ: 64.png is 64x48");
});

test("arguments are called what the page calls them", () => {
  assert.equal(sentence("allow more with `max_memory`, or wait"), "Allow more with “Memory at most”, or wait");
  assert.equal(sentence("use `device='cpu'`"), "Use “Runs on”: cpu");
  assert.equal(sentence("pass `overwrite=True`"), "Pass `overwrite=True`");
});

test("sizes and pages are counted", () => {
  assert.deepEqual([bytes(10), bytes(2.5e6), bytes(3.21e9)], ["1 kB", "2.5 MB", "3.21 GB"]);
  assert.equal(frameCount({ frames: [{ pages: 3 }, {}] }), 4);
  assert.equal(frameCount(null), 0);
});
