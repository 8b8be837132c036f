// @ts-check
// The server's answers as typed arrays; docs/viewer-api.md tells what they hold.

import { Connection, parsed } from "./connection.js";
import { Grid } from "./grid.js";

export class Api extends Connection {
  /** @type {() => Promise<{ databases: string[] }>} */
  databases = () => this.json("api/v1/databases");

  // Path of each database's main program, empty where it is not known.
  /** @type {() => Promise<Record<string, string>>} */
  programs = () => this.json("api/v1/programs");

  get shownFrames() { return this.native ? "&native=1" : ""; }

  /**
   * The path of an answer about a database.
   * @param {string} db
   * @param {string} name of the answer
   * @param {URLSearchParams | string} [query]
   */
  path(db, name, query = "") {
    return `api/v1/db/${encodeURIComponent(db)}${name && "/"}${name}?${query}${this.shownFrames}`;
  }

  /**
   * What is shown of a database at once, of its newest revision.
   * @param {string} db unless it is there, the first
   * @param {Promise<Response>} [asked] the answer, if it has been requested
   * @returns {Promise<OpeningAnswer>}
   */
  async opening(db = "", asked = undefined) {
    const { head, ...tree } = await this.arrays(openingPath(db, this.native), undefined, null, asked);
    return { ...parsed(head), cct: tree };
  }

  // Of the newest revision.
  /** @type {(db: string) => Promise<Summary>} */
  summary = (db) => this.json(this.path(db, ""), null);

  /** @type {(db: string, revision: number, lines: number[]) => Promise<LiveAnswer>} */
  live = (db, revision, lines) => this.json(this.path(db, "live", `revision=${revision}&lines=${lines}`));

  /** @type {(db: string, revision?: number) => Promise<TreeColumns>} */
  cct = (db, revision) => this.arrays(this.path(db, "cct"), undefined, revision);

  /** @type {(db: string, view: string) => Promise<ViewColumns>} */
  tree = (db, view) => this.arrays(this.path(db, "tree", new URLSearchParams({ view })));

  /** @type {(db: string, view: string) => Promise<Entities>} */
  entities = (db, view) => this.json(this.path(db, "entities", new URLSearchParams({ view })));

  // Of the procedures, or of a view's entities.
  /** @type {(db: string, patterns?: string, view?: string) => Promise<Uint32Array>} */
  colours = async (db, patterns = "", view = "") => (await this.arrays(this.path(db, "colours", new URLSearchParams({ patterns, view })))).colours;

  /** @type {(db: string, text: string) => Promise<FormulaAnswer>} */
  formula = (db, text) => this.json(this.path(db, "formula", new URLSearchParams({ text })));

  /** @type {(db: string, choice: LineChoice, revision?: number) => Promise<SelectionAnswer>} */
  selection = (db, choice, revision) => this.json(this.path(db, "selection", choiceQuery(choice)), revision);

  // From a place on.
  /** @type {(db: string, choice: LineChoice, from: number, count: number) => Promise<LinesAnswer>} */
  lines = (db, choice, from, count) => this.json(this.path(db, "lines", choiceQuery(choice, { from, count })));

  /** @type {(db: string, revision?: number) => Promise<DepthsAnswer>} */
  depths = (db, revision) => this.json(this.path(db, "depths"), revision);

  /** @type {(db: string, revision?: number) => Promise<FindingsAnswer>} */
  findings = (db, revision) => this.json(this.path(db, "findings"), revision);

  // Stretches of all time of a choice's lines in procedures whose names contain a text.
  /** @type {(db: string, choice: LineChoice, text: string) => Promise<FindAnswer>} */
  find = (db, choice, text) => this.json(this.path(db, "find", choiceQuery(choice, { text })));

  // count: how many moments.
  /** @type {(db: string, window: RowWindow, kind: string, count: number) => Promise<CurvesAnswer>} */
  curves = (db, window, kind, count) => this.json(this.path(db, "curves", windowQuery(window, { kind, count })));

  /** @type {(db: string, query: URLSearchParams, signal?: AbortSignal) => Promise<Grid>} */
  grid = async (db, query, signal) => {
    query.set("runs", "1");
    const { nodes, ends = null, ...rows } = await this.arrays(this.path(db, "grid", query), signal);
    return new Grid({ h: rows.lines.length, w: Number(query.get("w")), revision: this.revision, ...rows }, nodes, ends);
  };

  // h rows of w columns.
  /** @type {(db: string, window: RowWindow, h: number, w: number, signal?: AbortSignal) => Promise<Grid>} */
  picture = (db, window, h, w, signal) => this.grid(db, windowQuery(window, { h, w, folds: 1 }), signal);

  // With the lines that share its row, if any do.
  /** @type {(db: string, line: number, window: Pick<RowWindow, "t0" | "t1"> & LineChoice, w: number) => Promise<Grid>} */
  lineOverTime = (db, line, { t0, t1, ...choice }, w) => this.grid(db, choiceQuery(choice, { line, t0: Math.round(t0), t1: Math.round(t1), h: 1, w, folds: 1 }));

  // With times: of whole lines too.
  /** @type {(db: string, window: RowWindow, times?: boolean) => Promise<ProfileAnswer>} */
  profile = (db, window, times = false) => this.arrays(this.path(db, "profile", windowQuery(window, times ? { times: 1 } : {})));

  // The trace view as a file, with axis, names and legend; look: w, h, depth, patterns, dark.
  /** @type {(db: string, window: RowWindow, format: "png" | "svg", look: Record<string, string | number | undefined>) => Promise<Blob>} */
  rendered = async (db, window, format, look) => {
    const buffer = await this.buffer(this.path(db, "render", windowQuery(window, { ...look, format })));
    return new Blob([buffer], { type: format === "svg" ? "image/svg+xml" : "image/png" });
  };

