// @ts-check
// Where all threads stand at one moment: of the recording, or of the processes that are being recorded now.

import { AnswerPane } from "../core/answer_pane.js";
import { formatCount, formatTime } from "../core/format.js";
import { colouredName, linkItem, part, textElement } from "../widgets/elements.js";
import { segmentedControl } from "../widgets/segmented_control.js";
import { TreeTable } from "../widgets/table.js";

/**
 * @typedef {object} Row of the answer; number is its place in it
 * @property {string} name
 * @property {number} number
 * @property {Row[]} below
 * @property {() => Row[]} children
 */

const FRAMES = 0;
const WAIT = 1;
const STEPS = 1000; // of the slider
const SLIDE_MS = 120; // how long it stands still before stacks are requested
const LONGEST_RUN = 100; // characters of a run of frames; of longer ones the middle is left out
const START = /^__libc_start_(main|call_main)/; // what calls main, or another of these
const MOST_OPEN = 400; // rows that are shown at once; of larger trees the waits are closed
const NO_NOW = "Now: not after the end of a recording";
const WHY_NO_NOW = "The processes of a recording that has ended are not followed any more. hpcd view --live shows where those of one that is being recorded stand now, hpcd stacks those of any that run.";
const NO_THREADS = "No thread lived at this moment of the recording. Move the slider, or click a moment in the trace view.";

const HTML = `
    <section class="calls stacks" aria-label="Stacks"><div class="bar">
      <span id="moments"></span>
      <span class="bar-part" id="recorded"><label>At <input id="at" type="number" min="0" step="any" autocomplete="off"> s</label>
      <input id="slider" type="range" min="0" max="${STEPS}" step="1" aria-label="Moment of the recording"></span>
      <button id="again" title="Read the stacks of the running processes once more">Read again</button>
      <label><input id="kernel" type="checkbox"> Kernel frames</label>
      <output id="what" aria-live="polite"></output></div>
      <ul id="stands-out" class="stands-out" aria-label="What stands out"></ul>
      <div id="table" class="grow"></div></section>`;

export class Stacks extends AnswerPane {
  /**
   * @param {HTMLElement} element
   * @param {PageParts} page
   */
  constructor(element, page) {
    super(element, page, HTML);
    const { store, context } = page;
    this.tree = true; // for exports
    this.at = part(element, "at", HTMLInputElement);
    this.slider = part(element, "slider", HTMLInputElement);
    this.kernel = part(element, "kernel", HTMLInputElement);
    this.again = part(element, "again", HTMLButtonElement);
    this.box = part(element, "table", HTMLElement);
    /** @type {{ answer: StacksAnswer, rows: Row[], table: TreeTable<Row> } | null} rows by their numbers */
    this.shown = null;
    this.timer = 0;
    const moments = part(element, "moments", HTMLElement);
    if (!context.summary.present) moments.append(Object.assign(textElement("small", NO_NOW), { title: WHY_NO_NOW }));
    this.ends = [
      ...(context.summary.present ? [segmentedControl(moments, store, "moment", "Moment", [["now", "Now", "Read the running processes"], ["recorded", "Recorded", "A moment of the recording"]])] : []),
      store.subscribe(["db", "time", "moment", "kernel"], () => this.load()),
      // A recording that grows has all its past moments already.
      store.subscribe(["revision"], () => this.showMoment()),
      store.subscribe(["search", "theme"], () => this.shown?.table.paint()),
      () => clearTimeout(this.timer), () => this.shown?.table.dispose(),
    ];
    this.kernel.addEventListener("change", () => store.set({ kernel: this.kernel.checked ? "1" : undefined }));
    this.again.addEventListener("click", () => this.load());
    this.at.addEventListener("change", () => this.moveTo(this.at.valueAsNumber * 1e9));
    this.slider.addEventListener("input", () => {
      const time = Number(this.slider.value) / STEPS * context.summary.duration_ns;
      this.at.value = secondsOf(time, context.summary.duration_ns);
      clearTimeout(this.timer);
      this.timer = window.setTimeout(() => this.moveTo(time), SLIDE_MS);
    });
    this.load();
  }

  /** @param {number} time ns; what is no number is passed over */
  moveTo(time) {
    if (!Number.isFinite(time)) { this.showMoment(); return; }
    this.page.store.set({ time: Math.round(Math.min(Math.max(time, 0), this.page.context.summary.duration_ns)) });
  }

  get now() { return Boolean(this.page.context.summary.present) && this.page.store.state.moment !== "recorded"; }

  // The crosshair's moment, else the middle of what is in view.
  get time() {
    const { time, t0, t1 } = this.page.store.state;
    return Math.min(Math.max(time ?? Math.round((t0 + t1) / 2), 0), this.page.context.summary.duration_ns);
  }

  showMoment() {
    const { duration_ns } = this.page.context.summary;
    this.at.value = secondsOf(this.time, duration_ns);
    this.at.max = String(duration_ns / 1e9);
    this.slider.value = String(Math.round(this.time / duration_ns * STEPS));
    part(this.element, "recorded", HTMLElement).hidden = this.now;
    this.again.hidden = !this.now;
    this.kernel.checked = Boolean(this.page.store.state.kernel);
  }

  /** @override */
  async load() {
    const { api, store } = this.page;
    this.showMoment();
    const answer = await this.newestAnswer(
      () => api.stacks(store.db, this.now ? null : this.time, Boolean(store.state.kernel)),
      this.now ? "reading the running processes …" : undefined,
    );
    if (!answer) return;
    this.show(answer);
  }

