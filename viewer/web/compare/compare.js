// @ts-check
// Two or more runs, or parts of one, compared: their traces side by side, their call graphs aligned,
// the difference as a flame graph, what is lost on more ranks, and how often what called what.

import { isAbort, messageOf } from "../core/failure.js";
import { CHOICE } from "../core/store.js";
import { part, textElement } from "../widgets/elements.js";
import { segmentedControl } from "../widgets/segmented_control.js";
import { AlignedTree } from "./aligned_tree.js";
import { mountCallCounts } from "./call_counts.js";
import { mountCallGraph } from "./call_graph.js";
import { mountCoupledTraces } from "./coupled_traces.js";
import { mountDifferenceFlame } from "./difference_flame.js";
import { mountScalingLoss } from "./scaling_loss.js";
import { Sides, sameProgram } from "./sides.js";

/**
 * What the views of a comparison share.
 * @typedef {object} ViewShared
 * @property {Sides} sides what is compared
 * @property {HTMLElement} tools where a view puts its controls
 * @property {() => import("./changes.js").Limits} limits
 * @property {(text: string) => void} say what the view shows
 * @property {() => URLSearchParams} query for the server
 * @property {() => Promise<AlignedTree>} aligned the tree of what is compared, requested once
 * @property {(what: string) => void} done marks the view as drawn, for tests
 *
 * @typedef {PageParts & ViewShared} ViewParts
 *
 * @callback MountView
 * @param {HTMLElement} element
 * @param {ViewParts} view
 * @param {() => boolean} stale whether something else is shown by now
 * @returns {Promise<Pane | null>} null where it is
 *
 * mount; metric: what is compared unless the user chooses otherwise.
 * @typedef {[name: string, text: string, title: string, mount: MountView, metric: string]} View
 */

/** @type {View[]} how long ranks wait differs from run to run: work does not */
const VIEWS = [
  ["traces", "Traces", "All sides over time, with one window and one crosshair", mountCoupledTraces, "work"],
  ["graph", "Call graph", "The calling contexts of all sides as one tree, with their changes", mountCallGraph, "work"],
  ["flame", "Difference", "Flame graph: increases are orange, decreases blue", mountDifferenceFlame, "work"],
  ["scaling", "Scaling loss", "Cost of contexts on more ranks beyond ideal scaling", mountScalingLoss, "time"],
  ["calls", "Calls", "Number of calls by caller and callee", mountCallCounts, "time"],
];
const LIMITS = {
  sensitivity: { usual: 5, most: 100, step: 0.5, title: "Differences up to this percentage count as none" },
  hotspot: { usual: 1, most: 20, step: 0.1, title: "Contexts below this percentage of the whole are not compared" },
};

const HTML = `<section class="compare" aria-label="Comparison">
    <div id="compare-heading" class="bar verdict" hidden></div>
    <div class="bar"><div id="compare-sides" class="bar-part"></div>
      <label id="compared-label">by <select id="compared"></select></label>
      <label id="shares-label" title="Costs in percent of each side's total: for runs at different speeds"><input type="checkbox" id="as-shares"> shares</label>
      <label id="partial-label" title="Compare totals although a recording saw only a part of its processes"><input type="checkbox" id="seen-parts"> parts</label>
      <label id="scopes-label" title="Show inlined calls and loops as contexts, where debug information has them"><input type="checkbox" id="with-scopes"> loops</label>
      <output id="compared-what" aria-live="polite"></output></div>
    <div class="bar"><span id="compare-views"></span>
      <span id="limits" class="bar-part"></span><span id="compare-tools" class="bar-part"></span></div>
    <div id="compare-body" class="grow"></div></section>`;

export class Compare {
  /**
   * @param {HTMLElement} element
   * @param {PageParts} page
   */
  constructor(element, page) {
    const { store } = page;
    element.innerHTML = HTML;
    this.element = element;
    this.page = page;
    this.body = part(element, "compare-body", HTMLElement);
    this.tools = part(element, "compare-tools", HTMLElement);
    this.metric = part(element, "compared", HTMLSelectElement);
    this.shares = part(element, "as-shares", HTMLInputElement);
    this.partial = part(element, "seen-parts", HTMLInputElement);
    this.heading = part(element, "compare-heading", HTMLElement);
    this.scopes = part(element, "with-scopes", HTMLInputElement);
    this.sides = new Sides(part(element, "compare-sides", HTMLElement), page);
    /** @type {Pane | null} */
    this.view = null;
    this.disposed = false;
    this.turn = 0;
    /** @type {{ key: string, tree: Promise<AlignedTree> } | null} */
    this.latest = null;
    this.metric.addEventListener("change", () => store.set({ compared: this.metric.value }));
    this.shares.addEventListener("change", () => store.set({ shares: this.shares.checked ? "1" : "" }));
    this.partial.addEventListener("change", () => store.set({ partial: this.partial.checked ? "1" : "" }));
    this.scopes.addEventListener("change", () => store.set({ scopes: this.scopes.checked ? "1" : "" }));
    this.ends = [
      this.sides.dispose,
      segmentedControl(part(element, "compare-views", HTMLElement), store, "compare", "View", VIEWS),
      ...addLimits(part(element, "limits", HTMLElement), store),
      store.subscribe(["compare", "versus", "sides", "compared", "shares", "partial", "scopes"], () => this.show()),
      // Costs are of all ranks; lines are chosen for traces. Of one that grows there are no others.
      store.subscribe([...CHOICE, "revision"], () => { if (this.current[0] === "traces") this.show(); }),
    ];
    this.show();
  }

  dispose() {
    this.disposed = true;
    this.view?.dispose();
    this.ends.forEach((end) => end());
    delete this.element.dataset.compare;
  }

