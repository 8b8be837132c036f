// @ts-check
// What mouse and keys do to a picture of trace lines: zoom by dragging and by the wheel, set the crosshair.

import { relativePosition } from "../widgets/canvas.js";

/**
 * @typedef {import("../core/context.js").Position} Position
 * @typedef {import("../core/api_types.js").Grid} Grid
 *
 * @typedef {object} TraceActs where: x in shares of the picture, y in shares of its rows
 * @property {(position: Position & { line: number }) => void} click
 * @property {(rectangle: { x0: number, x1: number, y0: number | null, y1: number | null }) => void} drag y0 null: time alone
 * @property {(factor: number, position: Position, lines: boolean) => void} wheel
 *
 * @typedef {object} MousePicture
 * @property {HTMLCanvasElement} canvas
 * @property {HTMLElement} fill the canvas's box
 * @property {HTMLElement} rubber the rectangle that is drawn by dragging
 * @property {() => Grid | null} grid what is shown, if anything is
 * @property {() => import("./row_layout.js").RowLayout} layout of its rows
 * @property {() => { x: number | null, y: number | null }} cross where the crosshair is
 * @property {TraceActs} on
 */

const CLICK = 5; // pixels: what the pointer moves less is no drag, wherever the picture moves meanwhile
const FLAT = 0.02; // what moves less up or down is a drag in time alone

/** @type {Record<string, [number, number]>} */
const STEPS = { Enter: [0, 0], ArrowLeft: [-0.01, 0], ArrowRight: [0.01, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

/**
 * The row of a picture at a place among its rows.
 * @param {Grid} grid
 * @param {number} y
 */
export function rowAt(grid, y) { return Math.min(grid.h - 1, Math.floor(y * grid.h)); }

/**
 * Where an event is in a picture: y as a share of its rows as if all were as high.
 * @param {HTMLCanvasElement} canvas
 * @param {import("./row_layout.js").RowLayout} layout
 * @param {MouseEvent} event
 * @returns {Position}
 */
export function spotOf(canvas, layout, event) {
  const { x, y } = relativePosition(canvas, event);
  return { x, y: layout.placeAt(y) };
}

/** @param {MousePicture} picture */
export function addTraceMouse(picture) {
  addDragging(picture);
  addKeys(picture);
  const { canvas, layout, on } = picture;
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    on.wheel(Math.exp((event.deltaY || event.deltaX) * 0.002), spotOf(canvas, layout(), event), event.shiftKey);
  }, { passive: false });
}

/**
 * @param {PointerEvent} from
 * @param {PointerEvent} to
 */
function isClick(from, to) { return Math.hypot(to.clientX - from.clientX, to.clientY - from.clientY) < CLICK; }

/** @param {MousePicture} picture */
function addDragging({ canvas, fill, rubber, grid, layout, on }) {
  /** @type {Position & { event: PointerEvent } | null} */
  let pressed = null;

  canvas.addEventListener("pointerdown", (event) => {
    pressed = { ...relativePosition(canvas, event), event };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    const spot = relativePosition(canvas, event);
    rubber.hidden = true;
    if (!pressed || isClick(pressed.event, event)) return;
    rubber.hidden = false;
    Object.assign(rubber.style, {
      left: `${fill.offsetLeft + Math.min(spot.x, pressed.x) * fill.clientWidth}px`,
      top: `${fill.offsetTop + Math.min(spot.y, pressed.y) * fill.clientHeight}px`,
      width: `${Math.abs(spot.x - pressed.x) * fill.clientWidth}px`,
      height: `${Math.abs(spot.y - pressed.y) * fill.clientHeight}px`,
    });
  });
  canvas.addEventListener("pointerup", (event) => {
    const shown = grid();
    if (!pressed || !shown) return;
    const [from, to] = [pressed, relativePosition(canvas, event)];
    pressed = null;
    rubber.hidden = true;
    if (isClick(from.event, event)) {
      const y = layout().placeAt(to.y);
      on.click({ x: to.x, y, line: shown.lines[rowAt(shown, y)] });
      return;
    }
    const across = Math.abs(from.y - to.y) > FLAT;
    const [y0, y1] = [Math.min(from.y, to.y), Math.max(from.y, to.y)].map((y) => layout().placeAt(y));
    on.drag({ x0: Math.min(from.x, to.x), x1: Math.max(from.x, to.x), y0: across ? y0 : null, y1: across ? y1 : null });
  });
}

/**
 * The crosshair by keys: to the middle, and from where it is.
 * @param {MousePicture} picture
 */
function addKeys({ canvas, grid, cross, on }) {
  canvas.addEventListener("keydown", (event) => {
    const step = STEPS[event.key];
    const shown = grid();
    if (!step || !shown || (event.key !== "Enter" && !event.shiftKey)) return;
    event.preventDefault();
    event.stopPropagation();
    const { x, y } = cross();
    const from = x === null || x < 0 || x > 1 || y === null ? { x: 0.5, y: 0.5 } : { x, y };
    const row = Math.min(Math.max(rowAt(shown, from.y) + step[1], 0), shown.h - 1);
    on.click({ x: Math.min(Math.max(from.x + step[0], 0), 1), y: (row + 0.5) / shown.h, line: shown.lines[row] });
  });
}
