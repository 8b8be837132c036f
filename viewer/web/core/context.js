// @ts-check
// What all panes share besides the store: the open database, what was computed of it for one pane and
// is of use to others, and moving through time and lines.

/**
 * A place in a trace view, as shares of its width and height.
 * @typedef {{ x: number, y: number }} Position
 *
 * @typedef {object} Page what the context needs of the page around the panes
 * @property {() => Pick<SelectionAnswer, "count" | "lines">} size rows and lines that the chosen filter leaves
 * @property {() => void} showAllLines leaves out the filter
 * @property {() => void} toggleFold folds or unfolds launchers and helper threads
 * @property {(partners: string) => void} choosePartners leaves only lines that interact with one, as the store says; empty: all
 * @property {() => number | undefined} reach where the mounted pane's time ends, ns; undefined: where the recording does
 * @property {(error: unknown) => void} fail reports an error
 */

const SHORTEST_NS = 100; // a window of time
const SHORTEST_DRAG_NS = 1000; // in a shorter window dragging does not zoom

export class PageContext {
  /**
   * @param {Store} store
   * @param {Page} page
   */
  constructor(store, page) {
    this.store = store;
    this.page = page;
    /** @type {string[]} names of the databases that are served */
    this.databases = [];
    /** @type {Promise<Record<string, string>> | null} of each its main program; null until it was requested */
    this.programs = null;
    /** @type {OpenDatabase | null} the one that is shown; null until it is loaded */
    this.database = null;
    /** @type {{ key: string, profile: Promise<SelectedProfile> } | null} */
    this.selected = null;
    /** @type {{ key: string, values: Float64Array } | null} exact times by node of the window that key identifies */
    this.exact = null;
    /** @type {Map<string, Promise<OpenDatabase>>} others that are compared, by name and colours */
    this.compared = new Map();
    /** @type {Position | null} where the pointer is in a trace view: keys zoom there */
    this.pointer = null;
    /** @type {Telling | null} where most is spent: shown as long as nothing else is chosen */
    this.costliest = null;
    /** @type {number | undefined} where a range was begun that the crosshair ends, ns */
    this.anchor = undefined;
    store.subscribe(["time"], () => this.extendRange());
    // What the mouse does to a trace view, which says where in shares of itself.
    this.mouse = {
      /** @param {Position | null} position */
      point: (position) => { this.pointer = position; },
      /**
       * @param {{ x: number, line: number }} position
       * @param {string} [gesture]
       */
      click: ({ x, line }, gesture = "") => store.set({ time: Math.round(store.state.t0 + x * (store.state.t1 - store.state.t0)), line }, gesture),
      /** @param {{ x0: number, x1: number, y0: number | null, y1: number | null }} rectangle y0 null: time alone */
      drag: (rectangle) => this.zoomToRectangle(rectangle),
      /**
       * @param {number} factor
       * @param {Position} position
       * @param {boolean} lines zooms in lines instead of time
       */
      wheel: (factor, { x, y }, lines) => { if (lines) this.zoomLines(factor, y, "wheel"); else this.zoomTime(factor, x, "wheel"); },
    };
  }

  get opened() {
    if (!this.database) throw new Error("no database is open");
    return this.database;
  }

  get tree() { return this.opened.tree; }
  get summary() { return this.opened.summary; }

  // Of rows, and of the lines that these show.
  count() { return this.page.size().count; }
  lineCount() { return this.page.size().lines; }

  // The line whose partners alone are shown, if any's are.
  get partnersOf() { return numbers(this.store.state.partners).at(0); }

  /**
   * Leaves only the lines that a line wakes or is woken by in the time in view; all again, where that is so already.
   * @param {number} [line]
   */
  togglePartners(line) {
    const { t0, t1 } = this.store.state;
    this.page.choosePartners(line === undefined || line === this.partnersOf || !this.summary.waits ? "" : [line, t0, t1].join("."));
  }

  // Until when there is something to look at, ns.
  reach() { return this.page.reach() ?? this.summary.duration_ns; }

  showAllLines() { this.page.showAllLines(); }

  // Passed on as it is.
  toggleFold = () => this.page.toggleFold();

  // Passed to catch as it is.
  fail = (/** @type {unknown} */ error) => this.page.fail(error);

  showEverything() { this.zoomTo({ t0: 0, t1: this.reach(), l0: 0, l1: this.count() }); }

  // The line and moment that are shown in detail: the crosshair's, or else where most is spent.
  detail() {
    const { line, time } = this.store.state;
    if (line !== undefined || time !== undefined) return { line, time };
    return this.costliest ? this.placeOf(this.costliest) : { line, time };
  }

