import assert from "node:assert/strict";
import { test } from "node:test";

import { CallingContextTree } from "../../viewer/web/core/cct.js";
import { Grid } from "../../viewer/web/core/grid.js";
import { nodeColours, paintGrid, paler } from "../../viewer/web/core/paint.js";

const BLANK = 0xffffffff;
const ASLEEP = 0xfff7f5f4;
const WAITING = 0xffdcf3fb;
const GROUNDS = { blank: BLANK, asleep: ASLEEP, waiting: WAITING };
const at = (tree, depth) => ({ shown: tree.at(depth), colours: tree.colours });
const summary = { procedures: ["<root>", "a", "b"], colours: [0, 0x0000ff, 0x00ff00], marks: [0, 0, 0] };
const tree = new CallingContextTree({ parent: Uint32Array.from([0, 0, 1]), procedure: Uint32Array.from([0, 1, 2]) }, summary);
const picture = (w, h, nodes, ends = null) => new Grid({ w, h }, nodes, ends);
const image = (width, height) => ({ width, height, data: new Uint8ClampedArray(4 * width * height) });
const pixels = ({ data }) => [...new Uint32Array(data.buffer)];

test("a pixel has the colour of what its node shows", () => {
  const colours = nodeColours(tree, at(tree, 9), GROUNDS, null);
  assert.deepEqual(pixels(paintGrid(picture(2, 1, Uint16Array.from([1, 2])), image(2, 1), colours)), [0xff0000ff, 0xff00ff00]);
  const outermost = nodeColours(tree, at(tree, 1), GROUNDS, null);
  assert.deepEqual(pixels(paintGrid(picture(2, 1, Uint16Array.from([1, 2])), image(2, 1), outermost)), [0xff0000ff, 0xff0000ff]);
});

test("where no node is the background shows, in every kind of array", () => {
  const colours = nodeColours(tree, at(tree, 9), GROUNDS, null);
  assert.deepEqual(pixels(paintGrid(picture(1, 1, Uint16Array.from([0xffff])), image(1, 1), colours)), [BLANK]);
  assert.deepEqual(pixels(paintGrid(picture(1, 1, Uint32Array.from([0xffffffff])), image(1, 1), colours)), [BLANK]);
});

test("rows are repeated in a higher picture", () => {
  const colours = nodeColours(tree, at(tree, 9), GROUNDS, null);
  assert.deepEqual(pixels(paintGrid(picture(1, 2, Uint16Array.from([1, 2])), image(1, 4), colours)), [0xff0000ff, 0xff0000ff, 0xff00ff00, 0xff00ff00]);
});

test("what is not looked for fades towards the background", () => {
  const colours = nodeColours(tree, at(tree, 9), GROUNDS, Uint8Array.from([0, 1, 0]));
  const [found, other] = pixels(paintGrid(picture(2, 1, Uint16Array.from([1, 2])), image(2, 1), colours));
  assert.equal(found, 0xff0000ff);
  assert.ok((other & 0xff) > 0xd0 && (other >>> 16 & 0xff) > 0xd0);
});

test("runs are painted as their pixels are, in every state", () => {
  const marked = new CallingContextTree(
    { parent: Uint32Array.from([0, 0, 1]), procedure: Uint32Array.from([0, 1, 2]), state: Uint32Array.from([0, 3, 2]) }, summary);
  const colours = nodeColours(marked, at(marked, 9), GROUNDS, null);
  const [w, h] = [60, 3];
  const lengths = [[40, 20], [1, 2, 57], [30, 30]];
  const nodes = lengths.flatMap((row, y) => row.map((_, i) => [1, 2, 0xffff][(i + y) % 3]));
  const ends = lengths.flatMap((row) => row.map((_, i) => row.slice(0, i + 1).reduce((sum, length) => sum + length)));
  const runs = picture(w, h, Uint16Array.from(nodes), Uint16Array.from(ends));
  const whole = Uint16Array.from(Array.from({ length: h }, (_, row) => [...runs.rowNodes(row)]).flat());
  assert.deepEqual(pixels(paintGrid(runs, image(w, 70), colours)), pixels(paintGrid(picture(w, h, whole), image(w, 70), colours)));
  for (let i = 0; i < w * h; i++) assert.equal(runs.nodeAt(Math.floor(i / w), i % w), whole[i]);
  assert.deepEqual([whole[0], whole[39], whole[40], whole[w], whole[w + 1]], [1, 1, 2, 2, 0xffff]);
});

test("who runs is solid, who could run pale, who sleeps blank below a line, who waits for others tinted below a thicker one", () => {
  const row = (state, height) => {
    const one = new CallingContextTree({ parent: Uint32Array.from([0, 0]), procedure: Uint32Array.from([0, 1]), state: Uint32Array.from([0, state]) }, summary);
    return pixels(paintGrid(picture(1, 1, Uint16Array.from([1])), image(1, height), nodeColours(one, at(one, 9), GROUNDS, null)));
  };
  const RED = 0xff0000ff;
  assert.deepEqual(row(0, 8), Array(8).fill(RED));
  assert.deepEqual(row(1, 8), Array(8).fill(paler(RED, BLANK)));
  assert.deepEqual(row(2, 8), [RED, ...Array(7).fill(ASLEEP)]);
  assert.deepEqual(row(3, 8), [RED, RED, ...Array(6).fill(WAITING)]);
  // Low rows have no line, high ones a gap to the next.
  assert.deepEqual(row(3, 2), [WAITING, WAITING]);
  assert.deepEqual(row(0, 30), [...Array(28).fill(RED), BLANK, BLANK]);
});
