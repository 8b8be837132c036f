// @ts-check
// What the page shows, in one place, mirrored in the URL: a link is a view, and what a person changes is an
// entry of the browser's history.

/**
 * @typedef {object} State undefined: not chosen
 * @property {string} [db] name of the database
 * @property {number} [revision] of a recording that is followed; not in the URL
 * @property {string} [pane]
 * @property {number} t0 window of time, ns
 * @property {number} t1
 * @property {number} l0 window of lines, places in their order
 * @property {number} l1
 * @property {number} [s0] range of time that is selected, ns
 * @property {number} [s1]
 * @property {number} [r0] rows that are selected, places in their order; without them all in view
 * @property {number} [r1]
 * @property {string} [filter] of lines
 * @property {string} [sort]
 * @property {string} [group]
 * @property {string} [all] "1" for every line a row of its own: helper threads are folded otherwise
 * @property {string} [unfolded] "1" for rows of launchers and helper threads one by one
 * @property {string} [moved] rows moved by hand, one after another: of each the line and the one it went below, itself: to the top; numbers between dots
 * @property {string} [partners] a line, and a begin and an end, ns, between dots: only lines that woke it or were woken by it then
 * @property {string} [pinned] lines whose rows stand above the others, numbers between dots
 * @property {number} [depth] of the call paths in pictures; 0 or none: colours are by procedure
 * @property {string} [loops] "1" for loops as frames of call paths
 * @property {number} [time] of the crosshair, ns
 * @property {number} [line] of the crosshair, its number in the database
 * @property {string} [search] text that names of procedures contain
 * @property {string} [theme] light or dark
 * @property {string} [metric]
 * @property {string} [view] of the profile: down, up, flat, around, loops or lines
 * @property {string} [only] text that names in tables contain
 * @property {string} [tables] JSON: of tables by their names what a person did, as Kept of widgets/table.js
 * @property {string} [nameless] "1" for rows of their own of procedures without names
 * @property {string} [flame] kind of flame graph: down, up or sandwich
 * @property {string} [root] what the flame graph shows in full width: names on the way to it, one a line
 * @property {string} [about] name of the selected procedure
 * @property {string} [spot] file:line of the selected row, file a number; 0xADDRESS of an instruction
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
 * @property {string} [native] "1" for the frames of Python's interpreter, which are folded otherwise
 * @property {string} [kernel] "1" for the kernel's frames of stacks
 * @property {string} [critical] "1" for the critical path over the trace lines
 * @property {string} [marks] "0": no messages and calls over the trace lines
 * @property {string} [matrix] whose cells are shown: a kind of the server's, and amount or count
 * @property {string} [ranks] of the matrix, four numbers between dots
 * @property {string} [by] what recorded calls are grouped by, or memory
 * @property {string} [phase] what marks the phases that costs and calls are of, as hpcd report --filter phase=
 * @property {string} [called] the calls that are totalled: of a group, or function:NAME
 * @property {string} [curves] kinds of curves over time besides those of CPUs, between dots
 * @property {string} [against] range of time that the next one is compared with, ns between a colon
 *
 * @typedef {Pick<State, "t0" | "t1" | "l0" | "l1" | "filter" | "sort" | "group" | "all" | "unfolded" | "moved" | "partners" | "phase">} Window
 */

/** @type {(keyof State)[]} */
const KEPT = ["db", "pane", "t0", "t1", "l0", "l1", "s0", "s1", "r0", "r1", "filter", "sort", "group", "all", "unfolded", "moved", "partners", "pinned", "depth", "loops", "time", "line",
  "search", "theme", "metric", "view", "only", "tables", "nameless", "flame", "root", "about", "spot", "code", "context", "formulas", "colours",
  "compare", "versus", "sides", "compared", "shares", "partial", "scopes", "sensitivity", "hotspot", "differing", "step", "width", "scaling", "coupled", "beside", "moment", "native", "kernel", "critical", "marks", "matrix", "ranks", "by", "phase", "called", "curves", "against"];
/** @type {Set<keyof State>} */
const NUMBERS = new Set(["t0", "t1", "l0", "l1", "s0", "s1", "r0", "r1", "depth", "time", "line", "sensitivity", "hotspot", "step"]);
// What is looked at: lines, time and phases; other members say how. A recording being written has revisions (live.js).
/** @type {(keyof State)[]} */
export const CHOICE = ["filter", "sort", "group", "all", "unfolded", "moved", "partners"];
/** @type {(keyof State)[]} */
export const WINDOW = ["db", "revision", "t0", "t1", "l0", "l1", ...CHOICE, "phase"];
// What costs, calls and messages are of: what is selected, or else in view.
/** @type {(keyof State)[]} */
export const EXTENT = [...WINDOW, "s0", "s1", "r0", "r1"];

