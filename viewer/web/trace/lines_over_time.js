// @ts-check
// Trace lines over time as one picture with labels, axis, crosshair and what is under the mouse.
// Knows nothing of other views: where it was dragged and clicked it says in shares of itself.

import { WAITING } from "../core/cct.js";
import { isAbort } from "../core/failure.js";
import { formatCount, formatTime } from "../core/format.js";
import { context2d, drawScaled, hatchPattern, nodeColours, paintGrid } from "../core/paint.js";
import { cssVariable, fittedCanvas, relativePosition, themeGrounds } from "../widgets/canvas.js";
import { placeTip, select } from "../widgets/elements.js";
import { drawLineLabels, loadLineLabels } from "./line_labels.js";
import { drawSegmentTexts, KnownWaits, stateWords } from "./segment_texts.js";
import { drawTimeAxis } from "./time_axis.js";
import { addRowDragging } from "./row_dragging.js";
import { RowLayout } from "./row_layout.js";
import { addTraceMouse, spotOf } from "./trace_mouse.js";

/**
 * @typedef {{ db: string, window: RowWindow, database: OpenDatabase }} Source what the picture is of
 *
 * @typedef {object} PictureEvents
 * @property {() => void} [drawn]
 * @property {() => void} [labelled] after drawn
 * @property {(error: unknown) => void} failed
 *
 * @typedef {object} PictureOptions
 * @property {Api} api
 * @property {string} name begins the ids of its parts
 * @property {string} label for those who do not see it
 * @property {() => Source | null} source null as long as there is nothing to show
 * @property {() => { x: number | null, y: number | null }} cross where the crosshair is; y null where its line is not seen
 * @property {PictureEvents & import("./line_labels.js").LabelActs & import("./trace_mouse.js").TraceActs} on
 * @property {() => Pick<import("./call_marks.js").CallMarks, "draw" | "describe" | "waits"> | null} [marks] what is drawn over the lines
 */

export class LinesOverTime {
  /**
   * @param {HTMLElement} element
   * @param {PictureOptions} options
   */
  constructor(element, { api, name, label, source, cross, on, marks = () => null }) {
    element.innerHTML = `<div class="fill" id="${name}-canvas"></div><div class="labels" id="${name}-labels"></div><div class="axis" id="${name}-axis"></div>
    <div class="tip" hidden></div><div class="rubber" hidden></div>`;
    this.element = element;
    this.api = api;
    this.source = source;
    this.cross = cross;
    this.on = on;
    this.marks = marks;
    this.fill = select(element, ".fill", HTMLElement);
    this.names = select(element, ".labels", HTMLElement);
    this.axis = select(element, ".axis", HTMLElement);
    this.tip = select(element, ".tip", HTMLElement);
    /** @type {Grid | null} */
    this.loaded = null;
    this.layout = new RowLayout([0]);
    /** @type {ImageData | null} */
    this.image = null;
    /** @type {Map<number, import("./line_labels.js").LineLabel>} by place */
    this.labels = new Map();
    /** @type {AbortController | null} of the request on its way */
    this.request = null;
    this.named = -1; // the row whose label was requested
    /** @type {MouseEvent | null} */
    this.hovered = null;
    this.disposed = false;
    // Handed to the store without the object.
    this.load = this.load.bind(this);
    const { canvas, fit, dispose } = fittedCanvas(this.fill, label, this.load);
    this.canvas = canvas;
    this.fit = fit;
    fit();
    this.disposeCanvas = dispose;
    addTraceMouse({ canvas, fill: this.fill, axis: this.axis, rubber: select(element, ".rubber", HTMLElement), grid: () => this.grid, layout: () => this.layout, cross, on });
    if (on.move) addRowDragging(this.names, () => this.layout, (line, edge) => this.moveRow(line, edge), (line) => this.selectRows(line));
    canvas.addEventListener("pointermove", (event) => this.hover(event));
    canvas.addEventListener("pointerleave", () => { this.tip.hidden = true; this.hovered = null; });
  }

  dispose() {
    this.disposed = true;
    this.request?.abort();
    this.disposeCanvas();
  }

