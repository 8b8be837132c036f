// @ts-check
// From nodes to pixels: the one loop over every pixel of a picture.

import { BLOCKED, COMMUNICATION } from "./cct.js";

// Which pixels of 8 x 8 carry a mark: stripes where a thread waits (1), dots where it communicates (2).
const isStripe = (/** @type {number} */ x, /** @type {number} */ y) => ((x + y) & 7) < 3;
const TILE = Uint8Array.from({ length: 64 }, (_, i) => {
  const [x, y] = [i & 7, i >> 3];
  const stripe = isStripe(x, y);
  const dot = (x & 3) === 0 && ((y + ((x >> 2) & 1) * 2) & 3) === 0;
  return (stripe ? 1 : 0) | (dot ? 2 : 0);
});

const LONG = 16; // px: shorter runs are filled as fast one by one

/**
 * The colours of every node, four each by what TILE says; behind them the background, for pixels that
 * show no node.
 * @param {import("./cct.js").CallingContextTree} tree
 * @param {Uint32Array} shown procedure of each node at the depth
 * @param {number} blank the background's pixel
 * @param {Uint8Array | null} lit of each node whether what is searched for is on its path; null without a search
 */
export function nodeColours(tree, shown, blank, lit) {
  const n = tree.parent.length;
  // As many as a power of two, so that a mask keeps every number inside: testing each pixel takes longer.
  const colours = new Uint32Array(4 << (32 - Math.clz32(n))).fill(blank);
  for (let node = 0; node < n; node++) {
    const fade = lit && !lit[node] ? 3 : 0;
    const plain = lighter(tree.colours[shown[node]], blank, fade);
    colours.fill(plain, 4 * node, 4 * node + 4);
    if (tree.marks[node] === BLOCKED) colours[4 * node + 1] = colours[4 * node + 3] = lighter(lighter(tree.colours[shown[node]], blank, 1), blank, fade);
    else if (tree.marks[node] === COMMUNICATION) colours[4 * node + 2] = colours[4 * node + 3] = lighter(lighter(tree.colours[shown[node]], 0xff000000, 1), blank, fade);
  }
  return colours;
}

/**
 * Fills an image as wide as a picture. Where it is higher than the picture rows are repeated: marks are of
 * the screen, however high a line is on it.
 * @param {Pick<import("./grid.js").Grid, "h" | "nodes" | "ends" | "starts">} grid
 * @param {ImageData} image
 * @param {Uint32Array} colours as nodeColours makes them
 * @param {Uint32Array} [rows] of each line of pixels the row it shows; without, all are as high as each other
 */
export function paintGrid({ h, nodes, ends, starts }, image, colours, rows) {
  const { width, height } = image;
  const pixels = new Uint32Array(image.data.buffer);
  const mask = (colours.length >> 2) - 1;
  for (let y = 0, at = 0; y < height; y++, at += width) {
    const row = rows ? rows[y] : Math.floor((y * h) / height);
    const tile = (y & 7) << 3;
    if (ends) paintRuns(pixels, at, nodes, ends, starts[row], starts[row + 1], colours, mask, tile);
    else {
      const from = starts[row];
      for (let x = 0; x < width; x++) pixels[at + x] = colours[((nodes[from + x] & mask) << 2) | TILE[tile | (x & 7)]];
    }
  }
  return image;
}

/**
 * Fills a line of pixels from the runs of a row.
 * @param {Uint32Array} pixels
 * @param {number} at where the line begins
 * @param {Uint16Array | Uint32Array} nodes
 * @param {Uint16Array} ends
 * @param {number} first run of the row
 * @param {number} last the one behind its last
 * @param {Uint32Array} colours
 * @param {number} mask
 * @param {number} tile
 */
function paintRuns(pixels, at, nodes, ends, first, last, colours, mask, tile) {
  for (let i = first, x = 0; i < last; i++) {
    const colour = (nodes[i] & mask) << 2;
    const end = ends[i];
    const plain = colours[colour];
    if (end - x > LONG && colours[colour + 1] === plain && colours[colour + 2] === plain) {
      pixels.fill(plain, at + x, at + end);
      x = end;
    } else for (; x < end; x++) pixels[at + x] = colours[colour | TILE[tile | (x & 7)]];
  }
}

/**
 * Part of the way to the background: a half (1), three quarters (2), seven eighths (3).
 * @param {number} colour
 * @param {number} blank
 * @param {number} steps
 */
function lighter(colour, blank, steps) {
  const keep = 8 >> steps;
  const mix = (/** @type {number} */ shift) => ((((colour >>> shift) & 255) * keep + ((blank >>> shift) & 255) * (8 - keep)) >> 3) << shift;
  return (0xff000000 | mix(16) | mix(8) | mix(0)) >>> 0;
}

/**
 * The stripes of a thread that waits, to be drawn over its colours: the same as in pictures of lines.
 * @param {CanvasRenderingContext2D} pen
 * @param {number} blank the background's pixel
 */
export function stripePattern(pen, blank) {
  const tile = document.createElement("canvas");
  tile.width = tile.height = 8;
  const image = new ImageData(8, 8);
  const pixels = new Uint32Array(image.data.buffer);
  const half = ((blank & 0xffffff) | 0x80000000) >>> 0;
  for (let i = 0; i < 64; i++) if (isStripe(i & 7, i >> 3)) pixels[i] = half;
  context2d(tile).putImageData(image, 0, 0);
  return repeated(pen, tile);
}

/**
 * Diagonal lines that let what is below be seen.
 * @param {CanvasRenderingContext2D} pen
 */
export function hatchPattern(pen) {
  const tile = document.createElement("canvas");
  tile.width = tile.height = 8;
  const ink = context2d(tile);
  ink.strokeStyle = "#d0021bcc";
  ink.lineWidth = 1.5;
  for (const shift of [-8, 0, 8]) {
    ink.moveTo(shift, 8);
    ink.lineTo(shift + 8, 0);
  }
  ink.stroke();
  return repeated(pen, tile);
}

/**
 * @param {CanvasRenderingContext2D} pen
 * @param {HTMLCanvasElement} tile
 */
function repeated(pen, tile) {
  const pattern = pen.createPattern(tile, "repeat");
  if (!pattern) throw new Error("the pattern is empty");
  return pattern;
}

/**
 * Draws an image scaled to a rectangle, each pixel with hard edges.
 * @param {CanvasRenderingContext2D} pen
 * @param {ImageData} image
 * @param {number} x
 * @param {number} y
 * @param {number} w
 * @param {number} h
 */
export function drawScaled(pen, image, x, y, w, h) {
  const unscaled = document.createElement("canvas");
  unscaled.width = image.width;
  unscaled.height = image.height;
  context2d(unscaled).putImageData(image, 0, 0);
  pen.imageSmoothingEnabled = false;
  pen.drawImage(unscaled, x, y, w, h);
}

/**
 * What draws on a canvas.
 * @param {HTMLCanvasElement} canvas
 */
export function context2d(canvas) { return /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d")); }
