// @ts-check
// The trace pane: trace view, depth view, summary, mini map and call path, with one crosshair.

import { whenIdle } from "../widgets/canvas.js";
import { LOOP } from "../core/cct.js";
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
    <section class="path" aria-label="Call path"><h2>Call path <button id="code" title="Source lines or instructions of the procedure that is shown, with their costs">Source</button> <label id="loops-label" title="Loops are frames of call paths, as inlined calls are"><input type="checkbox" id="loops"> loops</label></h2><ol id="path"></ol></section>
    <section class="shares" aria-label="Procedures in view"><h2>In view <small id="shares-note"></small></h2><ol id="shares"></ol></section></aside>
  <section class="summary" aria-label="Summary view"><div id="summary-split"></div><div class="fill" id="summary-canvas"></div></section>
  <section class="depthview" aria-label="Depth view"><div id="depth-split"></div><div class="fill" id="depth-canvas"></div></section>`;

/**
 * @param {HTMLElement} element
 * @param {PageParts} page
 * @returns {import("../core/pane_types.js").Pane}
 */
export function mountTrace(element, page) {
  element.innerHTML = HTML;
  return new TracePane(element, page);
}

/** The views of the pane, drawn together. */
class TracePane {
  /**
   * @param {HTMLElement} element
   * @param {PageParts} page
   */
  constructor(element, { store, api, context }) {
    const at = (/** @type {string} */ id) => part(element, id, HTMLElement);
    addSplitters(element, at);
    this.element = element;
    this.store = store;
    this.api = api;
    this.lines = at("lines");
    this.begin = () => {};
    /** @type {Promise<void>} */
    this.begun = new Promise((resolve) => { this.begin = resolve; });
    /** @type {PixelCounts | null} */
    this.pixelCounts = null;
    /** @type {Promise<void> | null} */
    this.drawingParts = null;
    this.disposed = false;
    const shared = { store, api, context, counts: () => this.counts(context.tree.parent.length) };
    /** @type {LinesOverTime} */
    this.trace = new LinesOverTime(this.lines, {
      api, name: "trace", label: "Trace lines over time, coloured by procedure", cross: () => crosshair(store, this.trace.grid),
      source: () => context.database && { db: store.db, window: store.state, database: context.database },
      on: { drawn: () => this.drawn(), labelled: () => this.labelled(), failed: context.fail, fold: context.toggleFold, ...context.mouse },
      marks: () => this.marks,
    });
    this.marks = new CallMarks({ store, api, context }, this.lines, () => this.trace.draw());
    this.mini = miniMap(at("mini-canvas"), shared);
    this.summary = summaryView(at("summary-canvas"), shared);
    this.depth = depthView(at("depth-canvas"), shared, () => this.showPath());
    this.shares = procedureShares(at("shares"), at("shares-note"), shared, (key) => { element.dataset.exact = key; });
    this.path = callPathList(at("path"), shared);
    at("code").addEventListener("click", () => showSource(store, this.path.procedureAtDepth()));
    const loops = part(element, "loops", HTMLInputElement);
    at("loops-label").hidden = !Array.from(context.summary.kinds).includes(LOOP);
    loops.checked = Boolean(store.state.loops);
    loops.addEventListener("change", () => store.set({ loops: loops.checked ? "1" : undefined }));
    this.ends = this.follow();
    // In this order: the server draws one after the other.
    this.trace.load();
    this.mini.load();
  }

  /** Draws again what changes of the store concern; returns what ends that and the views. */
  follow() {
    const { store, trace, mini, summary, depth, shares, marks } = this;
    return [
      store.subscribe(WINDOW, trace.load),
      store.subscribe(["db", "revision", ...CHOICE], mini.load),
      store.subscribe(["depth", "loops", "search", "theme"], () => this.draw()),
      store.subscribe(["time", "line"], () => { this.draw(); depth.load(); }),
      () => trace.dispose(), mini.dispose, summary.dispose, depth.dispose, shares.dispose, () => marks.dispose(),
    ];
  }

  /** @param {number} nodes of the tree */
  counts(nodes) {
    const { grid } = this.trace;
    return grid ? (this.pixelCounts ??= new PixelCounts(grid, nodes, Math.min(COLUMNS, grid.w))) : null;
  }

  drawn() {
    markDrawn(this.element, this.store.state);
    this.begin();
    this.pixelCounts = null;
    this.drawParts();
    this.shares.loadExact();
    this.depth.load();
    this.marks.load();
  }

  async labelled() {
    const { drawn: window } = this.lines.dataset;
    await this.drawingParts;
    this.element.dataset.drawn = window;
  }

  draw() {
    this.trace.draw();
    this.element.dataset.depth = String(this.store.state.depth ?? 0);
    this.drawParts();
  }

  /** The other parts are drawn once the trace view can be seen, and nothing waits for it. */
  drawParts() {
    this.drawingParts ??= whenIdle().then(() => {
      this.drawingParts = null;
      if (this.disposed || !this.trace.grid) return;
      this.mini.draw();
      this.summary.draw();
      this.shares.show();
      this.depth.draw();
      this.showPath();
    });
  }

  showPath() {
    const nodes = this.depth.pathAtCrosshair();
    if (nodes || this.store.state.line === undefined) this.path.show(nodes);
  }

  canvases() { return [this.trace.canvas, this.summary.canvas, this.depth.canvas]; }

  csv() { return this.trace.csv(); }

  /** @param {"png" | "svg"} format */
  rendered(format) {
    const { store, api } = this;
    const dark = document.documentElement.classList.contains("dark") ? "1" : undefined;
    return api.rendered(store.db, store.state, format, { w: 1600, h: 900, depth: store.state.depth ?? 0, patterns: store.state.colours, dark });
  }

  dispose() {
    this.disposed = true;
    this.ends.forEach((end) => end());
  }
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
