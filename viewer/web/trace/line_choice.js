// @ts-check
// Which lines are shown and in what order: one bar above all panes.

import { messageOf } from "../core/failure.js";
import { formatCount, formatTime } from "../core/format.js";
import { CHOICE } from "../core/store.js";
import { mountPhaseChoice } from "../recorded/phase_choice.js";
import { part } from "../widgets/elements.js";

const BY_HAND = "by hand"; // no order of the server's
const SORTS = [["", "rank"], ["start", "start time"], ["tree", "process tree"], ["label", "name"]];
const GROUPS = [["", "nothing"], ["job", "job"], ["rank", "rank"], ["process", "process"], ["host", "node"], ["user", "user"]];

const HTML = `
    <label class="of-lines">Lines sorted by <select id="sort"></select></label>
    <label class="of-lines">grouped by <select id="group"></select></label>
    <label id="all-lines-label" title="A row of its own for every line, also of threads that hardly ran or lived briefly"><input type="checkbox" id="all-lines"> all lines</label>
    <button id="partners-choice" title="Only lines that it wakes or is woken by; a click shows all (O)"></button>
    <span id="phase-choice"></span>
    <button id="extent-choice" title="Costs, calls and messages are of this range; a click or Escape selects nothing"></button>
    <output id="count" aria-live="polite"></output>`;

/** @typedef {Pick<SelectionAnswer, "count" | "lines" | "partners">} ChoiceSize rows and lines of a choice */

/** The sizes of choices of lines, each requested once. */
class ChoiceSizes {
  /**
   * @param {Store} store
   * @param {Pick<Api, "selection">} api
   */
  constructor(store, api) {
    this.store = store;
    this.api = api;
    /** @type {Map<string, ChoiceSize>} by database and choice */
    this.counts = new Map();
  }

  /**
   * @param {LineChoice} choice
   * @param {string} [db]
   */
  key({ filter, sort, group, all, unfolded, partners }, db = this.store.state.db) {
    return JSON.stringify([db, ...[filter, sort, group, all, unfolded, partners].map((value) => value ?? "")]);
  }

  /**
   * What is known already; undefined where nothing is.
   * @param {LineChoice} choice
   */
  known(choice) { return this.counts.get(this.key(choice)); }

  /**
   * @param {LineChoice} choice
   * @param {string} [db]
   */
  async ask(choice, db = this.store.db) {
    const key = this.key(choice, db);
    const counted = this.counts.get(key);
    if (counted !== undefined) return counted;
    const size = await this.api.selection(db, choice);
    this.counts.set(key, size);
    return size;
  }

  /**
   * Of a newer revision of the database.
   * @param {LineChoice} choice
   * @param {ChoiceSize} size of this choice
   */
  renew(choice, size) {
    this.counts.clear();
    this.counts.set(this.key(choice), size);
  }
}

/** The bar's controls, the choice of lines they make, and the number of rows of each choice. */
export class LineChoiceBar {
  /**
   * @param {HTMLElement} element
   * @param {PageParts} page
   */
  constructor(element, page) {
    element.innerHTML = HTML;
    this.page = page;
    this.element = element;
    this.sort = part(element, "sort", HTMLSelectElement);
    this.group = part(element, "group", HTMLSelectElement);
    this.allLines = part(element, "all-lines", HTMLInputElement);
    this.allLinesLabel = part(element, "all-lines-label", HTMLElement);
    this.output = part(element, "count", HTMLOutputElement);
    this.extent = part(element, "extent-choice", HTMLButtonElement);
    this.partners = part(element, "partners-choice", HTMLButtonElement);
    this.sizes = new ChoiceSizes(page.store, page.api);
    this.changes = 0;
    /** @type {LineChoice} changes whose number of rows is not known yet */
    this.pending = {};
    for (const [value, title] of GROUPS) this.group.append(new Option(title, value));
    this.phases = mountPhaseChoice(part(element, "phase-choice", HTMLElement), page, (text) => this.say(text, true));
    this.listen();
    page.store.subscribe(["db", ...CHOICE, "phase", "s0", "s1", "r0", "r1"], () => this.show());
  }

