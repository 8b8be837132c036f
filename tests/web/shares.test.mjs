import assert from "node:assert/strict";
import { test } from "node:test";

import { largestShares } from "../../viewer/web/trace/shares.js";

const pixels = Float64Array.of(0, 6, 4, 0);

test("shares of pixels, the largest first", () => {
  assert.deepEqual(largestShares(pixels, null, 10), [
    { procedure: 1, ofPixels: 0.6, exact: null }, { procedure: 2, ofPixels: 0.4, exact: null },
  ]);
});

test("exact shares are in their own order, procedures without a pixel among them", () => {
  const shares = largestShares(pixels, Float64Array.of(0, 1, 5, 2), 10);
  assert.deepEqual(shares.map(({ procedure, exact }) => [procedure, exact]), [[2, 0.625], [3, 0.25], [1, 0.125]]);
  assert.equal(shares[1].ofPixels, 0);
  assert.equal(largestShares(pixels, Float64Array.of(0, 1, 5, 2), 2).length, 2);
});

test("times that are all 0 are not exact shares", () => {
  assert.deepEqual(largestShares(pixels, new Float64Array(4), 1), [{ procedure: 1, ofPixels: 0.6, exact: null }]);
});
