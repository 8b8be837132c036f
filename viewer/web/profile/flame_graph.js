// @ts-check
// The profile of what is in view as a flame graph, outermost frames on top; or from the innermost
// outwards (inverted); or around one procedure: its callers above, its callees below (sandwich).

import { AnswerPane } from "../core/answer_pane.js";
import { formatPercent, formatQuantity } from "../core/format.js";
import { EXTENT } from "../core/store.js";
import { fittedCanvas } from "../widgets/canvas.js";
import { part } from "../widgets/elements.js";
import { Icicle } from "../widgets/icicle.js";
import { chosen, segmentedControl } from "../widgets/segmented_control.js";
import { chosenMetric, offerMetrics, procedureRow, selectedProfile } from "./selected_profile.js";

/**
 * What is loaded. number: of the metric among those of the profile.
 * @typedef {{ selected: SelectedProfile, number: number }} Loaded
 *
 * The graph. callers: of a sandwich's procedure, above it.
 * @typedef {{ kind: string, profile: import("./profile.js").Profile<ViewTree>, callers: Row | null }} Graph
 */

/** @type {Choice[]} */
const KINDS = [["down", "Top-down"], ["up", "Inverted"], ["sandwich", "Sandwich"]];

const START = /^__libc_start_(main|call_main)/; // what calls main, or another of these
const START_FRAMES = 4; // between the outermost frame and main
const START_SHARE = 0.95; // of a frame's cost, main's is at least; the rest is what runs before and after it

const HTML = `
    <section class="flame" aria-label="Flame graph"><div class="bar">
      <span id="kinds"></span>
      <label>by <select id="metric"></select></label>
      <button id="out" title="Show the whole graph">All</button>
      <button id="code" title="Source lines or instructions of the frame clicked last, with their costs">Source</button><output id="what" aria-live="polite"></output></div>
      <div class="fill scroll" id="flame-canvas"></div><div class="tip" id="flame-tip" hidden></div></section>`;

export class FlameGraph extends AnswerPane {
  /**
   * @param {HTMLElement} element
   * @param {PageParts} page
   */
  constructor(element, page) {
    super(element, page, HTML);
    const { store } = page;
    this.metric = part(element, "metric", HTMLSelectElement);
    /** @type {Loaded | null} */
    this.loaded = null;
    /** @type {Graph | null} */
    this.graph = null;
    /** @type {Uint8Array | null} of each procedure 1 where the search finds it */
    this.hits = null;
    const fitted = fittedCanvas(part(element, "flame-canvas", HTMLElement), "Calling contexts; width is cost", () => this.draw());
    this.canvas = fitted.canvas;
    this.icicle = this.makeIcicle();
    this.metric.addEventListener("change", () => store.set({ metric: this.metric.value }));
    part(element, "out", HTMLButtonElement).addEventListener("click", () => store.set({ root: undefined }));
    part(element, "code", HTMLButtonElement).addEventListener("click", () => store.set({ pane: "source" }));
    this.ends = [
      fitted.dispose,
      segmentedControl(part(element, "kinds", HTMLElement), store, "flame", "Kind", KINDS),
      store.subscribe([...EXTENT, "metric", "formulas"], () => this.load()),
      store.subscribe(["flame", "root"], () => this.build()),
      store.subscribe(["about"], () => { if (this.kind === "sandwich") this.build(); }),
      store.subscribe(["search", "theme"], () => this.draw()),
    ];
    this.load();
  }

  get kind() { return chosen(KINDS, this.page.store.state.flame); }

  get viewTree() {
    if (!this.graph) throw new Error("no graph is drawn");
    return this.graph.profile.tree;
  }

  makeIcicle() {
    const { context, store } = this.page;
    const icicle = new Icicle(this.canvas, {
      fill: ({ procedure }) => context.opened.css(procedure, this.viewTree),
      dark: ({ procedure }) => context.opened.dark(procedure, this.viewTree),
      text: ({ procedure }) => this.viewTree.short[procedure],
      faded: ({ procedure }) => this.hits !== null && !this.hits[procedure],
      marked: ({ procedure }) => this.hits?.[procedure] === 1,
    });
    icicle.explain(part(this.element, "flame-tip", HTMLElement), (row) => this.describe(row));
    this.canvas.addEventListener("click", (event) => {
      const hit = icicle.under(event);
      if (!hit) return;
      const about = { about: context.opened.procedureOf(this.viewTree, hit.row.procedure), spot: undefined };
      if (this.kind === "sandwich") { store.set(about); return; }
      icicle.enter(hit);
      store.set({ ...about, root: [this.kind, ...icicle.way((row) => this.viewTree.names[row.procedure])].join("\n") });
    });
    return icicle;
  }

  /** @override */
  async load() {
    const selected = await this.newestAnswer(() => selectedProfile(this.page));
    if (!selected) return;
    // Ratios do not add up to a width.
    const metrics = selected.metrics.filter(({ additive = true }) => additive);
    const { name } = metrics[chosenMetric(metrics, this.page.store.state.metric)];
    offerMetrics(this.metric, metrics, name);
    this.loaded = { selected, number: selected.metrics.findIndex((metric) => metric.name === name) };
    this.build();
  }

