import assert from "node:assert/strict";
import test from "node:test";

import { Strokes } from "../js/strokes.js";

/** A server of one result's strokes, as the real one does it. */
function server() {
  const kept = { strokes: [], applied: 0, version: 0 };
  return {
    kept,
    retouched: 0,
    down: false,
    async strokes() {
      if (this.down) throw new Error("no answer");
      return structuredClone(kept);
    },
    async sendStrokes(_, { strokes, applied, version }) {
      if (this.down) throw new Error("no answer");
      if (version !== kept.version) throw Object.assign(new Error("changed elsewhere"), { status: 409 });
      const painted = JSON.stringify(kept.strokes.slice(0, kept.applied));
      if (JSON.stringify(strokes.slice(0, applied)) !== painted) this.retouched += 1;
      Object.assign(kept, { strokes: structuredClone(strokes), applied, version: version + 1 });
      return { retouched: this.retouched };
    },
  };
}

const names = (strokes) => strokes.map(({ name }) => name).join("");

test("strokes are kept as they are painted, and found again", async () => {
  const there = server();
  const strokes = new Strokes("x", there, () => {});
  strokes.add({ name: "a" }); // before the server has said what it has
  await strokes.add({ name: "b" });
  assert.equal(names(there.kept.strokes), "ab");
  assert.equal(there.kept.applied, 0);
  const again = new Strokes("x", there, () => {});
  await again.refresh();
  assert.equal(names(again.list), "ab");
  assert.equal(again.waiting, 2);
  assert.equal(again.unsaved, false);
});

test("what is applied is drawn until the tiles have it", async () => {
  const strokes = new Strokes("x", server(), () => {});
  await strokes.add({ name: "a" });
  await strokes.apply();
  strokes.add({ name: "b" });
  assert.equal(names(strokes.drawn), "ab");
  strokes.settle(1);
  assert.equal(names(strokes.drawn), "b");
  await strokes.undo();
  await strokes.undo(); // this one only the server can take out
  assert.deepEqual([strokes.applied, strokes.waiting, strokes.server.retouched], [0, 0, 2]);
  await strokes.redo();
  assert.equal(names(strokes.list), "a");
});

test("strokes that are all taken back can be done again", async () => {
  const strokes = new Strokes("x", server(), () => {});
  for (const name of "abc") await strokes.add({ name });
  await strokes.undo();
  await strokes.clear();
  assert.equal(names(strokes.server.kept.strokes), "");
  for (let count = 0; count < 3; count++) await strokes.redo();
  assert.equal(names(strokes.server.kept.strokes), "abc");
});

test("nothing is lost while the server does not answer", async () => {
  const there = server();
  const strokes = new Strokes("x", there, () => {});
  await strokes.add({ name: "a" });
  there.down = true;
  await strokes.add({ name: "b" });
  await strokes.apply();
  assert.deepEqual([names(strokes.list), strokes.unsaved, strokes.problem], ["ab", true, "no answer"]);
  there.down = false;
  await strokes.save();
  assert.deepEqual([names(there.kept.strokes), strokes.unsaved, strokes.problem], ["ab", false, ""]);
});

test("two pages keep the strokes of both", async () => {
  const there = server();
  const problems = [];
  const one = new Strokes("x", there, () => {});
  const other = new Strokes("x", there, () => other.problem && problems.push(other.problem));
  await other.refresh();
  await one.add({ name: "a" });
  await other.add({ name: "b" });
  assert.equal(names(there.kept.strokes), "ab");
  assert.deepEqual(problems, ["another page has changed the strokes"]);
  // What one does not know of it does not take away.
  await one.undo();
  assert.equal(names(there.kept.strokes), "ab");
  assert.equal(names(one.list), "ab");
});
