import assert from "node:assert/strict";
import { test } from "node:test";

import { isDark, pixelOfColour } from "../../viewer/web/core/colour.js";
import { depthColours } from "../../viewer/web/core/picture_colours.js";
import { vectors } from "./vectors.mjs";

test("text is light on the shared vectors' dark colours", () => {
  const { cases, dark } = vectors("palette");
  for (const { rgb, dark: expected } of [...cases, ...dark]) assert.equal(isDark(...rgb), expected, `${rgb}`);
});

test("a pixel has red in its lowest byte and is opaque", () => {
  assert.equal(pixelOfColour("#102030"), 0xff302010);
  assert.equal(pixelOfColour("#ffffff"), 0xffffffff);
});

test("at a depth the costliest have colours that are told apart, their own where they have one", () => {
  const palette = Uint32Array.from({ length: 12 }, (_, i) => 100 + i);
  for (const { about, shown, cost, own, places } of vectors("palette").depths) {
    const pixels = Uint32Array.from(places, (_, i) => (own[i] === undefined ? 7 : palette[own[i]]));
    const distinct = places.map((_, i) => (own[i] === undefined ? 0 : 1));
    const colours = depthColours(Uint32Array.from(shown), cost, pixels, distinct, palette, 1);
    assert.deepEqual([...colours], places.map((place) => (place === null ? 1 : palette[place])), about);
  }
});
