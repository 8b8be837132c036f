import assert from "node:assert/strict";
import { test } from "node:test";

import { hotPath } from "../../viewer/web/core/hot_path.js";
import { vectors } from "./vectors.mjs";

test("hot paths are the shared vectors'", () => {
  for (const { parent, cost, path } of vectors("hot_path").cases) {
    const children = (node) => parent.flatMap((above, child) => (child && above === node ? [child] : []));
    assert.deepEqual(hotPath(0, (node) => cost[node], children), path);
  }
});
