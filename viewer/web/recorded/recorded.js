// @ts-check
// What recorded calls did, of the lines and time in view: bytes, calls, time and bandwidth by file, function
// and what else they have in common; and which call paths made memory grow.

import { AnswerPane } from "../core/answer_pane.js";
import { formatCount, nameMatcher } from "../core/format.js";
import { EXTENT } from "../core/store.js";
import { pathText, wholePath } from "../messages/message_rows.js";
import { part, textElement } from "../widgets/elements.js";
import { chosen, segmentedControl } from "../widgets/segmented_control.js";
import { TreeTable, UNSORTED } from "../widgets/table.js";
import { CallsOverTime } from "./calls_over_time.js";
import { memoryRows, memoryStretchRows, phaseRows, totalRows } from "./call_rows.js";

/**
 * @typedef {import("./call_rows.js").CallRow} CallRow
 * @typedef {import("./call_rows.js").Content} Content
 */

const NO_CALLS = "No calls were recorded. Record with: hpcd run --io -o measurement -- ./program; --memory for the growth of memory, --probe 'LIB:FUNC' for any function (also hpcd attach and profile), then hpcd merge.";
const MEMORY = "memory", MEMORY_TIME = "memory-time", PHASE = "phase", TIME = "time";
const NO_CALLS_IN_VIEW = "No such calls were begun in view: press Home to show everything.";
const NO_PHASE = "No phase lies in view. Name what marks phases above, such as solve(n), or choose a function here.";
/** @type {[string, string, string][]} what the server groups by */
const GROUPINGS = [
  ["file", "File", "By file or connection"], ["function", "Function", "By recorded function"], ["filesystem", "File system", "By kind of file system"],
  ["mount", "Mount", "By mount"], ["peer", "Peer", "By the other end of a connection"], ["path", "Call path", "By call path, innermost first"],
  ["thread", "Thread", "By thread"], ["rank", "Rank", "By rank"], [TIME, "Time", "By when they began"],
  [PHASE, "Phase", "What threads cost within the phases named above, or within the chosen function"],
];
const WITHOUT_FILES = ["function", "path", "thread", "rank", TIME, PHASE];
/** @type {Record<string, string>} */
const GROUPS = { io: "input and output", mpi: "MPI", memory: "memory", probe: "probes" };
const FUNCTION = "function:";

const HTML = `
    <section class="calls recorded" aria-label="Calls"><div class="bar">
      <span id="by"></span>
      <label id="called-label">Calls of <select id="called"></select></label>
      <label>Only <input id="only" type="search" placeholder="names with" autocomplete="off"></label>
      <output id="what" aria-live="polite"></output></div>
      <div id="over-time" class="over-time" hidden></div>
      <div id="table" class="grow"></div></section>`;

/**
 * @param {HTMLElement} element
 * @param {PageParts} page
 * @returns {Pane}
 */
export function mountRecorded(element, page) {
  if (Object.keys(page.context.summary.recorded).length) return new RecordedPane(element, page);
  element.replaceChildren(textElement("p", NO_CALLS, "empty"));
  return { dispose() {}, csv: () => [["no calls"]] };
}

class RecordedPane extends AnswerPane {
  /**
   * @param {HTMLElement} element
   * @param {PageParts} page
   */
  constructor(element, page) {
    super(element, page, HTML);
    const { store } = page;
    this.tree = true; // for exports
    this.only = part(element, "only", HTMLInputElement);
    this.called = part(element, "called", HTMLSelectElement);
    this.box = part(element, "table", HTMLElement);
    /** @type {TreeTable<CallRow> | null} */
    this.table = null;
    this.overTime = new CallsOverTime(part(element, "over-time", HTMLElement), page);
    this.offerCalls();
    this.called.addEventListener("change", () => store.set({ called: this.called.value }));
    this.only.value = store.state.only ?? "";
    this.only.addEventListener("input", () => store.set({ only: this.only.value || undefined }, "only"));
    this.ends = [
      segmentedControl(part(element, "by", HTMLElement), store, "by", "Calls by", this.groupings),
      store.subscribe([...EXTENT, "by", "called"], () => this.load()),
      store.subscribe(["search", "theme"], () => this.table?.paint()),
      store.subscribe(["only"], ({ only = "" }) => { if (this.only.value !== only) this.only.value = only; this.table?.lay(); }),
      () => this.table?.dispose(), () => this.overTime.dispose(),
    ];
    this.load();
  }

  get recorded() { return this.page.context.summary.recorded; }

  // What there is to choose; files first where there are any.
  get groupings() {
    const { io, memory } = this.recorded;
    const groupings = io ? GROUPINGS : GROUPINGS.filter(([by]) => WITHOUT_FILES.includes(by));
    /** @type {[string, string, string][]} */
    const growth = [[MEMORY, "Memory", "What made memory grow, and what held it at its peak"], [MEMORY_TIME, "Memory by time", "How much memory was held, and by how much it grew, from one moment to the next"]];
    const totals = Object.keys(this.recorded).some((group) => group !== MEMORY);
    return [...(totals ? groupings : []), ...(memory ? growth : [])];
  }

  get by() { return chosen(this.groupings, this.page.store.state.by); }

  offerCalls() {
    const groups = Object.entries(this.recorded).filter(([group]) => group !== MEMORY);
    this.called.replaceChildren(...groups.flatMap(([group, functions]) => [
      new Option(GROUPS[group] ?? group, group),
      ...functions.filter((name) => !name.includes("/")).map((name) => new Option(`\u2003${name}`, FUNCTION + name)),
    ]));
  }

