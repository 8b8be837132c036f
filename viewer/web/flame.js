// The profile of what is in view as a flame graph, outermost frames on top; or from the innermost
// outwards (inverted); or around one procedure: its callers above, its callees below (sandwich).

import { fitted } from "./canvas.js";
import { percent, quantity } from "./format.js";
import { Icicle } from "./icicle.js";
import { chosen, selected } from "./selected.js";
import { WINDOW } from "./store.js";

const KINDS = [["down", "Top-down"], ["up", "Inverted"], ["sandwich", "Sandwich"]];

export function mount(element, { store, api, context }) {
  element.innerHTML = `
    <section class="flame" aria-label="Flame graph"><div class="bar">
      <div role="group" class="joined" id="kinds" aria-label="Kind"></div>
      <label>by <select id="metric"></select></label>
      <button id="out" title="Back to everything">All</button>
      <button id="code" title="Source lines or instructions of the frame clicked last, with what they cost">Source</button><output id="what" aria-live="polite"></output></div>
      <div class="fill scroll" id="flame-canvas"></div><div class="tip" id="flame-tip" hidden></div></section>`;
  const at = (id) => element.querySelector("#" + id);
  let made = null;
  let profile = null; // the costs of made over the tree of the kind
  let number = 0;
  let gone = false;
  for (const [flame, title] of KINDS) {
    const button = Object.assign(document.createElement("button"), { textContent: title });
    button.dataset.kind = flame;
    button.addEventListener("click", () => store.set({ flame }));
    at("kinds").append(button);
  }
  const graph = fitted(at("flame-canvas"), "Calling contexts; width is cost", draw);
  const icicle = new Icicle(graph.canvas, {
    fill: (row) => context.css(row.procedure, profile.tree), dark: (row) => context.dark(row.procedure, profile.tree), text: (row) => profile.tree.names[row.procedure],
    faded: (row) => found && !found[row.procedure], marked: (row) => found?.[row.procedure],
  });
  let found = null;
  let shown = null; // the kind that is drawn
  const kind = () => store.state.flame ?? "down";

  async function load() {
    at("what").textContent = "adding up …";
    try {
      made = await selected({ store, api, context });
    } catch (error) { at("what").textContent = ""; context.fail(error); return; }
    if (gone) return;
    // Ratios do not add up to a width.
    const metrics = made.metrics.filter(({ additive = true }) => additive);
    at("metric").replaceChildren(...metrics.map(({ name }) => new Option(name.replaceAll("_", " "), name)));
    const { name } = metrics[chosen(metrics, store.state.metric)];
    number = made.metrics.findIndex((each) => each.name === name);
    at("metric").value = name;
    build(true);
  }

  // keep: what was shown in full width still is, of other lines, another time, a newer revision.
  async function build(keep = false) {
    if (!made) return;
    const wanted = kind();
    let costs;
    try {
      costs = await made.profile(wanted === "down" ? "top-down" : "flat");
    } catch (error) { context.fail(error); return; }
    if (gone || wanted !== kind()) return;
    const name = (row) => profile.tree.names[row.procedure];
    const way = keep && shown === wanted ? icicle.way(name) : [];
    [profile, shown] = [costs, wanted];
    for (const each of at("kinds").children) each.setAttribute("aria-pressed", each.dataset.kind === kind());
    let root;
    if (kind() === "down") root = profile.root();
    else if (kind() === "up") root = { procedure: 0, inclusive: profile.total, exclusive: profile.total, children: () => inverted };
    else {
      const rows = profile.procedures(false);
      const about = rows.find(({ procedure }) => context.opened.procedureOf(profile.tree, procedure) === store.state.about) ?? rows.sort((one, two) => two.exclusive[number] - one.exclusive[number])[0];
      const nodes = about ? profile.everywhere(about.procedure) : [];
      root = about ? { ...profile.callees(about.procedure, nodes), callers: profile.callers(about.procedure, nodes, nodes) } : null;
    }
    inverted = kind() === "up" ? profile.procedures(true) : [];
    icicle.show(root);
    icicle.follow(way, name);
    draw();
  }
  let inverted = [];

  // What a row's width is: self time where cost belongs to the innermost frame.
  const cost = (row) => (kind() === "up" ? row.exclusive[number] : row.inclusive[number]);

  function draw() {
    const { root } = icicle;
    if (!profile || !root) { if (profile) at("what").textContent = "nothing ran in what is in view: press Home to see everything"; return; }
    found = context.found(profile.tree);
    if (root.callers) {
      icicle.clear();
      const { canvas, height } = icicle;
      const middle = Math.floor(canvas.height / height / 2);
      icicle.spread(root.callers, (middle - 1) * height, -height, (row) => row.inclusive[number]);
      icicle.box(root, 0, middle * height, canvas.width);
      icicle.spread(root, (middle + 1) * height, height, cost);
    } else icicle.draw(cost);
    const total = profile.total[number];
    const { unit } = made.metrics[number];
    at("what").textContent = `${quantity(cost(root), unit)} (${percent(cost(root) / (total || 1))})  ·  ${made.note}`;
    element.dataset.boxes = icicle.boxes.length;
  }

  graph.canvas.addEventListener("click", (event) => {
    const hit = icicle.under(event);
    if (!hit) return;
    store.set({ about: context.opened.procedureOf(profile.tree, hit.row.procedure), spot: undefined });
    if (kind() === "sandwich") return;
    icicle.enter(hit);
    draw();
  });
  icicle.explain(at("flame-tip"), (row) => {
    const { unit } = made.metrics[number];
    const total = profile.total[number];
    const [all, self] = [row.inclusive[number], row.exclusive[number]];
    return `${profile.tree.names[row.procedure]}\n${quantity(all, unit)}  ${percent(all / total)}\nself ${quantity(self, unit)}  ${percent(self / total)}`;
  });
  at("metric").addEventListener("change", () => store.set({ metric: at("metric").value }));
  at("out").addEventListener("click", () => build());
  at("code").addEventListener("click", () => store.set({ pane: "source" }));
  const ends = [
    store.subscribe(WINDOW, load),
    store.subscribe(["metric", "formulas"], load),
    store.subscribe(["flame"], () => build()),
    store.subscribe(["about"], () => { if (kind() === "sandwich") build(); }),
    store.subscribe(["search", "theme"], draw),
  ];
  load();
  return {
    dispose: () => { gone = true; ends.forEach((end) => end()); graph.dispose(); },
    canvases: () => [graph.canvas],
    boxes: () => icicle.drawn(),
    csv: () => [["procedure", "inclusive", "exclusive", "unit"], ...icicle.boxes.map(({ row }) => [profile.tree.names[row.procedure], row.inclusive[number], row.exclusive[number], made.metrics[number].unit])],
  };
}
