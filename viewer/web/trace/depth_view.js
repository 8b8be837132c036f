// @ts-check
// The depth view: the call path of the crosshair's line over time, outermost frame on top.

import { BLOCKED } from "../core/cct.js";
import { pixelOfColour } from "../core/colour.js";
import { context2d, drawScaled, stripePattern } from "../core/paint.js";
import { cssVariable, fittedCanvas } from "../widgets/canvas.js";

const DEEPEST = 200; // frames that are drawn

/**
 * @param {HTMLElement} element
 * @param {import("./trace.js").Shared} shared
 * @param {() => void} loaded called when another line has been drawn
 */
export function depthView(element, { store, api, context }, loaded) {
  const { canvas, dispose } = fittedCanvas(element, "One line's call path over time, outermost frame on top", load);
  /** @type {import("../core/api_types.js").Grid | null} */
  let grid = null;
  let disposed = false;

  // The line's picture, if it is of the revision that is open.
  const current = () => (grid !== null && grid.revision === api.revision ? grid : null);

  async function load() {
    const { line } = store.state;
    if (line === undefined || !context.database) return;
    try {
      grid = await api.lineOverTime(store.db, line, store.state, canvas.width);
    } catch (error) { context.fail(error); return; }
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
    const image = drawFrames(context, line);
    drawScaled(pen, image, 0, 0, width, height);
    drawWaits(pen, context.tree, line, height / image.height);
    pen.fillStyle = cssVariable("--cross");
    const { t0, t1, time, depth = 0 } = store.state;
    pen.fillRect(0, Math.round(((depth - 0.5) / image.height) * height), width, 1);
    if (time !== undefined && time >= t0 && time <= t1) pen.fillRect(Math.round(((time - t0) / (t1 - t0)) * width), 0, 1, height);
  }

  // The call path at the crosshair, outermost node first; null where there is no crosshair or no picture yet.
  function pathAtCrosshair() {
    const { t0, t1, time } = store.state;
    const line = current();
    if (!line || time === undefined) return null;
    const node = line.nodeAt(0, Math.min(line.w - 1, Math.max(0, Math.floor(((time - t0) / (t1 - t0)) * line.w))));
    return context.tree.has(node) ? context.tree.path(node) : [];
  }

  return { canvas, load, draw, pathAtCrosshair, dispose() { disposed = true; dispose(); } };
}

/**
 * A column for each moment, a row for each depth.
 * @param {import("../core/context.js").PageContext} context
 * @param {import("../core/api_types.js").Grid} line
 */
function drawFrames(context, line) {
  const { tree } = context;
  let deepest = 1;
  const nodes = line.rowNodes(0);
  for (const node of nodes) if (tree.has(node)) deepest = Math.max(deepest, tree.depth[node]);
  const image = new ImageData(line.w, Math.min(deepest, DEEPEST));
  const pixels = new Uint32Array(image.data.buffer);
  const hits = context.searchHits();
  for (let x = 0; x < line.w; x++) {
    if (!tree.has(nodes[x])) continue;
    for (let node = nodes[x]; node; node = tree.parent[node]) {
      const y = tree.depth[node] - 1;
      const procedure = tree.procedure[node];
      if (y < image.height && !(hits && !hits[procedure])) pixels[y * line.w + x] = tree.colours[procedure];
    }
  }
  return image;
}

/**
 * Stripes where the thread waits.
 * @param {CanvasRenderingContext2D} pen
 * @param {import("../core/cct.js").CallingContextTree} tree
 * @param {import("../core/api_types.js").Grid} line
 * @param {number} rowHeight
 */
function drawWaits(pen, tree, line, rowHeight) {
  const { width } = pen.canvas;
  const { w } = line;
  const nodes = line.rowNodes(0);
  pen.fillStyle = stripePattern(pen, pixelOfColour(cssVariable("--blank")));
  for (let x = 0, end = 0; x < w; x = end) {
    const node = nodes[x];
    for (end = x + 1; end < w && nodes[end] === node;) end++;
    if (!tree.has(node) || tree.marks[node] !== BLOCKED) continue;
    const [from, to] = [Math.round((x * width) / w), Math.round((end * width) / w)];
    pen.fillRect(from, 0, to - from, Math.ceil(tree.depth[node] * rowHeight));
  }
}
