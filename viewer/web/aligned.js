// Several runs, or parts of one, as one calling context tree with a cost for each side, and what
// follows from that without a request: what became of each context, and what it lost in scaling.
// As analysis/comparison.py and analysis/scaling.py say it.

import { Opened } from "./opened.js";
import { Profile } from "./profile.js";

export const ABSENT = 0, SAME = 1, MORE = 2, LESS = 3, NEW = 4, GONE = 5, MINOR = 6;
export const CLASSES = ["", "same", "more", "less", "new", "gone", "minor"];
export const WORDS = ["", "=", "▲ more", "▼ less", "+ new", "× gone", ""];
export const DEVIATIONS = 3; // of what chance makes of equal costs: differences are more
export const TREES = [["down", "Top-down"], ["up", "Bottom-up"], ["flat", "Flat"]];

// A change and by how much, as short as can be.
export function growth(change, before, after) {
  if (change === NEW || change === GONE) return WORDS[change];
  const percent = before > 0 && after > 0 ? `${after >= before ? "+" : "−"}${Math.abs(100 * (after / before - 1)).toFixed(1)} %` : "";
  return [{ [MORE]: "▲", [LESS]: "▼" }[change], percent].filter(Boolean).join(" ");
}

export const letter = (side) => String.fromCharCode(65 + side);
export const differs = (change) => change >= MORE && change <= GONE;

export class Aligned {
  // like: the tree of an open database, whose colours procedures of the same names have.
  constructor(store, { head, cost, variance, cct, owner }, like) {
    Object.assign(this, { sides: head.sides, metric: head.metric, unit: head.unit, modules: head.modules, cost, variance, owner });
    this.opened = new Opened(store, head, cct);
    const { names, colours } = this.opened.tree;
    names.forEach((name, i) => { colours[i] = like.colours[like.numbers.get(name)] ?? colours[i]; });
    // Rows of it have the sides' costs, then their variances.
    this.profile = new Profile(this.opened.tree, [...cost, ...variance]);
    this.total = this.profile.total.slice(0, cost.length);
    this.place = cct.procedure;
  }

  // What became of costs from a side to the next. values: costs of all sides, then variances.
  change(values, step, { sensitivity, hotspot }) {
    const [before, after] = [values[step], values[step + 1]];
    const [whole, later] = [this.total[step], this.total[step + 1]];
    if (before <= 0 && after <= 0) return ABSENT;
    if (Math.max(whole && before / whole, later && after / later) < hotspot) return MINOR;
    const size = Math.abs(after - before);
    const chance = DEVIATIONS * Math.sqrt(values[this.sides.length + step] + values[this.sides.length + step + 1]);
    if (!(size > chance && size > sensitivity * before && size >= hotspot * Math.max(whole, later))) return SAME;
    if (before <= 0) return NEW;
    if (after <= 0) return GONE;
    return after > before ? MORE : LESS;
  }

  // Of every step how many contexts are in both sides, in one of them, and different.
  steps(limits) {
    const { inclusive } = this.profile;
    return this.sides.slice(1).map((_, step) => {
      const result = { common: -1, gone: 0, added: 0, different: 0 };
      for (let node = 0; node < this.place.length; node++) {
        const [before, after] = [inclusive[step][node] > 0, inclusive[step + 1][node] > 0];
        if (before && after) result.common++;
        else if (before) result.gone++;
        else if (after) result.added++;
        const change = before && after && node ? this.change(inclusive.map((each) => each[node]), step, limits) : SAME;
        if (change === MORE || change === LESS) result.different++;
      }
      return result;
    });
  }

  // The program's own contexts with what libraries and the kernel did for them: { node, values }.
  get regions() {
    if (!this.own) {
      const sums = [...this.cost, ...this.variance].map((each) => {
        const sum = new Float64Array(each.length);
        each.forEach((value, node) => { sum[this.owner[node]] += value; });
        return sum;
      });
      this.own = [...new Set(this.owner)].map((node) => ({ node, values: sums.map((each) => each[node]) }));
    }
    return this.own;
  }

  // Those that differ somewhere, the most first.
  differing(limits) {
    const size = ({ values }) => Math.max(...this.sides.slice(1).map((_, step) => Math.abs(values[step + 1] - values[step])));
    return this.regions
      .map((each) => ({ ...each, changes: this.sides.slice(1).map((_, step) => this.change(each.values, step, limits)) }))
      .filter(({ changes }) => changes.some(differs))
      .sort((one, two) => size(two) - size(one));
  }

  // Names on the way to a region: the program's own.
  pathOf(node) {
    const path = this.opened.tree.path(node);
    const own = path.filter((each) => this.owner[each] === each);
    return (own.length ? own : path).map((each) => this.name(each)).join(" > ") || "outside the program";
  }

  // What names a row in a table.
  tag(row) {
    const { opened } = this;
    const box = document.createElement("span");
    const chip = document.createElement("i");
    chip.style.background = opened.css(row.procedure);
    const found = opened.found();
    box.className = found ? (found[row.procedure] ? "found" : "faded") : "";
    box.append(chip, opened.tree.names[row.procedure]);
    box.title = `${opened.tree.names[row.procedure]}\n${this.modules[row.procedure]}`;
    return box;
  }

  name(node) { return this.opened.tree.names[this.opened.tree.procedure[node]]; }

  // Which sides may be compared as runs on ever more ranks, fewest first; or why they may not.
  get ranks() {
    const order = this.sides.map((_, side) => side).sort((one, two) => this.sides[one].size - this.sides[two].size);
    const unknown = this.sides.find(({ size }) => !size);
    if (unknown) return { order: [], why: `${unknown.label} does not say how many ranks there were: scaling loss is of whole runs of parallel programs` };
    const twice = order.find((side, i) => i && this.sides[side].size === this.sides[order[i - 1]].size);
    if (twice !== undefined) return { order: [], why: `two of the runs have ${this.sides[twice].size} ranks: scaling loss is between runs on different numbers of them` };
    return { order, why: "" };
  }

  // What costs on side mean in loss (share of what the run cost) and excess (of all ranks), against
  // base, if strong scaling or weak was promised.
  loss(values, base, side, strong) {
    const { size } = this.sides[side];
    const k = strong ? size / this.sides[base].size : 1;
    const excess = ((k * values[side] - values[base]) * size) / k;
    return { excess, loss: this.total[side] ? excess / (this.total[side] * size) : 0 };
  }
}
