import assert from "node:assert/strict";
import { test } from "node:test";

import { describeDepth } from "../../viewer/web/core/depth_choice.js";

test("what a depth shows is said by its largest procedures", () => {
  assert.equal(describeDepth({ variety: 1, procedures: 2, shown: [["solve", 0.75], ["exchange", 0.25]] }), "solve 75.0 %, exchange 25.0 %");
  assert.match(describeDepth({ variety: 3, procedures: 1204, shown: [["a", 0.5]] }), /^a .*, 1,203 more$/);
});
