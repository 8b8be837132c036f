// @ts-check
// A tree table of any size: only the rows on screen exist as elements.

import { hotPath } from "../core/hot_path.js";
import { ColumnLayout } from "./column_layout.js";
import { select, textElement } from "./elements.js";

export const UNSORTED = -1; // no column: rows are as they come
const HEIGHT = 22;
const KEYS = "keys of a table"; // a gesture: a step of the history, however many rows are passed
const INDENT = 14; // px of a level
const DEEPEST = 10; // levels that are indented; deeper ones say their number, so that there is room for their names

/**
 * @template Row
 * @typedef {object} Column
 * @property {string} title
 * @property {(row: Row) => number} value to sort by
 * @property {(row: Row) => string} text
 * @property {(row: Row) => number} share of the cell that a bar fills
 * @property {(row: Row) => string} [mark] a CSS class
 * @property {number} [width] px
 */

/**
 * What a person did with a table, as links have it; rows by hashes of the names on the way to them, which are short
 * however long the names are.
 * @typedef {object} Kept
 * @property {string} [order] title of the column sorted by, behind a minus: ascending; none: as at first
 * @property {string} [row] that is selected
 * @property {string[]} [open] rows that are closed at first
 * @property {string[]} [closed] rows that are open at first
 *
 */

// Tables by their elements: one that takes another's place is scrolled to where that one was.
/** @type {WeakMap<HTMLElement, TreeTable<any>>} */
const shownIn = new WeakMap();

/**
 * @template {{ name: string, children(): Row[] }} Row
 */
export class TreeTable {
  /**
   * @param {HTMLElement} element
   * @param {Store} store
   * @param {string} label
   * @param {Column<Row>[]} columns
   * @param {(row: Row) => HTMLElement} draw makes what names a row
   * @param {object} options
   * @param {(row: Row) => Partial<State>} [options.choose] what other panes are about once a row is selected
   * @param {(row: Row) => boolean} [options.keep] whether a row is shown
   * @param {() => void} [options.begin] opens what is open until a person opens or closes rows
   * @param {string} [options.kind] of rows, where the table has several: links keep them apart
   * @param {number} [options.sort] the column
   * @param {boolean} [options.descending]
   * @param {string} [options.heading] of the names
   * @param {number} [options.nameWidth] px, at least
   */
  constructor(element, store, label, columns, draw, { choose = () => ({}), keep = () => true, begin = () => {}, kind = "", sort = 0, descending = true, heading = "Name", nameWidth }) {
    this.store = store;
    this.name = kind ? `${label}: ${kind}` : label;
    this.heading = heading;
    this.columns = columns;
    this.draw = draw;
    this.choose = choose;
    this.keep = keep;
    this.begin = begin;
    this.usual = { sort, descending };
    this.sort = sort;
    this.descending = descending;
    const before = shownIn.get(element);
    this.scrolled = before?.name === this.name ? before.box.scrollTop : 0;
    shownIn.set(element, this);
    /** @type {Row[]} */
    this.top = [];
    /** @type {{ row: Row, level: number }[]} */
    this.shown = [];
    /** @type {Row | null} */
    this.current = null;
    /** @type {Set<Row>} */
    this.open = new Set();
    /** @type {Set<Row>} open until a person opens or closes rows */
    this.first = new Set();
    element.innerHTML = '<div class="table" role="treegrid" tabindex="0"><div class="head" role="row"></div><div class="rows" role="presentation"></div></div><nav class="crumbs" aria-label="Callers of the chosen row" hidden></nav>';
    this.box = select(element, ".table", HTMLElement);
    this.box.setAttribute("aria-label", label);
    this.head = select(this.box, ".head", HTMLElement);
    this.rows = select(this.box, ".rows", HTMLElement);
    this.crumbs = select(element, ".crumbs", HTMLElement);
    this.choice = document.createElement("div");
    this.choice.className = "column-corner";
    element.append(this.choice);
    this.layout = new ColumnLayout(label, this.box, columns, nameWidth);
    this.choice.append(this.layout.chooser(() => { this.header(); this.paint(); }));
    this.box.addEventListener("scroll", () => this.paint());
    this.box.addEventListener("keydown", (event) => this.key(event));
    this.observer = new ResizeObserver(() => this.paint());
    this.observer.observe(this.box);
    this.unsubscribe = store.subscribe(["tables"], () => { if (JSON.stringify(this.kept) !== JSON.stringify(this.link)) this.restore(); });
    this.header();
  }

  dispose() {
    this.observer.disconnect();
    this.unsubscribe();
  }

  get visible() { return this.columns.filter(({ title }) => this.layout.isShown(title)); }

