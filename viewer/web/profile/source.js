// @ts-check
// The code of the chosen procedure with what it cost in what is in view: source lines, or instructions
// if there are no source lines or if they are requested.

import { AnswerPane } from "../core/answer_pane.js";
import { formatQuantity } from "../core/format.js";
import { EXTENT } from "../core/store.js";
import { part } from "../widgets/elements.js";
import { buttonGroup } from "../widgets/segmented_control.js";
import { CodeTable } from "./code_table.js";
import { evaluateAll } from "./formula_input.js";
import { chosenMetric, offerMetrics, procedureRow, selectedProfile, viewEnding } from "./selected_profile.js";

/**
 * @typedef {import("./code_table.js").CodeRow} CodeRow
 * @typedef {import("./code_table.js").Costs} Costs
 * @typedef {import("./profile.js").Profile<ViewTree>} ViewProfile
 *
 * The code of a procedure: one of the two.
 * @typedef {{ source: SourceAnswer } | { assembly: AssemblyAnswer }} Code
 */

/** @type {Choice[]} */
const KINDS = [["lines", "Source"], ["assembly", "Instructions"]];

const ADDRESS = "0x"; // begins the spot of an instruction

const HTML = `
    <section class="source" aria-label="Source"><div class="bar">
      <span id="of"></span><span id="kinds"></span>
      <label>by <select id="metric"></select></label>
      <label id="file-label">in <select id="file"></select></label>
      <button id="hottest" title="Go to the line with the highest exclusive cost">Hottest</button>
      <output id="what" aria-live="polite"></output></div>
      <div class="grow" id="code-table"></div></section>`;

export class Source extends AnswerPane {
  /**
   * @param {HTMLElement} element
   * @param {PageParts} page
   */
  constructor(element, page) {
    super(element, page, HTML);
    const { store } = page;
    this.metric = part(element, "metric", HTMLSelectElement);
    this.file = part(element, "file", HTMLSelectElement);
    this.table = new CodeTable(part(element, "code-table", HTMLElement), (spot) => store.set({ spot }, "spot"));
    this.press = buttonGroup(part(element, "kinds", HTMLElement), "Code", KINDS, (code) => store.set({ code }));
    this.metric.addEventListener("change", () => store.set({ metric: this.metric.value }));
    this.file.addEventListener("change", () => store.set({ spot: `${this.file.value}:0` }));
    part(element, "hottest", HTMLButtonElement).addEventListener("click", () => this.table.go(this.table.hottest()));
    this.ends = [
      store.subscribe([...EXTENT, "about", "code", "metric", "formulas"], () => this.load()),
      store.subscribe(["spot"], () => this.goToSpot()),
      () => this.table.dispose(),
    ];
    this.load();
  }

  csv() { return this.table.csv(); }

  // A row that is clicked stays where it is.
  goToSpot() {
    const row = this.table.find(this.page.store.state.spot);
    if (row < 0) this.load(); else this.table.go(row);
  }

  /** @override */
  async load() {
    this.say("");
    const answer = await this.newestAnswer(async () => {
      const selected = await selectedProfile(this.page);
      const profile = await selected.profile("flat");
      const procedure = this.chosenProcedure(selected, profile);
      return { selected, profile, procedure, code: procedure === undefined ? null : await this.request(procedure) };
    });
    if (!answer) return;
    const { selected, profile, procedure, code } = answer;
    if (procedure === undefined || !code) {
      this.say("no samples in the current view: press Home to show everything");
      this.table.fill([]);
      return;
    }
    const name = this.page.context.opened.procedureOf(profile.tree, procedure);
    Object.assign(part(this.element, "of", HTMLElement), { textContent: this.page.context.tree.shortened(name), title: name });
    this.show(selected, profile, code);
  }

  /** @param {string} text */
  say(text, wrong = false) {
    this.what.textContent = text;
    this.what.classList.toggle("wrong", wrong);
  }

  /**
   * The entity of the view flat that the store's procedure is; the costliest where there is none.
   * @param {SelectedProfile} selected
   * @param {ViewProfile} profile
   */
  chosenProcedure(selected, profile) {
    const { store, context } = this.page;
    const main = chosenMetric(selected.measured, store.state.metric);
    return procedureRow(profile, context.opened, store.state.about, main)?.procedure;
  }

