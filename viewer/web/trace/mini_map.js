// @ts-check
// The mini map: the whole run above the ruler. The part in view is a frame, which is dragged, resized by its
// handles, or drawn anew beside it.

import { cssVariable, fittedCanvas, relativePosition, themeGrounds } from "../widgets/canvas.js";
import { formatTime } from "../core/format.js";
import { context2d, drawScaled, nodeColours, paintGrid } from "../core/paint.js";
import { dragging } from "../widgets/dragging.js";
import { select } from "../widgets/elements.js";
import { RowLayout } from "./row_layout.js";

/** @typedef {"move" | "draw" | "begin" | "end"} Drag */

const NEAR = 7; // px from a handle
const STEP = 0.02; // of the window, by an arrow key
const MARK = 3; // px: a match of the search

const HTML = `<div class="frame">
  <div class="handle" data-end="begin" role="slider" tabindex="0" aria-label="Begin of the time in view"></div>
  <div class="handle" data-end="end" role="slider" tabindex="0" aria-label="End of the time in view"></div></div>`;

export class MiniMap {
  /**
   * @param {HTMLElement} element
   * @param {Shared} shared
   * @param {() => import("../core/find.js").Match[]} matches of the search
   */
  constructor(element, { store, api, context }, matches) {
    this.store = store;
    this.api = api;
    this.context = context;
    this.matches = matches;
    this.element = element;
    this.load = this.load.bind(this);
    const { canvas, fit, dispose } = fittedCanvas(element, "The whole run; the part in view is framed", this.load);
    this.canvas = canvas;
    element.insertAdjacentHTML("beforeend", HTML);
    this.frame = select(element, ".frame", HTMLElement);
    /** @type {Grid | null} */
    this.grid = null;
    this.layout = new RowLayout([0]);
    this.drags = 0;
    this.disposed = false;
    fit();
    this.listen();
    this.ends = [dispose, store.subscribe(["t0", "t1", "l0", "l1"], () => this.drawFrame()), store.subscribe(["s0", "s1"], () => this.draw())];
    this.drawFrame();
  }

  dispose() {
    this.disposed = true;
    this.ends.forEach((end) => end());
  }

  async load() {
    const { store, api, context, canvas } = this;
    const { duration_ns } = context.summary;
    const count = context.count();
    if (!count || !duration_ns) return;
    try {
      this.grid = await api.picture(store.db, { ...store.state, t0: 0, t1: duration_ns, l0: 0, l1: count }, canvas.height, canvas.width);
    } catch (error) { context.fail(error); return; }
    // Rows of folded lines are as low as in the picture.
    this.layout = new RowLayout(this.grid.folded);
    if (this.disposed) return;
    this.draw();
    this.drawFrame();
  }

  draw() {
    const { grid, context, canvas: { width, height } } = this;
    if (grid === null || grid.revision !== this.api.revision) return;
    const pen = context2d(this.canvas);
    const colours = nodeColours(context.tree, context.opened.picture(), themeGrounds(), context.opened.lit());
    drawScaled(pen, paintGrid(grid, new ImageData(grid.w, height), colours, this.layout.rowsOfPixels(height)), 0, 0, width, height);
    const { duration_ns } = context.summary;
    const rows = context.count();
    const ratio = devicePixelRatio || 1;
    pen.fillStyle = cssVariable("--cross");
    for (const { begin, end, place } of this.matches()) {
      const y = place === null ? 0 : this.layout.heightOf(Math.min(1, (place + 0.5) / rows)) * height;
      pen.fillRect((begin / duration_ns) * width, Math.min(height - MARK * ratio, Math.max(0, y - 1)), Math.max(ratio, ((end - begin) / duration_ns) * width), MARK * ratio);
    }
    const { s0, s1 } = this.store.state;
    if (s0 === undefined || s1 === undefined) return;
    pen.fillStyle = cssVariable("--accent");
    pen.fillRect((s0 / duration_ns) * width, height - MARK * ratio, Math.max(ratio, ((s1 - s0) / duration_ns) * width), MARK * ratio);
  }

