// @ts-check
// What mouse and keys do to a picture of trace lines: mark a part by dragging, zoom by the wheel, set the
// crosshair, open what is double-clicked.

import { relativePosition } from "../widgets/canvas.js";

/**
 * @typedef {{ x0: number, x1: number, y0: number | null, y1: number | null }} Rectangle y0 null: time alone
 *
 * @typedef {object} TraceActs where: x in shares of the picture, y in shares of its rows
 * @property {(position: Position & { line: number }, gesture?: string) => void} click
 * @property {(rectangle: Rectangle) => void} drag
 * @property {(factor: number, position: Position, lines: boolean) => void} wheel
 * @property {(position: Position | null) => void} point the pointer is there; null: elsewhere
 * @property {(position: Position) => void} [open] what is double-clicked
 *
 * @typedef {object} MousePicture
 * @property {HTMLCanvasElement} canvas
 * @property {HTMLElement} fill the canvas's box
 * @property {HTMLElement} axis above it, where a part of time can be marked too
 * @property {HTMLElement} rubber the rectangle that is drawn by dragging
 * @property {() => Grid | null} grid what is shown, if anything is
 * @property {() => RowLayout} layout of its rows
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
 * @param {RowLayout} layout
 * @param {MouseEvent} event
 * @returns {Position}
 */
export function spotOf(canvas, layout, event) {
  const { x, y } = relativePosition(canvas, event);
  return { x, y: layout.placeAt(y) };
}

/** @param {MousePicture} picture */
export function addTraceMouse(picture) {
  const { canvas, axis, layout, on } = picture;
  addDragging(picture, canvas);
  addDragging(picture, axis);
  axis.title = "Drag to select a range of time";
  addKeys(picture);
  canvas.addEventListener("pointermove", (event) => on.point(spotOf(canvas, layout(), event)));
  canvas.addEventListener("pointerleave", () => on.point(null));
  canvas.addEventListener("dblclick", (event) => on.open?.(spotOf(canvas, layout(), event)));
  for (const part of [canvas, axis]) {
    part.addEventListener("wheel", (event) => {
      event.preventDefault();
      on.wheel(Math.exp((event.deltaY || event.deltaX) * 0.002), spotOf(canvas, layout(), event), event.shiftKey && part === canvas);
    }, { passive: false });
  }
}

/**
 * @param {PointerEvent} from
 * @param {PointerEvent} to
 */
function isClick(from, to) { return Math.hypot(to.clientX - from.clientX, to.clientY - from.clientY) < CLICK; }

/**
 * @param {MousePicture} picture
 * @param {HTMLElement} part of it that is dragged on: on the axis all rows are meant
 */
function addDragging({ canvas, fill, rubber, grid, layout, on }, part) {
  /** @type {Position & { event: PointerEvent } | null} */
  let pressed = null;
  const onAxis = part !== canvas;

  /**
   * @param {Position} from
   * @param {Position} to
   * @returns {Rectangle} in shares of the picture
   */
  function rectangle(from, to) {
    const across = !onAxis && Math.abs(from.y - to.y) > FLAT;
    const [top, bottom] = across ? [Math.min(from.y, to.y), Math.max(from.y, to.y)] : [null, null];
    return { x0: Math.min(from.x, to.x), x1: Math.max(from.x, to.x), y0: top, y1: bottom };
  }

  part.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    pressed = { ...relativePosition(canvas, event), event };
    part.setPointerCapture(event.pointerId);
  });
  part.addEventListener("pointermove", (event) => {
    rubber.hidden = true;
    if (!pressed || isClick(pressed.event, event)) return;
    const { x0, x1, y0, y1 } = rectangle(pressed, relativePosition(canvas, event));
    rubber.hidden = false;
    Object.assign(rubber.style, {
      left: `${fill.offsetLeft + x0 * fill.clientWidth}px`, width: `${(x1 - x0) * fill.clientWidth}px`,
      top: `${fill.offsetTop + (y0 ?? 0) * fill.clientHeight}px`, height: `${((y1 ?? 1) - (y0 ?? 0)) * fill.clientHeight}px`,
    });
  });
  part.addEventListener("pointerup", (event) => {
    const shown = grid();
    if (!pressed || !shown) return;
    const [from, to] = [pressed, relativePosition(canvas, event)];
    pressed = null;
    rubber.hidden = true;
    if (!isClick(from.event, event)) {
      const { x0, x1, y0, y1 } = rectangle(from, to);
      const placed = (/** @type {number | null} */ y) => (y === null ? null : layout().placeAt(y));
      on.drag({ x0, x1, y0: placed(y0), y1: placed(y1) });
    } else if (!onAxis) {
      const y = layout().placeAt(to.y);
      on.click({ x: to.x, y, line: shown.lines[rowAt(shown, y)] });
    }
  });
  part.addEventListener("pointercancel", () => { pressed = null; rubber.hidden = true; });
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
    on.click({ x: Math.min(Math.max(from.x + step[0], 0), 1), y: (row + 0.5) / shown.h, line: shown.lines[row] }, "crosshair");
  });
}