  /**
   * Where the crosshair shows what a finding tells.
   * @param {Telling} telling
   */
  placeOf({ line, row, time }) { return { line: this.store.state.all ? line : row, time }; }

  // The window that is selected, of time and rows; null without one.
  selection() {
    const { s0, s1, r0, r1, l0, l1 } = this.store.state;
    if (s0 === undefined || s1 === undefined || !(s1 > s0)) return null;
    const rows = r0 !== undefined && r1 !== undefined && r1 > r0 && r1 <= this.count() ? { l0: r0, l1: r1 } : { l0, l1 };
    return { ...this.store.window(), t0: s0, t1: s1, ...rows };
  }

  // Rows that curves are of: the selected ones in view, else all in view.
  curveRows() {
    const { l0, l1 } = this.store.state;
    const { l0: r0, l1: r1 } = this.extent();
    return Math.max(l0, r0) < Math.min(l1, r1) ? { l0: Math.max(l0, r0), l1: Math.min(l1, r1) } : { l0, l1 };
  }

  // What costs, calls and messages are of.
  extent() { return this.selection() ?? this.store.window(); }

  // The same in a word.
  extentWord() { return this.selection() ? "selected" : "in view"; }

  /** @param {{ x0: number, x1: number, y0: number | null, y1: number | null }} rectangle shares of the window; y0 null: all rows */
  select({ x0, x1, y0, y1 }) {
    const { t0, t1, l0, l1 } = this.store.state;
    const at = (/** @type {number} */ x) => Math.round(t0 + x * (t1 - t0));
    const rows = y0 === null || y1 === null ? { r0: undefined, r1: undefined } : {
      r0: l0 + Math.floor(y0 * (l1 - l0)), r1: Math.min(l1, Math.max(l0 + Math.floor(y0 * (l1 - l0)) + 1, l0 + Math.ceil(y1 * (l1 - l0)))),
    };
    if (at(x1) > at(x0)) this.store.set({ s0: at(x0), s1: at(x1), ...rows });
  }

  /**
   * Selects rows, of the range that is selected or else of the time in view.
   * @param {number} r0
   * @param {number} r1
   */
  selectRows(r0, r1) {
    const { t0, t1 } = this.selection() ?? this.store.state;
    this.store.set({ s0: t0, s1: t1, r0, r1 });
  }

  // At the crosshair; until another is begun or nothing is selected, it ends where the crosshair goes.
  beginRange() {
    const { time, t0, t1 } = this.store.state;
    this.anchor = this.anchor === undefined ? time ?? Math.round((t0 + t1) / 2) : undefined;
  }

  // The crosshair was moved.
  extendRange() {
    const { time } = this.store.state;
    const { anchor } = this;
    if (anchor === undefined || time === undefined || time === anchor) return;
    this.store.settle({ s0: Math.min(anchor, time), s1: Math.max(anchor, time), r0: undefined, r1: undefined });
  }

  unselect() {
    this.anchor = undefined;
    this.store.set({ s0: undefined, s1: undefined, r0: undefined, r1: undefined, against: undefined });
  }

  // Numbers of the lines whose rows stand above the others.
  pinned() { return numbers(this.store.state.pinned).filter((line) => line < this.summary.lines); }

  /**
   * Puts a line's row above the others, or back among them.
   * @param {number} line
   */
  pin(line) {
    const pinned = this.pinned();
    const next = pinned.includes(line) ? pinned.filter((other) => other !== line) : [...pinned, line];
    this.store.set({ pinned: next.join(".") });
  }

  /**
   * Puts a line's row directly below another's.
   * @param {number} line
   * @param {number | null} above the other; null: to the top
   */
  moveRow(line, above) {
    const moved = numbers(this.store.state.moved);
    // Where it went before means nothing any more.
    const before = moved.at(-2) === line ? moved.slice(0, -2) : moved;
    this.store.set({ moved: [...before, line, above ?? line].join("."), r0: undefined, r1: undefined });
  }

  /**
   * The same among those above the others.
   * @param {number} line
   * @param {number | null} above
   */
  movePinned(line, above) {
    const pinned = this.pinned().filter((other) => other !== line);
    pinned.splice(above === null ? 0 : pinned.indexOf(above) + 1, 0, line);
    this.store.set({ pinned: pinned.join(".") });
  }

  zoomToSelection() {
    const window = this.selection();
    if (window) this.zoomTo({ t0: window.t0, t1: window.t1, l0: window.l0, l1: window.l1 });
  }

