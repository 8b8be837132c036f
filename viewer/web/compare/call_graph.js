// @ts-check
// The aligned call graph: every context once, with what it cost each side and what became of it.
// Moving a slider judges all of them anew, here.

import { formatCount, formatQuantity } from "../core/format.js";
import { part, textElement } from "../widgets/elements.js";
import { chosen, segmentedControl } from "../widgets/segmented_control.js";
import { TreeTable } from "../widgets/table.js";
import { TREE_KINDS } from "./aligned_tree.js";
import { CHANGE_CLASSES, CHANGE_LABELS, changeText, isDifference, sideLetter } from "./changes.js";
import { listEntry } from "./list_entry.js";

/** @typedef {import("../widgets/table.js").Column<Row>} Column */

const MOST_LISTED = 100;

const HTML = `<div class="beside-list"><div class="grow" id="graph-table"></div>
    <aside class="differing" aria-label="Contexts that differ"><h2 title="The program's own contexts, without their callees">Contexts that differ</h2><ol id="regions"></ol></aside></div>`;

/** @type {MountView} */
export async function mountCallGraph(element, view, stale) {
  const comparison = await view.aligned();
  return stale() ? null : new CallGraph(element, view, comparison);
}

class CallGraph {
  /**
   * @param {HTMLElement} element
   * @param {ViewParts} view
   * @param {AlignedTree} comparison
   */
  constructor(element, view, comparison) {
    const { store, tools } = view;
    element.innerHTML = HTML;
    this.view = view;
    this.comparison = comparison;
    this.box = part(element, "graph-table", HTMLElement);
    this.regions = part(element, "regions", HTMLElement);
    this.steps = comparison.sides.slice(1).map((_, step) => step);
    // Of each node whether it or one below it differs.
    this.different = new Uint8Array(comparison.database.tree.parent.length);
    this.columns = [...this.costColumns(), ...this.changeColumns()];
    this.table = this.fill();
    const only = Object.assign(document.createElement("input"), { type: "checkbox", id: "differing", checked: Boolean(store.state.differing) });
    only.addEventListener("change", () => store.set({ differing: only.checked ? "1" : "" }));
    this.ends = [
      segmentedControl(tools, store, "view", "Tree", TREE_KINDS),
      store.subscribe(["sensitivity", "hotspot"], () => this.judge()),
      store.subscribe(["differing"], () => { only.checked = Boolean(store.state.differing); this.table.lay(); }),
      store.subscribe(["view"], () => {
        this.table.dispose();
        this.table = this.fill();
        this.report();
      }),
      store.subscribe(["search", "theme"], () => this.table.paint()),
    ];
    const label = document.createElement("label");
    label.append(only, "only what differs");
    tools.append(label);
    this.report();
  }

  dispose() {
    this.table.dispose();
    this.ends.forEach((end) => end());
  }

  hotPath() { this.table.hotPath(); }

  get kind() { return chosen(TREE_KINDS, this.view.store.state.view); }

  /**
   * Costs of all sides, then variances: with callees where the tree shows them.
   * @param {Row} row
   */
  values(row) { return this.kind === "down" ? row.inclusive : row.exclusive; }

  /**
   * @param {Row} row
   * @param {number} step
   */
  change(row, step) { return this.comparison.change(this.values(row), step, this.view.limits()); }

  /** @returns {Column[]} */
  costColumns() {
    const { sides, unit, total } = this.comparison;
    return sides.map(({ label }, side) => ({
      title: `${sideLetter(side)}  ${label}`,
      value: (row) => this.values(row)[side],
      text: (row) => (this.values(row)[side] ? formatQuantity(this.values(row)[side], unit) : ""),
      share: (row) => this.values(row)[side] / (total[side] || 1),
      // Where a side has nothing a gap shows where it would be.
      mark: (row) => (this.values(row)[side] ? "" : "gap"),
    }));
  }

  /** @returns {Column[]} */
  changeColumns() {
    return this.steps.map((step) => ({
      title: `${sideLetter(step)} to ${sideLetter(step + 1)}`,
      value: (row) => Math.abs(this.values(row)[step + 1] - this.values(row)[step]),
      text: (row) => changeText(this.change(row, step), this.values(row)[step], this.values(row)[step + 1]),
      share: () => 0,
      mark: (row) => `change ${CHANGE_CLASSES[this.change(row, step)]}`,
    }));
  }

  fill() {
    const { comparison, kind, view: { store } } = this;
    const { profile, sides } = comparison;
    /** @type {TreeTable<Row>} */
    const table = new TreeTable(this.box, store, "Aligned calling contexts and their costs", this.columns, (row) => comparison.tag(row),
      { keep: (row) => this.keeps(row), begin: () => { if (kind === "down") this.openDifferences(table); }, kind, sort: sides.length - 1 });
    this.different = this.judgeNodes();
    table.show(kind === "down" ? profile.root().children() : profile.procedures(kind === "up"));
    return table;
  }