  header() {
    this.layout.apply();
    const name = textElement("span", this.heading);
    name.setAttribute("role", "columnheader");
    this.layout.addBorder(name, "");
    const focused = Array.from(this.head.children).findIndex((child) => child === document.activeElement);
    this.head.replaceChildren(name, ...this.visible.map((column) => {
      const i = this.columns.indexOf(column);
      const sorted = i === this.sort;
      const button = textElement("button", column.title + (sorted ? (this.descending ? " ▾" : " ▴") : ""));
      button.setAttribute("role", "columnheader");
      button.setAttribute("aria-sort", !sorted ? "none" : this.descending ? "descending" : "ascending");
      button.title = "Sort by " + column.title;
      button.addEventListener("click", () => {
        this.descending = i === this.sort ? !this.descending : true;
        this.sort = i;
        this.header();
        this.lay();
        this.record();
      });
      this.layout.addBorder(button, column.title);
      return button;
    }));
    if (focused >= 0) select(this.head, `:nth-child(${focused + 1})`, HTMLElement).focus();
  }

  /** @param {Row[]} rows */
  show(rows) {
    this.top = rows;
    this.restore();
    if (this.scrolled) this.box.scrollTop = this.scrolled;
  }

  /**
   * Visits rows and, below those that are open, their children, each with what identifies it in links.
   * @param {(row: Row, id: string) => void} visit
   */
  walk(visit) {
    const pending = this.top.map((row) => ({ row, above: 0 }));
    for (let next = pending.pop(); next; next = pending.pop()) {
      const { row, above } = next;
      let hash = above;
      for (let i = 0; i < row.name.length; i++) hash = Math.imul(hash ^ row.name.charCodeAt(i), 16777619);
      hash = Math.imul(hash ^ 1, 16777619); // levels apart
      visit(row, (hash >>> 0).toString(36));
      if (this.open.has(row)) for (const child of row.children()) pending.push({ row: child, above: hash });
    }
  }

  // What the link says of this table.
  /** @returns {Kept} */
  get link() { return tablesOf(this.store.state)[this.name] ?? {}; }

  /** @returns {Kept} */
  get kept() {
    /** @type {Kept} */
    const kept = {};
    if (this.sort !== this.usual.sort || this.descending !== this.usual.descending) kept.order = (this.descending ? "" : "-") + this.columns[this.sort].title;
    this.walk((row, id) => {
      if (row === this.current) kept.row = id;
      if (this.open.has(row) !== this.first.has(row)) (kept[this.open.has(row) ? "open" : "closed"] ??= []).push(id);
    });
    return kept;
  }

  // Shows what the link says, which may be anything; the rest as at first.
  restore() {
    const { order = "", row: current, open = [], closed = [] } = this.link;
    const at = this.columns.findIndex(({ title }) => [title, "-" + title].includes(order));
    this.sort = at < 0 ? this.usual.sort : at;
    this.descending = at < 0 ? this.usual.descending : order === this.columns[at].title;
    this.current = null;
    this.open = new Set();
    this.begin();
    this.first = new Set(this.open);
    this.walk((row, id) => {
      if (id === current) this.current = row;
      if ([open].flat().includes(id)) this.open.add(row);
      if ([closed].flat().includes(id)) this.open.delete(row);
    });
    this.header();
    this.lay();
    if (this.current) this.scrollTo(this.current);
  }

  /**
   * Puts what a person did into the link, and with it what else that changes.
   * @param {Partial<State>} [patch]
   * @param {string} [gesture] steps of one are one entry of the history
   */
  record(patch = {}, gesture = "") {
    this.store.set({ ...patch, tables: JSON.stringify({ ...tablesOf(this.store.state), [this.name]: this.kept }) }, gesture);
  }

  /** @param {Row[]} rows */
  sorted(rows) {
    const kept = rows.filter(this.keep);
    const column = this.columns[this.sort];
    if (!column) return kept;
    const { value } = column;
    const sign = this.descending ? 1 : -1;
    return kept.sort((one, two) => sign * (value(two) - value(one)));
  }

  // Makes the list of the rows that can be scrolled to.
  lay() {
    this.shown = [];
    const pending = this.sorted(this.top).reverse().map((row) => ({ row, level: 1 }));
    for (let next = pending.pop(); next; next = pending.pop()) {
      const { row, level } = next;
      this.shown.push(next);
      if (this.open.has(row)) for (const child of this.sorted(row.children()).reverse()) pending.push({ row: child, level: level + 1 });
    }
    this.rows.style.height = `${this.shown.length * HEIGHT}px`;
    this.box.setAttribute("aria-rowcount", String(this.shown.length));
    this.paint();
  }

  paint() {
    const first = Math.max(0, Math.floor(this.box.scrollTop / HEIGHT) - 4);
    const last = Math.min(this.shown.length, first + Math.ceil(this.box.clientHeight / HEIGHT) + 8);
    this.showCrumbs();
    this.rows.replaceChildren(...this.shown.slice(first, last).map(({ row, level }, i) => this.line(row, level, first + i)));
  }

  // The rows that the chosen one is below of, outermost first: a click chooses one.
  showCrumbs() {
    const at = this.shown.findIndex(({ row }) => row === this.current);
    const path = at < 0 ? [] : this.pathTo(at);
    this.crumbs.hidden = path.length < 2;
    this.crumbs.replaceChildren(...(this.crumbs.hidden ? [] : path).map((row) => {
      const button = textElement("button", this.draw(row).textContent ?? "");
      button.addEventListener("click", () => this.select(row));
      return button;
    }));
    this.crumbs.scrollLeft = this.crumbs.scrollWidth;
  }