  /**
   * @param {number} procedure
   * @returns {Promise<Code>}
   */
  async request(procedure) {
    const { api, store, context } = this.page;
    const { code, spot } = store.state;
    const entity = { procedure, view: "flat" + viewEnding(store.state) };
    if (code !== "assembly") {
      const file = spot === undefined || spot.startsWith(ADDRESS) ? undefined : Number(spot.split(":")[0]);
      const whole = () => api.source(store.db, context.extent(), entity);
      // The spot may be of another procedure: its file has nothing of this one.
      const source = await (file === undefined ? whole() : api.source(store.db, context.extent(), { ...entity, file }).catch(whole));
      // Where no line is known the instructions are all there is, unless lines are requested.
      if (code === "lines" || source.files.length) return { source };
    }
    return { assembly: await api.assembly(store.db, context.extent(), entity) };
  }

  /**
   * @param {SelectedProfile} selected
   * @param {ViewProfile} profile
   * @param {Code} code
   */
  show(selected, profile, code) {
    const kind = "source" in code ? "lines" : "assembly";
    this.press(kind);
    // The chosen metric stands first, the derived ones beside it.
    const main = chosenMetric(selected.metrics, this.page.store.state.metric);
    offerMetrics(this.metric, selected.metrics, selected.metrics[main].name);
    const derived = selected.formulas.map((_, i) => selected.measured.length + i);
    this.table.setColumns(selected.metrics, profile.total, [main, ...derived.filter((i) => i !== main)]);
    part(this.element, "file-label", HTMLElement).hidden = !("source" in code && code.source.files.length);
    if ("source" in code) this.showLines(code.source, selected); else this.showInstructions(code.assembly, selected);
    this.element.dataset.code = `${kind} ${this.table.rows.length}`;
  }

  /**
   * @param {SourceAnswer} source
   * @param {SelectedProfile} selected
   */
  showLines({ files, shown, unplaced }, selected) {
    const metric = selected.measured[chosenMetric(selected.measured, this.page.store.state.metric)];
    this.file.replaceChildren(...files.map(({ file, name, exclusive }) => (
      new Option(`${name.split("/").pop()}  ${formatQuantity(exclusive[metric.name], metric.unit)}`, String(file)))));
    if (!shown) {
      this.table.fill([]);
      this.say("source lines are unknown: there is no debug information");
      return;
    }
    const { name } = files.find(({ file }) => file === shown.file) ?? { name: "" };
    this.file.value = String(shown.file);
    this.file.title = name;
    const elsewhere = unplaced.reduce((sum, { exclusive }) => sum + exclusive[metric.name], 0);
    const missing = elsewhere ? `; ${formatQuantity(elsewhere, metric.unit)} in lines unknown` : "";
    const note = [shown.found ? selected.note : "", shown.note && `${name}: ${shown.note}`].filter(Boolean).join("; ");
    this.say(note + missing, Boolean(shown.note));
    this.table.fill(lineRows(shown, costsByPlace(shown.lines, selected)), this.page.store.state.spot);
  }

  /**
   * @param {AssemblyAnswer} assembly
   * @param {SelectedProfile} selected
   */
  showInstructions({ code }, selected) {
    this.say(selected.note);
    this.table.fill(code.flatMap((listing) => {
      const { procedure, module, note, text } = listing;
      const costs = costsByPlace(listing.instructions, selected);
      const all = text.length ? text : [...costs.keys()].map((at) => /** @type {[number, string]} */ ([at, ""]));
      return [
        { place: "", text: "", heading: `${this.page.context.tree.shortened(procedure)} of ${module || "no file"}${note ? ` (${note})` : ""}` },
        ...all.map(([at, words]) => ({ place: at.toString(16), text: words, spot: ADDRESS + at.toString(16), costs: costs.get(at) })),
      ];
    }), this.page.store.state.spot);
  }
}

/**
 * Costs of all metrics, by place.
 * @param {PlaceCosts[]} places
 * @param {SelectedProfile} selected
 * @returns {Map<number, Costs>}
 */
function costsByPlace(places, { formulas }) {
  const all = (/** @type {Record<string, number>} */ costs) => evaluateAll(Object.values(costs), formulas);
  return new Map(places.map(({ line, address, inclusive, exclusive }) => [line ?? address, { inclusive: all(inclusive), exclusive: all(exclusive) }]));
}

/**
 * A file's lines; of one that is not there, or is shorter now, the lines that cost something.
 * @param {SourceText} shown
 * @param {Map<number, Costs>} costs
 * @returns {CodeRow[]}
 */
function lineRows({ file, first, text }, costs) {
  const end = first + text.length;
  const others = [...costs].filter(([line]) => line >= end || line < first);
  return [
    ...text.map((words, i) => ({ place: String(first + i), text: words, spot: `${file}:${first + i}`, costs: costs.get(first + i) })),
    ...others.map(([line, cost]) => ({ place: String(line), text: "", spot: `${file}:${line}`, costs: cost })),
  ];
}