  // Where the window is in the whole.
  drawFrame() {
    const { context, store: { state: { t0, t1, l0, l1 } } } = this;
    const { duration_ns } = context.summary;
    const rows = Math.max(1, context.count());
    const [top, bottom] = [l0, l1].map((row) => this.layout.heightOf(Math.min(1, row / rows)));
    Object.assign(this.frame.style, {
      left: `${(100 * t0) / duration_ns}%`, width: `${(100 * (t1 - t0)) / duration_ns}%`, top: `${100 * top}%`, height: `${100 * (bottom - top)}%`,
    });
    [t0, t1].forEach((time, i) => {
      const handle = this.frame.children[i];
      handle.setAttribute("aria-valuenow", String(Math.round(time)));
      handle.setAttribute("aria-valuemax", String(duration_ns));
      handle.setAttribute("aria-valuetext", formatTime(time, duration_ns));
    });
    this.element.dataset.whole = String(t0 <= 0 && t1 >= duration_ns);
  }

  listen() {
    const { element, context, store } = this;
    dragging(element, (event) => {
      const drag = this.dragAt(event);
      const from = relativePosition(this.canvas, event);
      const before = store.window();
      const gesture = `mini map ${++this.drags}`;
      return (now) => this.drag(drag, from, relativePosition(this.canvas, now), before, gesture);
    });
    element.addEventListener("dblclick", () => context.zoomTo({ t0: 0, t1: context.summary.duration_ns, l0: 0, l1: context.count() }));
    element.addEventListener("pointermove", (event) => {
      const cursors = { move: "grab", draw: "crosshair", begin: "ew-resize", end: "ew-resize" };
      if (!event.buttons) element.style.cursor = cursors[this.dragAt(event)];
    });
    this.frame.addEventListener("keydown", (event) => this.key(event));
  }

  /**
   * What a press does: at a handle resizes, inside of the frame moves it, elsewhere draws another.
   * @param {PointerEvent} event
   * @returns {Drag}
   */
  dragAt(event) {
    const { left, right, top, bottom } = this.frame.getBoundingClientRect();
    const { clientX: x, clientY: y } = event;
    if (Math.abs(x - left) < NEAR && right - left > NEAR) return "begin";
    if (Math.abs(x - right) < NEAR) return "end";
    const { t0, t1, l0, l1 } = this.store.state;
    const whole = t0 <= 0 && t1 >= this.context.summary.duration_ns && l1 - l0 >= this.context.count();
    return !whole && x > left && x < right && y >= top && y <= bottom ? "move" : "draw";
  }

  /**
   * @param {Drag} drag
   * @param {{ x: number, y: number }} from
   * @param {{ x: number, y: number }} to
   * @param {import("../core/store.js").Window} before
   * @param {string} gesture
   */
  drag(drag, from, to, before, gesture) {
    const { context } = this;
    const { duration_ns } = context.summary;
    const { t0, t1, l0, l1 } = before;
    const time = to.x * duration_ns;
    if (drag === "draw") context.zoomTo({ t0: Math.min(from.x, to.x) * duration_ns, t1: Math.max(from.x, to.x) * duration_ns }, gesture);
    else if (drag === "begin") context.zoomTo({ t0: Math.min(time, t1), t1: Math.max(time, t1) }, gesture);
    else if (drag === "end") context.zoomTo({ t0: Math.min(time, t0), t1: Math.max(time, t0) }, gesture);
    else {
      const rows = context.count();
      const later = Math.min(Math.max((to.x - from.x) * duration_ns, -t0), duration_ns - t1);
      const lower = Math.min(Math.max(Math.round((to.y - from.y) * rows), -l0), rows - l1);
      context.zoomTo({ t0: t0 + later, t1: t1 + later, l0: l0 + lower, l1: l1 + lower }, gesture);
    }
  }

  /** @param {KeyboardEvent} event on a handle */
  key(event) {
    const step = { ArrowLeft: -STEP, ArrowRight: STEP }[event.key];
    if (!step || !(event.target instanceof HTMLElement)) return;
    event.preventDefault();
    event.stopPropagation();
    const { t0, t1 } = this.store.state;
    const by = step * (t1 - t0);
    if (event.target.dataset.end === "begin") this.context.zoomTo({ t0: t0 + by }, "begin of the window");
    else this.context.zoomTo({ t1: t1 + by }, "end of the window");
  }
}
