// @ts-check
// The trace pane: mini map, trace view with curves, summary, depth view, statistics and call path, with one
// crosshair and one selection.

import { whenIdle } from "../widgets/canvas.js";
import { LOOP } from "../core/cct.js";
import { CRITICAL_PATH_HTML, CriticalPath } from "./critical_path.js";
import { CallMarks } from "./call_marks.js";
import { Curves } from "./curves.js";
import { depthView } from "./depth_view.js";
import { LinesOverTime, stretchAround } from "./lines_over_time.js";
import { MiniMap } from "./mini_map.js";
import { PixelCounts } from "./pixel_counts.js";
import { PinnedRows } from "./pinned_rows.js";
import { callPathList } from "./procedure_lists.js";
import { RangeStatistics, STATISTICS_HTML } from "./range_statistics.js";
import { SelectionBand } from "./selection_band.js";
import { splitter } from "../widgets/split.js";
import { CHOICE, WINDOW } from "../core/store.js";
import { summaryView } from "./summary_view.js";
import { part, textElement } from "../widgets/elements.js";
import { formatTime } from "../core/format.js";
import { WAIT_HTML, WaitCard } from "./wait_card.js";

/**
 * What the parts of the pane share. counts: pixels of the trace view, or of some of its rows, by their places; null
 * until it is drawn.
 * @typedef {PageParts & { counts: (rows?: { l0: number, l1: number }) => PixelCounts | null }} Shared
 */

const COLUMNS = 400; // of the summary

const MARGIN = 0.1; // of a stretch that is zoomed to, on either side

const HTML = `
  <section class="mini" aria-label="Whole run"><span class="name"><button id="whole" title="Show everything (Home)">whole run</button></span><div class="fill" id="mini-canvas"></div></section>
  <section class="traceview" id="lines" aria-label="Trace view"></section>
  <section class="summary" aria-label="Summary view"><div id="summary-split"></div><div class="fill" id="summary-canvas"></div></section>
  <section class="depthview" aria-label="Depth view"><div id="depth-split"></div><div class="fill" id="depth-canvas"></div></section>
  <div class="bands" id="bands"></div>
  <aside><div id="side-split"></div>${STATISTICS_HTML}${CRITICAL_PATH_HTML}${WAIT_HTML}
    <section class="path" aria-label="Call path"><h2>Call path <label id="loops-label" title="Loops are frames of call paths, as inlined calls are"><input type="checkbox" id="loops"> loops</label> <button id="code" title="Source lines or instructions of the procedure that is shown, with their costs">Source</button></h2><p id="path-at"></p><ol id="path"></ol></section></aside>`;

