// @ts-check
// The traces of all sides, one crosshair and one window for all: zoomed together by the same share
// of their time or by the same nanoseconds, the same choice of lines, the same depth.

import { endOfText, formatChange, formatCount, formatTime } from "../core/format.js";
import { LinesOverTime } from "../trace/lines_over_time.js";
import { rowAt } from "../trace/trace_mouse.js";
import { select, textElement } from "../widgets/elements.js";
import { segmentedControl } from "../widgets/segmented_control.js";
import { sideLetter } from "./changes.js";
import { coupledWindow, loadSides, sideLength } from "./coupled_sides.js";

/**
 * @typedef {import("./coupled_sides.js").TraceSide} TraceSide
 *
 * A side as it is shown: its data, heading, the element of its picture, and the picture.
 * @typedef {{ side: TraceSide, head: HTMLElement, box: HTMLElement, picture: LinesOverTime }} Shown
 */

/** @type {Choice[]} */
const COUPLED = [["share", "Same share of time", "Windows are the same part of each side"], ["ns", "Same ns", "Windows are equally long, from each side's beginning on"]];
/** @type {Choice[]} */
const BESIDE = [["", "Above one another"], ["1", "Side by side"]];

/** @type {MountView} */
export async function mountCoupledTraces(element, view, stale) {
  const sides = await loadSides(view);
  return stale() ? null : new CoupledTraces(element, view, sides);
}

class CoupledTraces {
  /**
   * @param {HTMLElement} element
   * @param {ViewParts} view
   * @param {TraceSide[]} sides
   */
  constructor(element, view, sides) {
    const { store, tools } = view;
    element.innerHTML = '<div class="traces"></div>';
    this.box = select(element, ".traces", HTMLElement);
    this.view = view;
    /** @type {string | null} label of the line with the crosshair: it is one line on all sides, rank 3 is
     * compared with rank 3. Where it is not known, because there are too many lines, and between ranks,
     * the same height represents it. */
    this.label = null;
    /** @type {{ t0: number, t1: number } | null} the window that is shown at first, where that is a part of the run */
    this.part = null;
    /** @type {Shown[]} */
    this.sides = [];
    for (const side of sides) this.sides.push(this.makeSide(side));
    this.ends = [
      segmentedControl(tools, store, "coupled", "Coupling", COUPLED),
      segmentedControl(tools, store, "beside", "Arrangement", BESIDE),
      store.subscribe(["t0", "t1", "l0", "l1"], () => this.load()),
      store.subscribe(["coupled"], () => {
        const end = this.reach();
        if (store.state.t1 > end) store.settle({ t0: 0, t1: end }); else this.load();
      }),
      store.subscribe(["depth", "loops", "search", "theme", "time", "line"], () => this.draw()),
      store.subscribe(["beside"], () => this.arrange()),
    ];
    this.arrange();
    this.sides.forEach((_, i) => this.drawHeading(i));
    this.begin();
    view.say(compareLengths(this.sides.map(({ side }) => side)));
  }

  dispose() {
    const { store, context } = this.view;
    this.ends.forEach((end) => end());
    this.sides.forEach(({ picture }) => picture.dispose());
    const { duration_ns } = context.summary;
    const { t0, t1 } = store.state;
    // Other panes show the run again.
    if (t0 === this.part?.t0 && t1 === this.part.t1) store.settle({ t0: 0, t1: duration_ns });
    else if (t1 > duration_ns) store.settle({ t0: Math.min(t0, duration_ns / 2), t1: duration_ns });
  }

  get first() { return this.sides[0]; }

  // Between ranks there is no line of one name.
  get byLabel() { return this.view.sides.kind !== "rank"; }

  get sameTime() { return this.view.store.state.coupled === "ns"; }

  /** @param {TraceSide} side */
  makeSide(side) {
    const { api, context } = this.view;
    const i = this.sides.length;
    const section = textElement("section", "", "side");
    const head = document.createElement("h2");
    const box = Object.assign(textElement("div", "", "traceview"), { id: `lines-${i}` });
    section.append(head, box);
    this.box.append(section);
    const picture = new LinesOverTime(box, {
      api, name: `side-${i}`, label: `Trace lines of ${sideLetter(i)}: ${side.label}`,
      source: () => ({ db: side.db, database: side.database, window: this.windowOf(side) }),
      cross: () => this.cross(i),
      on: {
        ...context.mouse, drawn: () => this.drawHeading(i), failed: context.fail,
        labelled: () => this.labelled(i), click: (position) => this.click(i, position),
      },
    });
    return { side, head, box, picture };
  }

