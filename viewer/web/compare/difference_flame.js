// @ts-check
// The aligned tree as a flame graph: width is what one side cost, or both; orange grew, blue shrank.

import { isDark } from "../core/colour.js";
import { formatQuantity } from "../core/format.js";
import { cssVariable, fittedCanvas } from "../widgets/canvas.js";
import { part, textElement } from "../widgets/elements.js";
import { Icicle } from "../widgets/icicle.js";
import { segmentedControl } from "../widgets/segmented_control.js";
import { CHANGE_CLASSES, MINOR, SAME, changeText, sideLetter } from "./changes.js";

const HTML = `<div class="difference"><div class="legend" aria-hidden="true"><span>half or gone</span><i></i><span>as before</span><i></i><span>twice or new</span></div>
    <div class="fill" id="difference-canvas"></div><div class="tip" id="difference-tip" hidden></div></div>`;

/** @type {MountView} */
export async function mountDifferenceFlame(element, view, stale) {
  const comparison = await view.aligned();
  return stale() ? null : new DifferenceFlame(element, view, comparison);
}

class DifferenceFlame {
  /**
   * @param {HTMLElement} element
   * @param {ViewParts} view
   * @param {AlignedTree} comparison
   */
  constructor(element, view, comparison) {
    const { store } = view;
    element.innerHTML = HTML;
    this.view = view;
    this.comparison = comparison;
    this.whole = comparison.profile.root();
    /** @type {Uint8Array | null} of each procedure 1 where the search finds it */
    this.hits = null;
    /** @type {number[][]} red, green and blue of half, of the same and of twice as much */
    this.palette = [];
    const fitted = fittedCanvas(part(element, "difference-canvas", HTMLElement), "Calling contexts of two sides; width is cost, orange increased, blue decreased", () => this.draw());
    this.canvas = fitted.canvas;
    this.icicle = this.makeIcicle(part(element, "difference-tip", HTMLElement));
    this.endTools = this.addTools();
    this.ends = [
      fitted.dispose,
      store.subscribe(["sensitivity", "hotspot", "width", "search", "theme"], () => this.draw()),
      store.subscribe(["step"], () => {
        this.endTools();
        this.endTools = this.addTools();
        this.draw();
      }),
    ];
  }

  dispose() {
    this.endTools();
    this.ends.forEach((end) => end());
  }

  get contexts() { return this.comparison.database.tree; }

  // The earlier of the two sides.
  get step() { return Math.min(Math.max(this.view.store.state.step ?? 0, 0), this.comparison.sides.length - 2); }

  /** @param {HTMLElement} tip */
  makeIcicle(tip) {
    const icicle = new Icicle(this.canvas, {
      fill: (row) => `rgb(${this.colour(row).join(" ")})`,
      dark: (row) => { const [red, green, blue] = this.colour(row); return isDark(red, green, blue); },
      text: (row) => `${this.contexts.short[row.procedure]}  ${this.note(row)}`,
      faded: ({ procedure }) => this.hits !== null && !this.hits[procedure],
      marked: ({ procedure }) => this.hits?.[procedure] === 1,
    });
    icicle.show(this.whole);
    icicle.explain(tip, (row) => this.describe(row));
    this.canvas.addEventListener("click", (event) => {
      const hit = icicle.under(event);
      if (hit) { icicle.enter(hit); this.draw(); }
    });
    return icicle;
  }

  // Which side's cost is width, which sides are shown, and the way out. Returns what ends them.
  addTools() {
    const { store, tools } = this.view;
    const { step } = this;
    const { sides } = this.comparison;
    tools.replaceChildren();
    const end = segmentedControl(tools, store, "width", "Width", [["after", `Width of ${sideLetter(step + 1)}`], ["before", `of ${sideLetter(step)}`], ["both", "of both"]]);
    if (sides.length > 2) {
      const select = document.createElement("select");
      select.setAttribute("aria-label", "Which sides");
      sides.slice(1).forEach((_, i) => select.append(new Option(`${sideLetter(i)} to ${sideLetter(i + 1)}`, String(i))));
      select.value = String(step);
      select.addEventListener("change", () => store.set({ step: Number(select.value) }));
      tools.append(select);
    }
    const all = Object.assign(textElement("button", "All"), { title: "Show the whole graph" });
    all.addEventListener("click", () => { this.icicle.show(this.whole); this.draw(); });
    tools.append(all);
    return end;
  }

  /** @param {Row} row */
  change(row) { return this.comparison.change(row.inclusive, this.step, this.view.limits()); }

  /** @param {Row} row */
  isUnchanged(row) { return [SAME, MINOR].includes(this.change(row)); }

  /**
   * A row's cost on the two sides.
   * @param {Row} row
   */
  costs({ inclusive }) { return { before: inclusive[this.step], after: inclusive[this.step + 1] }; }

  /** @param {Row} row */
  changeText(row) {
    const { before, after } = this.costs(row);
    return changeText(this.change(row), before, after);
  }

  /** @param {Row} row */
  note(row) { return this.isUnchanged(row) ? "" : this.changeText(row); }

  /** @param {Row} row */
  width(row) {
    const { before, after } = this.costs(row);
    const { width } = this.view.store.state;
    return width === "before" ? before : width === "both" ? before + after : after;
  }

  /**
   * Twice as much is orange, half is blue: not red, as more of it may be for the better. What may be chance, or counts as the same, is neither.
   * @param {Row} row
   */
  colour(row) {
    const [less, same, more] = this.palette;
    if (this.isUnchanged(row)) return same;
    const { before, after } = this.costs(row);
    const share = Math.max(-1, Math.min(1, Math.log2(after / before)));
    const end = share < 0 ? less : more;
    // A difference that counts can be told from none.
    const mix = 0.25 + 0.75 * Math.abs(share);
    return same.map((value, i) => Math.round(value + (end[i] - value) * mix));
  }

  draw() {
    const { icicle, comparison } = this;
    this.palette = ["--less", "--same", "--more"].map((name) => [1, 3, 5].map((from) => parseInt(cssVariable(name).slice(from, from + 2), 16)));
    this.hits = comparison.database.searchHits();
    icicle.draw((row) => this.width(row));
    const root = icicle.root ?? this.whole;
    const { before, after } = this.costs(root);
    const { unit, metric } = comparison;
    this.view.say(`${this.contexts.short[root.procedure]}: ${formatQuantity(before, unit)} → ${formatQuantity(after, unit)} of ${metric.replaceAll("_", " ")}, ${this.changeText(root)}`);
    this.view.done(`flame ${icicle.boxes.length} ${icicle.boxes.filter(({ row }) => !this.isUnchanged(row)).length}`);
  }

  /** @param {Row} row */
  describe(row) {
    const { unit } = this.comparison;
    return [this.contexts.both(row.procedure),
      ...[this.step, this.step + 1].map((side) => `${sideLetter(side)}  ${formatQuantity(row.inclusive[side], unit)}  (self ${formatQuantity(row.exclusive[side], unit)})`),
      `${this.changeText(row)}  ${CHANGE_CLASSES[this.change(row)]}`].join("\n");
  }

  canvases() { return [this.canvas]; }
  boxes() { return this.icicle.drawn(); }

  /** @returns {Cell[][]} */
  csv() {
    const { sides, unit } = this.comparison;
    return [["procedure", ...sides.map(({ label }) => `${label} (${unit})`), "change"],
      ...this.icicle.boxes.map(({ row }) => [this.contexts.names[row.procedure], ...sides.map((_, side) => row.inclusive[side]), CHANGE_CLASSES[this.change(row)]])];
  }
}
