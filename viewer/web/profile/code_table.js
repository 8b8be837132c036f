// @ts-check
// Code and its costs, line by line. Only the rows on screen exist as elements.

import { formatPercent, formatQuantity } from "../core/format.js";
import { select, textElement } from "../widgets/elements.js";

/**
 * @typedef {{ inclusive: number[], exclusive: number[] }} Costs by metric
 *
 * @typedef {object} CodeRow
 * @property {string} place a line's number, or an address
 * @property {string} text
 * @property {string} [spot] in the link, if it can be chosen
 * @property {string} [heading] instead of code
 * @property {Costs} [costs] undefined where there are none
 *
 * @typedef {{ metric: number, kind: "inclusive" | "exclusive", title: string }} CodeColumn
 */

const HEIGHT = 18;
const COLUMN_WIDTH = 126;
const CODE_WIDTH = 400; // at least

export class CodeTable {
  /**
   * @param {HTMLElement} element
   * @param {(spot: string) => void} choose called with the row that is clicked
   */
  constructor(element, choose) {
    this.choose = choose;
    element.innerHTML = '<div class="table code" role="table" tabindex="0" aria-label="Code and its costs"><div class="head" role="row"></div><div class="rows" role="presentation"></div></div>';
    this.box = select(element, ".table", HTMLElement);
    this.head = select(this.box, ".head", HTMLElement);
    this.body = select(this.box, ".rows", HTMLElement);
    /** @type {CodeRow[]} */
    this.rows = [];
    /** @type {CodeColumn[]} */
    this.columns = [];
    /** @type {Metric[]} */
    this.metrics = [];
    /** @type {number[]} */
    this.total = [];
    this.current = -1;
    this.observer = new ResizeObserver(() => this.paint());
    this.observer.observe(this.box);
    this.box.addEventListener("scroll", () => this.paint());
  }

  dispose() { this.observer.disconnect(); }

  /**
   * @param {Metric[]} metrics
   * @param {number[]} total cost of everything, by metric
   * @param {number[]} shown numbers of metrics, the main one first
   */
  setColumns(metrics, total, shown) {
    this.metrics = metrics;
    this.total = total;
    this.columns = shown.flatMap((metric) => {
      const title = metrics[metric].name.replaceAll("_", " ");
      return [{ metric, kind: "inclusive", title }, { metric, kind: "exclusive", title: title + " self" }];
    });
  }

  /**
   * Shows rows, the chosen one in view, or the hottest.
   * @param {CodeRow[]} rows
   * @param {string} [spot] of the chosen row
   */
  fill(rows, spot) {
    this.rows = rows;
    this.box.style.setProperty("--columns", `repeat(${this.columns.length}, ${COLUMN_WIDTH}px) minmax(0, 1fr)`);
    this.box.style.setProperty("--wide", `${CODE_WIDTH + COLUMN_WIDTH * this.columns.length}px`);
    this.head.replaceChildren(...[...this.columns.map(({ title }) => title), "Code"].map((title) => {
      const cell = textElement("span", title);
      cell.setAttribute("role", "columnheader");
      return cell;
    }));
    this.body.style.height = `${rows.length * HEIGHT}px`;
    this.box.setAttribute("aria-rowcount", String(rows.length));
    const chosen = this.find(spot);
    this.go(chosen >= 0 ? chosen : this.hottest());
  }

  /**
   * The number of the chosen row; -1 where it is not among these.
   * @param {string} [spot]
   */
  find(spot) { return spot === undefined ? -1 : this.rows.findIndex((row) => row.spot === spot); }

  // The row of the highest exclusive cost by the main metric; -1 where there is no cost.
  hottest() {
    if (!this.columns.length) return -1;
    const [{ metric }] = this.columns;
    let best = -1;
    let most = -Infinity;
    this.rows.forEach(({ costs }, i) => {
      if (!costs || costs.exclusive[metric] <= most) return;
      [best, most] = [i, costs.exclusive[metric]];
    });
    return best;
  }

  /** @param {number} row */
  go(row) {
    this.current = row;
    const { scrollTop, clientHeight } = this.box;
    const top = (row + 1) * HEIGHT; // below the heading, which stays
    if (top < scrollTop + HEIGHT || top + HEIGHT > scrollTop + clientHeight) this.box.scrollTop = Math.max(0, top - clientHeight / 2);
    this.paint();
  }

  paint() {
    const first = Math.max(0, Math.floor(this.box.scrollTop / HEIGHT) - 4);
    const last = Math.min(this.rows.length, first + Math.ceil(this.box.clientHeight / HEIGHT) + 8);
    this.body.replaceChildren(...this.rows.slice(first, last).map((row, i) => this.draw(row, first + i)));
  }

  /**
   * @param {CodeRow} row
   * @param {number} number
   */
  draw(row, number) {
    const line = textElement("div", "", number === this.current ? "row current" : "row");
    line.setAttribute("role", "row");
    line.setAttribute("aria-rowindex", String(number + 1));
    line.style.top = `${number * HEIGHT}px`;
    const text = document.createElement("code");
    text.append(textElement("b", row.place), row.heading ?? row.text.replaceAll("\t", "    "));
    line.classList.toggle("heading", row.heading !== undefined);
    line.append(...(row.heading === undefined ? this.columns.map((column) => this.cell(row, column)) : []), text);
    for (const cell of line.children) cell.setAttribute("role", "cell");
    const { spot } = row;
    if (spot !== undefined) line.addEventListener("click", () => this.choose(spot));
    return line;
  }

  /**
   * @param {CodeRow} row
   * @param {CodeColumn} column
   */
  cell({ costs }, { metric, kind }) {
    const { unit, additive = true } = this.metrics[metric];
    const value = costs?.[kind][metric] ?? 0;
    const share = additive ? value / (this.total[metric] || 1) : 0;
    const cell = textElement("span", value ? formatQuantity(value, unit) + (additive ? `  ${formatPercent(share)}` : "") : "", "cell");
    cell.style.setProperty("--share", `${100 * Math.min(1, Math.max(0, share))}%`);
    return cell;
  }

  /** @returns {Cell[][]} */
  csv() {
    return [["place", "code", ...this.columns.map(({ title }) => title)],
      ...this.rows.map(({ place, heading, text, costs }) => [place, heading ?? text, ...this.columns.map(({ metric, kind }) => costs?.[kind][metric] ?? "")])];
  }
}
