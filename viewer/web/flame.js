// The profile of what is in view as a flame graph, outermost frames on top; or from the innermost
// outwards (inverted); or around one procedure: its callers above, its callees below (sandwich).

import { fitted, ink, place } from "./canvas.js";
import { percent, quantity } from "./format.js";
import { chosen, selected } from "./selected.js";
import { WINDOW } from "./store.js";

const ROW = 18;
const KINDS = [["down", "Top-down"], ["up", "Inverted"], ["sandwich", "Sandwich"]];

export function mount(element, { store, api, context }) {
  element.innerHTML = `
    <section class="flame" aria-label="Flame graph"><div class="bar">
      <div role="group" class="joined" id="kinds" aria-label="Kind"></div>
      <label>by <select id="metric"></select></label>
      <button id="out" title="Back to everything">All</button><output id="what" aria-live="polite"></output></div>
      <div class="fill scroll" id="flame-canvas"></div><div class="tip" id="flame-tip" hidden></div></section>`;
  const at = (id) => element.querySelector("#" + id);
  let made = null;
  let number = 0;
  let above = []; // rows around what is shown in full width
  let root = null;
  let boxes = [];
  let gone = false;
  for (const [flame, title] of KINDS) {
    const button = Object.assign(document.createElement("button"), { textContent: title });
    button.dataset.kind = flame;
    button.addEventListener("click", () => store.set({ flame }));
    at("kinds").append(button);
  }
  const graph = fitted(at("flame-canvas"), "Calling contexts; width is cost", draw);
  const kind = () => store.state.flame ?? "down";

  async function load() {
    at("what").textContent = "adding up …";
    try {
      made = await selected({ store, api, context });
    } catch (error) { at("what").textContent = ""; context.fail(error); return; }
    if (gone) return;
    at("metric").replaceChildren(...made.metrics.map(({ name }) => new Option(name.replaceAll("_", " "), name)));
    number = chosen(made.metrics, store.state.metric);
    at("metric").value = made.metrics[number].name;
    build();
  }

  function build() {
    if (!made) return;
    const { profile } = made;
    for (const each of at("kinds").children) each.setAttribute("aria-pressed", each.dataset.kind === kind());
    above = [];
    if (kind() === "down") root = profile.root();
    else if (kind() === "up") root = { procedure: 0, inclusive: profile.total, exclusive: profile.total, children: () => inverted };
    else {
      const rows = profile.procedures(false);
      const named = context.tree.numbers.get(store.state.about);
      const about = rows.find(({ procedure }) => procedure === named) ?? rows.sort((one, two) => two.exclusive[number] - one.exclusive[number])[0];
      const nodes = about ? profile.everywhere(about.procedure) : [];
      root = about ? { ...profile.callees(about.procedure, nodes), callers: profile.callers(about.procedure, nodes, nodes) } : null;
    }
    inverted = kind() === "up" ? profile.procedures(true) : [];
    draw();
  }
  let inverted = [];

  // What a row's width is: self time where cost belongs to the innermost frame.
  const cost = (row) => (kind() === "up" ? row.exclusive[number] : row.inclusive[number]);

  function draw() {
    if (!made || !root) { if (made) at("what").textContent = "nothing ran in what is in view: press Home to see everything"; return; }
    const { canvas } = graph;
    const ratio = devicePixelRatio || 1;
    const pen = canvas.getContext("2d");
    pen.clearRect(0, 0, canvas.width, canvas.height);
    pen.font = `${12 * ratio}px system-ui, sans-serif`;
    pen.textBaseline = "middle";
    const found = context.found();
    const height = ROW * ratio;
    boxes = [];
    let middle = above.length;
    if (root.callers) {
      middle = Math.floor(canvas.height / height / 2);
      spread(root.callers, (middle - 1) * height, -height, (row) => row.inclusive[number]);
      box(root, 0, middle * height, canvas.width);
      middle++;
    } else {
      [...above, root].forEach((row, i) => { if (i) box(row, 0, (i - 1) * height, canvas.width); });
    }
    spread(root, middle * height, height, cost);
    const total = made.profile.total[number];
    const { unit } = made.metrics[number];
    at("what").textContent = `${quantity(cost(root), unit)} (${percent(cost(root) / (total || 1))})  ·  ${made.note}`;
    element.dataset.boxes = boxes.length;

    function spread(from, top, step, width) {
      const pending = [[from, 0, canvas.width, top]];
      while (pending.length) {
        const [row, left, whole, y] = pending.pop();
        if (y < 0 || y > canvas.height) continue;
        let x = left;
        const all = width(row);
        for (const child of row.children().slice().sort((one, two) => width(two) - width(one))) {
          const part = (width(child) / all) * whole;
          if (!(part >= 0.7 * ratio)) break;
          box(child, x, y, part, row);
          pending.push([child, x, part, y + step]);
          x += part;
        }
      }
    }

    function box(row, x, y, width, parent) {
      const { procedure } = row;
      pen.globalAlpha = found && !found[procedure] ? 0.25 : 1;
      pen.fillStyle = context.css(procedure);
      pen.fillRect(x, y, Math.max(width - 1, 0.5), height - 1);
      pen.globalAlpha = 1;
      if (found?.[procedure]) {
        pen.strokeStyle = ink("--cross");
        pen.strokeRect(x + 0.5, y + 0.5, Math.max(width - 2, 0.5), height - 2);
      }
      if (width > 40 * ratio) {
        pen.save();
        pen.beginPath();
        pen.rect(x, y, width - 4, height);
        pen.clip();
        pen.fillStyle = context.dark(procedure) ? "#fff" : "#000";
        pen.fillText(context.tree.names[procedure], x + 4 * ratio, y + height / 2);
        pen.restore();
      }
      boxes.push({ row, parent, x, y, width, height });
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
    if (!hit) return;
    store.set({ about: context.tree.names[hit.row.procedure] });
    if (kind() === "sandwich") return;
    const known = above.indexOf(hit.row);
    if (known >= 0) above = above.slice(0, known);
    else if (hit.row !== root) {
      const way = [];
      for (let each = hit; each?.parent; each = boxes.find(({ row }) => row === each.parent)) way.unshift(each.parent);
      above = [...above, ...way.filter((row) => !above.includes(row))];
    }
    root = hit.row;
    draw();
  });
  graph.canvas.addEventListener("pointermove", (event) => {
    const hit = under(event);
    const tip = at("flame-tip");
    tip.hidden = !hit;
    if (!hit) return;
    const { unit } = made.metrics[number];
    const total = made.profile.total[number];
    const [all, self] = [hit.row.inclusive[number], hit.row.exclusive[number]];
    tip.textContent = `${context.tree.names[hit.row.procedure]}\n${quantity(all, unit)}  ${percent(all / total)}\nself ${quantity(self, unit)}  ${percent(self / total)}`;
    const box = element.getBoundingClientRect();
    tip.style.left = `${Math.min(event.clientX - box.left + 12, box.width - tip.offsetWidth - 4)}px`;
    tip.style.top = `${Math.min(event.clientY - box.top + 12, box.height - tip.offsetHeight - 4)}px`;
  });
  graph.canvas.addEventListener("pointerleave", () => { at("flame-tip").hidden = true; });
  at("metric").addEventListener("change", () => store.set({ metric: at("metric").value }));
  at("out").addEventListener("click", build);
  const ends = [
    store.subscribe(WINDOW, load),
    store.subscribe(["metric"], load),
    store.subscribe(["flame"], build),
    store.subscribe(["about"], () => { if (kind() === "sandwich") build(); }),
    store.subscribe(["search", "theme"], draw),
  ];
  load();
  return {
    dispose: () => { gone = true; ends.forEach((end) => end()); graph.dispose(); },
    canvases: () => [graph.canvas],
    boxes: () => boxes.map(({ row, ...box }) => ({ ...box, fill: context.css(row.procedure), dark: context.dark(row.procedure), text: context.tree.names[row.procedure] })),
    csv: () => [["procedure", "inclusive", "exclusive", "unit"], ...boxes.map(({ row }) => [context.tree.names[row.procedure], row.inclusive[number], row.exclusive[number], made.metrics[number].unit])],
  };
}
