// @ts-check
// What MPI ranks sent each other and who waited for whom, of the lines and time in view.

import { AnswerPane } from "../core/answer_pane.js";
import { isAbort } from "../core/failure.js";
import { formatBytes, formatCount, formatPercent, formatTime } from "../core/format.js";
import { EXTENT } from "../core/store.js";
import { linkItem, part, textElement } from "../widgets/elements.js";
import { buttonGroup } from "../widgets/segmented_control.js";
import { TreeTable } from "../widgets/table.js";
import { MatrixView } from "./matrix_view.js";
import { communicatorRows, pathText, sizeRows, waitRows, wholePath } from "./message_rows.js";

/**
 * @typedef {import("./message_rows.js").MessageRow} MessageRow
 * @typedef {import("./message_rows.js").WaitRow} WaitRow
 */

const NO_MESSAGES = "No calls of MPI were recorded. Record with: hpcd run --mpi -o measurement -- mpirun -n 4 ./program (also hpcd attach and profile), then hpcd merge.";
/** @type {Record<string, [string, string, string, string]>} of each kind of matrix: title, what is counted, what is summed, of what it is */
const KINDS = {
  messages: ["Messages", "Number", "Bytes", "sent in the time in view"],
  waiting: ["Waiting", "Number", "Time", "rows were late"],
  "one-sided": ["One-sided", "Number", "Bytes", "of the whole recording"],
  collectives: ["Collectives", "Number", "Bytes", "by their meaning, of the whole recording"],
};
const COUNTED = "count";
const WIDER = 3; // times a wait: what is shown of the trace around it

const HTML = `
    <section class="messages" aria-label="Messages"><div class="bar">
      <button id="in-trace" title="The chosen wait state in the trace view" disabled>Show in trace</button>
      <output id="what" aria-live="polite"></output></div>
      <ul id="stands-out" class="stands-out" aria-label="What stands out"></ul>
      <div class="message-tiles">
        <div class="tile"><h2 title="Drag to enlarge a part, double click for all ranks">From rank (rows) to rank (columns)</h2>
          <div class="bar"><span id="kinds"></span><span id="amounts"></span><button id="all-ranks" title="All ranks (double click)">All ranks</button><small id="matrix-note"></small></div>
          <div class="fill" id="matrix"></div></div>
        <div class="tile"><h2>Wait states, most severe first <small id="waits-note"></small></h2><div class="grow" id="waits"></div></div>
        <div class="tile"><h2>Sizes of messages</h2><div class="grow" id="sizes"></div></div>
        <div class="tile"><h2>Communicators and collective operations <small id="communicators-note"></small></h2><div class="grow" id="communicators"></div></div>
      </div></section>`;

/**
 * @param {HTMLElement} element
 * @param {PageParts} page
 * @returns {Pane}
 */
export function mountMessages(element, page) {
  if (page.context.summary.recorded.mpi) return new MessagesPane(element, page);
  element.replaceChildren(textElement("p", NO_MESSAGES, "empty"));
  return { dispose() {}, csv: () => [["no messages"]] };
}

class MessagesPane extends AnswerPane {
  /**
   * @param {HTMLElement} element
   * @param {PageParts} page
   */
  constructor(element, page) {
    super(element, page, HTML);
    const { store } = page;
    this.tree = true; // for exports
    this.inTrace = part(element, "in-trace", HTMLButtonElement);
    this.allRanks = part(element, "all-ranks", HTMLButtonElement);
    /** @type {MessagesAnswer | null} */
    this.answer = null;
    /** @type {{ dispose: () => void }[]} */
    this.tables = [];
    /** @type {TreeTable<WaitRow> | null} */
    this.waits = null;
    this.matrixRequests = 0;
    this.matrix = new MatrixView(part(element, "matrix", HTMLElement), (ranks) => store.set({ ranks: ranks?.join(".") }));
    this.inTrace.addEventListener("click", () => this.goToTrace());
    this.allRanks.addEventListener("click", () => store.set({ ranks: undefined }));
    this.ends = [
      store.subscribe(EXTENT, () => this.load()),
      store.subscribe(["matrix", "ranks"], () => this.loadMatrix()),
      store.subscribe(["search", "theme"], () => { this.matrix.draw(); this.waits?.paint(); }),
      this.matrix.dispose, () => this.disposeTables(),
    ];
    this.load();
  }

  disposeTables() {
    this.tables.forEach((table) => table.dispose());
    this.tables = [];
  }

  canvases() { return [this.matrix.canvas]; }

  /** @override */
  async load() {
    const { api, store, context } = this.page;
    const answer = await this.newestAnswer(() => api.messages(store.db, context.extent()));
    if (!answer) return;
    this.answer = answer;
    this.show(answer);
    await this.loadMatrix();
  }