  // The picture, if it is of the revision that is open; where it is not, another is on its way.
  get grid() { return this.loaded !== null && this.loaded.revision === this.api.revision ? this.loaded : null; }

  async load() {
    const source = this.source();
    if (!source) return;
    const { db, window } = source;
    if (!(window.t1 > window.t0) || !(window.l1 > window.l0)) return;
    this.request?.abort();
    const request = this.request = new AbortController();
    this.fit(); // views that share its space may have been added since
    let grid;
    try {
      grid = await this.api.picture(db, window, this.canvas.height, this.canvas.width, request.signal);
    } catch (error) {
      if (!isAbort(error)) this.on.failed(error);
      return;
    }
    if (request.signal.aborted) return;
    this.loaded = grid;
    this.layout = new RowLayout(grid.folded, this.fill.clientHeight);
    if (this.disposed) return;
    this.draw();
    this.on.drawn?.();
    let labels;
    try {
      labels = await loadLineLabels(this.api, db, window, grid.places);
    } catch (error) {
      if (!request.signal.aborted) this.on.failed(error);
      return;
    }
    // Requests for labels are not aborted: an older window's may be answered after a newer one's.
    if (this.disposed || request.signal.aborted) return;
    this.labels = labels;
    drawLineLabels(this.names, this.loaded.places, this.labels, this.layout, this.fill.clientHeight, this.on, Boolean(window.unfolded));
    // Gaps between groups and dropped samples are found by the labels.
    if (window.group || source.database.summary.losses.length) this.draw();
    this.element.dataset.drawn = `${window.t0}-${window.t1}-${window.l0}-${window.l1}`;
    this.on.labelled?.();
  }

  draw() {
    const { grid, canvas } = this;
    const source = this.source();
    if (!grid || !source) return;
    const { database, window } = source;
    const pen = context2d(canvas);
    if (this.image?.width !== grid.w || this.image.height !== canvas.height) this.image = new ImageData(grid.w, canvas.height);
    const colours = nodeColours(database.tree, database.picture(), themeGrounds(), database.lit());
    paintGrid(grid, this.image, colours, this.layout.rowsOfPixels(canvas.height));
    if (grid.w === canvas.width) pen.putImageData(this.image, 0, 0);
    else drawScaled(pen, this.image, 0, 0, canvas.width, canvas.height);
    drawSegmentTexts(pen, grid, this.layout, database, new KnownWaits(this.marks()?.waits ?? [], window));
    if (window.group) this.drawGroups(pen, grid);
    this.drawLosses(pen, grid, source);
    this.marks()?.draw(pen, this.places(grid, window));
    this.drawCrosshair(pen);
    drawTimeAxis(this.axis, window);
  }

  /**
   * A gap between groups, where rows are high enough to spare it.
   * @param {CanvasRenderingContext2D} pen
   * @param {Grid} grid
   */
  drawGroups(pen, grid) {
    const { canvas, labels, layout } = this;
    if (canvas.height / grid.h < 3) return;
    pen.fillStyle = cssVariable("--text");
    for (let row = 1; row < grid.h; row++) {
      const [above, here] = [labels.get(grid.places[row - 1]), labels.get(grid.places[row])];
      if (above && here && above.group !== here.group) pen.fillRect(0, Math.round(layout.edges[row] * canvas.height) - 1, canvas.width, 2);
    }
  }

  /**
   * Hatched where samples were dropped, on the lines of whose recording they were.
   * @param {CanvasRenderingContext2D} pen
   * @param {Grid} grid
   * @param {Source} source
   */
  drawLosses(pen, grid, { database, window: { t0, t1 } }) {
    const losses = database.summary.losses.filter(([, from, to]) => from < t1 && to >= t0);
    this.element.dataset.losses = String(losses.length);
    if (!losses.length) return;
    let hatched = 0;
    const { width, height } = this.canvas;
    pen.fillStyle = hatchPattern(pen);
    const { edges } = this.layout;
    for (let row = 0; row < grid.h; row++) {
      const recording = this.labels.get(grid.places[row])?.measurement;
      for (const [measurement, from, to] of losses) {
        if (measurement !== recording) continue;
        const x = ((from - t0) / (t1 - t0)) * width;
        const [top, bottom] = [Math.round(edges[row] * height), Math.round(edges[row + 1] * height)];
        pen.fillRect(x, top, Math.max(2, ((to - from) / (t1 - t0)) * width), bottom - top);
        hatched++;
      }
    }
    this.element.dataset.hatched = String(hatched);
  }

