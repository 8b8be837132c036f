// @ts-check
// The communication matrix: from which rank (rows) to which (columns), darker is more. Of many ranks
// neighbours share a cell; a rectangle drawn by dragging is shown instead of all, until a double click.

import { colourParts } from "../core/colour.js";
import { formatBytes, formatCount, formatTime } from "../core/format.js";
import { context2d, drawScaled } from "../core/paint.js";
import { cssVariable, fittedCanvas, relativePosition } from "../widgets/canvas.js";
import { placeTip, textElement } from "../widgets/elements.js";

/**
 * ranks: from and to of senders, then of receivers.
 * @typedef {{ answer: MatrixAnswer, ranks: number[], kind: string, counted: boolean }} Shown
 */

const [LEAST_CELLS, MOST_CELLS] = [50, 500]; // a side that are requested
const LEAST_DRAG = 0.02; // of the matrix
const FAINTEST = 0.12; // of the colour: one message among millions is seen
const EDGE = 34; // px for the numbers of ranks

export class MatrixView {
  /**
   * @param {HTMLElement} element
   * @param {(ranks: number[] | null) => void} zoom null: to all ranks
   */
  constructor(element, zoom) {
    this.element = element;
    this.zoom = zoom;
    /** @type {Shown | null} */
    this.shown = null;
    const { canvas, dispose } = fittedCanvas(element, "Communication matrix: from rank (rows) to rank (columns), darker is more", () => this.draw());
    this.canvas = canvas;
    this.dispose = dispose;
    this.tip = Object.assign(textElement("div", "", "tip"), { hidden: true });
    this.rubber = Object.assign(textElement("div", "", "rubber"), { hidden: true });
    element.append(this.tip, this.rubber);
    this.addMouse();
  }

  /** @param {Shown | null} shown */
  show(shown) {
    this.shown = shown;
    this.draw();
  }

  // The square of the canvas that has the cells, in its pixels.
  get square() {
    const ratio = devicePixelRatio || 1;
    const { width, height } = this.canvas;
    const { rows, columns } = this.shown?.answer ?? { rows: 1, columns: 1 };
    const size = Math.max(0, Math.min((width - EDGE * ratio) / columns, (height - EDGE * ratio) / rows));
    return { left: EDGE * ratio, top: EDGE * ratio / 2, width: size * columns, height: size * rows, ratio };
  }

  // How many cells there is room for either way: more are smaller than a pixel can show.
  get room() {
    const { width, height } = this.canvas;
    return Math.min(MOST_CELLS, Math.max(LEAST_CELLS, Math.floor(Math.min(width, height) - EDGE * (devicePixelRatio || 1))));
  }

  draw() {
    const pen = context2d(this.canvas);
    pen.clearRect(0, 0, this.canvas.width, this.canvas.height);
    if (!this.shown) return;
    const { answer, ranks, counted } = this.shown;
    const { left, top, width, height, ratio } = this.square;
    drawScaled(pen, cellsImage(answer, counted ? answer.counts : answer.amounts), left, top, width, height);
    pen.strokeStyle = cssVariable("--line");
    pen.lineWidth = ratio;
    pen.strokeRect(left, top, width, height);
    this.drawRanks(pen, ranks, answer);
  }

  /**
   * Numbers beside rows and below columns, as many as have room.
   * @param {CanvasRenderingContext2D} pen
   * @param {number[]} ranks
   * @param {MatrixAnswer} answer
   */
  drawRanks(pen, [s0, , d0], { rows, columns, step }) {
    const { left, top, width, height, ratio } = this.square;
    pen.font = `${11 * ratio}px system-ui, sans-serif`;
    pen.fillStyle = cssVariable("--soft");
    pen.textBaseline = "middle";
    pen.textAlign = "right";
    const every = (/** @type {number} */ cells, /** @type {number} */ room) => Math.max(1, Math.ceil(cells / Math.max(1, Math.floor(room))));
    const down = every(rows, height / (16 * ratio));
    for (let row = 0; row < rows; row += down) pen.fillText(String(s0 + row * step), left - 4 * ratio, top + ((row + 0.5) / rows) * height);
    pen.textAlign = "center";
    const across = every(columns, width / (34 * ratio));
    for (let column = 0; column < columns; column += across) pen.fillText(String(d0 + column * step), left + ((column + 0.5) / columns) * width, top + height + 10 * ratio);
    pen.textAlign = "left";
    pen.textBaseline = "alphabetic";
  }

  /**
   * The place among the cells of an event, as shares; null beside them.
   * @param {MouseEvent} event
   * @returns {Position | null}
   */
  spot(event) {
    const { x, y } = relativePosition(this.canvas, event);
    const { left, top, width, height } = this.square;
    const [across, down] = [(x * this.canvas.width - left) / width, (y * this.canvas.height - top) / height];
    return this.shown && across >= 0 && across < 1 && down >= 0 && down < 1 ? { x: across, y: down } : null;
  }

