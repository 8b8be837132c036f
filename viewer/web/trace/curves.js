// @ts-check
// Curves over time on the axis of the picture: how many CPUs are busy and how many threads are ready or
// blocked, from the picture itself; memory, bytes and messages on request, from the server. They are of the
// rows that are selected, or else of all in view.

import { isOnCpu, RUNNABLE } from "../core/cct.js";
import { formatBytes, formatCount, formatTime } from "../core/format.js";
import { WINDOW } from "../core/store.js";
import { cssVariable, fittedCanvas, relativePosition } from "../widgets/canvas.js";
import { textElement } from "../widgets/elements.js";
import { context2d } from "../core/paint.js";

/**
 * @typedef {{ name: string, colour: string, values: ArrayLike<number> }} Series
 * @typedef {{ t0: number, t1: number, unit: string, stacked: boolean, series: Series[] }} Curve values: at even distances
 */

/** @type {{ kind: string, title: string, group: string }[]} */
export const ON_REQUEST = [
  { kind: "memory", title: "memory held", group: "memory" },
  { kind: "bytes", title: "bytes read and written", group: "io" },
  { kind: "messages", title: "messages under way", group: "mpi" },
];
const CPUS = "cpus";
const [BUSY, READY, BLOCKED] = [0, 1, 2]; // what a thread is counted as
const COLOURS = ["--state-running", "--state-awaiting"];
const POINTS = 600;
const PAUSE_MS = 250;

export class Curves {
  /**
   * @param {HTMLElement} element
   * @param {Shared} shared
   */
  constructor(element, { store, api, context, counts }) {
    this.element = element;
    this.store = store;
    this.api = api;
    this.context = context;
    this.counts = counts;
    this.timer = 0;
    this.disposed = false;
    /** @type {Map<string, Curve>} */
    this.curves = new Map();
    /** @type {Map<string, { canvas: HTMLCanvasElement, head: HTMLElement, dispose: () => void }>} */
    this.rows = new Map();
    this.ends = [
      store.subscribe(["curves"], () => { this.arrange(); this.load(); }),
      store.subscribe(WINDOW, () => this.load()),
      store.subscribe(["s0", "r0", "r1"], () => { this.show(); this.load(); }),
    ];
    this.arrange();
    this.load();
  }

  dispose() {
    this.disposed = true;
    clearTimeout(this.timer);
    this.ends.forEach((end) => end());
    this.rows.forEach(({ dispose }) => dispose());
  }

  // Kinds that this recording has something of.
  get offered() { return ON_REQUEST.filter(({ group }) => group in this.context.summary.recorded); }

  get wanted() {
    const kinds = (this.store.state.curves ?? "").split(".");
    return this.offered.filter(({ kind }) => kinds.includes(kind)).map(({ kind }) => kind);
  }

  // A row for each kind that is shown, a button for each that is not.
  arrange() {
    this.rows.forEach(({ dispose }) => dispose());
    this.rows.clear();
    this.element.replaceChildren();
    const { wanted, offered } = this;
    for (const kind of [CPUS, ...wanted]) {
      const head = textElement("div", "", "name");
      const box = textElement("div", "", "fill");
      const title = offered.find((offer) => offer.kind === kind)?.title;
      this.element.append(head, box);
      const { canvas, fit, dispose } = fittedCanvas(box, title ? `${title} over time` : "CPUs busy, threads ready and blocked over time", () => this.draw());
      fit();
      canvas.dataset.curve = kind;
      canvas.addEventListener("pointermove", (event) => { canvas.title = describeCurve(this.curves.get(kind), relativePosition(canvas, event).x, this.store.state); });
      this.rows.set(kind, { canvas, head, dispose });
      head.append(textElement("span", title ?? "CPUs busy"), textElement("small", ""));
      if (title) head.append(this.toggle(kind, title, true));
      else for (const offer of offered) if (!wanted.includes(offer.kind)) head.append(this.toggle(offer.kind, offer.title, false));
    }
    this.draw();
  }

  /**
   * @param {string} kind
   * @param {string} title
   * @param {boolean} shown
   */
  toggle(kind, title, shown) {
    const button = textElement("button", shown ? "×" : `+ ${title.split(" ")[0]}`);
    button.title = shown ? `Hide ${title}` : `Show ${title} over time`;
    button.setAttribute("aria-label", button.title);
    button.addEventListener("click", () => {
      const { wanted } = this;
      this.store.set({ curves: (shown ? wanted.filter((other) => other !== kind) : [...wanted, kind]).join(".") || undefined });
    });
    return button;
  }

  // Those of the server, a moment after the view has changed: until then the earlier ones stay at their time.
  load() {
    clearTimeout(this.timer);
    if (this.wanted.length) this.timer = window.setTimeout(() => this.request(), PAUSE_MS);
  }

  async request() {
    const { store, api, context } = this;
    const window = () => ({ ...store.window(), ...context.curveRows() });
    const key = store.key(window());
    for (const kind of this.wanted) {
      try {
        const curve = await requestCurve(api, store.db, window(), kind);
        if (this.disposed || key !== store.key(window())) return;
        this.curves.set(kind, curve);
        this.draw();
      } catch (error) { context.fail(error); return; }
    }
  }

