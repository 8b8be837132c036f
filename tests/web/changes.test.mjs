import assert from "node:assert/strict";
import { test } from "node:test";

import { ABSENT, CHANGE_CLASSES, GONE, LESS, MINOR, MORE, NEW, SAME, changeOfCost, changeOfVisits, changeText, isDifference, sideLetter } from "../../viewer/web/compare/changes.js";
import { vectors } from "./vectors.mjs";

const NAMES = { ABSENT, SAME, MORE, LESS, NEW, GONE, MINOR };
const { costs, visits } = vectors("comparison");

test("changes of costs are the shared vectors'", () => {
  for (const { total, columns, ...limits } of costs) {
    for (const { cost: [before, after], variance, change } of columns) {
      const actual = changeOfCost(before, after, variance[0] + variance[1], ...total, limits);
      assert.equal(actual, NAMES[change], `${before} to ${after} of ${total}`);
    }
  }
});

test("changes of visits are the shared vectors'", () => {
  for (const { ranks, sensitivity, columns } of visits) {
    for (const { visits: [before, after], change } of columns) {
      assert.equal(changeOfVisits(before, after, ...ranks, sensitivity), NAMES[change], `${before} to ${after} visits`);
    }
  }
});

test("the vectors have every change", () => {
  const named = new Set(costs.flatMap(({ columns }) => columns.map(({ change }) => change)));
  assert.deepEqual([...named].sort(), Object.keys(NAMES).sort());
});

test("more, less, new and gone are differences", () => {
  assert.deepEqual(CHANGE_CLASSES.map((_, change) => isDifference(change)), [false, false, true, true, true, true, false]);
});

test("a change is an arrow and a percentage", () => {
  assert.equal(changeText(MORE, 50, 56), "▲ +12.0 %");
  assert.equal(changeText(LESS, 50, 25), "▼ -50.0 %");
  assert.equal(changeText(SAME, 50, 51), "+2.0 %");
  assert.equal(changeText(NEW, 0, 3), "+ new");
  assert.equal(changeText(GONE, 3, 0), "× gone");
});

test("sides are letters", () => assert.deepEqual([0, 1, 7].map(sideLetter), ["A", "B", "H"]));