  /**
   * @param {Partial<import("./store.js").Window>} patch is limited to what there is
   * @param {string} [gesture] whose steps are one entry of the history
   */
  zoomTo(patch, gesture) {
    const lines = this.count();
    const next = { ...this.store.window(), ...patch };
    next.t0 = Math.max(0, Math.round(next.t0));
    next.t1 = Math.min(this.reach(), Math.round(next.t1));
    next.l0 = Math.max(0, next.l0);
    next.l1 = Math.min(lines, Math.max(next.l0 + 1, next.l1));
    if (next.t1 - next.t0 >= SHORTEST_NS) this.store.set(next, gesture);
  }

  /**
   * What of the window changes for a moment of a row to be in it: its length stays.
   * @param {number} time
   * @param {number} place
   */
  windowWith(time, place) {
    const { t0, t1, l0, l1 } = this.store.state;
    const patch = {};
    if (time < t0 || time >= t1) {
      const from = Math.round(Math.min(Math.max(0, time - (t1 - t0) / 2), this.reach() - (t1 - t0)));
      Object.assign(patch, { t0: from, t1: from + t1 - t0 });
    }
    if (place < l0 || place >= l1) {
      const first = Math.min(Math.max(0, place - ((l1 - l0) >> 1)), this.count() - (l1 - l0));
      Object.assign(patch, { l0: first, l1: first + l1 - l0 });
    }
    return patch;
  }

  /**
   * What changes for the crosshair to be at a moment of a row, in view; a row that is not drawn is pinned.
   * @param {{ row: number, place: number | null }} at
   * @param {number} time
   */
  crosshairAt({ row, place }, time) {
    const window = this.windowWith(time, place ?? this.store.state.l0);
    return { line: row, time, ...window, ...(place === null ? { pinned: [...new Set([...this.pinned(), row])].join(".") } : {}) };
  }

  /** @param {{ x0: number, x1: number, y0: number | null, y1: number | null }} rectangle shares of the window */
  zoomToRectangle({ x0, x1, y0, y1 }) {
    const { t0, t1, l0, l1 } = this.store.state;
    if (t1 - t0 <= SHORTEST_DRAG_NS) return;
    const patch = { t0: t0 + x0 * (t1 - t0), t1: t0 + x1 * (t1 - t0), l0, l1 };
    if (y0 !== null && y1 !== null) {
      patch.l0 = l0 + Math.floor(y0 * (l1 - l0));
      patch.l1 = Math.max(patch.l0 + 1, l0 + Math.ceil(y1 * (l1 - l0)));
    }
    this.zoomTo(patch);
  }

  /**
   * @param {number} factor below 1 zooms in
   * @param {number} [x] what stays where it is, a share of the width; where the pointer is
   * @param {string} [gesture]
   */
  zoomTime(factor, x = this.pointer?.x ?? 0.5, gesture = "") {
    const { t0, t1 } = this.store.state;
    const centre = t0 + x * (t1 - t0);
    this.zoomTo({ t0: centre - (centre - t0) * factor, t1: centre + (t1 - centre) * factor }, gesture);
  }

  /**
   * @param {number} factor below 1 zooms in
   * @param {number} [y] what stays where it is, a share of the height; where the pointer is
   * @param {string} [gesture]
   */
  zoomLines(factor, y = this.pointer?.y ?? 0.5, gesture = "") {
    const { l0, l1 } = this.store.state;
    const centre = l0 + y * (l1 - l0);
    this.zoomTo({ l0: Math.floor(centre - (centre - l0) * factor), l1: Math.ceil(centre + (l1 - centre) * factor) }, gesture);
  }

  /**
   * @param {number} timeShare of the window's time, negative: earlier
   * @param {number} lineShare of the window's lines, negative: up
   * @param {string} [gesture]
   */
  move(timeShare, lineShare, gesture) {
    const { t0, t1, l0, l1 } = this.store.state;
    const time = Math.min(Math.max((t1 - t0) * timeShare, -t0), this.reach() - t1);
    const lines = Math.min(Math.max(Math.round((l1 - l0) * lineShare) || Math.sign(lineShare), -l0), this.count() - l1);
    this.zoomTo({ t0: t0 + time, t1: t1 + time, l0: l0 + lines, l1: l1 + lines }, gesture);
  }

  // To the end of the recording, with the same zoom.
  toEnd() {
    const { t0, t1 } = this.store.state;
    const { duration_ns } = this.summary;
    this.zoomTo({ t0: duration_ns - (t1 - t0), t1: duration_ns });
  }
}

/**
 * Numbers between dots.
 * @param {string} [text]
 */
export function numbers(text = "") { return text.split(".").filter(Boolean).map(Number); }
