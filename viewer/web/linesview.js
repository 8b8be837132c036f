// Trace lines over time as one picture with labels, axis, crosshair and what is under the mouse.
// Knows nothing of other views: where it was dragged and clicked it says in shares of itself.

import { fitted, ink, place } from "./canvas.js";
import { time } from "./format.js";
import { hatch, inks, paint, pixel, stretch } from "./paint.js";
import { BLOCKED, COMMUNICATION } from "./tree.js";

const CLICK = 0.004; // of the picture: what moves less is no drag
const FLAT = 0.02;

// source(): { db, window, opened } (see opened.js), or null as long as there is nothing to show.
// cross(): where the crosshair is as { x, y }, shares of the picture; y null where its line is not seen.
// name begins the ids of its parts. on: drawn(), labelled(), failed(error), click({ x, y, line }), drag({ x0, x1, y0, y1 }) with y0 null for time
// alone, wheel(factor, spot, lines).
export function linesView(element, { api, name, label, source, cross, on }) {
  element.innerHTML = `<div class="fill" id="${name}-canvas"></div><div class="labels" id="${name}-labels"></div><div class="axis" id="${name}-axis"></div>
    <div class="tip" hidden></div><div class="rubber" hidden></div>`;
  const [fill, names, axis, tip, rubber] = element.children;
  const { canvas, dispose } = fitted(fill, label, load);
  let grid = null;
  let image = null;
  let labels = new Map();
  let asking = null;
  let gone = false;

  async function load() {
    const from = source();
    if (!from) return;
    const { db, window } = from;
    if (!(window.t1 > window.t0) || !(window.l1 > window.l0)) return;
    asking?.abort();
    asking = new AbortController();
    try {
      grid = await api.picture(db, window, canvas.height, canvas.width, asking.signal);
    } catch (error) {
      if (error.name !== "AbortError") on.failed(error);
      return;
    }
    if (gone) return;
    draw();
    on.drawn?.();
    await loadLabels(db, window);
    if (gone) return;
    element.dataset.drawn = `${window.t0}-${window.t1}-${window.l0}-${window.l1}`;
    on.labelled?.();
  }

  // Whether the picture is of the revision that is open; where it is not, another is on its way.
  const fresh = () => grid !== null && grid.revision === api.revision;

  // Of a few thousand lines all labels; else those of four.
  async function loadLabels(db, window) {
    const { l0, l1 } = window;
    const { places } = grid;
    const spans = l1 - l0 <= 2000 ? [[l0, l1 - l0]]
      : [...new Set([0, 0.25, 0.5, 0.75].map((share) => places[Math.floor(share * places.length)]))].map((each) => [each, 1]);
    try {
      const answers = await Promise.all(spans.map(([from, count]) => api.lines(db, window, from, count)));
      labels = new Map(answers.flatMap((answer, i) => answer.labels.map((label, j) => [spans[i][0] + j, { label, group: answer.groups[j], measurement: answer.measurements[j] }])));
    } catch (error) { on.failed(error); return; }
    if (gone) return;
    drawLabels();
    if (window.group) draw();
  }

  function drawLabels() {
    const height = fill.clientHeight / grid.h;
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
    names.replaceChildren(...shown);
  }

  function drawAxis({ t0, t1 }) {
    axis.replaceChildren(...Array.from({ length: 6 }, (_, i) => {
      const tick = document.createElement("span");
      tick.style.left = `${20 * i}%`;
      tick.textContent = time(t0 + ((t1 - t0) * i) / 5, t1 - t0);
      return tick;
    }));
  }

  // A gap between groups, where rows are high enough to spare it.
  function drawGroups(pen, { group }) {
    if (!group || canvas.height / grid.h < 3) return;
    pen.fillStyle = ink("--text");
    for (let row = 1; row < grid.h; row++) {
      const [above, here] = [labels.get(grid.places[row - 1]), labels.get(grid.places[row])];
      if (above && here && above.group !== here.group) pen.fillRect(0, Math.round((row * canvas.height) / grid.h) - 1, canvas.width, 2);
    }
  }

  // Hatched where samples were dropped, on the lines of whose recording they were.
  function drawLosses(pen, { opened, window }) {
    const { t0, t1 } = window;
    const lost = opened.summary.losses.filter(([, from, to]) => from < t1 && to >= t0);
    element.dataset.losses = lost.length;
    if (!lost.length) return;
    pen.fillStyle = hatch(pen);
    const height = canvas.height / grid.h;
    for (let row = 0; row < grid.h; row++) {
      const of = labels.get(grid.places[row])?.measurement;
      for (const [measurement, from, to] of lost) {
        if (measurement !== of) continue;
        const x = ((from - t0) / (t1 - t0)) * canvas.width;
        pen.fillRect(x, Math.round(row * height), Math.max(2, ((to - from) / (t1 - t0)) * canvas.width), Math.ceil(height));
      }
    }
  }

  function draw() {
    const from = source();
    if (!fresh() || !from) return;
    const { opened, window } = from;
    const pen = canvas.getContext("2d");
    if (image?.width !== grid.w || image.height !== canvas.height) image = new ImageData(grid.w, canvas.height);
    paint(grid.nodes, grid.h, image, inks(opened.tree, opened.shown(), pixel(ink("--blank")), opened.lit()));
    if (grid.w === canvas.width) pen.putImageData(image, 0, 0);
    else stretch(pen, image, 0, 0, canvas.width, canvas.height);
    drawGroups(pen, window);
    drawLosses(pen, from);
    const { x, y } = cross();
    pen.fillStyle = ink("--cross");
    if (x !== null && x >= 0 && x <= 1) pen.fillRect(Math.round(x * canvas.width), 0, 1, canvas.height);
    // Through the middle of the line.
    if (y !== null) pen.fillRect(0, Math.round(((row({ y }) + 0.5) / grid.h) * canvas.height), canvas.width, 1);
    drawAxis(window);
  }

  // --- mouse ---

  let pressed = null;
  const row = (spot) => Math.min(grid.h - 1, Math.floor(spot.y * grid.h));

  canvas.addEventListener("pointerdown", (event) => {
    pressed = place(canvas, event);
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    const spot = place(canvas, event);
    hover(spot, event);
    rubber.hidden = !pressed || Math.hypot(spot.x - pressed.x, spot.y - pressed.y) < CLICK;
    if (rubber.hidden) return;
    Object.assign(rubber.style, {
      left: `${fill.offsetLeft + Math.min(spot.x, pressed.x) * fill.clientWidth}px`,
      top: `${fill.offsetTop + Math.min(spot.y, pressed.y) * fill.clientHeight}px`,
      width: `${Math.abs(spot.x - pressed.x) * fill.clientWidth}px`,
      height: `${Math.abs(spot.y - pressed.y) * fill.clientHeight}px`,
    });
  });
  canvas.addEventListener("pointerup", (event) => {
    if (!pressed || !fresh()) return;
    const [from, to] = [pressed, place(canvas, event)];
    pressed = null;
    rubber.hidden = true;
    if (Math.abs(from.x - to.x) < CLICK && Math.abs(from.y - to.y) < CLICK) {
      on.click({ ...to, line: grid.lines[row(to)] });
      return;
    }
    const across = Math.abs(from.y - to.y) > FLAT;
    on.drag({
      x0: Math.min(from.x, to.x), x1: Math.max(from.x, to.x),
      y0: across ? Math.min(from.y, to.y) : null, y1: across ? Math.max(from.y, to.y) : null,
    });
  });
  canvas.addEventListener("pointerleave", () => { tip.hidden = true; });
  // The crosshair by keys: to the middle, and from where it is.
  canvas.addEventListener("keydown", (event) => {
    const step = { Enter: [0, 0], ArrowLeft: [-0.01, 0], ArrowRight: [0.01, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    if (!step || !fresh() || (event.key !== "Enter" && !event.shiftKey)) return;
    event.preventDefault();
    event.stopPropagation();
    const { x, y } = cross();
    const from = x === null || x < 0 || x > 1 || y === null ? { x: 0.5, y: 0.5 } : { x, y };
    const spot = { x: Math.min(Math.max(from.x + step[0], 0), 1), y: Math.min(Math.max(row(from) + step[1], 0), grid.h - 1) };
    on.click({ x: spot.x, y: (spot.y + 0.5) / grid.h, line: grid.lines[spot.y] });
  });
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    on.wheel(Math.exp((event.deltaY || event.deltaX) * 0.002), place(canvas, event), event.shiftKey);
  }, { passive: false });

  function hover(spot, event) {
    const from = source();
    if (!fresh() || !from) return;
    const { tree } = from.opened;
    const { t0, t1 } = from.window;
    const y = row(spot);
    const node = grid.nodes[y * grid.w + Math.min(grid.w - 1, Math.floor(spot.x * grid.w))];
    const who = labels.get(grid.places[y])?.label ?? `line ${grid.lines[y]}`;
    const mark = { [BLOCKED]: "  (not running)", [COMMUNICATION]: "  (communicates)" }[tree.marks[node]] ?? "";
    const when = t0 + spot.x * (t1 - t0);
    const lost = from.opened.summary.losses.filter(([of, begin, end]) => of === labels.get(grid.places[y])?.measurement && begin <= when && when <= end);
    const losses = lost.length ? `  (${lost.reduce((sum, [, , , samples]) => sum + samples, 0).toLocaleString("en")} samples of its recording dropped about here)` : "";
    tip.hidden = false;
    tip.textContent = `${time(t0 + spot.x * (t1 - t0), t1 - t0)}  ${who}${mark}${losses}\n` +
      (tree.has(node) ? tree.path(node).map((each) => tree.names[tree.procedure[each]]).join("\n") : "not there");
    const box = element.getBoundingClientRect();
    const left = event.clientX - box.left + 14;
    tip.style.left = `${Math.min(left, box.width - tip.offsetWidth - 4)}px`;
    tip.style.top = `${Math.min(event.clientY - box.top + 14, Math.max(0, box.height - tip.offsetHeight - 4))}px`;
  }

  return {
    canvas, load, draw,
    get grid() { return fresh() ? grid : null; },
    // The label of a row, where it is known; and the row of a label, or -1.
    labelOf: (at) => labels.get(grid.places[at])?.label,
    rowOf: (wanted) => grid.places.findIndex((each) => labels.get(each)?.label === wanted),
    csv() {
      const { opened: { tree, shown }, window: { t0, t1 } } = source();
      const procedure = shown();
      return [["line", "label", ...Array.from({ length: grid.w }, (_, x) => `${Math.round(t0 + ((x + 0.5) * (t1 - t0)) / grid.w)} ns`)],
        ...Array.from(grid.lines, (each, y) => [each, labels.get(grid.places[y])?.label ?? "", ...Array.from(grid.nodes.subarray(y * grid.w, (y + 1) * grid.w),
          (node) => (tree.has(node) ? tree.names[procedure[node]] : ""))])];
    },
    dispose() { gone = true; asking?.abort(); dispose(); },
  };
}
