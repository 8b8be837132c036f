// The trace side: trace view, depth view, summary, mini map and call path, with one crosshair.

import { fitted, ink, seen } from "./canvas.js";
import { percent } from "./format.js";
import { linesView } from "./linesview.js";
import { inks, paint, pixel, stretch } from "./paint.js";
import { SAMPLED } from "./selected.js";
import { split } from "./split.js";
import { WINDOW } from "./store.js";
import { Tally } from "./tally.js";

const COLUMNS = 400; // of the summary

export function mount(element, { store, api, context }) {
  element.innerHTML = `
    <section class="traceview" id="lines" aria-label="Trace view"></section>
    <aside><div id="side-split"></div><section class="mini" aria-label="Mini map"><div class="fill" id="mini-canvas"></div></section>
      <section class="path" aria-label="Call path"><h2>Call path <button id="code" title="Source lines or instructions of the frame at the depth, with what they cost">Source</button></h2><ol id="path"></ol></section>
      <section class="shares" aria-label="Procedures in view"><h2>In view <small id="shares-note"></small></h2><ol id="shares"></ol></section></aside>
    <section class="summary" aria-label="Summary view"><div id="summary-split"></div><div class="fill" id="summary-canvas"></div></section>
    <section class="depthview" aria-label="Depth view"><div id="depth-split"></div><div class="fill" id="depth-canvas"></div></section>`;
  const at = (id) => element.querySelector("#" + id);
  let whole = null;
  let line = null;
  let tally = null;
  let following = null;
  let path = []; // nodes of the call path at the crosshair
  let gone = false;
  split(element, at("side-split"), { name: "--side", label: "Width of the side", across: true, least: 160, most: 800, usual: 300 });
  split(element, at("summary-split"), { name: "--summary", label: "Height of the summary view", across: false, least: 30, most: 500, usual: 90 });
  split(element, at("depth-split"), { name: "--depth", label: "Height of the depth view", across: false, least: 30, most: 600, usual: 150 });
  const found = () => context.found();

  const counted = () => (tally ??= new Tally(trace.grid, context.tree.parent.length, Math.min(COLUMNS, trace.grid.w)));

  const trace = linesView(at("lines"), {
    api, name: "trace", label: "Trace lines over time, coloured by procedure", cross,
    source: () => context.opened && { db: store.state.db, window: store.state, opened: context.opened },
    on: { drawn, labelled, failed: context.fail, ...context.mouse },
  });
  const mini = fitted(at("mini-canvas"), "The whole recording; the part in view is outlined", loadWhole);
  const summary = fitted(at("summary-canvas"), "Share of the lines in each procedure over time", drawSummary);
  const depthView = fitted(at("depth-canvas"), "One line's call path over time, outermost frame on top", loadLine);

  const fresh = (picture) => picture !== null && picture.revision === api.revision;

  function drawn() {
    const { t0, t1, l0, l1 } = store.state;
    element.dataset.picture = `${t0}-${t1}-${l0}-${l1}`;
    element.dataset.firstMs ??= performance.now().toFixed();
    tally = null;
    beside();
    loadExact();
    loadLine();
  }

  async function labelled() {
    const { drawn: window } = at("lines").dataset;
    await following;
    element.dataset.drawn = window;
  }

  function draw() {
    trace.draw();
    element.dataset.depth = store.state.depth;
    beside();
  }

  // What stands beside the picture waits until that is seen.
  function beside() {
    following ??= seen().then(() => {
      following = null;
      if (gone || !trace.grid) return;
      drawWhole();
      drawSummary();
      listShares();
      drawLine();
      showPath();
    });
  }

  // Where the crosshair is in the window, as shares of it.
  function cross() {
    const { t0, t1, time: when, line: chosen } = store.state;
    const { grid } = trace;
    if (when === undefined || !grid) return { x: null, y: null };
    const row = grid.lines.indexOf(chosen);
    return { x: (when - t0) / (t1 - t0), y: row < 0 ? null : (row + 0.5) / grid.h };
  }

  async function loadWhole() {
    const { db } = store.state;
    const { duration_ns } = context.summary;
    const count = context.count();
    if (!count || !duration_ns) return;
    try {
      whole = await api.picture(db, { ...store.state, t0: 0, t1: duration_ns, l0: 0, l1: count }, mini.canvas.height, mini.canvas.width);
    } catch (error) { context.fail(error); return; }
    if (gone) return;
    drawWhole();
  }

  function drawWhole() {
    if (!fresh(whole) || !context.shown()) return;
    const pen = mini.canvas.getContext("2d");
    const { width, height } = mini.canvas;
    stretch(pen, paint(whole.nodes, whole.h, new ImageData(whole.w, whole.h), inks(context.tree, context.shown(), pixel(ink("--blank")), context.lit())), 0, 0, width, height);
    const { t0, t1, l0, l1 } = store.state;
    const { duration_ns } = context.summary;
    const lines = context.count();
    pen.strokeStyle = ink("--cross");
    pen.lineWidth = 2;
    pen.strokeRect((t0 / duration_ns) * width, (l0 / lines) * height, ((t1 - t0) / duration_ns) * width, ((l1 - l0) / lines) * height);
  }

  function drawSummary() {
    if (!trace.grid) return;
    const { stretches, width: pixels } = counted();
    const { width, height } = summary.canvas;
    const pen = summary.canvas.getContext("2d");
    pen.clearRect(0, 0, width, height);
    const shown = context.shown();
    const lit = context.lit();
    // Two keys a procedure: what is looked for lies at the bottom, where its amount can be read.
    const key = (node) => 2 * shown[node] + (lit && !lit[node] ? 1 : 0);
    const keys = 2 * context.tree.names.length;
    const order = ranked(counted().add(new Float64Array(keys), key)).map(([each]) => each).sort((one, two) => (one & 1) - (two & 1));
    const sums = new Float64Array(keys);
    for (let stretch = 0; stretch < stretches; stretch++) {
      counted().add(sums.fill(0), key, stretch, stretch + 1);
      let y = height;
      for (const each of order) {
        const part = (sums[each] / pixels[stretch]) * height;
        if (part < 0.2) continue;
        pen.globalAlpha = each & 1 ? 0.15 : 1;
        pen.fillStyle = context.css(each >> 1);
        pen.fillRect((stretch * width) / stretches, y - part, width / stretches + 1, part);
        y -= part;
      }
    }
    pen.globalAlpha = 1;
  }

  // What there is any of, most first, as [key, how much].
  const ranked = (sums) => [...sums.entries()].filter(([, much]) => much).sort((one, two) => two[1] - one[1]);

  // Shares of pixels at once; beside them the exact ones, as soon as the server has added them up.
  function listShares() {
    const shown = context.shown();
    const sums = counted().add(new Float64Array(context.tree.names.length), (node) => shown[node]);
    const total = sums.reduce((sum, each) => sum + each, 0);
    const exact = context.exact?.key === store.key() ? context.exact : null;
    const whole = exact ? exact.values.reduce((sum, each) => sum + each, 0) : 0;
    const times = new Map();
    exact?.values.forEach((each, node) => { if (each) times.set(shown[node], (times.get(shown[node]) ?? 0) + each); });
    at("shares").replaceChildren(...ranked(sums).slice(0, 30).map(([procedure, count]) => {
      const share = count / total;
      const error = 2 * Math.sqrt((share * (1 - share)) / total);
      const known = exact && whole ? (times.get(procedure) ?? 0) / whole : null;
      const item = entry(procedure, known === null ? `${percent(share)} ± ${percent(error)}` : percent(known));
      item.title = `${percent(share)} of the pixels in view, ± ${percent(error)} (twice the standard error)`
        + (known === null ? "" : `\n${percent(known)} of the time of all lines in view, exactly`);
      return item;
    }));
    at("shares-note").textContent = exact ? "exact share of time" : "share of pixels";
    if (!total) at("shares").replaceChildren(Object.assign(document.createElement("li"), { textContent: "Nothing ran here. Press Home to see everything." }));
  }

  // Once a view has been left alone for a moment.
  function loadExact() {
    clearTimeout(waiting);
    waiting = setTimeout(async () => {
      const key = store.key();
      try {
        const { kind, values } = await api.profile(store.state.db, store.state, true);
        if (gone || key !== store.key() || kind === SAMPLED) return;
        context.exact = { key, values: values[0] };
        listShares();
        element.dataset.exact = key;
      } catch (error) { context.fail(error); }
    }, 400);
  }
  let waiting = 0;

  function entry(procedure, note) {
    const item = document.createElement("li");
    const button = document.createElement("button");
    const mark = document.createElement("i");
    mark.style.background = context.css(procedure);
    button.append(mark, context.tree.names[procedure]);
    button.addEventListener("click", () => store.set({ search: context.tree.names[procedure] }));
    item.append(button);
    if (note) item.append(Object.assign(document.createElement("small"), { textContent: note }));
    return item;
  }

  async function loadLine() {
    const { db, t0, t1, line: row } = store.state;
    if (row === undefined || !context.tree) return;
    try {
      line = await api.lineOverTime(db, row, store.state, depthView.canvas.width);
    } catch (error) { context.fail(error); return; }
    if (gone) return;
    drawLine();
    showPath();
  }

  function drawLine() {
    if (!fresh(line)) return;
    const { tree } = context;
    const { width, height } = depthView.canvas;
    const pen = depthView.canvas.getContext("2d");
    pen.fillStyle = ink("--blank");
    pen.fillRect(0, 0, width, height);
    let deepest = 1;
    for (const node of line.nodes) if (tree.has(node)) deepest = Math.max(deepest, tree.depth[node]);
    const rows = Math.min(deepest, 200);
    const image = new ImageData(line.w, rows);
    const pixels = new Uint32Array(image.data.buffer);
    const seen = found();
    for (let x = 0; x < line.w; x++) {
      let node = line.nodes[x];
      if (!tree.has(node)) continue;
      for (; node; node = tree.parent[node]) {
        const y = tree.depth[node] - 1;
        const procedure = tree.procedure[node];
        if (y < rows && !(seen && !seen[procedure])) pixels[y * line.w + x] = tree.colours[procedure];
      }
    }
    stretch(pen, image, 0, 0, width, height);
    pen.fillStyle = ink("--cross");
    pen.fillRect(0, Math.round(((store.state.depth - 0.5) / rows) * height), width, 1);
    const { t0, t1, time: when } = store.state;
    if (when >= t0 && when <= t1) pen.fillRect(Math.round(((when - t0) / (t1 - t0)) * width), 0, 1, height);
  }

  function showPath() {
    const { t0, t1, time: when, depth } = store.state;
    if (!fresh(line) || when === undefined) return;
    const node = line.nodes[Math.min(line.w - 1, Math.max(0, Math.floor(((when - t0) / (t1 - t0)) * line.w)))];
    path = context.tree.has(node) ? context.tree.path(node) : [];
    at("path").replaceChildren(...path.map((each, i) => {
      const item = entry(context.tree.procedure[each]);
      item.classList.toggle("current", i + 1 === depth);
      item.querySelector("button").addEventListener("click", (event) => {
        event.stopImmediatePropagation();
        store.set({ depth: i + 1 });
      }, true);
      return item;
    }));
  }

  at("code").addEventListener("click", () => {
    const node = path[Math.min(store.state.depth, path.length) - 1];
    const about = node ? { about: context.tree.names[context.tree.procedure[node]], spot: undefined } : {};
    store.set({ ...about, pane: "source" });
  });

  const ends = [
    store.subscribe(WINDOW, trace.load),
    store.subscribe(["db", "revision", "filter", "sort", "group"], loadWhole),
    store.subscribe(["depth", "search", "theme"], draw),
    store.subscribe(["time", "line"], () => { draw(); loadLine(); }),
    trace.dispose, mini.dispose, summary.dispose, depthView.dispose,
  ];
  loadWhole();
  trace.load();
  return {
    canvases: () => [trace.canvas, summary.canvas, depthView.canvas],
    csv: trace.csv,
    dispose: () => { gone = true; clearTimeout(waiting); ends.forEach((end) => end()); },
  };
}
