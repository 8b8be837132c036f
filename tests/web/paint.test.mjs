import assert from "node:assert/strict";
import { test } from "node:test";

import { CallingContextTree } from "../../viewer/web/core/cct.js";
import { Grid } from "../../viewer/web/core/grid.js";
import { nodeColours, paintGrid } from "../../viewer/web/core/paint.js";

const BLANK = 0xffffffff;
const summary = { procedures: ["<root>", "a", "b"], colours: [0, 0x0000ff, 0x00ff00], marks: [0, 0, 0] };
const tree = new CallingContextTree({ parent: Uint32Array.from([0, 0, 1]), procedure: Uint32Array.from([0, 1, 2]) }, summary);
const picture = (w, h, nodes, ends = null) => new Grid({ w, h }, nodes, ends);
const image = (width, height) => ({ width, height, data: new Uint8ClampedArray(4 * width * height) });
const pixels = ({ data }) => [...new Uint32Array(data.buffer)];

test("a pixel has the colour of what its node shows", () => {
  const colours = nodeColours(tree, tree.at(9), BLANK, null);
  assert.deepEqual(pixels(paintGrid(picture(2, 1, Uint16Array.from([1, 2])), image(2, 1), colours)), [0xff0000ff, 0xff00ff00]);
  const outermost = nodeColours(tree, tree.at(1), BLANK, null);
  assert.deepEqual(pixels(paintGrid(picture(2, 1, Uint16Array.from([1, 2])), image(2, 1), outermost)), [0xff0000ff, 0xff0000ff]);
});

test("where no node is the background shows, in every kind of array", () => {
  const colours = nodeColours(tree, tree.at(9), BLANK, null);
  assert.deepEqual(pixels(paintGrid(picture(1, 1, Uint16Array.from([0xffff])), image(1, 1), colours)), [BLANK]);
  assert.deepEqual(pixels(paintGrid(picture(1, 1, Uint32Array.from([0xffffffff])), image(1, 1), colours)), [BLANK]);
});

test("rows are repeated in a higher picture", () => {
  const colours = nodeColours(tree, tree.at(9), BLANK, null);
  assert.deepEqual(pixels(paintGrid(picture(1, 2, Uint16Array.from([1, 2])), image(1, 4), colours)), [0xff0000ff, 0xff0000ff, 0xff00ff00, 0xff00ff00]);
});

test("what is not looked for fades towards the background", () => {
  const colours = nodeColours(tree, tree.at(9), BLANK, Uint8Array.from([0, 1, 0]));
  const [found, other] = pixels(paintGrid(picture(2, 1, Uint16Array.from([1, 2])), image(2, 1), colours));
  assert.equal(found, 0xff0000ff);
  assert.ok((other & 0xff) > 0xd0 && (other >>> 16 & 0xff) > 0xd0);
});

test("runs are painted as their pixels are, with marks and without", () => {
  const marked = new CallingContextTree(
    { parent: Uint32Array.from([0, 0, 1]), procedure: Uint32Array.from([0, 1, 2]) }, { ...summary, marks: [0, 0, 1] });
  const colours = nodeColours(marked, marked.at(9), BLANK, null);
  const [w, h] = [60, 3];
  const lengths = [[40, 20], [1, 2, 57], [30, 30]];
  const nodes = lengths.flatMap((row, y) => row.map((_, i) => [1, 2, 0xffff][(i + y) % 3]));
  const ends = lengths.flatMap((row) => row.map((_, i) => row.slice(0, i + 1).reduce((sum, length) => sum + length)));
  const runs = picture(w, h, Uint16Array.from(nodes), Uint16Array.from(ends));
  const whole = Uint16Array.from(Array.from({ length: h }, (_, row) => [...runs.rowNodes(row)]).flat());
  assert.deepEqual(pixels(paintGrid(runs, image(w, 7), colours)), pixels(paintGrid(picture(w, h, whole), image(w, 7), colours)));
  for (let i = 0; i < w * h; i++) assert.equal(runs.nodeAt(Math.floor(i / w), i % w), whole[i]);
  assert.deepEqual([whole[0], whole[39], whole[40], whole[w], whole[w + 1]], [1, 1, 2, 2, 0xffff]);
});
