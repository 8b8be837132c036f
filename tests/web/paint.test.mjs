import assert from "node:assert/strict";
import { test } from "node:test";

import { CallingContextTree } from "../../viewer/web/core/cct.js";
import { nodeColours, paintNodes } from "../../viewer/web/core/paint.js";

const BLANK = 0xffffffff;
const summary = { procedures: ["<root>", "a", "b"], colours: [0, 0x0000ff, 0x00ff00], marks: [0, 0, 0] };
const tree = new CallingContextTree({ parent: Uint32Array.from([0, 0, 1]), procedure: Uint32Array.from([0, 1, 2]) }, summary);
const image = (width, height) => ({ width, height, data: new Uint8ClampedArray(4 * width * height) });
const pixels = ({ data }) => [...new Uint32Array(data.buffer)];

test("a pixel has the colour of what its node shows", () => {
  const colours = nodeColours(tree, tree.at(9), BLANK, null);
  assert.deepEqual(pixels(paintNodes(Uint16Array.from([1, 2]), 1, image(2, 1), colours)), [0xff0000ff, 0xff00ff00]);
  const outermost = nodeColours(tree, tree.at(1), BLANK, null);
  assert.deepEqual(pixels(paintNodes(Uint16Array.from([1, 2]), 1, image(2, 1), outermost)), [0xff0000ff, 0xff0000ff]);
});

test("where no node is the background shows, in every kind of array", () => {
  const colours = nodeColours(tree, tree.at(9), BLANK, null);
  assert.deepEqual(pixels(paintNodes(Uint16Array.from([0xffff]), 1, image(1, 1), colours)), [BLANK]);
  assert.deepEqual(pixels(paintNodes(Uint32Array.from([0xffffffff]), 1, image(1, 1), colours)), [BLANK]);
});

test("rows are repeated in a higher picture", () => {
  const colours = nodeColours(tree, tree.at(9), BLANK, null);
  assert.deepEqual(pixels(paintNodes(Uint16Array.from([1, 2]), 2, image(1, 4), colours)), [0xff0000ff, 0xff0000ff, 0xff00ff00, 0xff00ff00]);
});

test("what is not looked for fades towards the background", () => {
  const colours = nodeColours(tree, tree.at(9), BLANK, Uint8Array.from([0, 1, 0]));
  const [found, other] = pixels(paintNodes(Uint16Array.from([1, 2]), 1, image(2, 1), colours));
  assert.equal(found, 0xff0000ff);
  assert.ok((other & 0xff) > 0xd0 && (other >>> 16 & 0xff) > 0xd0);
});
