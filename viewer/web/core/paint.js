// @ts-check
// From nodes to pixels: the one loop over every pixel of a picture.

import { ASLEEP, RUNNABLE, WAITING } from "./cct.js";

// Where in its row a line of pixels is: most of it; where a thread that does not run has its procedure's
// colour, and the lines below these if it waits for others; the gap to the next row.
const BODY = 0;
const HEAD = 1;
const NECK = 2;
const GAP = 3;
const LOW = 7; // px: rows below have no heads
const LONG = 16; // px: shorter runs are filled as fast one by one
const GAPPED = 14; // px: rows below have no gaps

/**
 * @typedef {object} Grounds pixels of the theme
 * @property {number} blank where there is no thread
 * @property {number} asleep
 * @property {number} waiting for others
 */

/**
 * The colours of every node, four each: by where in its row a pixel is. Behind them the background, for
 * pixels that show no node.
 * @param {Pick<CallingContextTree, "parent" | "state">} tree
 * @param {import("./picture_colours.js").PictureColours} picture
 * @param {Grounds} grounds
 * @param {Uint8Array | null} lit of each node whether what is searched for is on its path; null without a search
 */
export function nodeColours(tree, { shown, colours: colourOf }, { blank, asleep, waiting }, lit) {
  const n = tree.parent.length;
  // As many as a power of two, so that a mask keeps every number inside: testing each pixel takes longer.
  const colours = new Uint32Array(4 << (32 - Math.clz32(n))).fill(blank);
  for (let node = 0; node < n; node++) {
    const fade = lit && !lit[node] ? 3 : 0;
    const own = colourOf[shown[node]];
    const state = tree.state[node] & 3;
    const body = state === RUNNABLE ? paler(own, blank) : state === ASLEEP ? asleep : state === WAITING ? waiting : own;
    const at = 4 * node;
    colours[at + BODY] = lighter(body, blank, fade);
    colours[at + HEAD] = lighter(state === ASLEEP || state === WAITING ? own : body, blank, fade);
    colours[at + NECK] = lighter(state === WAITING ? own : body, blank, fade);
  }
  return colours;
}

/**
 * The colour of a thread that could use a CPU.
 * @param {number} colour
 * @param {number} blank
 */
export function paler(colour, blank) { return mixed(colour, blank, 3); }

/**
 * Where the lines of pixels of an image are in their rows: BODY and so on of each.
 * @param {Uint32Array} rows of each line of pixels its row
 */
export function partsOfRows(rows) {
  const parts = new Uint8Array(rows.length);
  for (let y = 0; y < rows.length;) {
    let end = y + 1;
    while (end < rows.length && rows[end] === rows[y]) end++;
    const height = end - y;
    const head = height < LOW ? 0 : Math.max(1, Math.min(Math.round(height / 24), 2));
    for (let i = 0; i < head; i++) parts[y + i] = HEAD;
    for (let i = head; i < 2 * head; i++) parts[y + i] = NECK;
    if (height >= GAPPED) parts.fill(GAP, end - 2, end);
    y = end;
  }
  return parts;
}

/**
 * Fills an image as wide as a picture. Where it is higher than the picture rows are repeated.
 * @param {Pick<Grid, "h" | "nodes" | "ends" | "starts">} grid
 * @param {ImageData} image
 * @param {Uint32Array} colours as nodeColours makes them
 * @param {Uint32Array} [rows] of each line of pixels the row it shows; without, all are as high as each other
 */
export function paintGrid({ h, nodes, ends, starts }, image, colours, rows) {
  const { width, height } = image;
  const pixels = new Uint32Array(image.data.buffer);
  const mask = (colours.length >> 2) - 1;
  const shown = rows ?? Uint32Array.from({ length: height }, (_, y) => Math.floor((y * h) / height));
  const parts = partsOfRows(shown);
  for (let y = 0, at = 0; y < height; y++, at += width) {
    const row = shown[y];
    // What a line above shows already is copied.
    if (y && shown[y - 1] === row && parts[y - 1] === parts[y]) { pixels.copyWithin(at, at - width, at); continue; }
    const part = parts[y];
    if (ends) {
      for (let i = starts[row], x = 0; i < starts[row + 1]; i++) {
        const colour = colours[((nodes[i] & mask) << 2) | part];
        const end = ends[i];
        if (end - x > LONG) { pixels.fill(colour, at + x, at + end); x = end; }
        else for (; x < end; x++) pixels[at + x] = colour;
      }
    } else {
      const from = starts[row];
      for (let x = 0; x < width; x++) pixels[at + x] = colours[((nodes[from + x] & mask) << 2) | part];
    }
  }
  return image;
}

/**
 * @param {number} colour
 * @param {number} blank
 * @param {number} keep of eight parts
 */
function mixed(colour, blank, keep) {
  const mix = (/** @type {number} */ shift) => ((((colour >>> shift) & 255) * keep + ((blank >>> shift) & 255) * (8 - keep)) >> 3) << shift;
  return (0xff000000 | mix(16) | mix(8) | mix(0)) >>> 0;
}

/**
 * Part of the way to the background: a half (1), three quarters (2), seven eighths (3).
 * @param {number} colour
 * @param {number} blank
 * @param {number} steps
 */
function lighter(colour, blank, steps) { return steps ? mixed(colour, blank, 8 >> steps) : colour; }

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
