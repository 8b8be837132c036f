// @ts-check
// Several runs, or parts of one, as one calling context tree with a cost for each side, and what
// follows from that without a request: what became of each context, and what it lost in scaling.
// As analysis/parallel/comparison.py and analysis/parallel/scaling.py say it.

import { LESS, MORE, SAME, changeOfCost, isDifference } from "./changes.js";
import { scalingLoss } from "./loss.js";
import { OpenDatabase } from "../core/open_database.js";
import { Profile } from "../profile/profile.js";
import { colouredName } from "../widgets/elements.js";

/**
 * @typedef {import("./changes.js").Limits} Limits
 *
 * A context of the program with what libraries and the kernel did for it. values: costs of all sides, then variances.
 * @typedef {{ node: number, values: number[] }} Region
 */

/** @type {Choice[]} */
export const TREE_KINDS = [["down", "Top-down"], ["up", "Bottom-up"], ["flat", "Flat"]];

export class AlignedTree {
  /**
   * @param {Store} store
   * @param {ComparisonAnswer} answer
   * @param {CallingContextTree} like of an open database, whose colours procedures of the same names have
   */
  constructor(store, { head, cost, variance, cct, owner }, like) {
    this.sides = head.sides;
    this.heading = head.heading;
    this.metric = head.metric;
    this.unit = head.unit;
    this.modules = head.modules;
    this.cost = cost;
    this.variance = variance;
    this.owner = owner;
    /** @type {Region[] | null} */
    this.own = null;
    this.database = new OpenDatabase(store, head, cct);
    const { names, colours } = this.database.tree;
    names.forEach((name, i) => { colours[i] = like.colours[like.numbers.get(name) ?? -1] ?? colours[i]; });
    // Rows of it have the sides' costs, then their variances.
    this.profile = new Profile(this.database.tree, [...cost, ...variance]);
    this.total = this.profile.total.slice(0, cost.length);
    this.place = cct.procedure;
  }

  /**
   * Change of costs from side step to the next.
   * @param {number[]} values costs of all sides, then variances
   * @param {number} step
   * @param {Limits} limits
   */
  change(values, step, limits) {
    const variance = values[this.sides.length + step] + values[this.sides.length + step + 1];
    return changeOfCost(values[step], values[step + 1], variance, this.total[step], this.total[step + 1], limits);
  }

  /**
   * Of every step how many contexts are in both sides, in one of them, and different.
   * @param {Limits} limits
   */
  steps(limits) {
    const { inclusive } = this.profile;
    return this.sides.slice(1).map((_, step) => {
      const result = { common: -1, gone: 0, added: 0, different: 0 };
      for (let node = 0; node < this.place.length; node++) {
        const [before, after] = [inclusive[step][node] > 0, inclusive[step + 1][node] > 0];
        if (before && after) result.common++;
        else if (before) result.gone++;
        else if (after) result.added++;
        const change = before && after && node ? this.change(inclusive.map((costs) => costs[node]), step, limits) : SAME;
        if (change === MORE || change === LESS) result.different++;
      }
      return result;
    });
  }

  // The program's own contexts.
  get regions() {
    if (!this.own) {
      const sums = [...this.cost, ...this.variance].map((costs) => {
        const sum = new Float64Array(costs.length);
        costs.forEach((value, node) => { sum[this.owner[node]] += value; });
        return sum;
      });
      this.own = [...new Set(this.owner)].map((node) => ({ node, values: sums.map((sum) => sum[node]) }));
    }
    return this.own;
  }

  /**
   * Those that differ somewhere, the most first.
   * @param {Limits} limits
   */
  differing(limits) {
    const size = (/** @type {Region} */ { values }) => Math.max(...this.sides.slice(1).map((_, step) => Math.abs(values[step + 1] - values[step])));
    return this.regions
      .map((region) => ({ ...region, changes: this.sides.slice(1).map((_, step) => this.change(region.values, step, limits)) }))
      .filter(({ changes }) => changes.some(isDifference))
      .sort((one, two) => size(two) - size(one));
  }

  /**
   * Names on the way to a region: the program's own.
   * @param {number} node
   * @param {string[]} names of procedures
   */
  pathOf(node, names) {
    const path = this.database.tree.path(node);
    const own = path.filter((context) => this.owner[context] === context);
    return (own.length ? own : path).map((context) => names[this.place[context]]).join(" > ") || "outside the program";
  }

  /**
   * What names a row in a table.
   * @param {Row} row
   */
  tag({ procedure }) {
    const { database } = this;
    const { names, short } = database.tree;
    const box = colouredName(database.css(procedure), short[procedure]);
    const hits = database.searchHits();
    box.className = hits ? (hits[procedure] ? "found" : "faded") : "";
    box.title = `${names[procedure]}\n${this.modules[procedure]}`;
    return box;
  }

  /** @param {number} node */
  name(node) { return this.database.tree.names[this.database.tree.procedure[node]]; }

  // Which sides may be compared as runs on ever more ranks, fewest first; or why they may not.
  get ranks() {
    const order = this.sides.map((_, side) => side).sort((one, two) => this.sides[one].size - this.sides[two].size);
    const unknown = this.sides.find(({ size }) => !size);
    if (unknown) return { order: [], why: `${unknown.label} does not say how many ranks there were: scaling loss is of whole runs of parallel programs` };
    const twice = order.find((side, i) => i > 0 && this.sides[side].size === this.sides[order[i - 1]].size);
    if (twice !== undefined) return { order: [], why: `two of the runs have ${this.sides[twice].size} ranks: scaling loss is between runs on different numbers of them` };
    return { order, why: "" };
  }

  /**
   * Scaling loss of costs per rank on a side, against side base; see scalingLoss.
   * @param {ArrayLike<number>} values by side
   * @param {number} base
   * @param {number} side
   * @param {boolean} strong
   */
  loss(values, base, side, strong) {
    return scalingLoss(values[base], values[side], this.total[side], this.sides[base].size, this.sides[side].size, strong);
  }
}
