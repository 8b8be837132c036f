// @ts-check
// What a context cost on each line: statistics, histogram, sorted curve; and lines x procedures.
// What a line is clicked for: it is where the trace view's crosshair goes.

import { AnswerPane } from "../core/answer_pane.js";
import { formatCount, formatPercent, formatQuantity } from "../core/format.js";
import { WINDOW } from "../core/store.js";
import { fittedCanvas, relativePosition } from "../widgets/canvas.js";
import { part, placeTip, textElement } from "../widgets/elements.js";
import { drawCurve, drawHeatMap, drawHistogram } from "./cost_charts.js";
import { chosenMetric, offerMetrics } from "./selected_profile.js";

/** @typedef {{ over: OverAnswer, heat: Heat }} Answers */

/** @type {[Statistic, string][]} */
const STATISTICS = [
  ["sum", "Sum"], ["mean", "Mean"], ["median", "Median"], ["min", "Least"], ["max", "Most"],
  ["stddev", "Standard deviation"], ["cv", "Coefficient of variation"], ["imbalance", "Most / mean - 1"],
];
const RATIOS = ["cv", "imbalance"];
const MOST_LINES = 1000; // of the heat map
const MOST_PROCEDURES = 40;
const LEAST_HEIGHT = 13; // px: rows of lines below have no names beside them

const HTML = `
    <section class="over" aria-label="Cost over lines"><div class="bar">
      <label>Cost <select id="metric"></select></label><span id="of"></span>
      <button id="whole">Whole program</button><output id="what" aria-live="polite"></output></div>
      <div class="tiles">
        <div class="tile"><h2>Statistics</h2><table id="statistics"></table></div>
        <div class="tile"><h2>Lines by cost</h2><div class="fill" id="histogram"></div></div>
        <div class="tile"><h2>Cost, from least to most</h2><div class="fill" id="curve"></div></div>
        <div class="tile wide"><h2>Lines × procedures <small id="heat-note"></small></h2><div class="heat-map"><ol id="lines-named"></ol><div class="fill" id="heat"></div><ol id="columns"></ol></div></div>
      </div><div class="tip" id="tip" hidden></div></section>`;

export class CostOverLines extends AnswerPane {
  /**
   * @param {HTMLElement} element
   * @param {PageParts} page
   */
  constructor(element, page) {
    super(element, page, HTML);
    const { store } = page;
    this.select = part(element, "metric", HTMLSelectElement);
    this.tip = part(element, "tip", HTMLElement);
    /** @type {Answers | null} */
    this.answers = null;
    const canvas = (/** @type {string} */ id, /** @type {string} */ label) => fittedCanvas(part(element, id, HTMLElement), label, () => this.draw());
    this.bars = canvas("histogram", "How many lines have which cost");
    this.curve = canvas("curve", "Cost of each line, from least to most");
    this.map = canvas("heat", "Cost of each procedure on each line; darker is more");
    this.addMouse();
    this.select.addEventListener("change", () => store.set({ metric: this.select.value }));
    this.whole = part(element, "whole", HTMLButtonElement);
    this.whole.addEventListener("click", () => store.set({ context: undefined }));
    this.ends = [
      store.subscribe(WINDOW.filter((key) => key !== "t0" && key !== "t1"), () => this.load()),
      store.subscribe(["metric", "context"], () => this.load()),
      store.subscribe(["search", "theme"], () => this.draw()),
      this.bars.dispose, this.curve.dispose, this.map.dispose,
    ];
    this.load();
  }

  canvases() { return [this.bars.canvas, this.curve.canvas, this.map.canvas]; }

  get metric() {
    const { metrics } = this.page.context.summary;
    return metrics[chosenMetric(metrics, this.page.store.state.metric)];
  }

  /** @param {number} value */
  text(value) { return formatQuantity(value, this.metric.unit); }

  /** @override */
  async load() {
    const { store, api, context } = this.page;
    const { name } = this.metric;
    offerMetrics(this.select, context.summary.metrics, name);
    const about = store.state.context ?? "n0";
    // A row of the profile tells what it is; a context alone, of a link, what can be known of it.
    part(this.element, "of", HTMLElement).textContent = about === "n0" ? "of the whole program" : `of ${store.state.about === undefined ? "the selected context" : context.tree.shortened(store.state.about)}`;
    this.whole.hidden = about === "n0";
    const answers = await this.newestAnswer(() => Promise.all([
      api.over(store.db, store.state, name, about),
      api.heat(store.db, store.state, name, MOST_LINES, MOST_PROCEDURES),
    ]));
    if (!answers) return;
    const [over, heat] = answers;
    this.answers = { over, heat };
    this.what.textContent = `on ${formatCount(over.with_cost)} of ${formatCount(over.lines)} line${over.lines === 1 ? "" : "s"}, all their time: exact`
      + (over.helpers ? `; ${formatCount(over.helpers)} helper${over.helpers === 1 ? "" : "s"} left out` : "");
    const lines = store.state.l1 - store.state.l0;
    part(this.element, "heat-note", HTMLElement).textContent = heat.h === MOST_LINES && heat.h < lines ? `${formatCount(heat.h)} of ${formatCount(lines)} lines, evenly chosen` : "";
    this.listStatistics(over);
    this.draw();
    this.element.dataset.over = `${about} ${over.lines}`;
  }

