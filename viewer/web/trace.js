// The trace side: trace view, depth view, summary, mini map and call path, with one crosshair.

import { fitted, ink } from "./canvas.js";
import { percent } from "./format.js";
import { linesView } from "./linesview.js";
import { paint, pixel, stretch } from "./paint.js";
import { SAMPLED } from "./selected.js";
import { split } from "./split.js";
import { WINDOW } from "./store.js";
import { NO_NODE } from "./tree.js";

export function mount(element, { store, api, context }) {
  element.innerHTML = `
    <section class="traceview" id="lines" aria-label="Trace view"></section>
    <aside><div id="side-split"></div><section class="mini" aria-label="Mini map"><div class="fill" id="mini-canvas"></div></section>
      <section class="path" aria-label="Call path"><h2>Call path</h2><ol id="path"></ol></section>
      <section class="shares" aria-label="Procedures in view"><h2>In view <small id="shares-note"></small></h2><ol id="shares"></ol></section></aside>
    <section class="summary" aria-label="Summary view"><div id="summary-split"></div><div class="fill" id="summary-canvas"></div></section>
    <section class="depthview" aria-label="Depth view"><div id="depth-split"></div><div class="fill" id="depth-canvas"></div></section>`;
  const at = (id) => element.querySelector("#" + id);
  let whole = null;
  let line = null;
  let gone = false;
  split(element, at("side-split"), { name: "--side", label: "Width of the side", across: true, least: 160, most: 800, usual: 300 });
  split(element, at("summary-split"), { name: "--summary", label: "Height of the summary view", across: false, least: 30, most: 500, usual: 90 });
  split(element, at("depth-split"), { name: "--depth", label: "Height of the depth view", across: false, least: 30, most: 600, usual: 150 });
  const blank = () => pixel(ink("--blank"));
  const found = () => context.found();

  const trace = linesView(at("lines"), {
    api, name: "trace", label: "Trace lines over time, coloured by procedure", cross,
    source: () => context.opened && { db: store.state.db, window: store.state, opened: context.opened },
    on: { drawn, labelled: () => { element.dataset.drawn = at("lines").dataset.drawn; }, failed: context.fail, ...context.mouse },
  });
  const mini = fitted(at("mini-canvas"), "The whole recording; the part in view is outlined", loadWhole);
  const summary = fitted(at("summary-canvas"), "Share of the lines in each procedure over time", drawSummary);
  const depthView = fitted(at("depth-canvas"), "One line's call path over time, outermost frame on top", loadLine);

  function drawn() {
    drawSummary();
    drawWhole();
    listShares();
    loadExact();
    loadLine();
  }

  function draw() {
    const began = performance.now();
    trace.draw();
    drawWhole();
    element.dataset.paintMs = (performance.now() - began).toFixed(1);
  }

  // Where the crosshair is in the window, as shares of it.
  function cross() {
    const { t0, t1, time: when, line: chosen } = store.state;
    const { grid } = trace;
    if (when === undefined) return { x: null, y: null };
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
    if (!whole || !context.shown()) return;
    const pen = mini.canvas.getContext("2d");
    const { width, height } = mini.canvas;
    stretch(pen, paint(whole.nodes, whole.w, whole.h, context.tree, context.shown(), blank(), context.lit()), 0, 0, width, height);
    const { t0, t1, l0, l1 } = store.state;
    const { duration_ns } = context.summary;
    const lines = context.count();
    pen.strokeStyle = ink("--cross");
    pen.lineWidth = 2;
    pen.strokeRect((t0 / duration_ns) * width, (l0 / lines) * height, ((t1 - t0) / duration_ns) * width, ((l1 - l0) / lines) * height);
  }

  // Pixels of columns from..to by procedure; with lit, apart where what is looked for is not on the
  // path: keys are 2 * procedure, + 1 there.
  function counts(from, to, lit = null) {
    const { grid } = trace;
    const shown = context.shown();
    const sums = new Map();
    let total = 0;
    for (let y = 0; y < grid.h; y++) {
      for (let x = from; x < to; x++) {
        const node = grid.nodes[y * grid.w + x];
        if (node === NO_NODE) continue;
        const key = lit ? 2 * shown[node] + (lit[node] ? 0 : 1) : shown[node];
        sums.set(key, (sums.get(key) ?? 0) + 1);
        total++;
      }
    }
    return { sums, total };
  }

  function drawSummary() {
    const { grid } = trace;
    if (!grid) return;
    const { width, height } = summary.canvas;
    const pen = summary.canvas.getContext("2d");
    pen.clearRect(0, 0, width, height);
    const columns = Math.min(width, 400, grid.w);
    const lit = context.lit() ?? new Uint8Array(context.tree.parent.length).fill(1);
    // What is looked for lies at the bottom, where its amount can be read.
    const order = ranked(counts(0, grid.w, lit).sums).map(([key]) => key).sort((one, two) => (one & 1) - (two & 1));
    for (let column = 0; column < columns; column++) {
      const from = Math.floor((column * grid.w) / columns);
      const to = Math.max(from + 1, Math.floor(((column + 1) * grid.w) / columns));
      const { sums } = counts(from, to, lit);
      let y = height;
      for (const key of order) {
        const part = ((sums.get(key) ?? 0) / ((to - from) * grid.h)) * height;
        if (part < 0.2) continue;
        pen.globalAlpha = key & 1 ? 0.15 : 1;
        pen.fillStyle = context.css(key >> 1);
        pen.fillRect((column * width) / columns, y - part, width / columns + 1, part);
        y -= part;
      }
    }
    pen.globalAlpha = 1;
  }

  const ranked = (sums) => [...sums].sort((one, two) => two[1] - one[1]);

  // Shares of pixels at once; beside them the exact ones, as soon as the server has added them up.
  function listShares() {
    const { sums, total } = counts(0, trace.grid.w);
    const exact = context.exact?.key === windowKey() ? context.exact : null;
    const whole = exact ? exact.values.reduce((sum, each) => sum + each, 0) : 0;
    const shown = context.shown();
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

  const windowKey = () => JSON.stringify([store.state.db, store.window()]);

  // Once a view has been left alone for a moment.
  function loadExact() {
    clearTimeout(waiting);
    waiting = setTimeout(async () => {
      const key = windowKey();
      try {
        const { kind, values } = await api.profile(store.state.db, store.state, true);
        if (gone || key !== windowKey() || kind === SAMPLED) return;
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
    if (!line) return;
    const { tree } = context;
    const { width, height } = depthView.canvas;
    const pen = depthView.canvas.getContext("2d");
    pen.fillStyle = ink("--blank");
    pen.fillRect(0, 0, width, height);
    let deepest = 1;
    for (const node of line.nodes) if (node !== NO_NODE) deepest = Math.max(deepest, tree.depth[node]);
    const rows = Math.min(deepest, 200);
    const image = new ImageData(line.w, rows);
    const pixels = new Uint32Array(image.data.buffer);
    const seen = found();
    for (let x = 0; x < line.w; x++) {
      let node = line.nodes[x];
      if (node === NO_NODE) continue;
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
    if (!line || when === undefined) return;
    const node = line.nodes[Math.min(line.w - 1, Math.max(0, Math.floor(((when - t0) / (t1 - t0)) * line.w)))];
    if (node === undefined || node === NO_NODE) { at("path").replaceChildren(); return; }
    at("path").replaceChildren(...context.tree.path(node).map((each, i) => {
      const item = entry(context.tree.procedure[each]);
      item.classList.toggle("current", i + 1 === depth);
      item.querySelector("button").addEventListener("click", (event) => {
        event.stopImmediatePropagation();
        store.set({ depth: i + 1 });
      }, true);
      return item;
    }));
  }

  const ends = [
    store.subscribe(WINDOW, trace.load),
    store.subscribe(["db", "filter", "sort", "group"], loadWhole),
    store.subscribe(["depth", "search", "theme"], () => { draw(); drawSummary(); if (trace.grid) listShares(); drawLine(); showPath(); }),
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