  // Of an entity of a view; without a file of the costliest.
  /** @type {(db: string, window: RowWindow, code: { procedure: number, view: string, file?: number }) => Promise<SourceAnswer>} */
  source = (db, window, code) => this.json(this.path(db, "source", windowQuery(window, code)));

  /** @type {(db: string, window: RowWindow, code: { procedure: number, view: string }) => Promise<AssemblyAnswer>} */
  assembly = (db, window, code) => this.json(this.path(db, "assembly", windowQuery(window, code)));

  /** @type {(db: string, window: RowWindow, metric: string, context: string) => Promise<OverAnswer>} */
  over = (db, window, metric, context) => this.json(this.path(db, "over", windowQuery(window, { metric, context })));

  // h lines, w procedures.
  /** @type {(db: string, window: RowWindow, metric: string, h: number, w: number) => Promise<Heat>} */
  heat = async (db, window, metric, h, w) => {
    const cells = await this.arrays(this.path(db, "heat", windowQuery(window, { metric, h, w })));
    return { h: cells.lines.length, w: cells.procedures.length, ...cells };
  };

  // At a moment, ns since the origin; null: now. With kernel: with the kernel's frames.
  /** @type {(db: string, at: number | null, kernel: boolean) => Promise<StacksAnswer>} */
  stacks = (db, at, kernel) => {
    const query = new URLSearchParams({ ...(at === null ? { now: "1" } : { at: String(at) }), ...(kernel ? { kernel: "1" } : {}) });
    return this.json(this.path(db, "stacks", query), at === null ? null : undefined);
  };

  /** @type {(db: string, window: RowWindow) => Promise<MessagesAnswer>} */
  messages = (db, window) => this.json(this.path(db, "messages", windowQuery(window)));

  // Ranks from, to: of senders, of receivers; cells: at most this number a side.
  /** @type {(db: string, window: RowWindow, kind: string, ranks: number[], cells: number) => Promise<MatrixAnswer>} */
  matrix = (db, window, kind, ranks, cells) => this.arrays(this.path(db, "messages/matrix", windowQuery(window, { kind, ranks: ranks.join(","), cells })));

  // Of a group of calls, or of a function.
  /** @type {(db: string, window: RowWindow, by: string, calls: { of?: string, function?: string }) => Promise<CallTotalsAnswer>} */
  callTotals = (db, window, by, calls) => this.json(this.path(db, "calls", windowQuery(window, { by, ...calls })));

  /** @type {(db: string, window: RowWindow, phase: string) => Promise<PhasesAnswer>} */
  phases = (db, window, phase) => this.json(this.path(db, "phases", windowQuery({ ...window, phase })));

  /** @type {(db: string, window: RowWindow) => Promise<MemoryAnswer>} */
  memory = (db, window) => this.json(this.path(db, "memory", windowQuery(window)));

  /** @type {(db: string, window: RowWindow) => Promise<MemoryStretches>} */
  memoryByTime = (db, window) => this.json(this.path(db, "memory", windowQuery(window, { time: "1" })));

  /** @type {(db: string, window: RowWindow) => Promise<CallMarksAnswer>} */
  callMarks = (db, window) => this.json(this.path(db, "call-marks", windowQuery(window)));

  // The wait of a row at a time, or the nearest that is no further than within, ns.
  /** @type {(db: string, choice: LineChoice, line: number, time: number, within: number) => Promise<WaitAnswer | null>} */
  wait = (db, choice, line, time, within) => this.json(this.path(db, "wait", choiceQuery(choice, { line, time, within: Math.round(within) })));

  // Of a window's time, as columns of pixels show it.
  /** @type {(db: string, window: RowWindow, columns: number) => Promise<CriticalPathAnswer>} */
  criticalPath = (db, { t0, t1, ...choice }, columns) => this.json(this.path(db, "critical-path", choiceQuery(choice, { t0: Math.round(t0), t1: Math.round(t1), w: columns })));

  /**
   * Several runs, or parts of one, as one tree.
   * @param {URLSearchParams | string} query as compare.js makes it
   * @returns {Promise<ComparisonAnswer>}
   */
  async compare(query) {
    const { head, parent, procedure, ...columns } = await this.arrays(`api/v1/compare?${query}${this.shownFrames}`);
    return { head: parsed(head), cct: { parent, procedure }, ...columns };
  }

  /** @type {(query: URLSearchParams) => Promise<CallsAnswer>} */
  comparedCalls = (query) => this.json(`api/v1/compare/calls?${query}${this.shownFrames}`);
}

/**
 * Which lines, in which order; l0 and l1 are places in it.
 * @param {LineChoice} choice
 * @param {Record<string, string | number | undefined>} [more] parameters
 */
function choiceQuery({ filter, sort, group, all, unfolded, moved, partners, rows }, more = {}) {
  const query = new URLSearchParams();
  const fold = all ? "" : "1";
  for (const [name, value] of Object.entries({ filter, sort, group, fold, unfolded, moved: moved?.replaceAll(".", ","), partners: partners?.replaceAll(".", ","), rows })) if (value) query.set(name, value);
  for (const [name, value] of Object.entries(more)) if (value !== undefined) query.set(name, String(value));
  return query;
}

/**
 * @param {RowWindow} window
 * @param {Record<string, string | number | undefined>} [more] parameters
 */
function windowQuery(window, more = {}) {
  const [t0, t1, l0, l1] = [window.t0, window.t1, window.l0, window.l1].map(Math.round);
  return choiceQuery(window, { phase: window.phase || undefined, t0, t1, l0, l1, ...more });
}