  // What the picture's columns show, by state.
  countStates() {
    const pixels = this.counts(this.context.curveRows());
    if (!pixels) return;
    const { state } = this.context.tree;
    const { causes } = this.context.summary;
    const kind = Uint8Array.from(state, (one) => (isOnCpu(one, causes) ? BUSY : (one & 3) === RUNNABLE ? READY : BLOCKED));
    const values = [BUSY, READY, BLOCKED].map(() => new Float64Array(pixels.stretches));
    const sums = new Float64Array(values.length);
    for (let stretch = 0; stretch < pixels.stretches; stretch++) {
      pixels.add(sums.fill(0), (node) => kind[node], stretch, stretch + 1);
      const width = pixels.width[stretch] / Math.max(1, pixels.rows);
      for (let i = 0; i < sums.length; i++) values[i][stretch] = width ? (sums[i] / width) * pixels.scale : 0;
    }
    const { t0, t1 } = this.store.state;
    this.curves.set(CPUS, {
      t0, t1, unit: "", stacked: true, series: [
        { name: "CPUs busy", colour: "--state-running", values: values[BUSY] },
        { name: "ready", colour: "--state-ready", values: values[READY] },
        { name: "blocked", colour: "--state-asleep", values: values[BLOCKED] },
      ],
    });
  }

  // After the picture has been drawn.
  show() {
    this.countStates();
    this.draw();
  }

  draw() {
    const { l0, l1 } = this.context.curveRows();
    const { state } = this.store;
    const some = l1 - l0 < state.l1 - state.l0 ? `, ${formatCount(l1 - l0)} row${l1 - l0 === 1 ? "" : "s"} selected` : "";
    for (const [kind, { canvas, head }] of this.rows) {
      const curve = this.curves.get(kind);
      const most = curve ? highest(curve) : 0;
      const note = head.querySelector("small");
      if (note) note.textContent = !curve ? "" : kind === CPUS ? `of ${formatCount(this.context.summary.cpus)}${some}` : `to ${quantity(most, curve.unit)}`;
      canvas.dataset.most = String(most);
      if (curve) drawCurve(canvas, curve, Math.max(most, kind === CPUS ? this.context.summary.cpus : 0), state);
    }
  }
}

/**
 * @param {Api} api
 * @param {string} db
 * @param {RowWindow} window
 * @param {string} kind
 * @returns {Promise<Curve>}
 */
export async function requestCurve(api, db, window, kind) {
  const { t0, t1 } = window;
  const { unit, names, values } = await api.curves(db, window, kind, POINTS);
  return { t0, t1, unit, stacked: false, series: names.map((name, i) => ({ name, colour: COLOURS[i % COLOURS.length], values: values[i] })) };
}

/**
 * The values at a moment, in words.
 * @param {Curve | undefined} curve
 * @param {number} x share of the width
 * @param {{ t0: number, t1: number }} window
 */
export function describeCurve(curve, x, { t0, t1 }) {
  if (!curve) return "";
  const time = t0 + x * (t1 - t0);
  const share = (time - curve.t0) / (curve.t1 - curve.t0);
  if (share < 0 || share >= 1) return "";
  const parts = curve.series.map(({ name, values }) => `${quantity(values[Math.floor(share * values.length)], curve.unit)} ${name}`);
  return `${formatTime(time, t1 - t0)}: ${parts.join(", ")}`;
}

/**
 * @param {number} value
 * @param {string} unit
 */
export function quantity(value, unit) {
  if (unit.startsWith("B")) return formatBytes(value) + unit.slice(1);
  return value < 100 ? String(Number(value.toPrecision(2))) : formatCount(value);
}

/**
 * The highest value; of stacked ones of the first two together: the last fills what is above.
 * @param {Curve} curve
 */
export function highest({ series, stacked }) {
  let most = 0;
  for (let i = 0; i < (series[0]?.values.length ?? 0); i++) {
    const at = series.map(({ values }) => values[i]);
    most = Math.max(most, stacked ? at[0] + at[1] : Math.max(...at));
  }
  return most;
}

/**
 * @param {HTMLCanvasElement} canvas
 * @param {Curve} curve
 * @param {number} most the value at the upper edge
 * @param {{ t0: number, t1: number }} window
 */
export function drawCurve(canvas, { t0, t1, series, stacked }, most, window) {
  const pen = context2d(canvas);
  const { width, height } = canvas;
  pen.clearRect(0, 0, width, height);
  const x = (/** @type {number} */ time) => ((time - window.t0) / (window.t1 - window.t0)) * width;
  const y = (/** @type {number} */ value) => height - (most ? Math.min(1, value / most) * (height - 1) : 0);
  const below = new Float64Array(series[0]?.values.length ?? 0);
  for (const { colour, values } of series) {
    const step = (t1 - t0) / values.length;
    pen.beginPath();
    for (let i = 0; i < values.length; i++) {
      const top = y(below[i] + values[i]);
      pen.lineTo(x(t0 + i * step), top);
      pen.lineTo(x(t0 + (i + 1) * step), top);
    }
    if (stacked) {
      for (let i = values.length - 1; i >= 0; i--) {
        pen.lineTo(x(t0 + (i + 1) * step), y(below[i]));
        pen.lineTo(x(t0 + i * step), y(below[i]));
        below[i] += values[i];
      }
      pen.fillStyle = cssVariable(colour);
      pen.fill();
    } else {
      pen.strokeStyle = cssVariable(colour);
      pen.lineWidth = 1.5 * (devicePixelRatio || 1);
      pen.stroke();
    }
  }
}