  /**
   * Where lines and moments are.
   * @param {Grid} grid
   * @param {RowWindow} window
   * @returns {Places}
   */
  places(grid, { t0, t1, l0, l1, rows: only }) {
    const { width, height } = this.canvas;
    const { edges } = this.layout;
    const band = (/** @type {number} */ row) => {
      const [top, bottom] = [edges[row] * height, edges[row + 1] * height];
      return { top, bottom, middle: (top + bottom) / 2 };
    };
    const rows = new Map(Array.from(grid.lines, (line, row) => /** @type {[number, number]} */ ([line, row])));
    return {
      x: (time) => ((time - t0) / (t1 - t0)) * width,
      row: (line) => {
        const row = rows.get(line);
        return row === undefined ? null : band(row);
      },
      near: (place) => {
        if (only) return null;
        const edge = place < l0 ? 0 : height;
        if (place < l0 || place >= l1) return { top: edge, bottom: edge, middle: edge };
        const after = grid.places.findIndex((one) => one > place);
        return band(Math.max(0, (after < 0 ? grid.h : after) - 1));
      },
    };
  }

  /** @param {CanvasRenderingContext2D} pen */
  drawCrosshair(pen) {
    const { x, y } = this.cross();
    const { edges } = this.layout;
    const { width, height } = this.canvas;
    pen.fillStyle = cssVariable("--cross");
    if (x !== null && x >= 0 && x <= 1) pen.fillRect(Math.round(x * width), 0, 1, height);
    // Through the middle of the line.
    if (y === null) return;
    const row = this.layout.rowOf(y);
    pen.fillRect(0, Math.round(((edges[row] + edges[row + 1]) / 2) * height), width, 1);
  }

  /**
   * Moves a row, unless it stays where it is.
   * @param {number} line
   * @param {number} edge number of the row above which it goes
   */
  moveRow(line, edge) {
    const { grid } = this;
    const row = grid?.lines.indexOf(line) ?? -1;
    if (!grid || row < 0 || edge < 0 || edge > grid.h) return;
    // What is above the rows in view is not known: it goes below the first of them.
    const above = edge > 0 ? grid.lines[edge - 1] : grid.places[0] > 0 ? grid.lines[0] : null;
    if (above !== line && above !== (row ? grid.lines[row - 1] : null)) this.on.move?.(line, above);
  }

  /**
   * Selects the row of a line, with those beside it that are of its process unless all are.
   * @param {number} line
   */
  selectRows(line) {
    const { grid } = this;
    const row = grid?.lines.indexOf(line) ?? -1;
    if (!grid || row < 0) return;
    const processes = Array.from(grid.places, (place) => {
      const label = this.labels.get(place);
      return label && label.folded < 2 ? label.process : -1 - place;
    });
    const around = stretchAround(processes, row);
    const [from, to] = around[1] - around[0] < grid.h ? around : [row, row + 1];
    this.on.select?.(grid.places[from], to < grid.h ? grid.places[to] : grid.places[to - 1] + 1);
  }

  /**
   * Moves the row of the crosshair up or down.
   * @param {number} step -1 or 1
   */
  stepRow(step) {
    const { grid } = this;
    const { y } = this.cross();
    if (!grid || y === null) return;
    const row = this.layout.rowOf(y);
    this.moveRow(grid.lines[row], step < 0 ? row - 1 : row + 2);
  }

