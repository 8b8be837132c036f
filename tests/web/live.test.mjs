import assert from "node:assert/strict";
import { test } from "node:test";

import { CallingContextTree } from "../../viewer/web/core/cct.js";
import { stateInRevision } from "../../viewer/web/core/live.js";

function revision(number, duration, names, parent) {
  const summary = { procedures: names, colours: names.map(() => 0), marks: names.map(() => 0), duration_ns: duration, live: { revision: number } };
  return { summary, tree: new CallingContextTree({ parent: Uint32Array.from(parent), procedure: Uint32Array.from(names, (_, i) => i) }, summary) };
}

const before = revision(1, 100, ["<root>", "main", "f"], [0, 0, 1]);
const after = revision(2, 150, ["<root>", "main", "g", "f"], [0, 0, 1, 1]);
const count = { before: 8, now: 10 };

test("everything in view stays everything", () => {
  const state = { t0: 0, t1: 100, l0: 0, l1: 8 };
  assert.deepEqual(stateInRevision(state, before, after, [0, 9], count), { revision: 2, t0: 0, t1: 150, l1: 10 });
});

test("a strip at the end slides", () => {
  const state = { t0: 90, t1: 100, l0: 0, l1: 8 };
  const { t0, t1 } = stateInRevision(state, before, after, [0, 9], count);
  assert.deepEqual([t0, t1], [140, 150]);
});

test("a window elsewhere stays, with its lines and the crosshair's", () => {
  const state = { t0: 10, t1: 20, l0: 2, l1: 4, line: 3 };
  assert.deepEqual(stateInRevision(state, before, after, [3, 5, 4], count), { revision: 2, l0: 3, l1: 6, line: 4 });
});

test("a line that is not known any more loses the crosshair", () => {
  const { line } = stateInRevision({ t0: 10, t1: 20, l0: 2, l1: 4, line: 3 }, before, after, [3, 5, null], count);
  assert.equal(line, undefined);
});

test("pinned lines stay, by their new numbers", () => {
  const { pinned } = stateInRevision({ t0: 10, t1: 20, l0: 2, l1: 4, pinned: "1.2.3" }, before, after, [3, 5, 0, 7, null, 9], count);
  assert.equal(pinned, "7.9");
});

test("rows moved by hand stay, by their new numbers, where both lines are known", () => {
  const state = { t0: 10, t1: 20, l0: 0, l1: 8, pinned: "1", moved: "2.3.4.4.5.1" };
  const { pinned, moved } = stateInRevision(state, before, after, [0, 7, 0, 9, 4, 5, 6, 6, null, 9], count);
  assert.deepEqual([pinned, moved], ["9", "4.5.6.6"]);
});

test("the line whose partners are chosen stays, by its new number, and none are chosen without it", () => {
  const state = { t0: 10, t1: 20, l0: 0, l1: 8, moved: "2.3", partners: "5.0.70" };
  const { moved, partners } = stateInRevision(state, before, after, [0, 7, 0, 2, 3, 6], count);
  assert.deepEqual([moved, partners], ["2.3", "6.0.70"]);
  assert.equal(stateInRevision(state, before, after, [0, 7, 0, 2, 3, null], count).partners, "");
});

test("a context is found again by its path of names", () => {
  const at = (context) => stateInRevision({ t0: 10, t1: 20, l0: 2, l1: 4, context }, before, after, [2, 3], count).context;
  assert.equal(at("n2"), "n3");
  assert.equal(at("flat:f"), "flat:f");
});