  // The view's, as far as it has them.
  get canvases() { return this.view?.canvases?.bind(this.view); }
  get boxes() { return this.view?.boxes?.bind(this.view); }
  get hotPath() { return this.view?.hotPath?.bind(this.view); }
  get reach() { return this.view?.reach?.bind(this.view); }
  csv() { return this.view?.csv() ?? [["no comparison"]]; }

  get current() { return VIEWS.find(([name]) => name === this.page.store.state.compare) ?? VIEWS[0]; }

  /** @returns {ViewParts} */
  get parts() {
    return {
      ...this.page, sides: this.sides, tools: this.tools, limits: () => this.limits(), query: () => this.query(), aligned: () => this.aligned(),
      say: (text) => this.say(text), done: (what) => { this.element.dataset.compared = what; },
    };
  }

  limits() {
    const { sensitivity = LIMITS.sensitivity.usual, hotspot = LIMITS.hotspot.usual } = this.page.store.state;
    return { sensitivity: sensitivity / 100, hotspot: hotspot / 100 };
  }

  /** @param {string} text */
  say(text) { Object.assign(part(this.element, "compared-what", HTMLOutputElement), { textContent: text, title: text }); }

  query() {
    const { compared, shares, partial, scopes } = this.page.store.state;
    const [name, , , , metric] = this.current;
    const query = this.sides.query();
    query.set("metric", compared || metric);
    if (shares && name !== "scaling") query.set("shares", "1");
    if (partial) query.set("partial", "1");
    if (scopes) query.set("scopes", "1");
    return query;
  }

  aligned() {
    const key = String(this.query());
    if (this.latest?.key === key) return this.latest.tree;
    const { store, api, context } = this.page;
    const tree = api.compare(key).then((answer) => new AlignedTree(store, answer, context.tree));
    this.latest = { key, tree };
    tree.then(({ heading }) => { if (this.latest?.tree === tree) this.showHeading(heading); }, () => {});
    // What failed is requested again.
    tree.catch(() => { if (this.latest?.tree === tree) this.latest = null; });
    return tree;
  }

  /** @param {string} text the verdicts in it have colours */
  showHeading(text) {
    this.heading.hidden = !text;
    const line = document.createElement("span"); // in a bar its parts would stand apart
    line.append(...text.split(/\b(better|worse)\b/).map((words, i) => (i % 2 ? textElement("b", words, words) : words)));
    this.heading.replaceChildren(line);
  }

  async findRelated() {
    const { api, context, store } = this.page;
    if (!context.programs) {
      context.programs = api.programs();
      // What failed is requested again.
      context.programs.catch(() => { context.programs = null; });
    }
    this.sides.setRelated(sameProgram(await context.programs, store.db));
  }

  showBars() {
    const { store, context } = this.page;
    const [name, , , , metric] = this.current;
    const metrics = new Set(["work", "time", ...context.summary.metrics.map((measured) => measured.name)]);
    this.metric.replaceChildren(...[...metrics].map((offered) => new Option(offered.replaceAll("_", " "), offered)));
    this.metric.value = store.state.compared || metric;
    this.shares.checked = Boolean(store.state.shares);
    this.partial.checked = Boolean(store.state.partial);
    this.scopes.checked = Boolean(store.state.scopes);
    const traces = name === "traces";
    const hidden = {
      "compared-label": traces, "scopes-label": traces, "partial-label": traces, "shares-label": traces || name === "scaling",
      limits: traces || name === "scaling", "hotspot-label": name === "calls",
    };
    for (const [id, hide] of Object.entries(hidden)) part(this.element, id, HTMLElement).hidden = hide;
    this.element.dataset.compare = name;
  }

  async show() {
    this.view?.dispose();
    this.view = null;
    delete this.element.dataset.compared;
    this.tools.replaceChildren();
    this.body.replaceChildren();
    this.say("comparing …");
    if (this.latest?.key !== String(this.query())) this.showHeading("");
    this.showBars();
    const turn = ++this.turn;
    const stale = () => this.disposed || turn !== this.turn;
    const [, , , mount] = this.current;
    try {
      await this.findRelated();
      if (stale()) return;
      if (this.sides.kind === "runs" && !this.sides.texts().length) throw new Error("No other run of this program is open: choose what to compare it with above.");
      const view = await mount(this.body, this.parts, stale);
      if (stale()) { view?.dispose(); return; }
      this.view = view;
      // Its heading has the run times, which traces say nothing of; what cannot be aligned has none.
      this.aligned().catch(() => {});
    } catch (error) {
      if (stale() || isAbort(error)) return;
      // A choice that cannot be compared is a mistake of the moment: said where the result would be.
      this.say("");
      this.body.replaceChildren(textElement("p", messageOf(error), "empty"));
      this.element.dataset.compared = "nothing";
    }
  }
}

/**
 * Sliders of the limits. Returns what ends them.
 * @param {HTMLElement} box
 * @param {Store} store
 */
function addLimits(box, store) {
  return /** @type {const} */ (["sensitivity", "hotspot"]).map((name) => {
    const { usual, most, step, title } = LIMITS[name];
    const label = Object.assign(document.createElement("label"), { title, id: `${name}-label` });
    const slider = Object.assign(document.createElement("input"), { type: "range", id: name, min: "0", max: String(most), step: String(step) });
    const output = document.createElement("output");
    const show = () => {
      slider.value = String(store.state[name] ?? usual);
      output.textContent = `${Number(slider.value)} %`;
    };
    slider.addEventListener("input", () => store.set({ [name]: Number(slider.value) }));
    label.append(name, slider, output);
    box.append(label);
    show();
    return store.subscribe([name], show);
  });
}
