// @ts-check
// The depth view: the call path of the crosshair's line over time, outermost frame on top.

import { bareName, RUNNING } from "../core/cct.js";
import { cssOfPixel, isDarkPixel } from "../core/colour.js";
import { context2d, paler } from "../core/paint.js";
import { cssVariable, fittedCanvas, themeGrounds } from "../widgets/canvas.js";
import { MARGIN, TextFitter } from "./segment_texts.js";

const DEEPEST = 200; // frames that are drawn
const HIGHEST = 20; // px of a frame
const TEXT = 12; // px of a frame that has room for a line of text

/**
 * @param {HTMLElement} element
 * @param {Shared} shared
 * @param {() => void} loaded called when another line has been drawn
 */
export function depthView(element, { store, api, context }, loaded) {
  const { canvas, dispose } = fittedCanvas(element, "One line's call path over time, outermost frame on top", load);
  /** @type {Grid | null} */
  let grid = null;
  let disposed = false;
  let requested = "";

  // The line's picture, if it is of the revision that is open.
  const current = () => (grid !== null && grid.revision === api.revision ? grid : null);

  async function load() {
    const { line } = context.detail();
    if (line === undefined || !context.database) return;
    const key = JSON.stringify([line, canvas.width, store.key()]);
    if (key === requested) return;
    requested = key;
    try {
      grid = await api.lineOverTime(store.db, line, store.state, canvas.width);
    } catch (error) { requested = ""; context.fail(error); return; }
    if (disposed) return;
    draw();
    loaded();
  }

  function draw() {
    const line = current();
    if (!line) return;
    const { width, height } = canvas;
    const pen = context2d(canvas);
    pen.fillStyle = cssVariable("--blank");
    pen.fillRect(0, 0, width, height);
    const frame = drawFrames(pen, context, line);
    pen.fillStyle = cssVariable("--cross");
    const { t0, t1, time, depth = 0 } = store.state;
    if (depth) pen.fillRect(0, Math.round((depth - 0.5) * frame), width, 1);
    if (time !== undefined && time >= t0 && time <= t1) pen.fillRect(Math.round(((time - t0) / (t1 - t0)) * width), 0, 1, height);
  }

  // The call path at the crosshair, outermost node first; null where there is no crosshair or no picture yet.
  function pathAtCrosshair() {
    const { t0, t1 } = store.state;
    const { time } = context.detail();
    const line = current();
    if (!line || time === undefined) return null;
    const node = line.nodeAt(0, Math.min(line.w - 1, Math.max(0, Math.floor(((time - t0) / (t1 - t0)) * line.w))));
    return context.tree.has(node) ? context.tree.path(node) : [];
  }

  return { canvas, load, draw, pathAtCrosshair, dispose() { disposed = true; dispose(); } };
}

/**
 * A row for each depth, a box for each stretch of one frame, pale where the thread does not run. Returns how
 * high a row is, in canvas pixels.
 * @param {CanvasRenderingContext2D} pen
 * @param {PageContext} context
 * @param {Grid} line
 */
function drawFrames(pen, context, line) {
  const { tree } = context;
  const { width, height } = pen.canvas;
  const nodes = line.rowNodes(0);
  let deepest = 1;
  for (const node of nodes) if (tree.has(node)) deepest = Math.max(deepest, tree.depth[tree.stands[node]]);
  const rows = Math.min(deepest, DEEPEST);
  const frame = Math.min(height / rows, HIGHEST * (devicePixelRatio || 1));
  const box = boxPainter(pen, context, frame, width / line.w);
  // Of each depth the box that goes on.
  const open = Array.from({ length: rows + 1 }, () => ({ node: 0, runs: true, from: 0 }));
  const path = new Uint32Array(rows + 1);
  for (let x = 0; x <= line.w; x++) {
    if (x && x < line.w && nodes[x] === nodes[x - 1]) continue;
    const here = x < line.w && tree.has(nodes[x]) ? nodes[x] : 0;
    const runs = (tree.state[here] & 3) === RUNNING;
    framesAt(tree, here, path);
    for (let depth = 1; depth <= rows; depth++) {
      const now = open[depth];
      if (now.node === path[depth] && now.runs === runs) continue;
      if (now.node) box(now.node, now.runs, now.from, x);
      open[depth] = { node: path[depth], runs, from: x };
    }
  }
  return frame;
}

/**
 * The node of each depth of a call path, 0 where there is none.
 * @param {CallingContextTree} tree
 * @param {number} node
 * @param {Uint32Array} path is filled
 */
function framesAt(tree, node, path) {
  path.fill(0);
  for (let at = tree.stands[node]; at; at = tree.parent[at]) {
    if (!tree.hidden[at] && tree.depth[at] < path.length) path[tree.depth[at]] = at;
  }
}

/**
 * Returns what draws a frame from one column to another.
 * @param {CanvasRenderingContext2D} pen
 * @param {PageContext} context
 * @param {number} frame how high it is
 * @param {number} column how wide one is
 */
function boxPainter(pen, context, frame, column) {
  const { tree } = context;
  const { colours } = context.opened.picture();
  const ratio = devicePixelRatio || 1;
  const hits = context.opened.searchHits();
  const { blank } = themeGrounds();
  const fitter = new TextFitter(pen, ratio);
  const gap = frame > 4 ? 1 : 0;
  return (/** @type {number} */ node, /** @type {boolean} */ runs, /** @type {number} */ from, /** @type {number} */ to) => {
    const procedure = tree.procedure[node];
    if (hits && !hits[procedure]) return;
    const fill = runs ? colours[procedure] : paler(colours[procedure], blank);
    const [x, y, wide] = [from * column, (tree.depth[node] - 1) * frame, (to - from) * column];
    pen.fillStyle = cssOfPixel(fill);
    pen.fillRect(x, y, Math.max(1, wide - (wide > 3 ? gap : 0)), frame - gap);
    const text = frame >= TEXT * ratio ? fitter.fitted(bareName(tree.shortOf(node)), wide) : "";
    if (!text) return;
    pen.fillStyle = isDarkPixel(fill) ? "#fff" : "#000";
    pen.fillText(text, x + MARGIN * ratio, y + frame / 2);
  };
}
