import assert from "node:assert/strict";
import { test } from "node:test";

import { RowLayout } from "../../viewer/web/trace/row_layout.js";

test("rows of one line each are as high as each other", () => {
  const layout = new RowLayout([0, 0, 0, 0]);
  assert.deepEqual([...layout.edges], [0, 0.25, 0.5, 0.75, 1]);
  assert.equal(layout.placeAt(0.6), 0.6);
  assert.deepEqual([...layout.rowsOfPixels(8)], [0, 0, 1, 1, 2, 2, 3, 3]);
});

test("a row of helpers is lower, and every height has its row and place", () => {
  const layout = new RowLayout([0, 3, 0]);
  const heights = [0, 1, 2].map((row) => layout.edges[row + 1] - layout.edges[row]);
  assert.ok(heights[1] < heights[0] / 2);
  assert.ok(Math.abs(heights[0] - heights[2]) < 1e-12 && layout.edges[3] === 1);
  for (let y = 0; y <= 1; y += 0.01) {
    const row = layout.rowAt(y);
    assert.ok(layout.edges[row] <= y && (y <= layout.edges[row + 1] || row === 2));
    assert.equal(layout.rowOf(layout.placeAt(y)), row);
  }
  assert.equal(layout.placeAt(0), 0);
  assert.equal(layout.placeAt(1), 1);
  const rows = layout.rowsOfPixels(225);
  assert.deepEqual([0, 1, 2].map((row) => rows.filter((shown) => shown === row).length), [100, 25, 100]);
});

test("a picture of fewer pixels than rows shows some of them", () => {
  assert.deepEqual([...new RowLayout([0, 0, 0, 0]).rowsOfPixels(2)], [0, 2]);
});

test("one row of helpers is as high as a line of text, however high the others are", () => {
  for (const rows of [3, 100]) {
    const layout = new RowLayout([...Array(rows).fill(0), 5], 900);
    assert.ok(Math.abs((layout.edges[rows + 1] - layout.edges[rows]) * 900 - 18) < 1e-9);
  }
});