/**
 * @param {HTMLElement} element
 * @param {PageParts} page
 * @returns {Pane}
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
  constructor(element, { store, api, context, find }) {
    const at = (/** @type {string} */ id) => part(element, id, HTMLElement);
    addSplitters(element, at);
    this.element = element;
    this.store = store;
    this.api = api;
    this.context = context;
    this.lines = at("lines");
    this.pathAt = at("path-at");
    this.begin = () => {};
    /** @type {Promise<void>} */
    this.begun = new Promise((resolve) => { this.begin = resolve; });
    /** @type {Map<string, PixelCounts>} by rows */
    this.pixelCounts = new Map();
    /** @type {Promise<void> | null} */
    this.drawingParts = null;
    this.disposed = false;
    /** @type {Shared} */
    const shared = { store, api, context, counts: (rows) => this.counts(rows) };
    /** @type {LinesOverTime} */
    this.trace = new LinesOverTime(this.lines, {
      api, name: "trace", label: "Trace lines over time, coloured by procedure", cross: () => crosshair(store, this.trace.grid),
      source: () => context.database && { db: store.db, window: store.state, database: context.database },
      on: { drawn: () => this.drawn(), labelled: () => this.labelled(), failed: context.fail, fold: context.toggleFold, pin: (line) => context.pin(line), ...(context.summary.waits ? { partners: (/** @type {number} */ line) => context.togglePartners(line) } : {}), move: (line, above) => context.moveRow(line, above), select: (from, to) => context.selectRows(from, to), ...context.mouse,
        drag: (rectangle) => context.select(rectangle), open: (position) => this.zoomToSelected(position) },
      marks: () => this.overlay,
    });
    const redraw = () => { this.trace.draw(); this.pinned.draw(); };
    this.wait = new WaitCard(element, shared, redraw, () => this.trace.canvas.width);
    this.critical = new CriticalPath(element, shared, redraw, () => this.trace.canvas.width);
    this.marks = new CallMarks(this.lines, shared, redraw);
    const curves = textElement("div", "", "curves");
    const pinned = textElement("div", "", "traceview pinned");
    this.lines.append(curves, pinned);
    this.curves = new Curves(curves, shared);
    /** @type {PinnedRows} */
    this.pinned = new PinnedRows(pinned, shared, {
      cross: () => crosshair(store, this.pinned.picture.grid), marks: () => this.overlay, open: (position) => this.zoomToSelected(position, this.pinned.picture),
    });
    this.mini = new MiniMap(at("mini-canvas"), shared, () => find?.matches ?? []);
    this.summary = summaryView(at("summary-canvas"), shared);
    this.depth = depthView(at("depth-canvas"), shared, () => this.showPath());
    this.statistics = new RangeStatistics(element, shared, (key) => { element.dataset.exact = key; });
    this.band = new SelectionBand(at("bands"), shared, this.trace);
    this.path = callPathList(at("path"), shared);
    at("whole").addEventListener("click", () => context.showEverything());
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
    const { store, trace, pinned, mini, summary, depth, statistics, marks, critical, wait, curves, band } = this;
    return [
      store.subscribe(WINDOW, trace.load),
      store.subscribe(["db", "revision", ...CHOICE], mini.load),
      store.subscribe(["depth", "loops", "search", "theme"], () => this.draw()),
      store.subscribe(["time", "line"], () => { this.draw(); depth.load(); }),
      ...[trace, pinned, mini, summary, depth, statistics, marks, critical, wait, curves, band].map((view) => () => view.dispose()),
    ];
  }

  // What is drawn over the rows.
  get overlay() {
    const { marks, critical, wait } = this;
    return {
      waits: marks.waits,
      /** @type {CallMarks["draw"]} */
      draw: (pen, places) => { critical.draw(pen, places); marks.draw(pen, places); wait.draw(pen, places); },
      /** @type {CallMarks["describe"]} */
      describe: (spot, places) => [...critical.describe(spot, places), ...marks.describe(spot, places)],
    };
  }

  /** @param {{ l0: number, l1: number }} rows by their places */
  counts({ l0, l1 } = this.store.state) {
    const { grid } = this.trace;
    if (!grid) return null;
    const key = `${l0}-${l1}`;
    const counted = this.pixelCounts.get(key);
    if (counted) return counted;
    const rows = Array.from(grid.places.keys()).filter((row) => grid.places[row] >= l0 && grid.places[row] < l1);
    const counts = new PixelCounts(grid, this.context.tree.parent.length, Math.min(COLUMNS, grid.w), rows);
    counts.scale = (l1 - l0) / rows.length;
    this.pixelCounts.set(key, counts);
    return counts;
  }

  drawn() {
    markDrawn(this.element, this.store.state);
    this.begin();
    this.pixelCounts.clear();
    this.drawParts();
    this.statistics.load();
    this.depth.load();
    this.marks.load();
    this.critical.load();
    this.wait.load();
  }

  async labelled() {
    const { drawn: window } = this.lines.dataset;
    await this.drawingParts;
    this.showPath(); // has the label of its row
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
      this.pinned.draw();
      this.mini.draw();
      this.summary.draw();
      this.statistics.show();
      this.curves.show();
      this.band.draw();
      this.depth.draw();
      this.showPath();
    });
  }

  showPath() {
    const { line, time } = this.context.detail();
    const nodes = this.depth.pathAtCrosshair();
    if (nodes || line === undefined) this.path.show(nodes);
    if (time === undefined) { this.pathAt.textContent = ""; return; }
    const row = line === undefined || !this.trace.grid ? -1 : this.trace.grid.lines.indexOf(line);
    const where = [row < 0 ? "" : this.trace.labelOf(row), formatTime(time, this.context.summary.duration_ns)].filter(Boolean).join(", ");
    this.pathAt.textContent = this.store.state.time === undefined ? `most spent: ${where}` : where;
  }

  // Where most is spent is known now.
  detailed() { this.depth.load(); }

  // Other matches of the search, or another of them.
  matched() { this.mini.draw(); }

  /**
   * Zooms to the selected range, or to the stretch in one procedure at a position, without one at the crosshair.
   * @param {Position} [position]
   * @param {LinesOverTime} [picture] that the position is in
   */
  zoomToSelected(position, picture = this.trace) {
    const { context } = this;
    const { grid } = picture;
    const window = context.selection();
    const { t0, t1 } = this.store.state;
    const time = position && t0 + position.x * (t1 - t0);
    if (window && (time === undefined || (time >= window.t0 && time < window.t1))) { context.zoomToSelection(); return; }
    const cross = position ?? crosshair(this.store, grid);
    if (!grid || cross.x === null || cross.y === null || cross.x < 0 || cross.x > 1) return;
    const { shown } = context.opened.picture();
    const nodes = grid.rowNodes(picture.layout.rowOf(cross.y));
    const [from, to] = stretchAround(Array.from(nodes, (node) => (context.tree.has(node) ? shown[node] : -1)), Math.min(grid.w - 1, Math.floor(cross.x * grid.w)));
    const margin = MARGIN * (to - from);
    context.zoomToRectangle({ x0: (from - margin) / grid.w, x1: (to + margin) / grid.w, y0: null, y1: null });
  }

  // Those of the crosshair's process.
  selectRows() { this.trace.selectRows(this.store.state.line ?? -1); }

  // A pinned row among those that are.
  /** @param {number} step */
  moveRow(step) {
    const isPinned = this.context.pinned().includes(this.store.state.line ?? -1);
    (isPinned ? this.pinned.picture : this.trace).stepRow(step);
  }

  canvases() { return [...(this.context.pinned().length ? [this.pinned.picture.canvas] : []), this.trace.canvas, this.summary.canvas, this.depth.canvas]; }

  csv() { return this.trace.csv(); }

  /** @param {"png" | "svg"} format */
  rendered(format) {
    const { store, api } = this;
    const dark = document.documentElement.classList.contains("dark") ? "1" : undefined;
    return api.rendered(store.db, store.state, format, { w: 1600, h: 900, depth: store.state.depth ?? 0, patterns: store.state.colours, dark, critical: this.critical.shown ? "1" : undefined });
  }

  dispose() {
    this.disposed = true;
    this.ends.forEach((end) => end());
  }
}

/**
 * Says which window is drawn, and when the first picture was: for tests and measurements of speed.
 * @param {HTMLElement} element
 * @param {State} state
 */
function markDrawn(element, { t0, t1, l0, l1 }) {
  element.dataset.picture = `${t0}-${t1}-${l0}-${l1}`;
  element.dataset.firstMs ??= performance.now().toFixed();
}

/**
 * @param {Store} store
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
 * @param {Store} store
 * @param {Grid | null} grid
 */
function crosshair({ state: { t0, t1, time, line } }, grid) {
  if (time === undefined || !grid) return { x: null, y: null };
  const row = line === undefined ? -1 : grid.lines.indexOf(line);
  return { x: (time - t0) / (t1 - t0), y: row < 0 ? null : (row + 0.5) / grid.h };
}
