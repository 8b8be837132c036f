// From nodes to pixels: the one loop over every pixel of a picture.

import { BLOCKED, COMMUNICATION } from "./tree.js";

// Which pixels of 8 x 8 carry a mark: stripes where a thread waits (1), dots where it communicates (2).
const TILE = Uint8Array.from({ length: 64 }, (_, i) => {
  const [x, y] = [i & 7, i >> 3];
  const stripe = ((x + y) & 7) < 3;
  const dot = (x & 3) === 0 && ((y + ((x >> 2) & 1) * 2) & 3) === 0;
  return (stripe ? 1 : 0) | (dot ? 2 : 0);
});

// The colours of every node, four each by what TILE says; behind them the background, for pixels that
// show no node. shown: procedure of each node at the depth; lit: null or for each node whether what is
// looked for is on its path.
export function inks(tree, shown, blank, lit) {
  const n = tree.parent.length;
  // As many as a power of two, so that a mask keeps every number inside: testing each pixel takes longer.
  const made = new Uint32Array(4 << (32 - Math.clz32(n))).fill(blank);
  for (let node = 0; node < n; node++) {
    const fade = lit && !lit[node] ? 3 : 0;
    const plain = lighter(tree.colours[shown[node]], blank, fade);
    made.fill(plain, 4 * node, 4 * node + 4);
    if (tree.marks[node] === BLOCKED) made[4 * node + 1] = made[4 * node + 3] = lighter(lighter(tree.colours[shown[node]], blank, 1), blank, fade);
    else if (tree.marks[node] === COMMUNICATION) made[4 * node + 2] = made[4 * node + 3] = lighter(lighter(tree.colours[shown[node]], 0xff000000, 1), blank, fade);
  }
  return made;
}

// Fills image from nodes, h rows as wide as it; where it is higher, rows are repeated: marks are of the
// screen, however high a line is on it.
export function paint(nodes, h, image, colours) {
  const { width, height } = image;
  const pixels = new Uint32Array(image.data.buffer);
  const mask = (colours.length >> 2) - 1;
  for (let y = 0, at = 0; y < height; y++) {
    const from = Math.floor((y * h) / height) * width;
    const tile = (y & 7) << 3;
    for (let x = 0; x < width; x++, at++) pixels[at] = colours[((nodes[from + x] & mask) << 2) | TILE[tile | (x & 7)]];
  }
  return image;
}

// Part of the way to the background: a half (1), three quarters (2), seven eighths (3).
function lighter(colour, blank, steps) {
  const keep = 8 >> steps;
  const mix = (shift) => ((((colour >>> shift) & 255) * keep + ((blank >>> shift) & 255) * (8 - keep)) >> 3) << shift;
  return (0xff000000 | mix(16) | mix(8) | mix(0)) >>> 0;
}

// A CSS colour such as #aabbcc as the pixel it is.
export function pixel(css) {
  const value = parseInt(css.slice(1), 16);
  return (0xff000000 | ((value & 255) << 16) | (value & 0xff00) | (value >> 16)) >>> 0;
}

// Diagonal lines that let what is below be seen.
export function hatch(pen) {
  const tile = document.createElement("canvas");
  tile.width = tile.height = 8;
  const ink = tile.getContext("2d");
  ink.strokeStyle = "#d0021bcc";
  ink.lineWidth = 1.5;
  for (const shift of [-8, 0, 8]) {
    ink.moveTo(shift, 8);
    ink.lineTo(shift + 8, 0);
  }
  ink.stroke();
  return pen.createPattern(tile, "repeat");
}

export function stretch(context, image, x, y, w, h) {
  const held = document.createElement("canvas");
  held.width = image.width;
  held.height = image.height;
  held.getContext("2d").putImageData(image, 0, 0);
  context.imageSmoothingEnabled = false;
  context.drawImage(held, x, y, w, h);
}