  /** @param {number} at a place among the rows shown */
  pathTo(at) {
    const path = [];
    for (let level = Infinity; at >= 0; at--) {
      if (this.shown[at].level >= level) continue;
      path.unshift(this.shown[at].row);
      level = this.shown[at].level;
      if (level === 1) break;
    }
    return path;
  }

  /**
   * @param {Row} row
   * @param {number} level 1: outermost
   * @param {number} number among the rows shown
   */
  line(row, level, number) {
    const line = document.createElement("div");
    line.className = row === this.current ? "row current" : "row";
    line.setAttribute("role", "row");
    line.setAttribute("aria-level", String(level));
    line.setAttribute("aria-rowindex", String(number + 1));
    line.setAttribute("aria-selected", String(row === this.current));
    line.style.top = `${number * HEIGHT}px`;
    const name = textElement("span", "", "name");
    name.setAttribute("role", "gridcell");
    name.style.paddingLeft = `${6 + INDENT * (Math.min(level, DEEPEST) - 1)}px`;
    if (level > DEEPEST) name.append(textElement("small", String(level)));
    const twist = textElement("span", "", "twist");
    if (row.children().length) {
      twist.textContent = this.open.has(row) ? "▾" : "▸";
      line.setAttribute("aria-expanded", String(this.open.has(row)));
      twist.addEventListener("click", (event) => { event.stopPropagation(); this.toggle(row); });
    }
    name.append(twist, this.draw(row));
    line.append(name, ...this.visible.map((column) => {
      const cell = textElement("span", column.text(row), `cell ${column.mark?.(row) ?? ""}`);
      cell.setAttribute("role", "gridcell");
      if (cell.classList.contains("words")) cell.title = cell.textContent ?? "";
      cell.style.setProperty("--share", `${100 * Math.min(1, Math.max(0, column.share(row)))}%`);
      return cell;
    }));
    line.addEventListener("click", () => this.select(row));
    line.addEventListener("dblclick", () => this.toggle(row));
    return line;
  }

  /**
   * @param {Row} row
   * @param {string} [gesture]
   */
  toggle(row, gesture) {
    if (!this.open.delete(row)) this.open.add(row);
    this.lay();
    this.record({}, gesture);
  }

  /**
   * @param {Row} row
   * @param {string} [gesture]
   */
  select(row, gesture) {
    this.current = row;
    this.scrollTo(row);
    this.paint();
    this.record(this.choose(row), gesture);
  }

  /** @param {Row} row */
  scrollTo(row) {
    const top = HEIGHT * this.shown.findIndex((entry) => entry.row === row);
    if (top < this.box.scrollTop) this.box.scrollTop = top;
    const bottom = top + 3 * HEIGHT; // with the heading, and the next row
    if (bottom > this.box.scrollTop + this.box.clientHeight) this.box.scrollTop = bottom - this.box.clientHeight;
  }

  // Opens the hot path of the column sorted by, from the chosen row or the costliest, and selects its end.
  hotPath() {
    const end = this.openHotPath();
    if (end) this.select(end);
  }

  // Opens it and returns its end, if there is any row.
  openHotPath() {
    const { value } = this.columns[Math.max(this.sort, 0)];
    const start = this.current ?? this.sorted(this.top)[0];
    if (!start) return null;
    const path = hotPath(start, value, (row) => row.children().filter(this.keep));
    for (const row of path) if (row.children().some(this.keep)) this.open.add(row);
    this.lay();
    return path[path.length - 1];
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const at = this.shown.findIndex(({ row }) => row === this.current);
    const here = at < 0 ? null : this.shown[at];
    /** @param {{ row: Row } | undefined} entry */
    const go = (entry) => { if (entry) this.select(entry.row, KEYS); };
    /** @type {Record<string, () => void>} */
    const acts = {
      ArrowDown: () => go(this.shown[at + 1]),
      ArrowUp: () => go(this.shown[at - 1]),
      ArrowRight: () => {
        if (!here?.row.children().length) return;
        if (this.open.has(here.row)) go(this.shown[at + 1]); else this.toggle(here.row, KEYS);
      },
      ArrowLeft: () => {
        if (!here) return;
        if (this.open.has(here.row)) this.toggle(here.row, KEYS);
        else go(this.shown.slice(0, at).reverse().find(({ level }) => level < here.level));
      },
      Enter: () => { if (here) this.toggle(here.row, KEYS); },
    };
    if (!acts[event.key] || (event.target instanceof Element && event.target.tagName === "BUTTON")) return;
    event.preventDefault();
    event.stopPropagation();
    acts[event.key]();
  }
}

/**
 * @param {State} state
 * @returns {Record<string, Kept>} by names of tables
 */
function tablesOf({ tables }) {
  try { return JSON.parse(tables || "{}") ?? {}; } catch { return {}; }
}
