// @ts-check
// The profile as tables: top-down, bottom-up, flat, by loop and by line, of the lines and time in view.

import { AnswerPane } from "../core/answer_pane.js";
import { LOOP, STATEMENT } from "../core/cct.js";
import { formatPercent, formatQuantity } from "../core/format.js";
import { EXTENT } from "../core/store.js";
import { colouredName, part, textElement } from "../widgets/elements.js";
import { segmentedControl } from "../widgets/segmented_control.js";
import { TreeTable } from "../widgets/table.js";
import { NameFilter } from "./name_filter.js";
import { chosenMetric, procedureRow, selectedProfile } from "./selected_profile.js";

/**
 * @typedef {import("./profile.js").Profile<ViewTree>} ViewProfile
 *
 * What the table shows. name: of VIEWS.
 * @typedef {{ name: string, selected: SelectedProfile, profile: ViewProfile, table: TreeTable<Row> }} Shown
 */

/** @type {[string, string, string, number][]} name, title, the view whose tree it is made of (see docs/viewer-api.md), column to sort by */
const VIEWS = [
  ["down", "Top-down", "top-down", 0], ["up", "Bottom-up", "flat", 1], ["flat", "Flat", "flat", 1],
  ["around", "Callers and callees", "flat", 0],
  ["loops", "Loops", "loops", 0], ["lines", "Lines", "lines", 1],
];
const LONGEST = 350; // of a context's nodes in a request

const HTML = `
    <section class="calls" aria-label="Profile"><div class="bar">
      <span id="views"></span>
      <label>Only <input id="only" type="search" placeholder="names with" autocomplete="off"></label>
      <label>Add <input id="formulas" type="search" placeholder="name = formula" autocomplete="off" spellcheck="false"
        title="Metrics by formula: numbers, metrics, + - * / abs sqrt min max; several between semicolons"></label>
      <label id="nameless-label" title="Procedures without names, which an address stands for, have rows of their own; else those that cost little share one for each load module"><input type="checkbox" id="nameless"> nameless</label>
      <button id="hot" title="Open the hot path: the costliest child, while it has at least half of the cost (H)">Hot path</button>
      <button id="over-lines" title="Cost of the chosen row on each line">Over lines</button>
      <button id="code" title="The chosen row's source lines or instructions with their costs">Source</button>
      <output id="what" aria-live="polite"></output></div>
      <div id="table" class="grow"></div></section>`;

export class ProfileTable extends AnswerPane {
  /**
   * @param {HTMLElement} element
   * @param {PageParts} page
   */
  constructor(element, page) {
    super(element, page, HTML);
    const { store } = page;
    this.tree = true; // for exports
    this.only = part(element, "only", HTMLInputElement);
    this.box = part(element, "table", HTMLElement);
    /** @type {Shown | null} */
    this.shown = null;
    /** @type {NameFilter | null} */
    this.filter = null;
    /** @type {Row | null} above the callers of the procedure that is looked at */
    this.callers = null;
    const formulas = part(element, "formulas", HTMLInputElement);
    formulas.value = store.state.formulas ?? "";
    formulas.addEventListener("change", () => store.set({ formulas: formulas.value || undefined }));
    this.only.value = store.state.only ?? "";
    this.only.addEventListener("input", () => store.set({ only: this.only.value || undefined }, "only"));
    this.nameless = part(element, "nameless", HTMLInputElement);
    this.nameless.addEventListener("change", () => store.set({ nameless: this.nameless.checked ? "1" : undefined }));
    for (const [id, act] of Object.entries({
      hot: () => this.hotPath(), "over-lines": () => store.set({ pane: "lines" }), code: () => store.set({ pane: "source" }),
    })) part(element, id, HTMLButtonElement).addEventListener("click", act);
    this.ends = [
      segmentedControl(part(element, "views", HTMLElement), store, "view", "View", VIEWS.map(([name, title]) => [name, title])),
      store.subscribe([...EXTENT, "view", "nameless", "formulas"], () => this.load()),
      store.subscribe(["search", "theme"], () => this.shown?.table.paint()),
      store.subscribe(["only"], () => this.filterNames()),
      () => this.shown?.table.dispose(),
    ];
    this.load();
  }

  hotPath() { this.shown?.table.hotPath(); }

  /** @override */
  async load() {
    const [name, , view, sort] = VIEWS.find(([wanted]) => wanted === this.page.store.state.view) ?? VIEWS[0];
    const answer = await this.newestAnswer(async () => {
      const selected = await selectedProfile(this.page);
      return { selected, profile: await selected.profile(view) };
    });
    if (answer) this.show(name, answer.selected, answer.profile, sort);
  }