  // Kind of the matrix, and whether numbers rather than amounts are its colours.
  get chosen() {
    const kinds = this.answer?.kinds ?? [];
    const [kind, measure] = (this.page.store.state.matrix ?? "").split(".");
    return { kind: kinds.includes(kind) ? kind : kinds[0], counted: measure === COUNTED };
  }

  async loadMatrix() {
    const { answer } = this;
    const { kind, counted } = this.chosen;
    if (!answer) return;
    this.offerMatrices(answer.kinds, kind, counted);
    if (!kind) { this.matrix.show(null); this.element.dataset.matrix = "none"; return; }
    const { api, store, context } = this.page;
    const chosenRanks = ranksIn(store.state.ranks ?? "", answer.ranks);
    const ranks = chosenRanks ?? [0, answer.ranks, 0, answer.ranks];
    const request = ++this.matrixRequests;
    let cells;
    try { cells = await api.matrix(store.db, context.extent(), kind, ranks, this.matrix.room); } catch (error) {
      if (!this.disposed && !isAbort(error)) context.fail(error);
      return;
    }
    if (this.disposed || request !== this.matrixRequests) return;
    this.allRanks.hidden = chosenRanks === null;
    part(this.element, "matrix-note", HTMLElement).textContent = describeMatrix(kind, counted, cells);
    this.matrix.show({ answer: cells, ranks, kind, counted });
    this.element.dataset.matrix = `${kind} ${ranks.join(".")} ${cells.rows}x${cells.columns}`;
  }

  /**
   * @param {string[]} kinds
   * @param {string} kind
   * @param {boolean} counted
   */
  offerMatrices(kinds, kind, counted) {
    const { store } = this.page;
    const [kindsBox, amountsBox] = [part(this.element, "kinds", HTMLElement), part(this.element, "amounts", HTMLElement)];
    kindsBox.replaceChildren();
    amountsBox.replaceChildren();
    if (!kind) { kindsBox.append("no messages from rank to rank"); return; }
    const choose = (/** @type {string} */ next, /** @type {string} */ measure) => store.set({ matrix: `${next}.${measure}` });
    const measure = counted ? COUNTED : "amount";
    if (kinds.length > 1) buttonGroup(kindsBox, "Matrix", kinds.map((one) => [one, KINDS[one][0], KINDS[one][3]]), (next) => choose(next, measure))(kind);
    const [, counts, amounts] = KINDS[kind];
    buttonGroup(amountsBox, "Colour is", [["amount", amounts], [COUNTED, counts]], (next) => choose(kind, next))(measure);
  }

  /** @param {MessagesAnswer} answer */
  show(answer) {
    const { context } = this.page;
    this.what.textContent = `${formatCount(answer.ranks)} ranks, ${answer.implementation}; in view ${formatCount(answer.messages)} messages, ${formatBytes(answer.bytes)}`
      + (answer.unknown ? `, the size of ${formatCount(answer.unknown)} is not known` : "");
    this.what.title = this.what.textContent;
    part(this.element, "stands-out", HTMLElement).replaceChildren(
      // The first sentence is about the waits for one rank, where there are any.
      answer.waits.length ? linkItem(answer.headline, () => this.showWorstWait()) : textElement("li", answer.headline),
      ...answer.notes.map((text) => textElement("li", text)),
    );
    this.disposeTables();
    this.inTrace.disabled = true;
    this.showWaits(answer);
    this.table("sizes", "Sizes of messages", sizeRows(answer), { heading: "bytes each", nameWidth: 150, sort: 2, descending: false });
    this.table("communicators", "Communicators", communicatorRows(answer), { heading: "communicator", nameWidth: 260 });
    const note = (/** @type {string} */ id, /** @type {number} */ shown, /** @type {number} */ of) => {
      part(this.element, id, HTMLElement).textContent = shown < of ? `the first ${shown} of ${formatCount(of)}` : "";
    };
    note("waits-note", answer.waits.length, answer.waits_of);
    note("communicators-note", answer.communicators.length, answer.communicators_of);
    this.element.dataset.messages = `${answer.messages} ${context.summary.lines}`;
  }

