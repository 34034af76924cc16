import assert from "node:assert/strict";
import test from "node:test";

import { batchesOf, commonName, groupsOf } from "../js/folders.js";

const found = (...paths) => paths.map((path) => ({ path, file: { name: path.split("/").at(-1) } }));
const named = (groups) => groups.map(({ name, files }) => [name, ...files.map((file) => file.name)]);

test("a folder is a stack, and so are files in none", () => {
  const groups = groupsOf(found("/b/10.png", "/b/2.png", "x.png", "/b/c/1.png", "/a/1.png"));
  assert.deepEqual(named(groups), [[null, "x.png"], ["a", "1.png"], ["b", "2.png", "10.png"], ["c", "1.png"]]);
});

test("folders that are called alike are told apart", () => {
  assert.deepEqual(named(groupsOf(found("fly/raw/1.png", "moth/raw/1.png"))), [
    ["fly – raw", "1.png"],
    ["moth – raw", "1.png"],
  ]);
});

test("what systems put into folders is left out", () => {
  assert.deepEqual(groupsOf(found("a/.DS_Store", "a/Thumbs.db", ".trash/1.png")), []);
});

test("a stack is called what its files have in common", () => {
  assert.equal(commonName(["shot 1.png", "shot 2.png", "shot 10.png"]), "shot");
  assert.equal(commonName(["a.png", "b.png"]), "");
});

test("no request is large or has many files, and no file is left out", () => {
  const files = [60e6, 1, 1, 40e6, 10e6, ...Array(30).fill(1)].map((size) => ({ size }));
  const batches = batchesOf(files);
  assert.deepEqual(batches.flat(), files);
  for (const batch of batches) {
    const size = batch.reduce((sum, file) => sum + file.size, 0);
    assert.ok(batch.length === 1 || (size <= 48e6 && batch.length <= 12));
  }
});
