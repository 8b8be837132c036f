// The aligned tree as a flame graph: width is what one side cost, or both; red grew, blue shrank.

import { CLASSES, MINOR, SAME, growth, letter } from "./aligned.js";
import { fitted, ink } from "./canvas.js";
import { quantity } from "./format.js";
import { Icicle } from "./icicle.js";
import { joined } from "./joined.js";

export async function mount(element, { store, aligned, tools, limits, say, done }, stale) {
  const made = await aligned();
  if (stale()) return null;
  const { sides, profile, unit, opened } = made;
  const { tree } = opened;
  element.innerHTML = `<div class="difference"><div class="legend" aria-hidden="true"><span>half or gone</span><i></i><span>as before</span><i></i><span>twice or new</span></div>
    <div class="fill" id="difference-canvas"></div><div class="tip" id="difference-tip" hidden></div></div>`;
  const at = (id) => element.querySelector("#" + id);
  const step = () => Math.min(Math.max(store.state.step ?? 0, 0), sides.length - 2);
  let [less, same, more] = [];
  let found = null;

  const graph = fitted(at("difference-canvas"), "Calling contexts of two sides; width is cost, red grew, blue shrank", draw);
  const judged = (row) => made.change(row.inclusive, step(), limits());
  const icicle = new Icicle(graph.canvas, {
    fill: (row) => colour(row), dark: (row) => dark(colour(row)), text: (row) => `${tree.names[row.procedure]}  ${note(row)}`,
    faded: (row) => found && !found[row.procedure], marked: (row) => found?.[row.procedure],
  });
  const whole = profile.root();
  icicle.show(whole);

  function note(row) {
    const change = judged(row);
    return change === SAME || change === MINOR ? "" : growth(change, row.inclusive[step()], row.inclusive[step() + 1]);
  }

  function width(row) {
    const [before, after] = [row.inclusive[step()], row.inclusive[step() + 1]];
    return { before, both: before + after }[store.state.width] ?? after;
  }

  // Twice as much is red, half is blue; what may be chance, or counts as the same, is neither.
  function colour(row) {
    const change = judged(row);
    if (change === SAME || change === MINOR) return rgb(same);
    const doublings = Math.log2(row.inclusive[step() + 1] / row.inclusive[step()]);
    const share = Math.max(-1, Math.min(1, doublings));
    const end = share < 0 ? less : more;
    // A difference that counts can be told from none.
    const part = 0.25 + 0.75 * Math.abs(share);
    return rgb(same.map((each, i) => Math.round(each + (end[i] - each) * part)));
  }

  function draw() {
    [less, same, more] = ["--less", "--same", "--more"].map((name) => [1, 3, 5].map((from) => parseInt(ink(name).slice(from, from + 2), 16)));
    found = opened.found();
    icicle.draw(width);
    const { root } = icicle;
    const [before, after] = [root.inclusive[step()], root.inclusive[step() + 1]];
    say(`${tree.names[root.procedure]}: ${quantity(before, unit)} → ${quantity(after, unit)} of ${made.metric.replaceAll("_", " ")}, ${growth(judged(root), before, after)}`);
    done(`flame ${icicle.boxes.length} ${icicle.boxes.filter(({ row }) => ![SAME, MINOR].includes(judged(row))).length}`);
  }

  graph.canvas.addEventListener("click", (event) => {
    const hit = icicle.under(event);
    if (hit) { icicle.enter(hit); draw(); }
  });
  icicle.explain(at("difference-tip"), (row) => [tree.names[row.procedure],
    ...[step(), step() + 1].map((side) => `${letter(side)}  ${quantity(row.inclusive[side], unit)}  (self ${quantity(row.exclusive[side], unit)})`),
    `${growth(judged(row), row.inclusive[step()], row.inclusive[step() + 1])}  ${CLASSES[judged(row)]}`].join("\n"));

  const ends = [];
  function choices() {
    ends.splice(0).forEach((end) => end());
    tools.replaceChildren();
    ends.push(joined(tools, store, "width", "Width", [["after", `Width of ${letter(step() + 1)}`], ["before", `of ${letter(step())}`], ["both", "of both"]]));
    if (sides.length > 2) {
      const select = document.createElement("select");
      select.setAttribute("aria-label", "Which sides");
      sides.slice(1).forEach((_, each) => select.append(new Option(`${letter(each)} to ${letter(each + 1)}`, each)));
      select.value = step();
      select.addEventListener("change", () => store.set({ step: Number(select.value) }));
      tools.append(select);
    }
    const all = Object.assign(document.createElement("button"), { textContent: "All", title: "Back to everything" });
    all.addEventListener("click", () => { icicle.show(whole); draw(); });
    tools.append(all);
  }
  choices();
  const forever = [
    store.subscribe(["sensitivity", "hotspot", "width", "search", "theme"], draw),
    store.subscribe(["step"], () => { choices(); draw(); }),
  ];
  return {
    dispose() { [...ends, ...forever].forEach((end) => end()); graph.dispose(); },
    canvases: () => [graph.canvas],
    boxes: () => icicle.drawn(),
    csv: () => [["procedure", ...sides.map(({ label }) => `${label} (${unit})`), "change"],
      ...icicle.boxes.map(({ row }) => [tree.names[row.procedure], ...sides.map((_, side) => row.inclusive[side]), CLASSES[judged(row)]])],
  };
}

const rgb = (parts) => `rgb(${parts.join(" ")})`;

function dark(css) {
  const [red, green, blue] = css.match(/\d+/g).map(Number);
  return 0.3 * red + 0.59 * green + 0.11 * blue < 130;
}