  addMouse() {
    /** @type {Position | null} */
    let pressed = null;
    const { canvas, rubber, tip } = this;
    canvas.addEventListener("pointerdown", (event) => {
      pressed = this.spot(event);
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => {
      const spot = this.spot(event);
      const text = this.shown && spot ? describeCell(this.shown, spot) : "";
      Object.assign(tip, { hidden: !text, textContent: text });
      placeTip(tip, this.element, event);
      rubber.hidden = !pressed || !spot || !isDrag(pressed, spot);
      if (pressed && spot) this.placeRubber(pressed, spot);
    });
    canvas.addEventListener("pointerleave", () => { tip.hidden = true; });
    canvas.addEventListener("pointerup", (event) => {
      const spot = this.spot(event);
      if (this.shown && pressed && spot && isDrag(pressed, spot)) this.zoom(ranksInside(this.shown, pressed, spot));
      pressed = null;
      rubber.hidden = true;
    });
    canvas.addEventListener("dblclick", () => this.zoom(null));
  }

  /**
   * @param {Position} from
   * @param {Position} to
   */
  placeRubber(from, to) {
    const { left, top, width, height, ratio } = this.square;
    Object.assign(this.rubber.style, {
      left: `${(left + Math.min(from.x, to.x) * width) / ratio}px`, top: `${(top + Math.min(from.y, to.y) * height) / ratio}px`,
      width: `${(Math.abs(from.x - to.x) * width) / ratio}px`, height: `${(Math.abs(from.y - to.y) * height) / ratio}px`,
    });
  }
}

/**
 * @param {Position} from
 * @param {Position} to
 */
function isDrag(from, to) { return Math.abs(from.x - to.x) > LEAST_DRAG && Math.abs(from.y - to.y) > LEAST_DRAG; }

/**
 * The ranks of the cells of a rectangle: from and to of senders, then of receivers.
 * @param {Pick<Shown, "answer" | "ranks">} shown
 * @param {Position} one
 * @param {Position} other
 */
export function ranksInside({ answer: { rows, columns, step }, ranks: [s0, s1, d0, d1] }, one, other) {
  /** @type {(begin: number, end: number, cells: number, a: number, b: number) => number[]} */
  const span = (begin, end, cells, a, b) => [
    begin + step * Math.floor(Math.min(a, b) * cells),
    Math.min(end, begin + step * (Math.floor(Math.max(a, b) * cells) + 1)),
  ];
  return [...span(s0, s1, rows, one.y, other.y), ...span(d0, d1, columns, one.x, other.x)];
}

/**
 * @param {Shown} shown
 * @param {Position} spot shares of the matrix
 */
export function describeCell({ answer: { rows, columns, step, counts, amounts }, ranks: [s0, s1, d0, d1], kind }, { x, y }) {
  const [row, column] = [Math.floor(y * rows), Math.floor(x * columns)];
  const of = (/** @type {number} */ begin, /** @type {number} */ end) => {
    const last = Math.min(end, begin + step) - 1;
    return last === begin ? `rank ${begin}` : `ranks ${begin}-${last}`;
  };
  const cell = row * columns + column;
  const count = formatCount(counts[cell]);
  const [from, to] = [of(s0 + row * step, s1), of(d0 + column * step, d1)];
  if (kind === "waiting") return `${to} waited for ${from}\n${count} times, ${formatTime(amounts[cell] * 1e9)}`;
  return `from ${from} to ${to}\n${count} messages, ${formatBytes(amounts[cell])}`;
}

/**
 * The cells as an image, on a logarithmic scale: traffic differs by powers of ten.
 * @param {MatrixAnswer} answer
 * @param {Float64Array} values
 */
function cellsImage({ rows, columns }, values) {
  const some = values.filter((value) => value > 0);
  const most = some.reduce((one, two) => Math.max(one, two), 0);
  // Of at least three powers of ten: where all is alike, it looks alike.
  const least = some.reduce((one, two) => Math.min(one, two), most / 1000);
  const [ground, full] = [colourParts(cssVariable("--ground")), colourParts(cssVariable("--accent"))];
  const image = new ImageData(columns, rows);
  values.forEach((value, i) => {
    const share = value > 0 ? FAINTEST + (1 - FAINTEST) * (Math.log(value / least) / Math.log(most / least)) : 0;
    for (let k = 0; k < 3; k++) image.data[4 * i + k] = ground[k] + share * (full[k] - ground[k]);
    image.data[4 * i + 3] = 255;
  });
  return image;
}