  /** @param {MessagesAnswer} answer */
  showWaits(answer) {
    const { context } = this.page;
    const box = part(this.element, "waits", HTMLElement);
    if (!answer.waits.length) {
      this.waits = null;
      box.replaceChildren(textElement("p", "No rank in view waited for another.", "empty"));
      return;
    }
    const words = (/** @type {WaitRow} */ row) => row.other;
    this.waits = new TreeTable(box, this.page.store, "Wait states", [
      { title: "waiting", value: (row) => row.seconds, text: ({ seconds }) => `${formatTime(seconds * 1e9)}  ${formatPercent(seconds / (answer.waiting || 1))}`, share: ({ seconds }) => seconds / (answer.waiting || 1), width: 124 },
      { title: "waits", value: (row) => row.count, text: ({ count }) => (count ? formatCount(count) : ""), share: () => 0, width: 64 },
      { title: "for rank", value: (row) => -row.rank, text: words, share: () => 0, mark: () => "words", width: 240 },
    ], (row) => this.nameOfWait(row), { choose: (row) => this.chooseWait(row), heading: "wait state, at a call path", nameWidth: 280 });
    this.waits.show(waitRows(answer, (node) => pathText(context.tree, node)));
    this.tables.push(this.waits);
  }

  /** @param {WaitRow} row */
  nameOfWait({ name, node }) {
    const { context } = this.page;
    const text = Object.assign(textElement("span", name), { title: node === null ? name : wholePath(context.tree, node) });
    const hits = context.opened.searchHits();
    if (hits && node !== null) text.className = context.tree.path(node).some((frame) => hits[context.tree.procedure[frame]]) ? "found" : "faded";
    return text;
  }

  /**
   * The crosshair goes into the middle of the wait: of several the longest.
   * @param {WaitRow} row
   */
  chooseWait({ worst, node }) {
    const { tree } = this.page.context;
    this.inTrace.disabled = false;
    return { ...crosshair(worst), ...(node === null ? {} : { about: tree.names[tree.procedure[node]] }) };
  }

  // The costliest wait for the rank that most waits are for.
  showWorstWait() {
    const rows = this.waits?.top ?? [];
    const caused = (/** @type {number} */ rank) => rows.reduce((sum, row) => sum + (row.rank === rank ? row.seconds : 0), 0);
    const [worst] = [...rows].sort((one, two) => caused(two.rank) - caused(one.rank) || two.seconds - one.seconds);
    if (worst) this.waits?.select(worst);
  }

  // The trace view around the chosen wait.
  goToTrace() {
    const worst = this.waits?.current?.worst;
    if (!worst) return;
    const { store, context } = this.page;
    const around = WIDER * Math.max(worst.end - worst.begin, 1);
    const middle = (worst.begin + worst.end) / 2;
    store.set({ ...crosshair(worst), pane: "trace" }, "show in trace");
    if (store.state.t1 - store.state.t0 > around) context.zoomTo({ t0: middle - around / 2, t1: middle + around / 2 }, "show in trace");
  }

  /**
   * @param {string} id
   * @param {string} label
   * @param {{ rows: MessageRow[], columns: import("../widgets/table.js").Column<MessageRow>[] }} content
   * @param {{ heading: string, nameWidth: number, sort?: number, descending?: boolean }} options
   */
  table(id, label, { rows, columns }, options) {
    const named = (/** @type {MessageRow} */ row) => Object.assign(textElement("span", row.name), { title: row.title });
    const table = new TreeTable(part(this.element, id, HTMLElement), this.page.store, label, columns, named, options);
    table.show(rows);
    this.tables.push(table);
  }

  /** @returns {Cell[][]} */
  csv() {
    if (!this.answer) return [["no messages"]];
    const { tree } = this.page.context;
    return [["depth", "wait state", "call path", "for rank", "its call path", "waits", "seconds"],
      ...this.answer.waits.map(({ kind, node, delaying_rank, delaying_node, count, seconds }) => [1, kind, pathText(tree, node), delaying_rank, pathText(tree, delaying_node), count, seconds])];
  }
}

/**
 * Within a wait, not at its begin: there the last sample is still of what was before.
 * @param {WaitingCall} wait
 */
function crosshair({ line, begin, seconds }) { return { line, time: Math.round(begin + seconds * 5e8) }; }

/**
 * Ranks of a part of the matrix, from a link; null where they are none of this recording's.
 * @param {string} text
 * @param {number} size
 */
function ranksIn(text, size) {
  const ranks = text.split(".").map(Number);
  const [s0, s1, d0, d1] = ranks;
  return ranks.length === 4 && s0 < s1 && s1 <= size && d0 < d1 && d1 <= size ? ranks : null;
}

/**
 * @param {string} kind
 * @param {boolean} counted
 * @param {MatrixAnswer} cells
 */
function describeMatrix(kind, counted, { counts, amounts, step }) {
  const most = (counted ? counts : amounts).reduce((one, two) => Math.max(one, two), 0);
  const text = counted ? formatCount(most) : kind === "waiting" ? formatTime(most * 1e9) : formatBytes(most);
  return `${KINDS[kind][3]}; up to ${text}${step > 1 ? ` a cell of ${step} × ${step} ranks` : ""}`;
}
