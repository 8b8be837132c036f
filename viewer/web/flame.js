// The profile of the whole run or of what is in view, as a flame graph: outermost frames on top.

import { fitted, ink, place } from "./canvas.js";
import { percent, quantity } from "./format.js";
import { NO_NODE } from "./tree.js";

const ROW = 18;

export function mount(element, { store, api, context }) {
  element.innerHTML = `
    <section class="flame" aria-label="Flame graph"><div class="bar">
      <label>Of <select id="scope"><option value="run">the whole run</option><option value="view">what is in view</option></select></label>
      <label>by <select id="metric"></select></label><button id="out">All</button><output id="what"></output></div>
      <div class="fill scroll" id="flame-canvas"></div><div class="tip" id="flame-tip" hidden></div></section>`;
  const at = (id) => element.querySelector("#" + id);
  let total = null;
  let children = null;
  let root = 0;
  let boxes = [];
  let unit = "";
  let turns = 0;
  for (const { name } of context.summary.metrics) at("metric").append(new Option(name, name));
  at("metric").value = store.state.metric ?? (context.summary.metrics.find(({ name }) => name === "cpu_time") ?? context.summary.metrics[0]).name;
  const graph = fitted(at("flame-canvas"), "Calling contexts; width is cost", draw);

  async function load() {
    const { tree } = context;
    const turn = ++turns;
    let exclusive;
    if (at("scope").value === "view" && context.grid) {
      exclusive = new Float64Array(tree.parent.length);
      for (const node of context.grid.nodes) if (node !== NO_NODE) exclusive[node]++;
      unit = "pixels";
    } else {
      const name = at("metric").value;
      exclusive = await api.metric(store.state.db, name);
      if (turn !== turns) return; // something else was asked for meanwhile
      unit = context.summary.metrics.find((each) => each.name === name).unit;
    }
    total = tree.inclusive(exclusive);
    children = new Map();
    for (let node = 1; node < total.length; node++) {
      if (!total[node]) continue;
      const list = children.get(tree.parent[node]);
      if (list) list.push(node); else children.set(tree.parent[node], [node]);
    }
    for (const list of children.values()) list.sort((one, two) => total[two] - total[one]);
    root = 0;
    draw();
  }

  function draw() {
    if (!total) return;
    const { canvas } = graph;
    const ratio = devicePixelRatio || 1;
    const pen = canvas.getContext("2d");
    pen.clearRect(0, 0, canvas.width, canvas.height);
    pen.font = `${12 * ratio}px system-ui, sans-serif`;
    pen.textBaseline = "middle";
    const found = context.found();
    boxes = [];
    const height = ROW * ratio;
    const above = context.tree.path(root);
    above.forEach((node, i) => box(node, 0, i * height, canvas.width));
    const pending = [[root, 0, canvas.width, above.length]];
    while (pending.length) {
      const [node, left, width, row] = pending.pop();
      let x = left;
      for (const child of children.get(node) ?? []) {
        const part = (total[child] / total[node]) * width;
        if (part < 0.7 * ratio || row * height > canvas.height) break;
        box(child, x, row * height, part);
        pending.push([child, x, part, row + 1]);
        x += part;
      }
    }
    at("what").textContent = `${quantity(total[root], unit)}` + (root ? ` (${percent(total[root] / total[0])})` : "");
    element.dataset.boxes = boxes.length;

    function box(node, x, y, width) {
      const procedure = context.tree.procedure[node];
      pen.globalAlpha = found && !found[procedure] ? 0.25 : 1;
      pen.fillStyle = context.css(procedure);
      pen.fillRect(x, y, Math.max(width - 1, 0.5), height - 1);
      pen.globalAlpha = 1;
      if (width > 40 * ratio) {
        pen.save();
        pen.beginPath();
        pen.rect(x, y, width - 4, height);
        pen.clip();
        pen.fillStyle = context.dark(procedure) ? "#fff" : "#000";
        pen.fillText(context.tree.names[procedure], x + 4 * ratio, y + height / 2);
        pen.restore();
      }
      boxes.push({ node, x, y, width, height });
    }
  }

  function under(event) {
    const spot = place(graph.canvas, event);
    const x = spot.x * graph.canvas.width;
    const y = spot.y * graph.canvas.height;
    return boxes.find((each) => x >= each.x && x < each.x + each.width && y >= each.y && y < each.y + each.height);
  }

  graph.canvas.addEventListener("click", (event) => {
    const hit = under(event);
    if (hit) { root = hit.node; draw(); }
  });
  graph.canvas.addEventListener("pointermove", (event) => {
    const hit = under(event);
    const tip = at("flame-tip");
    tip.hidden = !hit;
    if (!hit) return;
    tip.textContent = `${context.tree.names[context.tree.procedure[hit.node]]}\n${quantity(total[hit.node], unit)}  ${percent(total[hit.node] / total[0])}`;
    const box = element.getBoundingClientRect();
    tip.style.left = `${Math.min(event.clientX - box.left + 12, box.width - tip.offsetWidth - 4)}px`;
    tip.style.top = `${event.clientY - box.top + 12}px`;
  });
  graph.canvas.addEventListener("pointerleave", () => { at("flame-tip").hidden = true; });
  at("scope").addEventListener("change", load);
  at("metric").addEventListener("change", () => { store.set({ metric: at("metric").value }); load(); });
  at("out").addEventListener("click", () => { root = 0; draw(); });
  const end = store.subscribe(["search", "theme"], draw);
  load().catch(context.fail);
  return { dispose: () => { end(); graph.dispose(); } };
}
