// @ts-check
// The server's answers as typed arrays; docs/viewer-api.md tells what they hold.

import { Connection } from "./connection.js";
import { Grid } from "./grid.js";

/**
 * @typedef {import("./api_types.js").LineChoice} LineChoice
 * @typedef {import("./api_types.js").Window} Window
 * @typedef {import("./api_types.js").TreeColumns} TreeColumns
 */

export class Api extends Connection {
  /** @type {() => Promise<{ databases: string[] }>} */
  databases = () => this.json("api/v1/databases");

  // Path of each database's main program, empty where it is not known.
  /** @type {() => Promise<Record<string, string>>} */
  programs = () => this.json("api/v1/programs");

  /**
   * The path of an answer about a database.
   * @param {string} db
   * @param {string} name of the answer
   * @param {URLSearchParams | string} [query]
   */
  path(db, name, query = "") { return `api/v1/db/${encodeURIComponent(db)}${name && "/"}${name}${query && "?"}${query}`; }

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

  // Of the newest revision.
  /** @type {(db: string) => Promise<import("./api_types.js").Summary>} */
  summary = (db) => this.json(this.path(db, ""), null);

  /** @type {(db: string, revision: number, lines: number[]) => Promise<import("./api_types.js").LiveAnswer>} */
  live = (db, revision, lines) => this.json(this.path(db, "live", `revision=${revision}&lines=${lines}`));

  /** @type {(db: string, revision?: number) => Promise<TreeColumns>} */
  cct = async (db, revision) => treeColumns(await this.words(this.path(db, "cct"), revision));

  /** @type {(db: string, view: string) => Promise<import("./api_types.js").ViewColumns>} */
  tree = async (db, view) => {
    const words = await this.words(this.path(db, "tree", new URLSearchParams({ view })));
    const [n, c] = words;
    return { parent: words.subarray(2, 2 + n), procedure: words.subarray(2 + n, 2 + 2 * n), place: words.subarray(2 + 2 * n, 2 + 2 * n + c) };
  };

  /** @type {(db: string, view: string) => Promise<import("./api_types.js").Entities>} */
  entities = (db, view) => this.json(this.path(db, "entities", new URLSearchParams({ view })));

  // Of the procedures, or of a view's entities.
  /** @type {(db: string, patterns?: string, view?: string) => Promise<Uint32Array>} */
  colours = (db, patterns = "", view = "") => this.words(this.path(db, "colours", new URLSearchParams({ patterns, view })));

  /** @type {(db: string, text: string) => Promise<import("./api_types.js").FormulaAnswer>} */
  formula = (db, text) => this.json(this.path(db, "formula", new URLSearchParams({ text })));

  /** @type {(db: string, choice: LineChoice, revision?: number) => Promise<import("./api_types.js").SelectionAnswer>} */
  selection = (db, choice, revision) => this.json(this.path(db, "selection", choiceQuery(choice)), revision);

  // From a place on.
  /** @type {(db: string, choice: LineChoice, from: number, count: number) => Promise<import("./api_types.js").LinesAnswer>} */
  lines = (db, choice, from, count) => this.json(this.path(db, "lines", choiceQuery(choice, { from, count })));

  /** @type {(db: string, revision?: number) => Promise<import("./api_types.js").DepthsAnswer>} */
  depths = (db, revision) => this.json(this.path(db, "depths"), revision);

  /** @type {(db: string, revision?: number) => Promise<import("./api_types.js").FindingsAnswer>} */
  findings = (db, revision) => this.json(this.path(db, "findings"), revision);

  // Stretches of all time of a choice's lines in procedures whose names contain a text.
  /** @type {(db: string, choice: LineChoice, text: string) => Promise<import("./api_types.js").FindAnswer>} */
  find = (db, choice, text) => this.json(this.path(db, "find", choiceQuery(choice, { text })));

  // count: how many moments.
  /** @type {(db: string, window: Window, kind: string, count: number) => Promise<import("./api_types.js").CurvesAnswer>} */
  curves = (db, window, kind, count) => this.json(this.path(db, "curves", windowQuery(window, { kind, count })));

