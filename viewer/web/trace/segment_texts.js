// @ts-check
// Texts in the segments of trace lines that have room: the procedure where the thread runs or could, why it
// does not run elsewhere.

import { bareName, RUNNABLE, RUNNING, WAITING } from "../core/cct.js";
import { isDarkPixel } from "../core/colour.js";
import { paler } from "../core/paint.js";
import { cssVariable, themeGrounds } from "../widgets/canvas.js";

const FONT_PX = 11;
const LOWEST = 15; // px: rows below have no room for a line of text
export const MARGIN = 5; // px on either side
const SHORTEST = 4; // letters and an ellipsis are worth showing
const MOST = 3000; // texts of a picture

/**
 * What a state is called.
 * @param {number} state of a node: RUNNING and so on in the lowest two bits, the cause above
 * @param {string[]} causes
 */
export function stateWords(state, causes) {
  const kind = state & 3;
  const cause = causes[state >> 2] ?? "";
  if (kind === RUNNING) return "";
  if (kind === RUNNABLE) return "ready, without a CPU";
  return kind === WAITING ? `waits ${cause}` : cause.startsWith("for ") ? `waits ${cause}` : cause;
}

/** The waits for other ranks that are known in a window of time. */
export class KnownWaits {
  /**
   * @param {WaitMark[]} waits
   * @param {Pick<import("../core/store.js").Window, "t0" | "t1">} window
   */
  constructor(waits, { t0, t1 }) {
    this.t0 = t0;
    this.length = t1 - t0;
    /** @type {Map<number, WaitMark[]>} by line */
    this.byLine = new Map();
    for (const wait of waits) this.byLine.set(wait.line, [...(this.byLine.get(wait.line) ?? []), wait]);
  }

  /**
   * The rank that the middle of a stretch is waited for.
   * @param {number} line
   * @param {number} from share of the window
   * @param {number} to
   */
  rankAt(line, from, to) {
    const time = this.t0 + ((from + to) / 2) * this.length;
    return this.byLine.get(line)?.find(({ begin, end }) => begin <= time && time <= end)?.rank;
  }
}

/**
 * Writes texts no wider than their room, shortened where most of one fits.
 */
export class TextFitter {
  /**
   * @param {CanvasRenderingContext2D} pen
   * @param {number} ratio canvas pixels of one of the screen
   */
  constructor(pen, ratio) {
    this.pen = pen;
    this.ratio = ratio;
    pen.font = `${FONT_PX * ratio}px system-ui, sans-serif`;
    pen.textBaseline = "middle";
    /** @type {Map<string, number>} */
    this.widths = new Map();
  }

  /** @param {string} text */
  width(text) {
    let width = this.widths.get(text);
    if (width === undefined) this.widths.set(text, width = this.pen.measureText(text).width);
    return width;
  }

  /**
   * What of a text fits, or nothing.
   * @param {string} text
   * @param {number} room canvas pixels
   * @param {boolean} [whole] or nothing
   */
  fitted(text, room, whole = false) {
    const free = room - 2 * MARGIN * this.ratio;
    const width = this.width(text);
    if (width <= free) return text;
    if (whole) return "";
    const letters = Math.floor((text.length * free) / width) - 1;
    return letters >= SHORTEST ? `${text.slice(0, letters)}…` : "";
  }
}

/**
 * @param {CanvasRenderingContext2D} pen
 * @param {Grid} grid
 * @param {RowLayout} layout
 * @param {OpenDatabase} database
 * @param {KnownWaits} waits
 */
export function drawSegmentTexts(pen, grid, layout, database, waits) {
  const { width, height } = pen.canvas;
  const ratio = devicePixelRatio || 1;
  const { tree } = database;
  const { shown } = database.picture();
  const lit = database.lit();
  const look = textLook(database);
  const fitter = new TextFitter(pen, ratio);
  const column = width / grid.w;
  let left = MOST;
  for (let row = 0; row < grid.h; row++) {
    const [top, bottom] = [layout.edges[row] * height, layout.edges[row + 1] * height];
    if (bottom - top < LOWEST * ratio) continue;
    for (const { node, from, to } of segments(grid, row, tree, shown)) {
      if (left <= 0) return;
      if (lit && !lit[node]) continue;
      const { name, colour, cause } = look(node);
      const late = cause ? waits.rankAt(grid.lines[row], from / grid.w, to / grid.w) : undefined;
      const words = late === undefined ? name : `waits for rank ${late}`;
      const room = (to - from) * column;
      const text = fitter.fitted(words, room, cause) || (cause ? fitter.fitted(words.replace(/^waits /, ""), room, true) : "");
      if (!text) continue;
      pen.fillStyle = colour;
      pen.fillText(text, from * column + MARGIN * ratio, (top + bottom) / 2);
      left--;
    }
  }
}

/**
 * Returns the function that gives the text of a node's segments, and its colour.
 * @param {OpenDatabase} database
 */
function textLook({ tree, summary: { causes = [] }, picture }) {
  const { shown, colours } = picture();
  const soft = cssVariable("--soft");
  const { blank } = themeGrounds();
  return (/** @type {number} */ node) => {
    const kind = tree.state[node] & 3;
    if (kind !== RUNNING && kind !== RUNNABLE) return { name: stateWords(tree.state[node], causes), colour: soft, cause: true };
    const own = colours[shown[node]];
    const dark = isDarkPixel(kind === RUNNABLE ? paler(own, blank) : own);
    return { name: bareName(tree.short[shown[node]]), colour: dark ? "#fff" : "#000", cause: false };
  };
}

/**
 * The stretches of a row that look alike.
 * @param {Grid} grid
 * @param {number} row
 * @param {CallingContextTree} tree
 * @param {Uint32Array} shown
 */
function* segments({ w, nodes, ends, starts }, row, tree, shown) {
  let node = -1;
  let from = 0;
  const alike = (/** @type {number} */ one, /** @type {number} */ other) => (
    one === other || (shown[one] === shown[other] && tree.state[one] === tree.state[other]));
  for (let i = starts[row], x = 0; i < starts[row + 1]; i++) {
    const end = ends ? ends[i] : x + 1;
    const here = tree.has(nodes[i]) ? nodes[i] : -1;
    if (here !== node && (here < 0 || node < 0 || !alike(here, node))) {
      if (node >= 0) yield { node, from, to: x };
      [node, from] = [here, x];
    }
    x = end;
  }
  if (node >= 0) yield { node, from, to: w };
}