  /** @param {Row} row */
  differs(row) { return row.nodes.some((node) => this.different[node] === 1); }

  /**
   * What is below the hotspot threshold on all sides is not judged, and not shown.
   * @param {Row} row
   */
  keeps(row) {
    if (this.steps.every((step) => ["", "minor"].includes(CHANGE_CLASSES[this.change(row, step)]))) return false;
    return !this.view.store.state.differing || this.steps.some((step) => isDifference(this.change(row, step))) || this.differs(row);
  }

  judge() {
    this.different = this.judgeNodes();
    this.table.lay();
    this.report();
  }

  report() {
    this.list();
    const counts = this.comparison.steps(this.view.limits()).map(({ common, gone, added, different }, step) =>
      `${formatCount(common)} contexts in common, ${formatCount(gone)} only in ${sideLetter(step)}, ${formatCount(added)} only in ${sideLetter(step + 1)}; ${formatCount(different)} of those in common differ`);
    this.view.say(counts.length === 1 ? counts[0] : counts.map((text, step) => `${sideLetter(step)} to ${sideLetter(step + 1)}: ${text}`).join(" · "));
    this.view.done(`graph ${this.kind} ${this.table.shown.length} ${this.different.reduce((sum, one) => sum + one, 0)}`);
  }

  // Of each node 1 where it differs somewhere; of the top-down tree, or one below it.
  judgeNodes() {
    const { comparison, kind } = this;
    const { inclusive, exclusive } = comparison.profile;
    const { parent } = comparison.database.tree;
    const costs = kind === "down" ? inclusive : exclusive;
    const limits = this.view.limits();
    const different = new Uint8Array(parent.length);
    for (let node = different.length - 1; node > 0; node--) {
      if (!different[node]) {
        const values = costs.map((cost) => cost[node]);
        if (this.steps.some((step) => isDifference(comparison.change(values, step, limits)))) different[node] = 1;
      }
      if (different[node] && kind === "down") different[parent[node]] = 1;
    }
    return different;
  }

  // The program's own contexts that differ, beside the tree.
  list() {
    const { comparison } = this;
    const { names, short } = comparison.database.tree;
    const regions = comparison.differing(this.view.limits());
    this.regions.replaceChildren(...regions.slice(0, MOST_LISTED).map(({ node, values, changes }) => listEntry(
      comparison.pathOf(node, short), comparison.pathOf(node, names), comparison.sides.map((_, side) => formatQuantity(values[side], comparison.unit)).join(" → "),
      changes.map((change) => [CHANGE_CLASSES[change], CHANGE_LABELS[change]]), () => this.reveal(node),
    )));
    if (!regions.length) this.regions.replaceChildren(textElement("li", "None above the thresholds."));
  }

  /**
   * Opens the top-down tree down to a context.
   * @param {number} node
   */
  reveal(node) {
    const gesture = `context ${node}`;
    this.view.store.set({ view: "down", differing: "" }, gesture);
    const { table } = this;
    let rows = table.top;
    /** @type {Row | null} */
    let last = null;
    for (const context of this.comparison.database.tree.path(node)) {
      const next = rows.find(({ nodes }) => nodes.includes(context));
      if (!next) break;
      if (last) table.open.add(last);
      last = next;
      rows = next.children();
    }
    table.lay();
    if (last) table.select(last, gesture);
  }

  /**
   * Down to what differs; or, where nothing does, to where the program divides.
   * @param {TreeTable<Row>} table
   */
  openDifferences(table) {
    const pending = table.top.map((row) => ({ row, alone: table.top.length === 1 }));
    for (let next = pending.pop(); next; next = pending.pop()) {
      const { row, alone } = next;
      if (!this.keeps(row) || !(alone || this.differs(row))) continue;
      table.open.add(row);
      const rows = row.children();
      pending.push(...rows.map((child) => ({ row: child, alone: alone && rows.length === 1 })));
    }
  }

  /** @returns {Cell[][]} */
  csv() {
    const { sides, unit, database: { tree: { names } } } = this.comparison;
    return [["depth", "procedure", ...sides.map(({ label }) => `${label} (${unit})`), ...this.steps.map((step) => `${sideLetter(step)} to ${sideLetter(step + 1)}`)],
      ...this.table.shown.map(({ row, level }) => [level, names[row.procedure], ...sides.map((_, side) => this.values(row)[side]), ...this.steps.map((step) => CHANGE_CLASSES[this.change(row, step)])])];
  }
}
