// Two or more runs, or parts of one, compared: their traces side by side, their call graphs aligned,
// the difference as a flame graph, what is lost on more ranks, and how often what called what.

import { Aligned } from "./aligned.js";
import { mount as calls } from "./comparecalls.js";
import { mount as flame } from "./compareflame.js";
import { mount as graph } from "./comparegraph.js";
import { mount as scaling } from "./comparescaling.js";
import { mount as chooser } from "./comparesides.js";
import { mount as traces } from "./comparetraces.js";
import { joined } from "./joined.js";

// What is compared unless somebody says otherwise: how long ranks wait differs from run to run.
const VIEWS = [
  ["traces", "Traces", "All sides over time, with one window and one crosshair", traces],
  ["graph", "Call graph", "The calling contexts of all sides as one tree, and what became of them", graph, "work"],
  ["flame", "Difference", "Flame graph: what grew is red, what shrank blue", flame, "work"],
  ["scaling", "Scaling loss", "What contexts cost on more ranks beyond what scaling promises", scaling, "time"],
  ["calls", "Calls", "How often what called what", calls, "time"],
];
const LIMITS = { sensitivity: { usual: 5, most: 100, step: 0.5, title: "Costs may differ by so many percent and count as the same" },
  hotspot: { usual: 1, most: 20, step: 0.1, title: "Contexts of fewer percent of the whole are not judged" } };

export function mount(element, { store, api, context }) {
  element.innerHTML = `<section class="compare" aria-label="Comparison">
    <div class="bar"><div id="compare-sides" class="bar-part"></div>
      <label id="compared-label">by <select id="compared"></select></label>
      <label id="shares-label" title="Percent of each side's whole: for runs at different speeds"><input type="checkbox" id="as-shares"> shares</label>
      <label id="scopes-label" title="Inlined calls and loops are contexts too, where debug information tells of them"><input type="checkbox" id="with-scopes"> loops</label>
      <output id="compared-what" aria-live="polite"></output></div>
    <div class="bar"><span id="compare-views"></span>
      <span id="limits" class="bar-part"></span><span id="compare-tools" class="bar-part"></span></div>
    <div id="compare-body" class="grow"></div></section>`;
  const at = (id) => element.querySelector("#" + id);
  const sides = chooser(at("compare-sides"), { store, context });
  let view = null;
  let gone = false;
  let turn = 0;
  let known = { key: null, aligned: null };
  const ends = [sides.dispose, joined(at("compare-views"), store, "compare", "View", VIEWS)];
  for (const [name, { usual, most, step, title }] of Object.entries(LIMITS)) {
    const label = document.createElement("label");
    Object.assign(label, { title, id: `${name}-label` });
    const slider = Object.assign(document.createElement("input"), { type: "range", id: name, min: 0, max: most, step, value: store.state[name] ?? usual });
    const value = document.createElement("output");
    const show = () => { slider.value = store.state[name] ?? usual; value.textContent = `${Number(slider.value)} %`; };
    slider.addEventListener("input", () => store.set({ [name]: Number(slider.value) }));
    label.append(name, slider, value);
    at("limits").append(label);
    ends.push(store.subscribe([name], show));
    show();
  }

  const current = () => VIEWS.find(([name]) => name === store.state.compare) ?? VIEWS[0];

  const shared = {
    store, api, context, sides, tools: at("compare-tools"),
    limits: () => Object.fromEntries(Object.entries(LIMITS).map(([name, { usual }]) => [name, (store.state[name] ?? usual) / 100])),
    say(text) { at("compared-what").textContent = text; at("compared-what").title = text; },
    query() {
      const query = sides.query();
      query.set("metric", store.state.compared || current()[4] || "work");
      if (store.state.shares && current()[0] !== "scaling") query.set("shares", 1);
      if (store.state.scopes) query.set("scopes", 1);
      return query;
    },
    // The aligned tree of what is chosen, asked for once.
    async aligned() {
      const key = String(shared.query());
      if (known.key !== key) known = { key, aligned: new Aligned(store, await api.compare(key), context.tree) };
      return known.aligned;
    },
    done(what) { element.dataset.compared = what; },
  };

  function bars() {
    const [name, , , , usual] = current();
    const metrics = ["work", "time", ...context.summary.metrics.map((each) => each.name)];
    at("compared").replaceChildren(...[...new Set(metrics)].map((each) => new Option(each.replaceAll("_", " "), each)));
    at("compared").value = store.state.compared || usual;
    at("as-shares").checked = Boolean(store.state.shares);
    at("with-scopes").checked = Boolean(store.state.scopes);
    for (const id of ["compared-label", "scopes-label"]) at(id).hidden = name === "traces";
    at("shares-label").hidden = name === "traces" || name === "scaling";
    at("limits").hidden = name === "traces" || name === "scaling";
    at("hotspot-label").hidden = name === "calls";
    element.dataset.compare = name;
  }

  async function show() {
    view?.dispose();
    view = null;
    delete element.dataset.compared;
    at("compare-tools").replaceChildren();
    at("compare-body").replaceChildren();
    shared.say("comparing …");
    bars();
    const mine = ++turn;
    try {
      const made = await current()[3](at("compare-body"), shared, () => gone || mine !== turn);
      if (gone || mine !== turn) made?.dispose(); else view = made;
    } catch (error) {
      if (gone || mine !== turn || error.name === "AbortError") return;
      // A choice that cannot be compared is a mistake of the moment: said where the result would be.
      shared.say("");
      at("compare-body").replaceChildren(Object.assign(document.createElement("p"), { className: "empty", textContent: error.message }));
      shared.done("nothing");
    }
  }

  at("compared").addEventListener("change", () => store.set({ compared: at("compared").value }));
  at("as-shares").addEventListener("change", () => store.set({ shares: at("as-shares").checked ? "1" : "" }));
  at("with-scopes").addEventListener("change", () => store.set({ scopes: at("with-scopes").checked ? "1" : "" }));
  ends.push(
    store.subscribe(["compare", "versus", "sides", "compared", "shares", "scopes"], show),
    // Costs are of all ranks; lines are chosen for traces. Of one that grows there are no others.
    store.subscribe(["filter", "sort", "group", "revision"], () => { if (current()[0] === "traces") show(); }),
  );
  show();
  return {
    dispose: () => { gone = true; view?.dispose(); ends.forEach((end) => end()); delete element.dataset.compare; },
    get canvases() { return view?.canvases; },
    get boxes() { return view?.boxes; },
    get hotPath() { return view?.hotPath; },
    get reach() { return view?.reach; },
    csv: () => view?.csv() ?? [["nothing is compared"]],
  };
}