  /** @param {StacksAnswer} answer */
  show(answer) {
    const { context } = this.page;
    this.shown?.table.dispose();
    this.what.textContent = [answer.headline, ...answer.notes].join("; ");
    this.what.title = this.what.textContent;
    part(this.element, "stands-out", HTMLElement).replaceChildren(...answer.findings.map(({ text, row }) => linkItem(text, () => this.reveal(row))));
    const rows = rowsOf(answer);
    const top = rows.filter((_, number) => !answer.parent[number]);
    /** @type {TreeTable<Row>} */
    const table = new TreeTable(this.box, this.page.store, "Where threads stand", columns(answer), (row) => this.nameOf(answer, row), {
      choose: (row) => this.choose(answer, row), begin: () => openPlaces(table, top, answer),
    });
    this.shown = { answer, rows, table };
    if (!answer.threads) {
      table.dispose();
      this.box.replaceChildren(textElement("p", NO_THREADS, "empty"));
    } else table.show(top);
    this.element.dataset.stacks = `${this.now ? "now" : formatTime(this.time, context.summary.duration_ns)} ${answer.threads}`;
  }

  /**
   * @param {StacksAnswer} answer
   * @param {Row} row
   */
  nameOf({ kind, names, short }, { number }) {
    const { context } = this.page;
    if (kind[number] !== FRAMES) return Object.assign(textElement("span", names[number][0], kind[number] === WAIT ? "wait" : "thread"), { title: names[number][0] });
    const run = fromMain(names[number]);
    const read = short[number].slice(-run.length);
    const last = context.tree.numbers.get(run[run.length - 1]);
    const box = colouredName(last === undefined ? "var(--same)" : context.opened.css(last), shortened(read));
    const hits = context.opened.searchHits();
    const hit = hits && run.some((name) => hits[context.tree.numbers.get(name) ?? -1]);
    box.className = hits ? (hit ? "found" : "faded") : "";
    box.title = run.join("\n");
    return box;
  }

  /**
   * Opens the table to a row, and selects it.
   * @param {number} number
   */
  reveal(number) {
    if (!this.shown) return;
    const { table, rows, answer: { parent } } = this.shown;
    for (let above = parent[number]; above; above = parent[above - 1]) table.open.add(rows[above - 1]);
    table.lay();
    table.select(rows[number]);
  }

  /**
   * A thread's trace line gets the crosshair, and other panes are about a row's procedure.
   * @param {StacksAnswer} answer
   * @param {Row} row
   */
  choose({ kind, names, line }, { number }) {
    const at = line[number];
    const about = kind[number] === FRAMES ? { about: names[number][names[number].length - 1] } : {};
    return { ...(at === null ? {} : { line: at, time: this.time }), ...about };
  }

  /** @returns {Cell[][]} */
  csv() {
    if (!this.shown) return [["no stacks"]];
    const { answer, table } = this.shown;
    return [["depth", "call path", "threads", "processes", "longest (s)"], ...table.shown.map(({ row: { number }, level }) => [
      level, answer.names[number].join(" > "), answer.threads_of[number], answer.processes[number], answer.longest[number] ?? ""])];
  }
}

/**
 * @param {number} time ns
 * @param {number} span ns
 */
function secondsOf(time, span) { return (time / 1e9).toFixed(Math.max(0, Math.min(9, 4 - Math.floor(Math.log10(Math.max(span, 1) / 1e9))))); }

/**
 * Without what calls main: the loader and the C library.
 * @param {string[]} run
 */
function fromMain(run) {
  const main = Math.max(run.indexOf("main"), run.reduce((last, name, i) => (START.test(name) ? i + 1 : last), 0));
  return main > 0 && main < run.length ? run.slice(main) : run;
}

/**
 * The names of a run of frames; where they are too long for a row, without those in its middle.
 * @param {string[]} run
 */
function shortened(run) {
  let [head, tail] = [Math.ceil(run.length / 2), Math.floor(run.length / 2)];
  const text = () => [...run.slice(0, head), ...(head + tail < run.length ? [`… ${run.length - head - tail} more …`] : []), ...(tail ? run.slice(-tail) : [])].join(" › ");
  while (head + tail > 2 && text().length > LONGEST_RUN) { if (head >= tail) head--; else tail--; }
  return text();
}

/** @param {StacksAnswer} answer */
function rowsOf({ parent, names }) {
  /** @type {Row[]} */
  const rows = [];
  parent.forEach((above, number) => {
    /** @type {Row[]} */
    const below = [];
    const row = { name: names[number].join("\n"), number, below, children: () => below };
    rows.push(row);
    if (above) rows[above - 1].below.push(row);
  });
  return rows;
}

/**
 * All places are open, the threads at each are not; of many places the outermost.
 * @param {TreeTable<Row>} table
 * @param {Row[]} top
 * @param {StacksAnswer} answer
 */
function openPlaces(table, top, { kind }) {
  let pending = top;
  let count = top.length;
  while (pending.length && count < MOST_OPEN) {
    const next = pending.filter(({ number, below }) => kind[number] === FRAMES && below.length);
    for (const row of next) table.open.add(row);
    pending = next.flatMap(({ below }) => below);
    count += pending.length;
  }
}

/**
 * @param {StacksAnswer} answer
 * @returns {import("../widgets/table.js").Column<Row>[]}
 */
function columns({ threads, threads_of, processes, since, longest }) {
  return [
    { title: "threads", value: ({ number }) => threads_of[number], text: ({ number }) => formatCount(threads_of[number]), share: ({ number }) => threads_of[number] / threads },
    { title: "processes", value: ({ number }) => -(Number(/\d+/.exec(processes[number])?.[0] ?? 0)), text: ({ number }) => processes[number], share: () => 0, mark: () => "words" },
    { title: "off its CPU since", value: ({ number }) => longest[number] ?? 0, text: ({ number }) => since[number], share: () => 0, mark: () => "words" },
  ];
}