const SETTLED_MS = 150; // after the last step of a gesture the URL says what it has led to

export class Store {
  constructor() {
    // The window is set as soon as a database is open.
    this.state = /** @type {State} */ ({});
    /** @type {{ keys: Set<keyof State>, react: (state: State) => void }[]} */
    this.listeners = [];
    /** @type {(db: string) => void} opens another database, when Back or Forward leads to one */
    this.reopen = () => {};
    this.gesture = "";
    this.timer = 0;
    const { token, state } = stateOf(location.hash);
    this.token = token;
    Object.assign(this.state, state);
    addEventListener("popstate", () => this.travel());
  }

  // How many entries of the browser's history before this one are the page's.
  get place() { return Number(history.state?.place ?? 0); }

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

  /**
   * What a person changes: an entry of the history. Steps of one gesture, as turning the wheel, are one.
   * @param {Partial<State>} patch
   * @param {string} [gesture] its name
   */
  set(patch, gesture = "") {
    if (!this.changed(patch).some((key) => key !== "theme")) { this.settle(patch); return; }
    const goesOn = Boolean(gesture) && gesture === this.gesture;
    if (!goesOn) {
      this.flush();
      history.pushState({ place: this.place + 1 }, "", location.hash);
      this.gesture = gesture;
    }
    this.change(patch, goesOn);
  }

  /**
   * What the page completes by itself: no entry of its own.
   * @param {Partial<State>} patch
   */
  settle(patch) { if (this.changed(patch).length) this.change(patch); }

  // Back, as long as that stays on the page.
  back() { if (this.place > 0) history.back(); }

  forward() { history.forward(); }

  /** @param {Partial<State>} patch */
  changed(patch) {
    const keys = /** @type {(keyof State)[]} */ (Object.keys(patch));
    return keys.filter((key) => (this.state[key] ?? "") !== (patch[key] ?? ""));
  }

  /**
   * @param {Partial<State>} patch
   * @param {boolean} [goesOn] the URL follows when the gesture pauses: browsers refuse many changes a second
   */
  change(patch, goesOn = false) {
    const changed = this.changed(patch);
    for (const key of changed) Object.assign(this.state, { [key]: patch[key] });
    if (goesOn) {
      clearTimeout(this.timer);
      this.timer = window.setTimeout(() => this.mirror(), SETTLED_MS);
    } else this.mirror();
    for (const listener of [...this.listeners]) {
      // One that was called before may have ended another.
      if (this.listeners.includes(listener) && changed.some((key) => listener.keys.has(key))) listener.react(this.state);
    }
  }

  // Takes over what the URL says, where Back, Forward or a person has changed it.
  travel() {
    clearTimeout(this.timer);
    this.timer = 0;
    this.gesture = "";
    const { state } = stateOf(location.hash);
    const patch = /** @type {Partial<State>} */ (Object.fromEntries(KEPT.filter((key) => key !== "theme").map((key) => [key, state[key]])));
    if (patch.db === undefined || patch.db === this.state.db) { this.change({ ...patch, db: this.state.db }); return; }
    Object.assign(this.state, patch);
    this.reopen(patch.db);
  }

  /** @returns {Window} */
  window() {
    const { t0, t1, l0, l1, filter, sort, group, all, unfolded, moved, partners, phase } = this.state;
    return { t0, t1, l0, l1, filter, sort, group, all, unfolded, moved, partners, phase };
  }

  // Identifies what is looked at: an answer for one key is of no use for another.
  key(window = this.window()) { return JSON.stringify([this.state.db, this.state.revision, this.state.native, window]); }

  flush() { if (this.timer) this.mirror(); }

  mirror() {
    clearTimeout(this.timer);
    this.timer = 0;
    const parameters = new URLSearchParams({ token: this.token });
    for (const key of KEPT) {
      const value = this.state[key];
      if (value !== undefined && value !== "") parameters.set(key, String(value));
    }
    history.replaceState({ place: this.place }, "", "#" + parameters);
  }
}

/**
 * The token and the view that a URL tells.
 * @param {string} hash
 */
function stateOf(hash) {
  const parameters = new URLSearchParams(hash.slice(1));
  /** @type {Partial<State>} */
  const state = {};
  for (const key of KEPT) {
    const text = parameters.get(key);
    const value = NUMBERS.has(key) ? Number(text) : text;
    if (text !== null && !Number.isNaN(value)) Object.assign(state, { [key]: value });
  }
  return { token: parameters.get("token") ?? "", state };
}
