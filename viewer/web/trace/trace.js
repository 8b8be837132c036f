// @ts-check
// The trace pane: trace view, depth view, summary, mini map and call path, with one crosshair.

import { whenIdle } from "../widgets/canvas.js";
import { CallMarks } from "./call_marks.js";
import { depthView } from "./depth_view.js";
import { LinesOverTime } from "./lines_over_time.js";
import { miniMap } from "./mini_map.js";
import { PixelCounts } from "./pixel_counts.js";
import { callPathList, procedureShares } from "./procedure_lists.js";
import { splitter } from "../widgets/split.js";
import { CHOICE, WINDOW } from "../core/store.js";
import { summaryView } from "./summary_view.js";
import { part } from "../widgets/elements.js";

/**
 * @typedef {import("../core/pane_types.js").PageParts} PageParts
 *
 * What the parts of the pane share. counts: pixels of the trace view; null until it is drawn.
 * @typedef {PageParts & { counts: () => PixelCounts | null }} Shared
 */

const COLUMNS = 400; // of the summary

const HTML = `
  <section class="traceview" id="lines" aria-label="Trace view"></section>
  <aside><div id="side-split"></div><section class="mini" aria-label="Mini map"><div class="fill" id="mini-canvas"></div></section>
    <section class="path" aria-label="Call path"><h2>Call path <button id="code" title="Source lines or instructions of the frame at the depth, with their costs">Source</button></h2><ol id="path"></ol></section>
    <section class="shares" aria-label="Procedures in view"><h2>In view <small id="shares-note"></small></h2><ol id="shares"></ol></section></aside>
  <section class="summary" aria-label="Summary view"><div id="summary-split"></div><div class="fill" id="summary-canvas"></div></section>
  <section class="depthview" aria-label="Depth view"><div id="depth-split"></div><div class="fill" id="depth-canvas"></div></section>`;

/**
 * @param {HTMLElement} element
 * @param {PageParts} page
 * @returns {import("../core/pane_types.js").Pane}
 */
export function mountTrace(element, { store, api, context }) {
  element.innerHTML = HTML;
  const at = (/** @type {string} */ id) => part(element, id, HTMLElement);
  addSplitters(element, at);
  /** @type {PixelCounts | null} */
  let pixelCounts = null;
  /** @type {Promise<void> | null} */
  let drawingParts = null;
  let disposed = false;
  const { begun, begin } = beginning();
  const counts = () => (trace.grid
    ? (pixelCounts ??= new PixelCounts(trace.grid, context.tree.parent.length, Math.min(COLUMNS, trace.grid.w))) : null);
  const shared = { store, api, context, counts };
  /** @type {LinesOverTime} */
  const trace = new LinesOverTime(at("lines"), {
    api, name: "trace", label: "Trace lines over time, coloured by procedure", cross: () => crosshair(store, trace.grid),
    source: () => context.database && { db: store.db, window: store.state, database: context.database },
    on: { drawn, labelled, failed: context.fail, fold: context.toggleFold, ...context.mouse }, marks: () => marks,
  });
  const marks = new CallMarks({ store, api, context }, at("lines"), () => trace.draw());
  const mini = miniMap(at("mini-canvas"), shared);
  const summary = summaryView(at("summary-canvas"), shared);
  const depth = depthView(at("depth-canvas"), shared, showPath);
  const shares = procedureShares(at("shares"), at("shares-note"), shared, (key) => { element.dataset.exact = key; });
  const path = callPathList(at("path"), shared);

  function drawn() {
    markDrawn(element, store.state);
    begin();
    pixelCounts = null;
    drawParts();
    shares.loadExact();
    depth.load();
    marks.load();
  }

  async function labelled() {
    const { drawn: window } = at("lines").dataset;
    await drawingParts;
    element.dataset.drawn = window;
  }

  function draw() {
    trace.draw();
    element.dataset.depth = String(store.state.depth);
    drawParts();
  }

  // The other parts are drawn once the trace view can be seen, and nobody waits for it.
  function drawParts() {
    drawingParts ??= whenIdle().then(() => {
      drawingParts = null;
      if (disposed || !trace.grid) return;
      mini.draw();
      summary.draw();
      shares.show();
      depth.draw();
      showPath();
    });
  }

  function showPath() {
    const nodes = depth.pathAtCrosshair();
    if (nodes || store.state.line === undefined) path.show(nodes);
  }

  at("code").addEventListener("click", () => showSource(store, path.procedureAtDepth()));
  const ends = [
    store.subscribe(WINDOW, trace.load),
    store.subscribe(["db", "revision", ...CHOICE], mini.load),
    store.subscribe(["depth", "search", "theme"], draw),
    store.subscribe(["time", "line"], () => { draw(); depth.load(); }),
    () => trace.dispose(), mini.dispose, summary.dispose, depth.dispose, shares.dispose, () => marks.dispose(),
  ];
  [trace, mini].forEach((view) => view.load()); // in this order: the server draws one after the other
  return {
    begun, canvases: () => [trace.canvas, summary.canvas, depth.canvas], csv: () => trace.csv(),
    dispose() { disposed = true; ends.forEach((end) => end()); },
  };
}

// A promise, and what keeps it.
function beginning() {
  let begin = () => {};
  /** @type {Promise<void>} */
  const begun = new Promise((resolve) => { begin = resolve; });
  return { begun, begin };
}

/**
 * Says which window is drawn, and when the first picture was: for tests and measurements of speed.
 * @param {HTMLElement} element
 * @param {import("../core/store.js").State} state
 */
function markDrawn(element, { t0, t1, l0, l1 }) {
  element.dataset.picture = `${t0}-${t1}-${l0}-${l1}`;
  element.dataset.firstMs ??= performance.now().toFixed();
}

/**
 * @param {import("../core/store.js").Store} store
 * @param {string | undefined} about name of a procedure; undefined: the one chosen before
 */
function showSource(store, about) {
  store.set({ ...(about === undefined ? {} : { about, spot: undefined }), pane: "source" });
}

/**
 * @param {HTMLElement} element
 * @param {(id: string) => HTMLElement} at
 */
function addSplitters(element, at) {
  splitter(element, at("side-split"), { name: "--side", label: "Width of the side", across: true, least: 160, most: 800, usual: 300 });
  splitter(element, at("summary-split"), { name: "--summary", label: "Height of the summary view", across: false, least: 30, most: 500, usual: 90 });
  splitter(element, at("depth-split"), { name: "--depth", label: "Height of the depth view", across: false, least: 30, most: 600, usual: 150 });
}

/**
 * Where the crosshair is in the trace view, as shares of it; y null where its line is not shown.
 * @param {import("../core/store.js").Store} store
 * @param {import("../core/api_types.js").Grid | null} grid
 */
function crosshair({ state: { t0, t1, time, line } }, grid) {
  if (time === undefined || !grid) return { x: null, y: null };
  const row = line === undefined ? -1 : grid.lines.indexOf(line);
  return { x: (time - t0) / (t1 - t0), y: row < 0 ? null : (row + 0.5) / grid.h };
}