  // Parts of a run are looked at, not the run, unless the user has zoomed already.
  begin() {
    const { store, context } = this.view;
    const { t0, t1 } = store.state;
    const { side } = this.first;
    const { duration_ns } = context.summary;
    if (side.db === store.state.db && sideLength(side) < duration_ns && t0 === 0 && t1 === duration_ns) {
      this.part = { t0: Math.round(side.from), t1: Math.round(side.to) };
      store.settle(this.part);
    } else this.load();
  }

  load() { this.sides.forEach(({ picture }) => picture.load()); }

  draw() {
    this.sides.forEach(({ picture }) => picture.draw());
    this.sides.forEach((_, i) => this.drawHeading(i));
  }

  arrange() { this.box.classList.toggle("beside", Boolean(this.view.store.state.beside)); }

  /**
   * The window of the first side is the store's; others follow.
   * @param {TraceSide} side
   */
  windowOf(side) {
    const { store, context } = this.view;
    return coupledWindow(side, this.first.side, store.state, context.count(), this.sameTime);
  }

  // As far as the longest side goes, where all show the same nanoseconds.
  reach() {
    const { duration_ns } = this.view.context.summary;
    if (!this.sameTime) return duration_ns;
    return Math.max(...this.sides.map(({ side }) => this.first.side.from + sideLength(side)), duration_ns);
  }

  /**
   * The labels of a side are there.
   * @param {number} i
   */
  labelled(i) {
    const { line } = this.view.store.state;
    const { picture } = this.first;
    // A link tells the line by its number: now it has a name.
    if (i === 0 && this.label === null && this.byLabel && line !== undefined && picture.grid) {
      const row = picture.grid.lines.indexOf(line);
      this.label = row < 0 ? null : picture.labelOf(row) ?? null;
    }
    this.draw();
    // Once all show the window as it is now.
    const windows = this.sides.map(({ side }) => this.windowOf(side)).map(({ t0, t1, l0, l1 }) => `${t0}-${t1}-${l0}-${l1}`);
    if (this.sides.every(({ box }, k) => box.dataset.drawn === windows[k])) this.view.done(`traces ${windows.join(" ")}`);
  }

  /**
   * @param {number} i the side that was clicked
   * @param {{ x: number, y: number }} position
   */
  click(i, { x, y }) {
    const { picture } = this.sides[i];
    const first = this.first.picture;
    if (!picture.grid || !first.grid) return;
    this.label = (this.byLabel && picture.labelOf(rowAt(picture.grid, y))) || null;
    const named = this.label === null ? -1 : first.rowOf(this.label);
    const row = named >= 0 ? named : rowAt(first.grid, y);
    this.view.context.mouse.click({ x, line: first.grid.lines[row] });
    this.draw(); // it may be another line of this side, and the same of the first
  }

  /**
   * Where the crosshair is on a side, in shares of its picture; y null where its line is not shown.
   * @param {number} i
   */
  cross(i) {
    const { t0, t1, time, line } = this.view.store.state;
    const picture = this.sides[i]?.picture;
    const first = this.first?.picture.grid;
    if (time === undefined || !first || !picture?.grid) return { x: null, y: null };
    const x = (time - t0) / (t1 - t0);
    const [row, rows] = this.label === null ? [line === undefined ? -1 : first.lines.indexOf(line), first.h] : [picture.rowOf(this.label), picture.grid.h];
    return { x, y: row < 0 ? null : (row + 0.5) / rows };
  }

  /**
   * Which side it is, how long, and the call path at the crosshair.
   * @param {number} i
   */
  drawHeading(i) {
    const { side, head, picture: { grid } } = this.sides[i];
    const { x, y } = this.cross(i);
    const lines = `${formatCount(side.count)} line${side.count === 1 ? "" : "s"}`;
    head.replaceChildren(textElement("b", sideLetter(i)), ` ${side.label}`, textElement("small", `${formatTime(sideLength(side))}, ${lines}`));
    if (!grid || x === null || y === null || x < 0 || x >= 1) return;
    const node = grid.nodeAt(rowAt(grid, y), Math.floor(x * grid.w));
    const { tree } = side.database;
    const path = (/** @type {string[]} */ names) => (tree.has(node) ? tree.path(node).map((frame) => names[tree.procedure[frame]]).join(" > ") : "not there");
    const item = Object.assign(textElement("span", "", "at ending"), { title: path(tree.names) });
    item.append(endOfText(path(tree.short)));
    head.append(item);
  }

  canvases() { return this.sides.map(({ picture }) => picture.canvas); }
  csv() { return this.sides.flatMap(({ picture }) => picture.csv()); }
}

/**
 * How long the sides are, and by how much each differs from the one before it.
 * @param {TraceSide[]} sides
 */
function compareLengths(sides) {
  return sides.map((side, i) => {
    const change = i ? formatChange(sideLength(sides[i - 1]), sideLength(side)) : "";
    return `${sideLetter(i)} ${formatTime(sideLength(side))}${change && ` (${change})`}`;
  }).join(", ");
}
