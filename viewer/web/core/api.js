// @ts-check
// The server's answers as typed arrays; docs/viewer-api.md tells what they hold.

import { Connection } from "./connection.js";
import { Grid } from "./grid.js";

/**
 * @typedef {import("./api_types.js").LineChoice} LineChoice
 * @typedef {import("./api_types.js").Window} Window
 */

export class Api extends Connection {
  /** @returns {Promise<{ databases: string[] }>} */
  databases() { return this.json("api/v1/databases"); }

  /**
   * Path of each database's main program, empty where it is not known.
   * @returns {Promise<Record<string, string>>}
   */
  programs() { return this.json("api/v1/programs"); }

  /** @param {string} db */
  base(db) { return "api/v1/db/" + encodeURIComponent(db); }

  /**
   * What is shown of a database at once, of its newest revision.
   * @param {string} db unless it is there, the first
   * @param {Promise<Response>} [asked] the answer, if it has been requested
   * @returns {Promise<import("./api_types.js").OpeningAnswer>}
   */
  async opening(db = "", asked = undefined) {
    const answer = await this.fetch(openingPath(db), undefined, null, asked);
    const buffer = await answer.arrayBuffer();
    const [size] = new Uint32Array(buffer, 0, 1);
    const head = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, size)));
    return { ...head, cct: treeColumns(new Uint32Array(buffer, 4 + size)) };
  }

  /**
   * Of the newest revision.
   * @param {string} db
   * @returns {Promise<import("./api_types.js").Summary>}
   */
  summary(db) { return this.json(this.base(db), null); }

  /**
   * @param {string} db
   * @param {number} revision
   * @param {number[]} lines
   * @returns {Promise<import("./api_types.js").LiveAnswer>}
   */
  live(db, revision, lines) { return this.json(`${this.base(db)}/live?revision=${revision}&lines=${lines}`); }

  /**
   * @param {string} db
   * @param {number} [revision]
   */
  async cct(db, revision) { return treeColumns(await this.words(this.base(db) + "/cct", revision)); }

  /**
   * @param {string} db
   * @param {string} view
   */
  async tree(db, view) {
    const words = await this.words(`${this.base(db)}/tree?${new URLSearchParams({ view })}`);
    const [n, c] = words;
    return { parent: words.subarray(2, 2 + n), procedure: words.subarray(2 + n, 2 + 2 * n), place: words.subarray(2 + 2 * n, 2 + 2 * n + c) };
  }

  /**
   * @param {string} db
   * @param {string} view
   * @returns {Promise<import("./api_types.js").Entities>}
   */
  entities(db, view) { return this.json(`${this.base(db)}/entities?${new URLSearchParams({ view })}`); }

  /**
   * Of the procedures, or of a view's entities.
   * @param {string} db
   */
  colours(db, patterns = "", view = "") { return this.words(`${this.base(db)}/colours?${new URLSearchParams({ patterns, view })}`); }

  /**
   * @param {string} db
   * @param {string} text
   * @returns {Promise<import("./api_types.js").FormulaAnswer>}
   */
  formula(db, text) { return this.json(`${this.base(db)}/formula?${new URLSearchParams({ text })}`); }

  /**
   * @param {string} db
   * @param {LineChoice} choice
   * @param {number} [revision]
   * @returns {Promise<import("./api_types.js").SelectionAnswer>}
   */
  selection(db, choice, revision) { return this.json(`${this.base(db)}/selection?${choiceQuery(choice)}`, revision); }

  /**
   * @param {string} db
   * @param {LineChoice} choice
   * @param {number} from a place
   * @param {number} count
   * @returns {Promise<import("./api_types.js").LinesAnswer>}
   */
  lines(db, choice, from, count) {
    const query = choiceQuery(choice);
    query.set("from", String(from));
    query.set("count", String(count));
    return this.json(`${this.base(db)}/lines?${query}`);
  }

  /**
   * @param {string} db
   * @param {number} [revision]
   * @returns {Promise<import("./api_types.js").DepthsAnswer>}
   */
  depths(db, revision) { return this.json(this.base(db) + "/depths", revision); }

  /**
   * @param {string} db
   * @param {number} [revision]
   * @returns {Promise<import("./api_types.js").FindingsAnswer>}
   */
  findings(db, revision) { return this.json(this.base(db) + "/findings", revision); }

  /**
   * Stretches of all time of a choice's lines in procedures whose names contain a text.
   * @param {string} db
   * @param {LineChoice} choice
   * @param {string} text
   * @returns {Promise<import("./api_types.js").FindAnswer>}
   */
  find(db, choice, text) {
    const query = choiceQuery(choice);
    query.set("text", text);
    return this.json(`${this.base(db)}/find?${query}`);
  }

  /**
   * @param {string} db
   * @param {Window} window
   * @param {string} kind
   * @param {number} count of moments
   * @returns {Promise<import("./api_types.js").CurvesAnswer>}
   */
  curves(db, window, kind, count) { return this.json(`${this.base(db)}/curves?${windowQuery(window, { kind, count })}`); }

  /**
   * @param {string} db
   * @param {URLSearchParams} query
   * @param {AbortSignal} [signal]
   * @returns {Promise<Grid>}
   */
  async grid(db, query, signal) {
    query.set("runs", "1");
    const buffer = await this.buffer(`${this.base(db)}/grid?${query}`, signal);
    const [h, w, bytes, n] = new Uint32Array(buffer, 0, 4);
    const words = new Uint32Array(buffer, 16, 3 * h);
    const at = 16 + 12 * h;
    const nodes = new (bytes === 2 ? Uint16Array : Uint32Array)(buffer, at, n || h * w);
    return new Grid({
      h, w, revision: this.revision, lines: words.subarray(0, h), places: words.subarray(h, 2 * h), folded: words.subarray(2 * h),
    }, nodes, n ? new Uint16Array(buffer, at + bytes * n, n) : null);
  }

  /**
   * @param {string} db
   * @param {Window} window
   * @param {number} h
   * @param {number} w
   * @param {AbortSignal} [signal]
   */
  picture(db, window, h, w, signal) { return this.grid(db, windowQuery(window, { h, w, folds: 1 }), signal); }

  /**
   * @param {string} db
   * @param {number} line
   * @param {Pick<Window, "t0" | "t1"> & LineChoice} window with the lines that share its row, if any do
   * @param {number} w
   */
  lineOverTime(db, line, { t0, t1, ...choice }, w) {
    const query = choiceQuery(choice);
    for (const [name, value] of Object.entries({ line, t0: Math.round(t0), t1: Math.round(t1), h: 1, w, folds: 1 })) query.set(name, String(value));
    return this.grid(db, query);
  }

  /**
   * @param {string} db
   * @param {Window} window
   * @param {boolean} [times] of whole lines too
   * @returns {Promise<import("./api_types.js").ProfileAnswer>}
   */
  async profile(db, window, times = false) {
    const buffer = await this.buffer(`${this.base(db)}/profile?${windowQuery(window, times ? { times: 1 } : {})}`);
    const [n, m, kind, pixels] = new Uint32Array(buffer, 0, 4);
    return { kind, pixels, values: Array.from({ length: m }, (_, i) => new Float64Array(buffer, 16 + 8 * n * i, n)) };
  }

  /**
   * The trace view as a file, with axis, names and legend.
   * @param {string} db
   * @param {Window} window
   * @param {"png" | "svg"} format
   * @param {Record<string, string | number | undefined>} look w, h, depth, patterns, dark
   */
  async rendered(db, window, format, look) {
    const buffer = await this.buffer(`${this.base(db)}/render?${windowQuery(window, { ...look, format })}`);
    return new Blob([buffer], { type: format === "svg" ? "image/svg+xml" : "image/png" });
  }

  /**
   * @param {string} db
   * @param {Window} window
   * @param {{ procedure: number, view: string, file?: number }} code an entity of a view; file: the costliest without
   * @returns {Promise<import("./api_types.js").SourceAnswer>}
   */
  source(db, window, code) { return this.json(`${this.base(db)}/source?${windowQuery(window, code)}`); }

  /**
   * @param {string} db
   * @param {Window} window
   * @param {{ procedure: number, view: string }} code an entity of a view
   * @returns {Promise<import("./api_types.js").AssemblyAnswer>}
   */
  assembly(db, window, code) { return this.json(`${this.base(db)}/assembly?${windowQuery(window, code)}`); }

  /**
   * @param {string} db
   * @param {Window} window
   * @param {string} metric
   * @param {string} context
   * @returns {Promise<import("./api_types.js").OverAnswer>}
   */
  over(db, window, metric, context) { return this.json(`${this.base(db)}/over?${windowQuery(window, { metric, context })}`); }

  /**
   * @param {string} db
   * @param {Window} window
   * @param {string} metric
   * @param {number} h
   * @param {number} w
   * @returns {Promise<import("./api_types.js").Heat>}
   */
  async heat(db, window, metric, h, w) {
    const buffer = await this.buffer(`${this.base(db)}/heat?${windowQuery(window, { metric, h, w })}`);
    const [rows, columns] = new Uint32Array(buffer, 0, 2);
    return {
      h: rows, w: columns, lines: new Uint32Array(buffer, 8, rows),
      procedures: new Uint32Array(buffer, 8 + 4 * rows, columns),
      values: new Float32Array(buffer, 8 + 4 * (rows + columns)),
    };
  }

  /**
   * @param {string} db
   * @param {number | null} at ns since the origin; null: now
   * @param {boolean} kernel whether the kernel's frames are shown
   * @returns {Promise<import("./api_types.js").StacksAnswer>}
   */
  stacks(db, at, kernel) { return this.json(`${this.base(db)}/stacks?${new URLSearchParams({ ...(at === null ? { now: "1" } : { at: String(at) }), ...(kernel ? { kernel: "1" } : {}) })}`, at === null ? null : undefined); }

  /**
   * @param {string} db
   * @param {Window} window
   * @returns {Promise<import("./api_types.js").MessagesAnswer>}
   */
  messages(db, window) { return this.json(`${this.base(db)}/messages?${windowQuery(window, {})}`); }

  /**
   * @param {string} db
   * @param {Window} window
   * @param {string} kind
   * @param {number[]} ranks from, to: of senders, of receivers
   * @param {number} cells a side, at most
   * @returns {Promise<import("./api_types.js").MatrixAnswer>}
   */
  async matrix(db, window, kind, ranks, cells) {
    const buffer = await this.buffer(`${this.base(db)}/messages/matrix?${windowQuery(window, { kind, ranks: ranks.join(","), cells })}`);
    const [rows, columns, step] = new Uint32Array(buffer, 0, 3);
    const size = rows * columns;
    return { rows, columns, step, counts: new Float64Array(buffer, 16, size), amounts: new Float64Array(buffer, 16 + 8 * size, size) };
  }

  /**
   * @param {string} db
   * @param {Window} window
   * @param {string} by
   * @param {{ of?: string, function?: string }} calls of a group, of a function
   * @returns {Promise<import("./api_types.js").CallTotalsAnswer>}
   */
  callTotals(db, window, by, calls) { return this.json(`${this.base(db)}/calls?${windowQuery(window, { by, ...calls })}`); }

  /**
   * @param {string} db
   * @param {Window} window
   * @param {string} phase
   * @returns {Promise<import("./api_types.js").PhasesAnswer>}
   */
  phases(db, window, phase) { return this.json(`${this.base(db)}/phases?${windowQuery({ ...window, phase }, {})}`); }

  /**
   * @param {string} db
   * @param {Window} window
   * @returns {Promise<import("./api_types.js").MemoryAnswer>}
   */
  memory(db, window) { return this.json(`${this.base(db)}/memory?${windowQuery(window, {})}`); }

  /**
   * @param {string} db
   * @param {Window} window
   * @returns {Promise<import("./api_types.js").CallMarksAnswer>}
   */
  callMarks(db, window) { return this.json(`${this.base(db)}/call-marks?${windowQuery(window, {})}`); }

  /**
   * Several runs, or parts of one, as one tree.
   * @param {URLSearchParams | string} query as compare.js makes it
   * @returns {Promise<import("./api_types.js").ComparisonAnswer>}
   */
  async compare(query) {
    const buffer = await this.buffer(`api/v1/compare?${query}`);
    const [size, n, sides] = new Uint32Array(buffer, 0, 3);
    const head = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 16, size)));
    const costs = Array.from({ length: 2 * sides }, (_, i) => new Float64Array(buffer, 16 + size + 8 * n * i, n));
    const [parent, procedure, owner] = [0, 1, 2].map((i) => new Uint32Array(buffer, 16 + size + 16 * n * sides + 4 * n * i, n));
    return { head, cost: costs.slice(0, sides), variance: costs.slice(sides), cct: { parent, procedure }, owner };
  }

  /**
   * @param {URLSearchParams} query
   * @returns {Promise<import("./api_types.js").CallsAnswer>}
   */
  comparedCalls(query) { return this.json(`api/v1/compare/calls?${query}`); }
}

/** @param {Uint32Array} words as cct has them */
function treeColumns(words) {
  const n = words[0];
  const [parent, procedure, owner, state, cost] = [0, 1, 2, 3, 4].map((i) => words.subarray(1 + i * n, 1 + (i + 1) * n));
  return { parent, procedure, owner, state, cost: new Float32Array(cost.buffer, cost.byteOffset, n) };
}

/**
 * Which lines, in which order; l0 and l1 are places in it.
 * @param {LineChoice} choice
 */
function choiceQuery({ filter, sort, group, all, unfolded, only }) {
  const query = new URLSearchParams();
  const fold = all ? "" : "1";
  for (const [name, value] of Object.entries({ filter, sort, group, fold, unfolded, only })) if (value) query.set(name, value);
  return query;
}

/**
 * @param {Window} window
 * @param {Record<string, string | number | undefined>} more parameters
 */
function windowQuery(window, more) {
  const query = choiceQuery(window);
  if (window.phase) query.set("phase", window.phase);
  for (const name of /** @type {const} */ (["t0", "t1", "l0", "l1"])) query.set(name, String(Math.round(window[name])));
  for (const [name, value] of Object.entries(more)) if (value !== undefined) query.set(name, String(value));
  return query;
}
