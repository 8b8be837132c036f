// @ts-check
// What the page shows, in one place, mirrored in the URL: a link is a view.

/**
 * @typedef {object} State undefined: not chosen
 * @property {string} [db] name of the database
 * @property {number} [revision] of a recording that is followed; not in the URL
 * @property {string} [pane]
 * @property {number} t0 window of time, ns
 * @property {number} t1
 * @property {number} l0 window of lines, places in their order
 * @property {number} l1
 * @property {string} [filter] of lines
 * @property {string} [sort]
 * @property {string} [group]
 * @property {string} [all] "1" for every line a row of its own: helper threads are folded otherwise
 * @property {string} [unfolded] "1" for rows of launchers and helper threads one by one
 * @property {number} [depth] of the call paths in pictures; 0 or none: colours are by procedure
 * @property {string} [loops] "1" for loops as frames of call paths
 * @property {number} [time] of the crosshair, ns
 * @property {number} [line] of the crosshair, its number in the database
 * @property {string} [search] text that names of procedures contain
 * @property {string} [theme] light or dark
 * @property {string} [metric]
 * @property {string} [view] of the profile: down, up, flat, loops or lines
 * @property {string} [flame] kind of flame graph: down, up or sandwich
 * @property {string} [about] name of the selected procedure
 * @property {string} [spot] file:line of the selected row, file a number
 * @property {string} [code] lines or assembly
 * @property {string} [context] the selected context: n and nodes, or VIEW:NAME
 * @property {string} [formulas]
 * @property {string} [colours] patterns, one a line
 * @property {string} [compare] view of the comparison
 * @property {string} [versus] what is compared: runs, window, rank or iteration
 * @property {string} [sides]
 * @property {string} [compared] metric of the comparison
 * @property {string} [shares] "1" for percent of each side
 * @property {string} [partial] "1" for totals although a recording saw only a part of its processes
 * @property {string} [scopes] "1" for inlined calls and loops as contexts
 * @property {number} [sensitivity] percent
 * @property {number} [hotspot] percent
 * @property {string} [differing] "1" for differing contexts only
 * @property {number} [step] which two sides the difference flame graph shows
 * @property {string} [width] of its boxes: before, after or both
 * @property {string} [scaling] weak or strong
 * @property {string} [coupled] windows of traces: share or ns
 * @property {string} [beside] "1" for traces side by side
 * @property {string} [moment] of stacks: now or recorded
 * @property {string} [kernel] "1" for the kernel's frames of stacks
 * @property {string} [marks] "0": no messages and calls over the trace lines
 * @property {string} [matrix] whose cells are shown: a kind of the server's, and amount or count
 * @property {string} [ranks] of the matrix, four numbers between dots
 * @property {string} [by] what recorded calls are grouped by, or memory
 * @property {string} [phase] what marks the phases that costs and calls are of, as hpcd report --filter phase=
 * @property {string} [called] the calls that are totalled: of a group, or function:NAME
 *
 * @typedef {Pick<State, "t0" | "t1" | "l0" | "l1" | "filter" | "sort" | "group" | "all" | "unfolded" | "phase">} Window
 */

/** @type {(keyof State)[]} */
const KEPT = ["db", "pane", "t0", "t1", "l0", "l1", "filter", "sort", "group", "all", "unfolded", "depth", "loops", "time", "line",
  "search", "theme", "metric", "view", "flame", "about", "spot", "code", "context", "formulas", "colours",
  "compare", "versus", "sides", "compared", "shares", "partial", "scopes", "sensitivity", "hotspot", "differing", "step", "width", "scaling", "coupled", "beside", "moment", "kernel", "marks", "matrix", "ranks", "by", "phase", "called"];
/** @type {Set<keyof State>} */
const NUMBERS = new Set(["t0", "t1", "l0", "l1", "depth", "time", "line", "sensitivity", "hotspot", "step"]);
// What is looked at: lines, time and phases; other members say how. A recording being written has revisions (live.js).
/** @type {(keyof State)[]} */
export const CHOICE = ["filter", "sort", "group", "all", "unfolded"];
/** @type {(keyof State)[]} */
export const WINDOW = ["db", "revision", "t0", "t1", "l0", "l1", ...CHOICE, "phase"];

export class Store {
  constructor() {
    // The window is set as soon as a database is open.
    this.state = /** @type {State} */ ({});
    /** @type {{ keys: Set<keyof State>, react: (state: State) => void }[]} */
    this.listeners = [];
    /** @type {Window[]} */
    this.past = [];
    /** @type {Window[]} */
    this.future = [];
    const parameters = new URLSearchParams(location.hash.slice(1));
    this.token = parameters.get("token") ?? "";
    for (const key of KEPT) {
      const text = parameters.get(key);
      const value = NUMBERS.has(key) ? Number(text) : text;
      if (text !== null && !Number.isNaN(value)) Object.assign(this.state, { [key]: value });
    }
  }

  // Name of the database that is shown: panes are there only once there is one.
  get db() {
    if (this.state.db === undefined) throw new Error("no database is open");
    return this.state.db;
  }

  /**
   * Calls react after any of keys has changed; returns what ends that.
   * @param {(keyof State)[]} keys
   * @param {(state: State) => void} react
   */
  subscribe(keys, react) {
    const entry = { keys: new Set(keys), react };
    this.listeners.push(entry);
    return () => { this.listeners = this.listeners.filter((listener) => listener !== entry); };
  }

  /** @param {Partial<State>} patch */
  set(patch) {
    const keys = /** @type {(keyof State)[]} */ (Object.keys(patch));
    const changed = keys.filter((key) => this.state[key] !== patch[key]);
    if (!changed.length) return;
    Object.assign(this.state, patch);
    this.mirror();
    for (const { keys, react } of [...this.listeners]) {
      if (changed.some((key) => keys.has(key))) react(this.state);
    }
  }

  /**
   * As set, for the window of time and lines: can be undone.
   * @param {Partial<State>} patch
   */
  zoom(patch) {
    this.past.push(this.window());
    this.future = [];
    this.set(patch);
  }

  undo() { this.travel(this.past, this.future); }
  redo() { this.travel(this.future, this.past); }

  /**
   * @param {Window[]} from
   * @param {Window[]} to
   */
  travel(from, to) {
    const window = from.pop();
    if (!window) return;
    to.push(this.window());
    this.set(window);
  }

  /** @returns {Window} */
  window() {
    const { t0, t1, l0, l1, filter, sort, group, all, unfolded, phase } = this.state;
    return { t0, t1, l0, l1, filter, sort, group, all, unfolded, phase };
  }

  // Identifies what is looked at: an answer for one key is of no use for another.
  key() { return JSON.stringify([this.state.db, this.state.revision, this.window()]); }

  mirror() {
    const parameters = new URLSearchParams({ token: this.token });
    for (const key of KEPT) {
      const value = this.state[key];
      if (value !== undefined && value !== "") parameters.set(key, String(value));
    }
    history.replaceState(null, "", "#" + parameters);
  }
}