  listen() {
    this.sort.addEventListener("change", () => this.change({ sort: this.sort.value }));
    this.group.addEventListener("change", () => this.change({ group: this.group.value }));
    this.extent.addEventListener("click", () => this.page.context.unselect());
    this.partners.addEventListener("click", () => this.page.context.togglePartners());
    this.allLines.addEventListener("change", () => this.change({ all: this.allLines.checked ? "1" : "", unfolded: "" }));
  }

  show() {
    const { store, context } = this.page;
    const { sort, group, all, moved } = store.state;
    const { metrics, lines, rows } = context.summary;
    this.allLines.checked = Boolean(all);
    this.allLinesLabel.hidden = rows === lines;
    this.sort.replaceChildren(...[...SORTS, ...metrics.map(({ name }) => [name, name.replaceAll("_", " ")])].map(([value, title]) => new Option(title, value)));
    if (moved) this.sort.prepend(new Option(BY_HAND));
    this.sort.value = moved ? BY_HAND : sort ?? "";
    this.group.value = group ?? "";
    // One line has no order.
    this.element.querySelectorAll(".of-lines").forEach((label) => label.toggleAttribute("hidden", lines < 2));
    const selected = context.selection();
    this.extent.hidden = !selected;
    if (selected) this.extent.textContent = `selected: ${formatTime(selected.t0, context.summary.duration_ns)} to ${formatTime(selected.t1, context.summary.duration_ns)} ×`;
    this.phases.show();
    this.showCount();
  }

  // Back and links lead to choices that were not counted yet.
  showCount() {
    const { store, context } = this.page;
    const choice = { ...store.state };
    this.partners.hidden = !choice.partners;
    this.partners.textContent = `with ${this.sizes.known(choice)?.partners ?? "one line"} ×`;
    if (this.sizes.known(choice) !== undefined || !CHOICE.some((key) => choice[key])) {
      this.say(describeChoice(context.summary, this.size()));
      return;
    }
    this.say("");
    const key = this.sizes.key(choice);
    const now = () => key === this.sizes.key(store.state);
    this.sizes.ask(choice).then(() => { if (now()) this.showCount(); }, (error) => { if (now()) this.say(messageOf(error), true); });
  }

  /** @param {string} text */
  say(text, wrong = false) {
    this.output.textContent = text;
    this.output.classList.toggle("wrong", wrong);
  }

  /**
   * Asks for the number of rows of a choice, which is shown when that is known. Changes that are made while
   * the server counts are made together.
   * @param {LineChoice} patch
   */
  async change(patch) {
    const { store, context } = this.page;
    const { filter, sort, group, all, unfolded, moved, partners } = store.state;
    const pending = this.pending = { ...this.pending, ...patch };
    const sorts = "sort" in pending || "group" in pending;
    const next = { filter, sort, group, all, unfolded, partners, moved: sorts ? "" : moved, ...pending };
    const change = ++this.changes;
    try {
      const { count } = await this.sizes.ask(next);
      if (change !== this.changes) return;
      this.pending = {};
      if (!count) { this.say("no line matches", true); return; }
      store.set({ ...next, ...(count !== context.count() ? { l0: 0, l1: count } : {}), r0: undefined, r1: undefined });
    } catch (error) {
      if (change !== this.changes) return;
      this.pending = {};
      this.say(messageOf(error), true);
    }
  }

  // Folds or unfolds launchers and helper threads.
  toggleFold() { this.change({ unfolded: this.page.store.state.unfolded ? "" : "1" }); }

  /** @returns {ChoiceSize} of the choice that is shown */
  size() {
    const { store, context: { summary: { lines, rows } } } = this.page;
    return this.sizes.known(store.state) ?? { count: store.state.all ? lines : rows, lines };
  }
}

/**
 * How many lines are chosen, in how many rows, and whether samples were dropped.
 * @param {Summary} summary
 * @param {ChoiceSize} size
 */
function describeChoice({ lines, losses }, size) {
  const dropped = losses.reduce((sum, [, , , samples]) => sum + samples, 0);
  const all = `${formatCount(lines)} line${lines === 1 ? "" : "s"}`;
  return (size.lines < lines ? `${formatCount(size.lines)} of ${all}` : all)
    + (size.count < size.lines ? ` in ${formatCount(size.count)} row${size.count === 1 ? "" : "s"}` : "")
    + (dropped ? `, ${formatCount(dropped)} samples dropped` : "");
}