  /** @param {OverAnswer} over */
  listStatistics(over) {
    part(this.element, "statistics", HTMLElement).replaceChildren(...STATISTICS.map(([key, title]) => {
      const row = document.createElement("tr");
      row.append(textElement("td", title), textElement("td", RATIOS.includes(key) ? formatPercent(over[key]) : this.text(over[key])));
      if (over.lines && key === "min") row.append(this.lineCell(over, 0));
      if (over.lines && key === "max") row.append(this.lineCell(over, over.curve.line.length - 1));
      return row;
    }));
  }

  /**
   * The line at a place of the sorted curve; a click shows it in the trace view.
   * @param {OverAnswer} over
   * @param {number} i
   */
  lineCell({ curve }, i) {
    const button = Object.assign(textElement("button", curve.label[i]), { title: "Show it in the trace view" });
    button.addEventListener("click", () => this.goTo(curve.line[i]));
    const cell = document.createElement("td");
    cell.append(button);
    return cell;
  }

  /** @param {number} line */
  goTo(line) {
    const { store } = this.page;
    const { t0, t1, time } = store.state;
    store.set({ line, time: time ?? Math.round((t0 + t1) / 2), pane: "trace" });
  }

  draw() {
    if (!this.answers) return;
    const { over, heat } = this.answers;
    const text = (/** @type {number} */ value) => this.text(value);
    drawHistogram(this.bars.canvas, over, text);
    drawCurve(this.curve.canvas, over, text);
    const hits = this.page.context.opened.searchHits();
    drawHeatMap(this.map.canvas, heat, hits);
    this.listProcedures(heat, hits);
    const named = part(this.element, "lines-named", HTMLElement);
    named.hidden = this.map.canvas.clientHeight < LEAST_HEIGHT * heat.h;
    named.replaceChildren(...(named.hidden ? [] : Array.from(heat.lines, (line) => textElement("li", this.labelOf(line)))));
  }

  /**
   * Names of the heat map's procedures, below their columns.
   * @param {Heat} heat
   * @param {Uint8Array | null} hits of the search
   */
  listProcedures(heat, hits) {
    if (!heat.h || !heat.w) return;
    part(this.element, "columns", HTMLElement).replaceChildren(...Array.from(heat.procedures, (procedure) => {
      const { names, short } = this.page.context.tree;
      const item = Object.assign(textElement("li", short[procedure]), { title: names[procedure] });
      item.style.flex = "1 1 0";
      item.classList.toggle("found", hits?.[procedure] === 1);
      return item;
    }));
  }

  /** @param {number} line */
  labelOf(line) {
    const curve = this.answers?.over.curve;
    return curve?.label[curve.line.indexOf(line)] ?? `line ${line}`;
  }

  addMouse() {
    this.explain(this.bars.canvas, ({ over: { counts, edges } }, { x }) => {
      const i = Math.min(counts.length - 1, Math.floor(x * counts.length));
      return `${formatCount(counts[i])} lines\n${this.text(edges[i])} to ${this.text(edges[i + 1] ?? edges[i])}`;
    });
    this.explain(this.curve.canvas, ({ over }, { x }) => {
      const i = closest(over, x);
      return over.lines ? `${over.curve.label[i]}\n${this.text(over.curve.value[i])}` : "";
    });
    this.explain(this.map.canvas, ({ heat }, spot) => {
      if (!heat.w) return "";
      const { row, column } = heatCell(heat, spot);
      return `${this.labelOf(heat.lines[row])}\n${this.page.context.tree.both(heat.procedures[column])}\n${this.text(heat.values[row * heat.w + column])}`;
    });
    this.curve.canvas.addEventListener("click", (event) => {
      const over = this.answers?.over;
      if (over?.lines) this.goTo(over.curve.line[closest(over, relativePosition(this.curve.canvas, event).x)]);
    });
    this.map.canvas.addEventListener("click", (event) => {
      const heat = this.answers?.heat;
      if (heat?.w) this.goTo(heat.lines[heatCell(heat, relativePosition(this.map.canvas, event)).row]);
    });
  }

  /**
   * @param {HTMLCanvasElement} canvas
   * @param {(answers: Answers, spot: Position) => string} text of what is under the mouse, empty where nothing is
   */
  explain(canvas, text) {
    canvas.addEventListener("pointermove", (event) => {
      if (!this.answers) return;
      const words = text(this.answers, relativePosition(canvas, event));
      Object.assign(this.tip, { hidden: !words, textContent: words });
      placeTip(this.tip, this.element, event);
    });
    canvas.addEventListener("pointerleave", () => { this.tip.hidden = true; });
  }

  /** @returns {Cell[][]} */
  csv() {
    if (!this.answers) return [["no costs"]];
    const { heat } = this.answers;
    const { names } = this.page.context.tree;
    return [["line", ...Array.from(heat.procedures, (procedure) => names[procedure])],
      ...Array.from(heat.lines, (line, row) => [line, ...heat.values.subarray(row * heat.w, (row + 1) * heat.w)])];
  }
}

/**
 * The line of the curve that is closest to a share of its width.
 * @param {OverAnswer} over
 * @param {number} share
 */
function closest({ lines, curve: { place } }, share) {
  const wanted = share * (lines - 1);
  return place.reduce((best, at, i) => (Math.abs(at - wanted) < Math.abs(place[best] - wanted) ? i : best), 0);
}

/**
 * @param {Heat} heat
 * @param {Position} spot
 */
function heatCell({ h, w }, { x, y }) {
  return { row: Math.min(h - 1, Math.floor(y * h)), column: Math.min(w - 1, Math.floor(x * w)) };
}