  /**
   * @param {string} name of the view
   * @param {SelectedProfile} selected
   * @param {ViewProfile} profile
   * @param {number} sort the column
   */
  show(name, selected, profile, sort) {
    const { store } = this.page;
    this.shown?.table.dispose();
    const rows = name === "around" ? this.rowsAround(selected, profile) : rowsOf(name, profile);
    /** @type {TreeTable<Row>} */
    const table = new TreeTable(this.box, store, "Calling contexts and their costs", columns(selected, profile, store.state.metric), (row) => this.nameOf(row, profile.tree), {
      choose: (row) => this.choose(row), keep: (row) => this.keeps(row), kind: name, sort,
      begin: () => {
        // Both are looked at: what calls the procedure, and what it calls.
        if (name === "around") rows.forEach((row) => table.open.add(row));
        // Where the cost is can be seen at once where nothing is chosen yet.
        else if (!this.reveal(table, profile.tree) && name === "down") table.openHotPath();
      },
    });
    this.shown = { name, selected, profile, table };
    this.filter = this.only.value ? new NameFilter(profile.tree, this.only.value) : null;
    table.show(rows);
    // Another pane may have chosen another one since.
    if (store.state.context && table.current && this.contextOf(table.current, profile.tree) !== store.state.context) this.reveal(table, profile.tree);
    this.what.textContent = selected.wrong || (rows.length ? selected.note : whyEmpty(name, profile));
    this.what.classList.toggle("wrong", Boolean(selected.wrong));
    this.nameless.checked = Boolean(this.page.store.state.nameless);
    part(this.element, "nameless-label", HTMLElement).hidden = !this.nameless.checked && !profile.tree.entities.shared;
    this.element.dataset.rows = `${name} ${rows.length}`;
  }

  /**
   * The chosen procedure, or the one of the highest exclusive cost, twice: above its callees, and above its callers.
   * @param {SelectedProfile} selected
   * @param {ViewProfile} profile
   */
  rowsAround({ metrics }, profile) {
    const { context, store } = this.page;
    const about = procedureRow(profile, context.opened, store.state.about, chosenMetric(metrics, store.state.metric));
    if (!about) return [];
    const nodes = profile.everywhere(about.procedure);
    this.callers = profile.callers(about.procedure, nodes, nodes);
    return [this.callers, profile.callees(about.procedure, nodes)];
  }

  /**
   * @param {Row} row
   * @param {ViewTree} tree
   */
  nameOf(row, tree) {
    const { procedure } = row;
    const { context } = this.page;
    const { kind, files, file, line } = tree.entities;
    const box = colouredName(context.opened.css(procedure, tree), tree.short[procedure]);
    const hits = context.opened.searchHits(tree);
    box.className = hits ? (hits[procedure] ? "found" : "faded") : "";
    box.classList.toggle("scope", kind[procedure] > 0);
    if (this.shown?.name === "around" && this.shown.table.top.includes(row)) box.append(textElement("small", row === this.callers ? "called by" : "calls"));
    box.title = tree.names[procedure] + (file[procedure] ? `\n${files[file[procedure]]}:${line[procedure]}` : "");
    return box;
  }

  /**
   * Opens the tree to the next row that the search finds, or the one before, and selects it.
   * @param {number} step
   */
  goToMatch(step) {
    const { search } = this.page.store.state;
    if (!this.shown || !search) return null;
    const { name, profile: { tree }, table } = this.shown;
    const paths = new NameFilter(tree, search).paths(table.top, (rows) => table.sorted(rows), name === "down");
    if (!paths.length) return null;
    const at = paths.findIndex((path) => path[path.length - 1] === table.current);
    const next = at < 0 ? (step > 0 ? 0 : paths.length - 1) : (at + step + paths.length) % paths.length;
    const row = paths[next][paths[next].length - 1];
    for (const above of paths[next].slice(0, -1)) table.open.add(above);
    table.lay();
    table.select(row);
    return { at: next + 1, count: paths.length };
  }

  filterNames() {
    const { only = "" } = this.page.store.state;
    if (this.only.value !== only) this.only.value = only;
    if (!this.shown) return;
    this.filter = this.only.value ? new NameFilter(this.shown.profile.tree, this.only.value) : null;
    this.shown.table.lay();
  }

  /** @param {Row} row */
  keeps(row) {
    if (!this.filter || !this.shown) return true;
    if (this.shown.name === "down") return this.filter.isOnPath(row);
    return !this.shown.table.top.includes(row) || this.filter.fits(row);
  }

