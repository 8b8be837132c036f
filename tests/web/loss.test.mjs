import assert from "node:assert/strict";
import { test } from "node:test";

import { scalingLoss } from "../../viewer/web/compare/loss.js";
import { close, vectors } from "./vectors.mjs";

test("scaling loss is the shared vectors'", () => {
  for (const { mode, sizes, cost, excess, loss_percent: percent } of vectors("scaling").cases) {
    const total = cost[1].reduce((sum, value) => sum + value, 0);
    cost[0].forEach((base, context) => {
      const actual = scalingLoss(base, cost[1][context], total, ...sizes, mode === "strong");
      assert.ok(close(actual.excess, excess[context]), `${mode} ${sizes} ${context}: excess ${actual.excess}`);
      assert.ok(close(100 * actual.loss, percent[context]), `${mode} ${sizes} ${context}: loss ${actual.loss}`);
    });
  }
});