  /** @param {MouseEvent} event */
  hover(event) {
    const { grid } = this;
    const source = this.source();
    if (!grid || !source) return;
    this.tip.hidden = false;
    this.hovered = event;
    this.nameRow(grid.places[this.layout.rowOf(spotOf(this.canvas, this.layout, event).y)]);
    const { x, y } = relativePosition(this.canvas, event);
    const at = { x: x * this.canvas.width, y: y * this.canvas.height };
    const marked = this.marks()?.describe(at, this.places(grid, source.window)) ?? [];
    this.tip.textContent = [...marked, this.describe(spotOf(this.canvas, this.layout, event), grid, source)].join("\n");
    placeTip(this.tip, this.element, event);
  }

  /**
   * Requests the label of a row that has none yet: of many lines only a few are known.
   * @param {number} place
   */
  async nameRow(place) {
    const source = this.source();
    if (!source || this.labels.has(place) || this.named === place) return;
    this.named = place;
    try {
      const labels = await loadLineLabels(this.api, source.db, { ...source.window, l0: place, l1: place + 1 }, Uint32Array.of(place));
      if (this.named !== place) return;
      for (const [at, label] of labels) this.labels.set(at, label);
      if (this.hovered) this.hover(this.hovered);
    } catch (error) { if (!isAbort(error)) this.on.failed(error); }
  }

  /**
   * When, which line, and its call path there.
   * @param {Position} spot
   * @param {Grid} grid
   * @param {Source} source
   */
  describe(spot, grid, { database: { tree, summary }, window: { t0, t1 } }) {
    const row = this.layout.rowOf(spot.y);
    const node = grid.nodeAt(row, Math.min(grid.w - 1, Math.floor(spot.x * grid.w)));
    const line = this.labels.get(grid.places[row]);
    const time = t0 + spot.x * (t1 - t0);
    const late = new KnownWaits(this.marks()?.waits ?? [], { t0, t1 }).rankAt(grid.lines[row], spot.x, spot.x);
    const waits = tree.has(node) && (tree.state[node] & 3) === WAITING && late !== undefined;
    const state = waits ? `waits for rank ${late}` : tree.has(node) ? stateWords(tree.state[node], summary.causes) : "";
    const dropped = summary.losses.reduce((sum, [measurement, from, to, samples]) => (
      measurement === line?.measurement && from <= time && time <= to ? sum + samples : sum), 0);
    const losses = dropped ? `  (${formatCount(dropped)} samples of its recording dropped about here)` : "";
    const path = tree.has(node) ? tree.path(node).map((frame) => tree.shortOf(frame)) : ["not there"];
    return [`${formatTime(time, t1 - t0)}  ${line?.label ?? `line ${grid.lines[row]}`}${state && `  (${state})`}${losses}`, ...path].join("\n");
  }

  /**
   * The label of a row, where it is known.
   * @param {number} row
   */
  labelOf(row) { return this.grid ? this.labels.get(this.grid.places[row])?.label : undefined; }

  /**
   * The row of a label, or -1.
   * @param {string} label
   */
  rowOf(label) { return this.grid ? this.grid.places.findIndex((place) => this.labels.get(place)?.label === label) : -1; }

  /** @returns {Cell[][]} */
  csv() {
    const source = this.source();
    const grid = this.loaded;
    if (!source || !grid) return [["no picture"]];
    const { database: { tree, picture }, window: { t0, t1 } } = source;
    const { shown: procedure } = picture();
    const moments = Array.from({ length: grid.w }, (_, x) => `${Math.round(t0 + ((x + 0.5) * (t1 - t0)) / grid.w)} ns`);
    return [["line", "label", ...moments], ...Array.from(grid.lines, (line, row) => [
      line, this.labels.get(grid.places[row])?.label ?? "",
      ...Array.from(grid.rowNodes(row), (node) => (tree.has(node) ? tree.names[procedure[node]] : "")),
    ])];
  }
}

/**
 * From where to where values are the same around one.
 * @param {number[]} values
 * @param {number} at
 */
export function stretchAround(values, at) {
  let [from, to] = [at, at + 1];
  while (from > 0 && values[from - 1] === values[from]) from--;
  while (to < values.length && values[to] === values[from]) to++;
  return [from, to];
}