  /**
   * Opens the table to the row that was chosen, as a link says; whether it is there.
   * @param {TreeTable<Row>} table
   * @param {ViewTree} tree
   */
  reveal(table, tree) {
    const { context } = this.page.store.state;
    /** @type {Set<number>} */
    const way = new Set();
    if (context?.startsWith("n")) for (let node = parseInt(context.slice(1), 10); node > 0; node = tree.parent[node]) way.add(node);
    for (let rows = table.top; rows.length;) {
      const row = rows.find((one) => this.contextOf(one, tree) === context);
      if (row) { table.current = row; table.lay(); table.scrollTo(row); return true; }
      const above = rows.find(({ nodes }) => nodes.some((node) => way.has(node)));
      if (above) table.open.add(above);
      rows = above?.children() ?? [];
    }
    return false;
  }

  /**
   * @param {Row} row
   * @param {ViewTree} tree
   */
  contextOf(row, tree) { return (tree.view === "top-down" && nodesOf(row, tree)) || `${tree.view}:${tree.names[row.procedure]}`; }

  /**
   * The other panes are about a row then: over lines its context, the code its procedure.
   * @param {Row} row
   */
  choose(row) {
    if (!this.shown) return {};
    const { profile: { tree } } = this.shown;
    const { kind, file, line } = tree.entities;
    const { procedure } = row;
    const placed = kind[procedure] >= LOOP && kind[procedure] <= STATEMENT && file[procedure];
    return {
      context: this.contextOf(row, tree),
      about: this.page.context.opened.procedureOf(tree, procedure),
      spot: placed ? `${file[procedure]}:${line[procedure]}` : undefined,
    };
  }

  /** @returns {Cell[][]} */
  csv() {
    if (!this.shown) return [["no profile"]];
    const { selected: { metrics }, profile: { tree }, table } = this.shown;
    return [
      ["depth", "procedure", ...metrics.flatMap(({ name, unit }) => [`${name} (${unit || "count"})`, `${name} self`])],
      ...table.shown.map(({ row, level }) => [level, tree.names[row.procedure], ...metrics.flatMap((_, i) => [row.inclusive[i], row.exclusive[i]])]),
    ];
  }
}

/**
 * Inclusive and exclusive costs of each metric; the one that is looked at stands first, what was added beside it.
 * @param {SelectedProfile} selected
 * @param {ViewProfile} profile
 * @param {string | undefined} metric
 * @returns {import("../widgets/table.js").Column<Row>[]}
 */
function columns({ metrics, measured }, profile, metric) {
  const main = chosenMetric(metrics, metric);
  const rank = (/** @type {number} */ i) => (i === main ? 0 : i >= measured.length ? 1 : 2);
  const order = metrics.map((_, i) => i).sort((one, two) => rank(one) - rank(two) || one - two);
  return order.flatMap((i) => /** @type {const} */ (["inclusive", "exclusive"]).map((kind) => {
    const { name, unit, additive = true } = metrics[i];
    const share = (/** @type {Row} */ row) => (additive ? row[kind][i] / (profile.total[i] || 1) : 0);
    return {
      title: name.replaceAll("_", " ") + (kind === "exclusive" ? " self" : ""),
      value: (/** @type {Row} */ row) => row[kind][i],
      text: (/** @type {Row} */ row) => (row[kind][i] ? formatQuantity(row[kind][i], unit, additive ? profile.total[i] : undefined) + (additive ? `  ${formatPercent(share(row))}` : "") : ""),
      share,
    };
  }));
}

/**
 * The outermost rows of a view.
 * @param {string} name
 * @param {ViewProfile} profile
 */
function rowsOf(name, profile) {
  if (name === "down") return profile.root().children();
  if (name === "up") return profile.procedures();
  const { listed, kind } = profile.tree.entities;
  // Code whose line is unknown leaves its cost with the procedure.
  return profile.procedures(false).filter(({ procedure, exclusive }) => (
    listed[procedure] || (name === "lines" && kind[procedure] < LOOP && exclusive.some(Boolean))));
}

/**
 * @param {string} name
 * @param {ViewProfile} profile
 */
function whyEmpty(name, profile) {
  if (name === "loops" && !profile.tree.entities.kind.includes(LOOP)) return "no loops are known: the program's code could not be read";
  return "no samples in the current view: press Home to show everything";
}

/**
 * The nodes of a row of the tree from the top, as a request names them; null of too many.
 * @param {Row} row
 * @param {ViewTree} tree
 */
function nodesOf(row, { parent }) {
  const inside = new Set(row.nodes);
  const text = "n" + [...inside].filter((node) => !inside.has(parent[node])).join(".");
  return inside.size && text.length < LONGEST ? text : null;
}
