// What a context cost on each line: statistics, histogram, sorted curve; and lines x procedures.
// What a line is clicked for: it is where the trace view's crosshair goes.

import { fitted, ink, place } from "./canvas.js";
import { percent, quantity } from "./format.js";
import { chosen } from "./selected.js";
import { WINDOW } from "./store.js";

const STATISTICS = [
  ["sum", "Sum"], ["mean", "Mean"], ["median", "Median"], ["min", "Least"], ["max", "Most"],
  ["stddev", "Standard deviation"], ["cv", "Coefficient of variation"], ["imbalance", "Most / mean - 1"],
];

export function mount(element, { store, api, context }) {
  element.innerHTML = `
    <section class="over" aria-label="Cost over lines"><div class="bar">
      <label>Cost <select id="metric"></select></label><span id="of"></span>
      <button id="whole">Whole program</button><output id="what" aria-live="polite"></output></div>
      <div class="tiles">
        <div class="tile"><h2>Statistics</h2><table id="statistics"></table></div>
        <div class="tile"><h2>Lines by cost</h2><div class="fill" id="histogram"></div></div>
        <div class="tile"><h2>Cost, from least to most</h2><div class="fill" id="curve"></div></div>
        <div class="tile wide"><h2>Lines × procedures <small id="heat-note"></small></h2><div class="fill" id="heat"></div><ol id="columns"></ol></div>
      </div><div class="tip" id="tip" hidden></div></section>`;
  const at = (id) => element.querySelector("#" + id);
  let answer = null;
  let heat = null;
  let gone = false;
  let turns = 0;
  const { metrics } = context.summary;
  for (const { name } of metrics) at("metric").append(new Option(name.replaceAll("_", " "), name));
  const bars = fitted(at("histogram"), "How many lines have which cost", drawBars);
  const curve = fitted(at("curve"), "Cost of each line, from least to most", drawCurve);
  const map = fitted(at("heat"), "Cost of each procedure on each line; darker is more", drawHeat);
  const metric = () => metrics[chosen(metrics, store.state.metric)];
  const text = (value) => quantity(value, metric().unit);

  async function load() {
    const turn = ++turns;
    at("metric").value = metric().name;
    const about = store.state.context ?? "n0";
    at("of").textContent = about === "n0" ? "of the whole program" : `of ${name()}`;
    at("whole").hidden = about === "n0";
    at("what").textContent = "adding up …";
    try {
      const { db } = store.state;
      const [over, table] = await Promise.all([
        api.over(db, store.state, metric().name, about),
        api.heat(db, store.state, metric().name, 1000, 40),
      ]);
      if (gone || turn !== turns) return;
      [answer, heat] = [over, table];
    } catch (error) { at("what").textContent = ""; context.fail(error); return; }
    at("what").textContent = `on ${answer.with_cost.toLocaleString("en")} of ${answer.lines.toLocaleString("en")} lines, all their time: exact`;
    const { l0, l1 } = store.state;
    at("heat-note").textContent = heat.h < l1 - l0 ? `${heat.h.toLocaleString("en")} of ${(l1 - l0).toLocaleString("en")} lines, evenly chosen` : "";
    listStatistics();
    drawBars();
    drawCurve();
    drawHeat();
    element.dataset.over = `${about} ${answer.lines}`;
  }

  // A row of the profile tells what it is; a context alone, of a link, what can be known of it.
  function name() { return store.state.about ?? "a part of it"; }

  function listStatistics() {
    at("statistics").replaceChildren(...STATISTICS.map(([key, title]) => {
      const row = document.createElement("tr");
      const value = key === "cv" || key === "imbalance" ? percent(answer[key]) : text(answer[key]);
      for (const each of [title, value]) row.append(Object.assign(document.createElement("td"), { textContent: each }));
      const spot = { min: 0, max: answer.curve.line.length - 1 }[key];
      if (spot !== undefined && answer.lines) {
        const button = Object.assign(document.createElement("button"), { textContent: answer.curve.label[spot], title: "Show it in the trace view" });
        button.addEventListener("click", () => goTo(answer.curve.line[spot]));
        const cell = document.createElement("td");
        cell.append(button);
        row.append(cell);
      }
      return row;
    }));
  }

  function goTo(line) {
    const { t0, t1, time } = store.state;
    store.set({ line, time: time ?? Math.round((t0 + t1) / 2), pane: "trace" });
  }

  function clear({ canvas }) {
    const pen = canvas.getContext("2d");
    pen.clearRect(0, 0, canvas.width, canvas.height);
    pen.font = `${11 * (devicePixelRatio || 1)}px system-ui, sans-serif`;
    pen.fillStyle = ink("--soft");
    return [pen, canvas.width, canvas.height - 18 * (devicePixelRatio || 1)];
  }

  function drawBars() {
    if (!answer) return;
    const [pen, width, height] = clear(bars);
    const { counts, edges } = answer;
    const most = Math.max(...counts, 1);
    pen.fillText(text(edges[0]), 0, bars.canvas.height - 4);
    pen.textAlign = "right";
    pen.fillText(text(edges.at(-1)), width, bars.canvas.height - 4);
    pen.textAlign = "left";
    pen.fillStyle = ink("--accent");
    counts.forEach((count, i) => {
      // A bar of one line among thousands is still seen.
      const tall = count ? Math.max(2, (count / most) * (height - 4)) : 0;
      pen.fillRect((i * width) / counts.length, height - tall, Math.max(1, width / counts.length - 1), tall);
    });
  }

  function drawCurve() {
    if (!answer) return;
    const [pen, width, height] = clear(curve);
    const { value, place: where } = answer.curve;
    const top = answer.max || 1;
    const x = (i) => (where[i] / Math.max(1, answer.lines - 1)) * (width - 2) + 1;
    const y = (each) => height - (each / top) * (height - 4);
    pen.fillText(`mean ${text(answer.mean)}`, 4, Math.max(12, y(answer.mean) - 4));
    pen.fillText("0", 0, curve.canvas.height - 4);
    pen.textAlign = "right";
    pen.fillText(`${answer.lines.toLocaleString("en")} lines`, width, curve.canvas.height - 4);
    pen.textAlign = "left";
    pen.fillRect(0, y(answer.mean), width, 1);
    pen.strokeStyle = ink("--accent");
    pen.lineWidth = 2 * (devicePixelRatio || 1);
    pen.beginPath();
    value.forEach((each, i) => pen.lineTo(x(i), y(each)));
    if (value.length === 1) pen.lineTo(width, y(value[0]));
    pen.stroke();
  }

  function drawHeat() {
    if (!heat) return;
    const { canvas } = map;
    const pen = canvas.getContext("2d");
    pen.clearRect(0, 0, canvas.width, canvas.height);
    if (!heat.h || !heat.w) return;
    const most = heat.values.reduce((one, two) => Math.max(one, two), 0) || 1;
    const [ground, full] = [rgb("--ground"), rgb("--accent")];
    const image = new ImageData(heat.w, heat.h);
    for (let i = 0; i < heat.values.length; i++) {
      const share = Math.sqrt(heat.values[i] / most); // small differences of small costs show
      for (let k = 0; k < 3; k++) image.data[4 * i + k] = ground[k] + share * (full[k] - ground[k]);
      image.data[4 * i + 3] = 255;
    }
    const held = Object.assign(document.createElement("canvas"), { width: heat.w, height: heat.h });
    held.getContext("2d").putImageData(image, 0, 0);
    pen.imageSmoothingEnabled = false;
    pen.drawImage(held, 0, 0, canvas.width, canvas.height);
    const found = context.found();
    pen.strokeStyle = ink("--cross");
    pen.lineWidth = 2;
    at("columns").replaceChildren(...Array.from(heat.procedures, (procedure, i) => {
      const item = document.createElement("li");
      item.textContent = context.tree.names[procedure];
      item.title = item.textContent;
      item.style.flex = "1 1 0";
      if (found?.[procedure]) {
        item.classList.add("found");
        pen.strokeRect((i * canvas.width) / heat.w + 1, 1, canvas.width / heat.w - 2, canvas.height - 2);
      }
      return item;
    }));
  }

  function rgb(variable) {
    const value = parseInt(ink(variable).slice(1).replace(/^(.)(.)(.)$/, "$1$1$2$2$3$3"), 16);
    return [value >> 16, (value >> 8) & 255, value & 255];
  }

  function tip(canvas, event, words) {
    const box = element.getBoundingClientRect();
    Object.assign(at("tip"), { hidden: !words, textContent: words });
    at("tip").style.left = `${Math.min(event.clientX - box.left + 12, box.width - at("tip").offsetWidth - 4)}px`;
    at("tip").style.top = `${Math.min(event.clientY - box.top + 12, box.height - at("tip").offsetHeight - 4)}px`;
  }

  const closest = (share) => {
    const wanted = share * (answer.lines - 1);
    const { place: where } = answer.curve;
    return where.reduce((best, each, i) => (Math.abs(each - wanted) < Math.abs(where[best] - wanted) ? i : best), 0);
  };
  const cell = (spot) => [Math.min(heat.h - 1, Math.floor(spot.y * heat.h)), Math.min(heat.w - 1, Math.floor(spot.x * heat.w))];

  bars.canvas.addEventListener("pointermove", (event) => {
    if (!answer) return;
    const { counts, edges } = answer;
    const i = Math.min(counts.length - 1, Math.floor(place(bars.canvas, event).x * counts.length));
    tip(bars.canvas, event, `${counts[i].toLocaleString("en")} lines\n${text(edges[i])} to ${text(edges[i + 1] ?? edges[i])}`);
  });
  curve.canvas.addEventListener("pointermove", (event) => {
    if (!answer?.lines) return;
    const i = closest(place(curve.canvas, event).x);
    tip(curve.canvas, event, `${answer.curve.label[i]}\n${text(answer.curve.value[i])}`);
  });
  curve.canvas.addEventListener("click", (event) => {
    if (answer?.lines) goTo(answer.curve.line[closest(place(curve.canvas, event).x)]);
  });
  map.canvas.addEventListener("pointermove", (event) => {
    if (!heat?.w) return;
    const [row, column] = cell(place(map.canvas, event));
    tip(map.canvas, event, `line ${heat.lines[row]}\n${context.tree.names[heat.procedures[column]]}\n${text(heat.values[row * heat.w + column])}`);
  });
  map.canvas.addEventListener("click", (event) => {
    if (heat?.w) goTo(heat.lines[cell(place(map.canvas, event))[0]]);
  });
  for (const { canvas } of [bars, curve, map]) canvas.addEventListener("pointerleave", () => { at("tip").hidden = true; });
  at("metric").addEventListener("change", () => store.set({ metric: at("metric").value }));
  at("whole").addEventListener("click", () => store.set({ context: undefined }));
  const ends = [
    store.subscribe(WINDOW.filter((key) => key !== "t0" && key !== "t1"), load),
    store.subscribe(["metric", "context"], load),
    store.subscribe(["search", "theme"], () => { drawBars(); drawCurve(); drawHeat(); }),
    bars.dispose, curve.dispose, map.dispose,
  ];
  load();
  return {
    dispose: () => { gone = true; ends.forEach((end) => end()); },
    canvases: () => [bars.canvas, curve.canvas, map.canvas],
    csv: () => [["line", ...Array.from(heat.procedures, (each) => context.tree.names[each])],
      ...Array.from(heat.lines, (line, row) => [line, ...heat.values.subarray(row * heat.w, (row + 1) * heat.w)])],
  };
}