  // What the store says is shown in full width, also of other lines, another time, a newer revision.
  async build() {
    if (!this.loaded) return;
    const { kind, icicle } = this;
    let profile;
    try {
      profile = await this.loaded.selected.profile(kind === "down" ? "top-down" : "flat");
    } catch (error) { this.page.context.fail(error); return; }
    if (this.disposed || kind !== this.kind) return;
    const [rootKind, ...way] = (this.page.store.state.root ?? "").split("\n");
    this.graph = { kind, profile, callers: null };
    if (kind === "down") icicle.show(fromMain(profile, this.loaded.number));
    else if (kind === "up") icicle.show({ ...profile.root(), inclusive: profile.total, exclusive: profile.total, children: inverted(profile) });
    else this.buildSandwich(this.graph, this.loaded);
    if (rootKind === kind) icicle.follow(way, (row) => this.viewTree.names[row.procedure]);
    this.draw();
  }

  /**
   * Around the chosen procedure, or the one of the highest exclusive cost.
   * @param {Graph} graph
   * @param {Loaded} loaded
   */
  buildSandwich(graph, { number }) {
    const { profile } = graph;
    const { context, store } = this.page;
    const about = procedureRow(profile, context.opened, store.state.about, number);
    const nodes = about ? profile.everywhere(about.procedure) : [];
    graph.callers = about ? profile.callers(about.procedure, nodes, nodes) : null;
    this.icicle.show(about ? profile.callees(about.procedure, nodes) : null);
  }

  draw() {
    const { icicle, graph, loaded } = this;
    if (!graph || !loaded) return;
    const { root } = icicle;
    if (!root) { this.what.textContent = "no samples in the current view: press Home to show everything"; return; }
    const { selected, number } = loaded;
    this.hits = this.page.context.opened.searchHits(graph.profile.tree);
    // What a row's width is: self time where cost belongs to the innermost frame.
    const cost = (/** @type {Row} */ row) => (graph.kind === "up" ? row.exclusive[number] : row.inclusive[number]);
    if (graph.callers) {
      icicle.clear();
      const { canvas, height } = icicle;
      const middle = Math.floor(canvas.height / height / 2);
      icicle.spread(graph.callers, (middle - 1) * height, -height, (row) => row.inclusive[number]);
      icicle.box(root, 0, middle * height, canvas.width);
      icicle.spread(root, (middle + 1) * height, height, cost);
    } else icicle.draw(cost);
    const total = graph.profile.total[number] || 1;
    this.what.textContent = `${formatQuantity(cost(root), selected.metrics[number].unit)} (${formatPercent(cost(root) / total)})  ·  ${selected.note}`;
    this.element.dataset.boxes = String(icicle.boxes.length);
  }

  /** @param {Row} row */
  describe(row) {
    if (!this.graph || !this.loaded) return "";
    const { selected, number } = this.loaded;
    const { unit } = selected.metrics[number];
    const total = this.graph.profile.total[number] || 1;
    const [all, self] = [row.inclusive[number], row.exclusive[number]];
    return `${this.viewTree.both(row.procedure)}\n${formatQuantity(all, unit)}  ${formatPercent(all / total)}\nself ${formatQuantity(self, unit)}  ${formatPercent(self / total)}`;
  }

  canvases() { return [this.canvas]; }
  boxes() { return this.icicle.drawn(); }

  /** @returns {Cell[][]} */
  csv() {
    const heading = ["procedure", "inclusive", "exclusive", "unit"];
    if (!this.loaded) return [heading];
    const { selected, number } = this.loaded;
    const { unit } = selected.metrics[number];
    return [heading, ...this.icicle.boxes.map(({ row }) => [this.viewTree.names[row.procedure], row.inclusive[number], row.exclusive[number], unit])];
  }
}

/**
 * The whole, with main in place of the loader and the C library that have it called.
 * @param {import("./profile.js").Profile<ViewTree>} profile
 * @param {number} number of the metric
 * @returns {Row}
 */
function fromMain(profile, number) {
  const root = profile.root();
  const { names } = profile.tree;
  /** @type {Row[] | null} */
  let rows = null;
  const main = (/** @type {Row} */ outermost) => {
    let row = outermost;
    for (let depth = 0; depth < START_FRAMES; depth++) {
      const whole = row.inclusive[number];
      const next = row.children().find(({ inclusive }) => inclusive[number] >= START_SHARE * whole);
      if (!next || !whole) return outermost;
      const called = START.test(names[row.procedure]) && !START.test(names[next.procedure]);
      row = next;
      if (called || names[row.procedure] === "main") return row;
    }
    return outermost;
  };
  return { ...root, children: () => (rows ??= root.children().map(main)) };
}

/**
 * The procedures with their callers below them, made when they are first looked at.
 * @param {import("./profile.js").Profile<ViewTree>} profile
 */
function inverted(profile) {
  /** @type {Row[] | null} */
  let rows = null;
  return () => (rows ??= profile.procedures(true));
}
