// The trace side: trace view, depth view, summary, mini map and call path, with one crosshair.

import { fitted, ink, place } from "./canvas.js";
import { percent, time } from "./format.js";
import { paint, pixel, stretch } from "./paint.js";
import { SAMPLED } from "./selected.js";
import { split } from "./split.js";
import { WINDOW } from "./store.js";
import { BLOCKED, COMMUNICATION, NO_NODE } from "./tree.js";


export function mount(element, { store, api, context }) {
  element.innerHTML = `
    <section class="trace" aria-label="Trace view"><div class="fill" id="trace-canvas"></div>
      <div class="labels" id="trace-labels"></div><div class="axis" id="trace-axis"></div>
      <div class="tip" id="tip" hidden></div><div class="rubber" id="rubber" hidden></div></section>
    <aside><div id="side-split"></div><section class="mini" aria-label="Mini map"><div class="fill" id="mini-canvas"></div></section>
      <section class="path" aria-label="Call path"><h2>Call path</h2><ol id="path"></ol></section>
      <section class="shares" aria-label="Procedures in view"><h2>In view <small id="shares-note"></small></h2><ol id="shares"></ol></section></aside>
    <section class="summary" aria-label="Summary view"><div id="summary-split"></div><div class="fill" id="summary-canvas"></div></section>
    <section class="depthview" aria-label="Depth view"><div id="depth-split"></div><div class="fill" id="depth-canvas"></div></section>`;
  const at = (id) => element.querySelector("#" + id);
  let grid = null;
  let whole = null;
  let line = null;
  let labels = new Map();
  let asking = null;
  let gone = false;
  split(element, at("side-split"), { name: "--side", label: "Width of the side", across: true, least: 160, most: 800, usual: 300 });
  split(element, at("summary-split"), { name: "--summary", label: "Height of the summary view", across: false, least: 30, most: 500, usual: 90 });
  split(element, at("depth-split"), { name: "--depth", label: "Height of the depth view", across: false, least: 30, most: 600, usual: 150 });
  const blank = () => pixel(ink("--blank"));
  const found = () => context.found();

  const trace = fitted(at("trace-canvas"), "Trace lines over time, coloured by procedure", load);
  const mini = fitted(at("mini-canvas"), "The whole recording; the part in view is outlined", loadWhole);
  const summary = fitted(at("summary-canvas"), "Share of the lines in each procedure over time", drawSummary);
  const depthView = fitted(at("depth-canvas"), "One line's call path over time, outermost frame on top", loadLine);

  async function load() {
    const { db, t0, t1, l0, l1 } = store.state;
    if (!context.tree || !(t1 > t0) || !(l1 > l0)) return;
    asking?.abort();
    asking = new AbortController();
    try {
      grid = await api.picture(db, store.state, trace.canvas.height, trace.canvas.width, asking.signal);
    } catch (error) {
      if (error.name !== "AbortError") context.fail(error);
      return;
    }
    if (gone) return;
    context.grid = grid;
    draw();
    drawSummary();
    listShares();
    loadExact();
    loadLine();
    await loadLabels();
    element.dataset.drawn = `${t0}-${t1}-${l0}-${l1}`;
  }

  // Of a few thousand lines all labels; else those of four.
  async function loadLabels() {
    const { db, l0, l1 } = store.state;
    const { places } = grid;
    const spans = l1 - l0 <= 2000 ? [[l0, l1 - l0]]
      : [...new Set([0, 0.25, 0.5, 0.75].map((share) => places[Math.floor(share * places.length)]))].map((each) => [each, 1]);
    try {
      const answers = await Promise.all(spans.map(([from, count]) => api.lines(db, store.state, from, count)));
      labels = new Map(answers.flatMap((answer, i) => answer.labels.map((label, j) => [spans[i][0] + j, { label, group: answer.groups[j] }])));
    } catch (error) { context.fail(error); return; }
    if (gone) return;
    drawLabels();
    draw();
  }

  function drawLabels() {
    const height = at("trace-canvas").clientHeight / grid.h;
    const every = Math.max(1, Math.ceil(15 / height));
    const shown = [];
    let last = null;
    for (let row = 0; row < grid.h; row += every) {
      const known = labels.get(grid.places[row]);
      if (!known) continue;
      const label = document.createElement("span");
      const heads = known.group && known.group !== last;
      label.textContent = known.group && known.group !== known.label && heads ? `${known.group}: ${known.label}` : known.label;
      label.classList.toggle("heads", Boolean(heads));
      label.title = label.textContent;
      last = known.group;
      label.style.top = `${row * height}px`;
      shown.push(label);
    }
    at("trace-labels").replaceChildren(...shown);
  }

  // A gap between groups, where rows are high enough to spare it.
  function drawGroups(pen) {
    if (!store.state.group || trace.canvas.height / grid.h < 3) return;
    pen.fillStyle = ink("--text");
    for (let row = 1; row < grid.h; row++) {
      const [above, here] = [labels.get(grid.places[row - 1]), labels.get(grid.places[row])];
      if (above && here && above.group !== here.group) pen.fillRect(0, Math.round((row * trace.canvas.height) / grid.h) - 1, trace.canvas.width, 2);
    }
  }

  function drawAxis() {
    const { t0, t1 } = store.state;
    const ticks = Array.from({ length: 6 }, (_, i) => {
      const tick = document.createElement("span");
      tick.style.left = `${20 * i}%`;
      tick.textContent = time(t0 + ((t1 - t0) * i) / 5, t1 - t0);
      return tick;
    });
    at("trace-axis").replaceChildren(...ticks);
  }

  function draw() {
    if (!grid) return;
    const began = performance.now();
    const pen = trace.canvas.getContext("2d");
    const image = paint(grid.nodes, grid.w, grid.h, context.tree, context.shown(), blank(), context.lit());
    if (grid.w === trace.canvas.width && grid.h === trace.canvas.height) pen.putImageData(image, 0, 0);
    else stretch(pen, image, 0, 0, trace.canvas.width, trace.canvas.height);
    drawGroups(pen);
    crosshair(pen, trace.canvas, true);
    drawAxis();
    drawWhole();
    element.dataset.paintMs = (performance.now() - began).toFixed(1);
  }

  function crosshair(pen, canvas, across) {
    const { t0, t1, time: when, line: chosen } = store.state;
    if (when === undefined) return;
    pen.fillStyle = ink("--cross");
    const x = ((when - t0) / (t1 - t0)) * canvas.width;
    if (x >= 0 && x <= canvas.width) pen.fillRect(Math.round(x), 0, 1, canvas.height);
    if (!across) return;
    const row = grid.lines.indexOf(chosen);
    const y = ((row + 0.5) / grid.h) * canvas.height;
    if (row >= 0) pen.fillRect(0, Math.round(y), canvas.width, 1);
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
    const { sums, total } = counts(0, grid.w);
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
    crosshair(pen, depthView.canvas, false);
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

  // --- mouse and keys ---

  let pressed = null;
  const picture = at("trace-canvas").parentElement;

  function moment(spot) { return store.state.t0 + spot.x * (store.state.t1 - store.state.t0); }
  function row(spot) { return grid?.lines[Math.min(grid.h - 1, Math.floor(spot.y * grid.h))]; }

  trace.canvas.addEventListener("pointerdown", (event) => {
    pressed = place(trace.canvas, event);
    trace.canvas.setPointerCapture(event.pointerId);
  });
  trace.canvas.addEventListener("pointermove", (event) => {
    const spot = place(trace.canvas, event);
    hover(spot, event);
    const rubber = at("rubber");
    rubber.hidden = !pressed || Math.hypot(spot.x - pressed.x, spot.y - pressed.y) < 0.004;
    if (rubber.hidden) return;
    const box = at("trace-canvas");
    Object.assign(rubber.style, {
      left: `${box.offsetLeft + Math.min(spot.x, pressed.x) * box.clientWidth}px`,
      top: `${box.offsetTop + Math.min(spot.y, pressed.y) * box.clientHeight}px`,
      width: `${Math.abs(spot.x - pressed.x) * box.clientWidth}px`,
      height: `${Math.abs(spot.y - pressed.y) * box.clientHeight}px`,
    });
  });
  trace.canvas.addEventListener("pointerup", (event) => {
    if (!pressed) return;
    const spot = place(trace.canvas, event);
    const [from, to] = [pressed, spot];
    pressed = null;
    at("rubber").hidden = true;
    if (Math.abs(from.x - to.x) < 0.004 && Math.abs(from.y - to.y) < 0.004) {
      store.set({ time: Math.round(moment(spot)), line: row(spot) });
      return;
    }
    const { t0, t1, l0, l1 } = store.state;
    const patch = { t0: moment({ x: Math.min(from.x, to.x) }), t1: moment({ x: Math.max(from.x, to.x) }) };
    // A flat rectangle means time alone.
    if (Math.abs(from.y - to.y) > 0.02) {
      patch.l0 = l0 + Math.floor(Math.min(from.y, to.y) * (l1 - l0));
      patch.l1 = Math.max(patch.l0 + 1, l0 + Math.ceil(Math.max(from.y, to.y) * (l1 - l0)));
    }
    if (t1 - t0 > 1000) context.zoomTo(patch);
  });
  trace.canvas.addEventListener("pointerleave", () => { at("tip").hidden = true; });
  trace.canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    const spot = place(trace.canvas, event);
    const factor = Math.exp((event.deltaY || event.deltaX) * 0.002);
    if (event.shiftKey) context.zoomLines(factor, spot.y); else context.zoomTime(factor, spot.x);
  }, { passive: false });

  function hover(spot, event) {
    if (!grid) return;
    const tip = at("tip");
    const y = Math.min(grid.h - 1, Math.floor(spot.y * grid.h));
    const node = grid.nodes[y * grid.w + Math.min(grid.w - 1, Math.floor(spot.x * grid.w))];
    const who = labels.get(grid.places[y])?.label ?? `line ${grid.lines[y]}`;
    const mark = node === NO_NODE ? "" : { [BLOCKED]: "  (not running)", [COMMUNICATION]: "  (communicates)" }[context.tree.marks[node]] ?? "";
    tip.hidden = false;
    tip.textContent = `${time(moment(spot), store.state.t1 - store.state.t0)}  ${who}${mark}\n` +
      (node === NO_NODE ? "not there" : context.tree.path(node).map((each) => context.tree.names[context.tree.procedure[each]]).join("\n"));
    const box = picture.getBoundingClientRect();
    const left = event.clientX - box.left + 14;
    tip.style.left = `${Math.min(left, box.width - tip.offsetWidth - 4)}px`;
    tip.style.top = `${Math.min(event.clientY - box.top + 14, Math.max(0, box.height - tip.offsetHeight - 4))}px`;
  }

  const ends = [
    store.subscribe(WINDOW, load),
    store.subscribe(["db", "filter", "sort", "group"], loadWhole),
    store.subscribe(["depth", "search", "theme"], () => { draw(); drawSummary(); if (grid) listShares(); drawLine(); showPath(); }),
    store.subscribe(["time", "line"], () => { draw(); loadLine(); }),
    trace.dispose, mini.dispose, summary.dispose, depthView.dispose,
  ];
  loadWhole();
  load();
  return {
    canvases: () => [trace.canvas, summary.canvas, depthView.canvas],
    csv: () => [["line", "label", ...Array.from({ length: grid.w }, (_, x) => `${Math.round(store.state.t0 + ((x + 0.5) * (store.state.t1 - store.state.t0)) / grid.w)} ns`)],
      ...Array.from(grid.lines, (each, y) => [each, labels.get(grid.places[y])?.label ?? "", ...Array.from(grid.nodes.subarray(y * grid.w, (y + 1) * grid.w),
        (node) => (node === NO_NODE ? "" : context.tree.names[context.shown()[node]]))])],
    dispose: () => { gone = true; clearTimeout(waiting); ends.forEach((end) => end()); },
  };
}