  /** @type {(db: string, query: URLSearchParams, signal?: AbortSignal) => Promise<Grid>} */
  grid = async (db, query, signal) => {
    query.set("runs", "1");
    const buffer = await this.buffer(this.path(db, "grid", query), signal);
    const [h, w, bytes, n] = new Uint32Array(buffer, 0, 4);
    const words = new Uint32Array(buffer, 16, 3 * h);
    const at = 16 + 12 * h;
    const nodes = new (bytes === 2 ? Uint16Array : Uint32Array)(buffer, at, n || h * w);
    return new Grid({
      h, w, revision: this.revision, lines: words.subarray(0, h), places: words.subarray(h, 2 * h), folded: words.subarray(2 * h),
    }, nodes, n ? new Uint16Array(buffer, at + bytes * n, n) : null);
  };

  // h rows of w columns.
  /** @type {(db: string, window: Window, h: number, w: number, signal?: AbortSignal) => Promise<Grid>} */
  picture = (db, window, h, w, signal) => this.grid(db, windowQuery(window, { h, w, folds: 1 }), signal);

  // With the lines that share its row, if any do.
  /** @type {(db: string, line: number, window: Pick<Window, "t0" | "t1"> & LineChoice, w: number) => Promise<Grid>} */
  lineOverTime = (db, line, { t0, t1, ...choice }, w) => this.grid(db, choiceQuery(choice, { line, t0: Math.round(t0), t1: Math.round(t1), h: 1, w, folds: 1 }));

  // With times: of whole lines too.
  /** @type {(db: string, window: Window, times?: boolean) => Promise<import("./api_types.js").ProfileAnswer>} */
  profile = async (db, window, times = false) => {
    const buffer = await this.buffer(this.path(db, "profile", windowQuery(window, times ? { times: 1 } : {})));
    const [n, m, kind, pixels] = new Uint32Array(buffer, 0, 4);
    return { kind, pixels, values: Array.from({ length: m }, (_, i) => new Float64Array(buffer, 16 + 8 * n * i, n)) };
  };

  // The trace view as a file, with axis, names and legend; look: w, h, depth, patterns, dark.
  /** @type {(db: string, window: Window, format: "png" | "svg", look: Record<string, string | number | undefined>) => Promise<Blob>} */
  rendered = async (db, window, format, look) => {
    const buffer = await this.buffer(this.path(db, "render", windowQuery(window, { ...look, format })));
    return new Blob([buffer], { type: format === "svg" ? "image/svg+xml" : "image/png" });
  };

  // Of an entity of a view; without a file of the costliest.
  /** @type {(db: string, window: Window, code: { procedure: number, view: string, file?: number }) => Promise<import("./api_types.js").SourceAnswer>} */
  source = (db, window, code) => this.json(this.path(db, "source", windowQuery(window, code)));

  /** @type {(db: string, window: Window, code: { procedure: number, view: string }) => Promise<import("./api_types.js").AssemblyAnswer>} */
  assembly = (db, window, code) => this.json(this.path(db, "assembly", windowQuery(window, code)));

  /** @type {(db: string, window: Window, metric: string, context: string) => Promise<import("./api_types.js").OverAnswer>} */
  over = (db, window, metric, context) => this.json(this.path(db, "over", windowQuery(window, { metric, context })));

  // h lines, w procedures.
  /** @type {(db: string, window: Window, metric: string, h: number, w: number) => Promise<import("./api_types.js").Heat>} */
  heat = async (db, window, metric, h, w) => {
    const buffer = await this.buffer(this.path(db, "heat", windowQuery(window, { metric, h, w })));
    const [rows, columns] = new Uint32Array(buffer, 0, 2);
    return {
      h: rows, w: columns, lines: new Uint32Array(buffer, 8, rows),
      procedures: new Uint32Array(buffer, 8 + 4 * rows, columns),
      values: new Float32Array(buffer, 8 + 4 * (rows + columns)),
    };
  };

