import assert from "node:assert/strict";
import { test } from "node:test";

import { isDark, pixelOfColour } from "../../viewer/web/core/colour.js";
import { vectors } from "./vectors.mjs";

test("text is light on the shared vectors' dark colours", () => {
  const { cases, dark } = vectors("palette");
  for (const { rgb, dark: expected } of [...cases, ...dark]) assert.equal(isDark(...rgb), expected, `${rgb}`);
});

test("a pixel has red in its lowest byte and is opaque", () => {
  assert.equal(pixelOfColour("#102030"), 0xff302010);
  assert.equal(pixelOfColour("#ffffff"), 0xffffffff);
});