  // The calls that are totalled: those that were chosen, else of the first group there is.
  get wanted() {
    const values = Array.from(this.called.options, (option) => option.value);
    const { called = "" } = this.page.store.state;
    return values.includes(called) ? called : values.find((value) => value === "io") ?? values[0];
  }

  /** @param {string} wanted a group, or a function */
  groupOf(wanted) {
    const name = wanted.startsWith(FUNCTION) ? wanted.slice(FUNCTION.length) : "";
    return name ? Object.keys(this.recorded).find((group) => this.recorded[group].includes(name)) : wanted;
  }

  /** @returns {Promise<{ content: Content, said: string }>} */
  async request() {
    const { api, store, context } = this.page;
    const path = (/** @type {number} */ node, /** @type {boolean} */ whole) => (whole ? wholePath : pathText)(context.tree, node);
    if (this.by === MEMORY) {
      const answer = await api.memory(store.db, context.extent());
      const shown = answer.processes.length;
      return {
        content: memoryRows(answer, path),
        said: `${shown < answer.of ? `the first ${shown} of ${formatCount(answer.of)}` : shown} process${answer.of === 1 ? "" : "es"}; peak and end of the time ${context.extentWord()}${store.state.phase ? ", whatever the phase" : ""}`,
      };
    }
    if (this.by === MEMORY_TIME) return { content: memoryStretchRows(await api.memoryByTime(store.db, context.extent())), said: `all processes together, ${context.extentWord()}${store.state.phase ? ", whatever the phase" : ""}` };
    if (this.by === PHASE) return this.requestPhases();
    const { wanted } = this;
    const calls = wanted.startsWith(FUNCTION) ? { function: wanted.slice(FUNCTION.length) } : { of: wanted };
    const answer = await api.callTotals(store.db, context.extent(), this.by, calls);
    const cut = answer.groups.length < answer.of ? `the first ${answer.groups.length} of ${formatCount(answer.of)} rows; ` : "";
    return { content: totalRows(answer, path), said: `${cut}${formatCount(answer.calls_of)} calls ${context.extentWord()}: ${answer.exact ? "exact" : "estimated from an even choice"}` };
  }

  // Of the phases that are named, else of those that calls of the chosen function mark.
  async requestPhases() {
    const { api, store, context } = this.page;
    const phase = store.state.phase || (this.wanted.startsWith(FUNCTION) ? this.wanted.slice(FUNCTION.length) : "");
    if (!phase) return { content: { rows: [], columns: [] }, said: "" };
    const answer = await api.phases(store.db, context.extent(), phase);
    const shown = answer.name.length;
    const said = `${shown < answer.of ? `the first ${shown} of ${formatCount(answer.of)}` : shown} phase${answer.of === 1 ? "" : "s"}, the time ${context.extentWord()}: exact`;
    return { content: phaseRows(answer, context.summary.metrics), said: [said, ...answer.notes].join("; ") };
  }

  /** @override */
  async load() {
    const { by } = this;
    this.called.value = this.wanted;
    part(this.element, "called-label", HTMLElement).hidden = by.startsWith(MEMORY);
    const result = await this.newestAnswer(() => this.request());
    if (!result) return;
    this.show(by, result.content, result.said);
    // The server answers one after the other: tables first.
    this.overTime.show(by.startsWith(MEMORY) ? MEMORY : this.groupOf(this.wanted));
  }

  /**
   * @param {string} by
   * @param {Content} content
   * @param {string} said
   */
  show(by, { rows, columns }, said) {
    this.table?.dispose();
    /** @type {TreeTable<CallRow>} */
    const table = new TreeTable(this.box, this.page.store, "Recorded calls", columns, (row) => this.nameOf(row), {
      begin: () => { if (by === MEMORY) table.open.add(rows[0]); }, kind: by, choose: (row) => this.choose(row), keep: (row) => !this.only.value || nameMatcher(this.only.value)(row.name) || row.children().some(({ name }) => nameMatcher(this.only.value)(name)),
      heading: by === MEMORY ? "process, call path" : by === MEMORY_TIME ? TIME : GROUPINGS.find(([key]) => key === by)?.[1].toLowerCase(),
      nameWidth: 300, sort: by.endsWith(TIME) ? UNSORTED : 0,
    });
    this.table = table;
    if (rows.length) table.show(rows);
    else this.box.replaceChildren(textElement("p", by === PHASE ? NO_PHASE : NO_CALLS_IN_VIEW, "empty"));
    this.what.textContent = rows.length ? said : "";
    this.what.title = said;
    this.element.dataset.recorded = `${by} ${rows.length}`;
  }

  /** @param {CallRow} row */
  nameOf({ name, title, node }) {
    const { context } = this.page;
    const text = Object.assign(textElement("span", name), { title });
    const hits = context.opened.searchHits();
    if (hits && node >= 0) text.className = context.tree.path(node).some((frame) => hits[context.tree.procedure[frame]]) ? "found" : "faded";
    return text;
  }

  /**
   * Other panes are about the procedure a row is of, or its phase; the crosshair goes to the peak of a process.
   * @param {CallRow} row
   */
  choose({ node, spot, phase }) {
    const { tree } = this.page.context;
    return { ...(phase ? { phase } : {}), ...spot, ...(node < 0 ? {} : { about: tree.names[tree.procedure[node]] }) };
  }

  /** @returns {Cell[][]} */
  csv() {
    if (!this.table) return [["no calls"]];
    const [first] = this.table.shown;
    const keys = Object.keys(first?.row.figures ?? {});
    return [["depth", "name", ...keys], ...this.table.shown.map(({ row, level }) => [level, row.name, ...keys.map((key) => row.figures[key] ?? "")])];
  }
}
