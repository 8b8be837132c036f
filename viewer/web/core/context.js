// @ts-check
// What all panes share besides the store: the open database, what was computed of it for one pane and
// is of use to others, and moving through time and lines.

/**
 * @typedef {import("./open_database.js").OpenDatabase} OpenDatabase
 * @typedef {import("./store.js").Store} Store
 *
 * A place in a trace view, as shares of its width and height.
 * @typedef {{ x: number, y: number }} Position
 *
 * @typedef {object} Page what the context needs of the page around the panes
 * @property {() => number} count how many lines the chosen filter leaves
 * @property {() => void} toggleFold folds or unfolds launchers and helper threads
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
    /** @type {{ key: string, profile: Promise<import("../profile/selected_profile.js").SelectedProfile> } | null} */
    this.selected = null;
    /** @type {{ key: string, values: Float64Array } | null} exact times by node of the window that key identifies */
    this.exact = null;
    /** @type {Map<string, Promise<OpenDatabase>>} others that are compared, by name and colours */
    this.compared = new Map();
    // What the mouse does to a trace view, which says where in shares of itself.
    this.mouse = {
      /** @param {{ x: number, line: number }} position */
      click: ({ x, line }) => store.set({ time: Math.round(store.state.t0 + x * (store.state.t1 - store.state.t0)), line }),
      /** @param {{ x0: number, x1: number, y0: number | null, y1: number | null }} rectangle y0 null: time alone */
      drag: (rectangle) => this.zoomToRectangle(rectangle),
      /**
       * @param {number} factor
       * @param {Position} position
       * @param {boolean} lines zooms in lines instead of time
       */
      wheel: (factor, { x, y }, lines) => { if (lines) this.zoomLines(factor, y); else this.zoomTime(factor, x); },
    };
  }

  get opened() {
    if (!this.database) throw new Error("no database is open");
    return this.database;
  }

  get tree() { return this.opened.tree; }
  get summary() { return this.opened.summary; }
  picture() { return this.opened.picture(); }
  lit() { return this.opened.lit(); }

  /** @param {import("./cct.js").CallingContextTree} [tree] */
  searchHits(tree) { return this.opened.searchHits(tree); }

  /**
   * @param {number} procedure
   * @param {import("./cct.js").CallingContextTree} [tree]
   */
  css(procedure, tree) { return this.opened.css(procedure, tree); }

  /**
   * @param {number} procedure
   * @param {import("./cct.js").CallingContextTree} [tree]
   */
  dark(procedure, tree) { return this.opened.dark(procedure, tree); }

  count() { return this.page.count(); }

  // Until when there is something to look at, ns.
  reach() { return this.page.reach() ?? this.summary.duration_ns; }

  // Passed on as it is.
  toggleFold = () => this.page.toggleFold();

  // Passed to catch as it is.
  fail = (/** @type {unknown} */ error) => this.page.fail(error);

  /** @param {Partial<import("./store.js").Window>} patch is limited to what there is */
  zoomTo(patch) {
    const lines = this.count();
    const next = { ...this.store.window(), ...patch };
    next.t0 = Math.max(0, Math.round(next.t0));
    next.t1 = Math.min(this.reach(), Math.round(next.t1));
    next.l0 = Math.max(0, next.l0);
    next.l1 = Math.min(lines, Math.max(next.l0 + 1, next.l1));
    if (next.t1 - next.t0 >= SHORTEST_NS) this.store.zoom(next);
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
   * @param {number} x what stays where it is, a share of the width
   */
  zoomTime(factor, x) {
    const { t0, t1 } = this.store.state;
    const centre = t0 + x * (t1 - t0);
    this.zoomTo({ t0: centre - (centre - t0) * factor, t1: centre + (t1 - centre) * factor });
  }

  /**
   * @param {number} factor below 1 zooms in
   * @param {number} y what stays where it is, a share of the height
   */
  zoomLines(factor, y) {
    const { l0, l1 } = this.store.state;
    const centre = l0 + y * (l1 - l0);
    this.zoomTo({ l0: Math.floor(centre - (centre - l0) * factor), l1: Math.ceil(centre + (l1 - centre) * factor) });
  }

  /**
   * @param {number} timeShare of the window's time, negative: earlier
   * @param {number} lineShare of the window's lines, negative: up
   */
  move(timeShare, lineShare) {
    const { t0, t1, l0, l1 } = this.store.state;
    const time = Math.min(Math.max((t1 - t0) * timeShare, -t0), this.reach() - t1);
    const lines = Math.min(Math.max(Math.round((l1 - l0) * lineShare) || Math.sign(lineShare), -l0), this.count() - l1);
    this.zoomTo({ t0: t0 + time, t1: t1 + time, l0: l0 + lines, l1: l1 + lines });
  }

  // To the end of the recording, with the same zoom.
  toEnd() {
    const { t0, t1 } = this.store.state;
    const { duration_ns } = this.summary;
    this.zoomTo({ t0: duration_ns - (t1 - t0), t1: duration_ns });
  }
}