  // At a moment, ns since the origin; null: now. With kernel: with the kernel's frames.
  /** @type {(db: string, at: number | null, kernel: boolean) => Promise<import("./api_types.js").StacksAnswer>} */
  stacks = (db, at, kernel) => {
    const query = new URLSearchParams({ ...(at === null ? { now: "1" } : { at: String(at) }), ...(kernel ? { kernel: "1" } : {}) });
    return this.json(this.path(db, "stacks", query), at === null ? null : undefined);
  };

  /** @type {(db: string, window: Window) => Promise<import("./api_types.js").MessagesAnswer>} */
  messages = (db, window) => this.json(this.path(db, "messages", windowQuery(window)));

  // Ranks from, to: of senders, of receivers; cells: at most this number a side.
  /** @type {(db: string, window: Window, kind: string, ranks: number[], cells: number) => Promise<import("./api_types.js").MatrixAnswer>} */
  matrix = async (db, window, kind, ranks, cells) => {
    const buffer = await this.buffer(this.path(db, "messages/matrix", windowQuery(window, { kind, ranks: ranks.join(","), cells })));
    const [rows, columns, step] = new Uint32Array(buffer, 0, 3);
    const size = rows * columns;
    return { rows, columns, step, counts: new Float64Array(buffer, 16, size), amounts: new Float64Array(buffer, 16 + 8 * size, size) };
  };

  // Of a group of calls, or of a function.
  /** @type {(db: string, window: Window, by: string, calls: { of?: string, function?: string }) => Promise<import("./api_types.js").CallTotalsAnswer>} */
  callTotals = (db, window, by, calls) => this.json(this.path(db, "calls", windowQuery(window, { by, ...calls })));

  /** @type {(db: string, window: Window, phase: string) => Promise<import("./api_types.js").PhasesAnswer>} */
  phases = (db, window, phase) => this.json(this.path(db, "phases", windowQuery({ ...window, phase })));

  /** @type {(db: string, window: Window) => Promise<import("./api_types.js").MemoryAnswer>} */
  memory = (db, window) => this.json(this.path(db, "memory", windowQuery(window)));

  /** @type {(db: string, window: Window) => Promise<import("./api_types.js").MemoryStretches>} */
  memoryByTime = (db, window) => this.json(this.path(db, "memory", windowQuery(window, { time: "1" })));

  /** @type {(db: string, window: Window) => Promise<import("./api_types.js").CallMarksAnswer>} */
  callMarks = (db, window) => this.json(this.path(db, "call-marks", windowQuery(window)));

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

  /** @type {(query: URLSearchParams) => Promise<import("./api_types.js").CallsAnswer>} */
  comparedCalls = (query) => this.json(`api/v1/compare/calls?${query}`);
}

/** @param {Uint32Array} words as cct has them */
function treeColumns(words) {
  const [n, paths] = words;
  const [parent, procedure, owner, state, cost] = [0, 1, 2, 3, 4].map((i) => words.subarray(2 + i * n, 2 + (i + 1) * n));
  return { paths, parent, procedure, owner, state, cost: new Float32Array(cost.buffer, cost.byteOffset, n) };
}

/**
 * Which lines, in which order; l0 and l1 are places in it.
 * @param {LineChoice} choice
 * @param {Record<string, string | number | undefined>} [more] parameters
 */
function choiceQuery({ filter, sort, group, all, unfolded, moved, rows }, more = {}) {
  const query = new URLSearchParams();
  const fold = all ? "" : "1";
  for (const [name, value] of Object.entries({ filter, sort, group, fold, unfolded, moved: moved?.replaceAll(".", ","), rows })) if (value) query.set(name, value);
  for (const [name, value] of Object.entries(more)) if (value !== undefined) query.set(name, String(value));
  return query;
}

/**
 * @param {Window} window
 * @param {Record<string, string | number | undefined>} [more] parameters
 */
function windowQuery(window, more = {}) {
  const [t0, t1, l0, l1] = [window.t0, window.t1, window.l0, window.l1].map(Math.round);
  return choiceQuery(window, { phase: window.phase || undefined, t0, t1, l0, l1, ...more });
}
