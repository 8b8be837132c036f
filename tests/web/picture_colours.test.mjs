import assert from "node:assert/strict";
import test from "node:test";

import { sharedColours } from "../../viewer/web/core/picture_colours.js";

const FLAG = 1 << 24;
const pixel = (colour) => (0xff000000 | colour) >>> 0;
const tree = (entries) => ({
  names: entries.map(([name]) => name), colours: Uint32Array.from(entries, ([, colour]) => pixel(colour)), distinct: Uint8Array.from(entries, ([, , distinct]) => distinct),
});

test("what has one name has one colour in both runs", () => {
  const first = tree([["main", 1, 1], ["solve", 2, 1], ["other", 9, 0]]);
  const second = tree([["solve [inlined]", 1, 1], ["io", 2, 1], ["wait", 4, 1], ["more", 1, 1], ["main", 8, 0], ["rare", 7, 0]]);
  assert.deepEqual(sharedColours(second, first, [1, 2, 3, 4]), [
    2 | FLAG, // as in the first
    3 | FLAG, // its own is the first's solve
    4 | FLAG, // its own
    1, // none is left
    1 | FLAG,
    7,
  ]);
});
