// @ts-check
// The columns of a table: how wide each is and which are shown, as a person left them; the browser remembers it
// for each kind of table.

import { remember, remembered } from "../core/remembered.js";
import { dragging } from "./dragging.js";

const KEY = "hpcd.columns";
const WIDTH = 134; // px
const NAME_WIDTH = 400; // at least, unless another is chosen
const NAME_WIDEST = 1000; // on a wide screen the figures stay beside the names
const LEAST = 48, NAME_LEAST = 160, MOST = 1600;
const STEP = 16; // px of an arrow key

/**
 * By title, "" of the names. width: px, set by hand.
 * @typedef {Record<string, { width?: number, hidden?: boolean }>} Kept
 */

export class ColumnLayout {
  /**
   * @param {string} table which kind of table
   * @param {HTMLElement} box whose CSS variables lay columns out
   * @param {{ title: string, width?: number }[]} columns
   * @param {number} [nameWidth] px, at least
   */
  constructor(table, box, columns, nameWidth = NAME_WIDTH) {
    this.table = table;
    this.box = box;
    this.columns = columns;
    this.nameWidth = nameWidth;
    /** @type {Kept} */
    this.kept = remembered(KEY)[table] ?? {};
  }

  /** @param {string} title */
  isShown(title) { return !this.kept[title]?.hidden; }

  /** @param {string} title "" of the names */
  width(title) {
    const usual = title ? this.columns.find((column) => column.title === title)?.width ?? WIDTH : this.nameWidth;
    return this.kept[title]?.width ?? usual;
  }

  // Tells the page's style.
  apply() {
    const widths = this.columns.filter(({ title }) => this.isShown(title)).map(({ title }) => this.width(title));
    const name = this.kept[""]?.width;
    this.box.style.setProperty("--columns", [name ? `${name}px` : `minmax(0, ${NAME_WIDEST}px)`, ...widths.map((width) => `${width}px`)].join(" "));
    this.box.style.setProperty("--wide", `${widths.reduce((sum, width) => sum + width, this.width(""))}px`);
  }

  /**
   * @param {string} title
   * @param {{ width?: number, hidden?: boolean }} change
   */
  set(title, change) {
    if (change.width !== undefined) change.width = Math.round(Math.min(Math.max(change.width, title ? LEAST : NAME_LEAST), MOST));
    this.kept[title] = { ...this.kept[title], ...change };
    remember(KEY, { [this.table]: this.kept });
    this.apply();
  }

  /**
   * The right border of a heading, which is dragged; Alt with arrows does the same on the heading.
   * @param {HTMLElement} heading
   * @param {string} title "" of the names
   */
  addBorder(heading, title) {
    const border = Object.assign(document.createElement("span"), { className: "border", title: "Drag: width of the column (Alt with ← →); double click: as before" });
    border.setAttribute("aria-hidden", "true");
    border.addEventListener("click", (event) => event.stopPropagation());
    border.addEventListener("dblclick", () => { this.kept[title] = { hidden: this.kept[title]?.hidden }; this.set(title, {}); });
    dragging(border, (event) => {
      const from = event.clientX, before = heading.offsetWidth;
      return (now) => this.set(title, { width: before + now.clientX - from });
    });
    heading.addEventListener("keydown", (event) => {
      const step = event.key === "ArrowRight" ? STEP : event.key === "ArrowLeft" ? -STEP : 0;
      if (!step || !event.altKey) return;
      event.preventDefault();
      this.set(title, { width: heading.offsetWidth + step });
    });
    heading.append(border);
  }

  /**
   * What lists the columns, to choose those that are shown.
   * @param {() => void} changed
   */
  chooser(changed) {
    const menu = document.createElement("details");
    menu.className = "column-choice";
    const summary = Object.assign(document.createElement("summary"), { textContent: "▦", title: "Columns that are shown" });
    summary.setAttribute("aria-label", "Columns");
    // Takes the focus of clicks beside its boxes, so that they do not close it.
    const list = Object.assign(document.createElement("div"), { tabIndex: -1 });
    list.append(...this.columns.map(({ title }) => {
      const label = document.createElement("label");
      const box = Object.assign(document.createElement("input"), { type: "checkbox", checked: this.isShown(title) });
      box.addEventListener("change", () => { this.set(title, { hidden: !box.checked }); changed(); });
      label.append(box, title);
      return label;
    }));
    menu.append(summary, list);
    menu.addEventListener("focusout", (event) => { if (!(event.relatedTarget instanceof Node && menu.contains(event.relatedTarget))) menu.open = false; });
    menu.addEventListener("keydown", (event) => { if (event.key === "Escape") { menu.open = false; summary.focus(); } event.stopPropagation(); });
    return menu;
  }
}
