// @ts-check
// What a program loses as it runs on more ranks, by calling context (SC 2009, sections 2.3 and 3.1).

import { formatPercent, formatQuantity } from "../core/format.js";
import { part } from "../widgets/elements.js";
import { chosen, segmentedControl } from "../widgets/segmented_control.js";
import { TreeTable } from "../widgets/table.js";
import { TREE_KINDS } from "./aligned_tree.js";
import { listEntry } from "./list_entry.js";

/** @typedef {import("../widgets/table.js").Column<Row>} Column */

/** @type {Choice[]} */
const MODES = [["weak", "Weak", "Each rank had the same work in all runs"], ["strong", "Strong", "All ranks together had the same work in all runs"]];
const LEAST = 0.005; // of the run: regions that lose or gain less are not listed
const MOST_LISTED = 100;

const HTML = `<div class="beside-list"><div class="grow" id="loss-table"></div>
    <aside class="differing" aria-label="Scaling losses of the program"><h2 title="The program's own contexts, libraries counted to their callers">Scaling losses of the program</h2><ol id="losses"></ol></aside></div>`;

/** @type {MountView} */
export async function mountScalingLoss(element, view, stale) {
  const comparison = await view.aligned();
  if (stale()) return null;
  const { order, why } = comparison.ranks;
  if (why) throw new Error(why);
  return new ScalingLoss(element, view, comparison, order);
}

class ScalingLoss {
  /**
   * @param {HTMLElement} element
   * @param {ViewParts} view
   * @param {AlignedTree} comparison
   * @param {number[]} order sides, that of fewest ranks first
   */
  constructor(element, view, comparison, order) {
    const { store, tools } = view;
    element.innerHTML = HTML;
    this.view = view;
    this.comparison = comparison;
    this.order = order;
    this.base = order[0];
    this.runs = order.slice(1);
    this.box = part(element, "loss-table", HTMLElement);
    this.losses = part(element, "losses", HTMLElement);
    this.columns = [...this.lossColumns(), ...this.costColumns()];
    this.table = this.fill();
    this.update();
    this.ends = [
      segmentedControl(tools, store, "scaling", "Scaling", MODES),
      segmentedControl(tools, store, "view", "Tree", TREE_KINDS),
      store.subscribe(["scaling"], () => this.update()),
      store.subscribe(["view"], () => {
        this.table.dispose();
        this.table = this.fill();
        this.update();
      }),
      store.subscribe(["search", "theme"], () => this.table.paint()),
    ];
  }

  dispose() {
    this.table.dispose();
    this.ends.forEach((end) => end());
  }

  hotPath() { this.table.hotPath(); }

  get strong() { return this.view.store.state.scaling === "strong"; }
  get down() { return !["up", "flat"].includes(this.view.store.state.view ?? ""); }

  /**
   * @param {ArrayLike<number>} values by side
   * @param {number} side
   */
  loss(values, side) { return this.comparison.loss(values, this.base, side, this.strong); }

  /** @param {number} side */
  size(side) { return `${this.comparison.sides[side].size} ranks`; }

  /**
   * Costs by side: with callees where the tree shows them.
   * @param {Row} row
   */
  values(row) { return this.down ? row.inclusive : row.exclusive; }

  /** @returns {Column[]} */
  lossColumns() {
    return this.runs.flatMap((side) => /** @type {const} */ (["inclusive", "exclusive"]).map((kind) => ({
      title: kind === "inclusive" ? `loss to ${this.size(side)}` : "self",
      value: (row) => this.loss(row[kind], side).loss,
      text: (row) => formatPercent(this.loss(row[kind], side).loss),
      share: (row) => Math.abs(this.loss(row[kind], side).loss),
      mark: (row) => (this.loss(row[kind], side).loss < 0 ? "gain" : "loss"),
    })));
  }

  /** @returns {Column[]} */
  costColumns() {
    const { sides, unit, total } = this.comparison;
    return [
      ...this.runs.map((side) => /** @type {Column} */ ({
        title: `excess of ${this.size(side)}`,
        value: (row) => this.loss(this.values(row), side).excess,
        text: (row) => formatQuantity(this.loss(this.values(row), side).excess, unit),
        share: () => 0,
      })),
      ...this.order.map((side) => /** @type {Column} */ ({
        title: `each of ${sides[side].size}`,
        value: (row) => this.values(row)[side],
        text: (row) => formatQuantity(this.values(row)[side], unit),
        share: (row) => this.values(row)[side] / (total[side] || 1),
      })),
    ];
  }

  fill() {
    const { comparison, down } = this;
    const { profile } = comparison;
    const last = 2 * (this.runs.length - 1);
    const kind = chosen(TREE_KINDS, this.view.store.state.view);
    /** @type {TreeTable<Row>} */
    const table = new TreeTable(this.box, this.view.store, "Loss by calling context", this.columns, (row) => comparison.tag(row), {
      begin: () => { if (down) for (let rows = table.top; rows.length === 1; rows = rows[0].children()) table.open.add(rows[0]); },
      kind, sort: down ? last : last + 1,
    });
    table.show(down ? profile.root().children() : profile.procedures(kind === "up"));
    return table;
  }

  update() {
    this.table.lay();
    this.list();
    const { sides, total, unit } = this.comparison;
    const mode = this.strong ? "strong" : "weak";
    this.view.say(this.runs.map((side) => {
      const { loss, excess } = this.loss(total, side);
      return `${mode} scaling from ${sides[this.base].size} to ${this.size(side)}: ${formatPercent(loss)} lost, ${formatQuantity(excess, unit)} of excess work`;
    }).join(" · "));
    this.view.done(`scaling ${mode} ${this.table.shown.length}`);
  }

  // What the program's contexts lose on most ranks, the most first.
  list() {
    const { comparison } = this;
    const { names, short } = comparison.database.tree;
    const side = this.runs[this.runs.length - 1];
    const regions = comparison.regions.map(({ node, values }) => ({ node, ...this.loss(values, side) }))
      .filter(({ loss }) => Math.abs(loss) >= LEAST).sort((one, two) => two.loss - one.loss);
    this.losses.replaceChildren(...regions.slice(0, MOST_LISTED).map(({ node, loss, excess }) => listEntry(
      comparison.pathOf(node, short), comparison.pathOf(node, names), formatQuantity(excess, comparison.unit), [[loss < 0 ? "less" : "gone", formatPercent(loss)]],
      () => this.view.store.set({ search: comparison.name(node) }),
    )));
  }

  /** @returns {Cell[][]} */
  csv() {
    const { names } = this.comparison.database.tree;
    return [["depth", "procedure", ...this.columns.map(({ title }) => title)],
      ...this.table.shown.map(({ row, level }) => [level, names[row.procedure], ...this.columns.map(({ value }) => value(row))])];
  }
}
