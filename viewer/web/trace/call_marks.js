// @ts-check
// Over the trace lines: messages as lines from send to receive, collective operations where each rank entered
// them, recorded calls as bars at the foot of their row, phases as bands at its head. Of many messages and
// calls an even choice is drawn, which shows how close together they are.

import { formatBytes, formatCount, formatTime } from "../core/format.js";
import { cssVariable } from "../widgets/canvas.js";
import { textElement } from "../widgets/elements.js";
import { Overlay } from "./overlay.js";

/**
 * @typedef {{ top: number, bottom: number, middle: number }} Band
 *
 * Where lines and moments are in a picture, in canvas pixels; null of lines without a row.
 * @typedef {object} Places
 * @property {(time: number) => number} x
 * @property {(line: number) => Band | null} row
 * @property {(place: number) => Band | null} near the row at a place, or closest to it, of rows that are all there is
 */

/** @type {Record<string, string>} variables of the style sheet */
const COLOURS = { io: "--io", memory: "--memory", probe: "--probe", mpi: "--mpi" };
/** @type {Record<string, string>} what calls of a group are called */
const WORDS = { io: "I/O", memory: "memory", probe: "probed", mpi: "MPI" };
const NEAR = 5; // px between the mouse and what it is at
const BAR = 5; // px: height of a call
const OFF = "0";
const ZOOM_IN = ": zoom in"; // to see each
const LEAST_RHOMB = 3; // px from its middle
const FEW = 12; // messages, operations: of more it is drawn how close together they are
const TICK = 6; // px: height of a send or receive there
const ROOMY = 40; // px: height of a row that has text and ticks beside each other
const LOW_BAR = 2; // px: height of a call of many

/** @extends {Overlay<CallMarksAnswer>} */
export class CallMarks extends Overlay {
  /**
   * @param {HTMLElement} element for the note on how many there are
   * @param {PageParts} page
   * @param {() => void} redraw the picture
   */
  constructor(element, page, redraw) {
    super(element, page, redraw);
    const { store } = page;
    this.note = textElement("button", "", "marks-note");
    this.note.hidden = true;
    this.note.addEventListener("click", () => store.set({ marks: this.hidden ? undefined : OFF }));
    element.append(this.note);
    this.ends = [store.subscribe(["marks"], () => { this.load(); this.redraw(); })];
  }

  get hidden() { return this.store.state.marks === OFF; }

  get answer() { return this.hidden ? null : this.inView; }

  // The longest waits for other ranks, also where marks are hidden.
  get waits() { return this.inView?.wait ?? []; }

  async load() {
    const { store, api } = this;
    this.note.hidden = !Object.keys(this.context.summary.recorded).length;
    if (!this.note.hidden && (this.hidden || await this.request(() => api.callMarks(store.db, store.state)))) this.show();
  }

  show() {
    const { answer } = this;
    const words = answer ? describeMarks(answer) : [];
    this.note.textContent = this.hidden ? "calls are hidden" : words[0]?.replace(ZOOM_IN, "") ?? "no calls in view";
    this.note.title = [...words, `Click: ${this.hidden ? "show" : "hide"} them (M)`].join("\n");
    this.note.setAttribute("aria-pressed", String(!this.hidden));
    this.note.dataset.marks = this.hidden ? "hidden" : words.join("; ");
  }

  /**
   * @param {CanvasRenderingContext2D} pen
   * @param {Places} places
   */
  draw(pen, places) {
    const { answer } = this;
    if (!answer) return;
    const ratio = devicePixelRatio || 1;
    drawPhases(pen, places, answer.phase ?? [], ratio);
    const bar = answer.call.length > FEW ** 2 ? LOW_BAR : BAR;
    for (const { line, begin, end, group } of answer.call) {
      const row = places.row(line);
      if (!row) continue;
      const height = Math.min(bar * ratio, (row.bottom - row.top) / 2);
      const [left, right] = [places.x(begin), places.x(end)];
      pen.fillStyle = cssVariable("--ground");
      pen.fillRect(left - ratio, row.bottom - height - 2 * ratio, Math.max(ratio, right - left) + 2 * ratio, height + 2 * ratio);
      pen.fillStyle = cssVariable(COLOURS[group] ?? "--soft");
      pen.fillRect(left, row.bottom - height - ratio, Math.max(ratio, right - left), height);
    }
    const messages = answer.message ?? [];
    const entries = answer.collective ?? [];
    if (operationsOf(entries) > FEW) drawDensity(pen, places, entries.map(({ line, begin }) => [line, begin]), "--collective", ratio);
    else drawCollectives(pen, places, entries, ratio);
    if (messages.length > FEW) drawDensity(pen, places, messages.flatMap(({ from, to, sent, received }) => [[from, sent], [to, received]]), "--text", ratio);
    else for (const message of messages) drawMessage(pen, places, message, ratio);
  }

  /**
   * What is under the mouse, a line each.
   * @param {Position} spot in canvas pixels
   * @param {Places} places
   */
  describe(spot, places) {
    const { answer } = this;
    if (!answer) return [];
    const near = NEAR * (devicePixelRatio || 1);
    const on = (/** @type {{ line: number, begin: number, end: number }} */ { line, begin, end }) => {
      const row = places.row(line);
      return row !== null && spot.y >= row.top && spot.y < row.bottom && spot.x >= places.x(begin) - near && spot.x <= places.x(end) + near;
    };
    const lines = (answer.message ?? []).length > FEW ? [] : answer.message ?? [];
    const messages = lines.filter((message) => distance(spot, places, message) <= near)
      .map(({ bytes, tag, sent, received }) => `message of ${bytes < 0 ? "unknown size" : formatBytes(bytes)}, tag ${tag}, under way ${formatTime(received - sent)}`);
    // Where calls are drawn, collective operations are among them.
    const entries = (answer.drawn.includes("mpi") ? [] : answer.collective ?? []).filter(on).map(({ function: name, begin, end }) => `${name}, ${formatTime(end - begin)}`);
    const calls = answer.call.filter(on).map(({ text, begin, end }) => `${text}, ${formatTime(end - begin)}`);
    const phases = (answer.phase ?? []).filter((one) => onBand(spot, places, one)).map(({ name, begin, end }) => `phase ${name}, ${formatTime(end - begin)}`);
    return [...messages, ...entries, ...calls, ...phases].slice(0, 6);
  }
}

/** @param {CollectiveMark[]} entries */
function operationsOf(entries) { return new Set(entries.map(({ operation }) => operation)).size; }

/**
 * How many there are, and which of them are not drawn, or not one by one.
 * @param {CallMarksAnswer} answer
 */
export function describeMarks({ calls, drawn, messages, message, collectives, collective, phases, phase }) {
  const words = (/** @type {number | null} */ count, /** @type {string} */ name, /** @type {unknown} */ whole, some = count) => (
    count ? [`${some === count ? "" : `${formatCount(some ?? 0)} of `}${formatCount(count)} ${name}${count === 1 ? "" : "s"}${some === count ? "" : " drawn"}${whole ? "" : ZOOM_IN}`] : []);
  const drawnOf = (/** @type {number | null} */ count, /** @type {string} */ name, /** @type {number} */ some) => words(count, name, some <= FEW, some);
  return [
    ...words(phases, "phase", phase), ...drawnOf(messages, "message", message?.length ?? 0), ...drawnOf(collectives, "collective", operationsOf(collective ?? [])),
    ...Object.entries(calls).flatMap(([group, count]) => words(count, `${WORDS[group] ?? group} call`.trim(), drawn.includes(group))),
  ];
}

/**
 * A band at the head of a row for each phase, as wide as it lasted.
 * @param {CanvasRenderingContext2D} pen
 * @param {Places} places
 * @param {PhaseMark[]} phases
 * @param {number} ratio
 */
function drawPhases(pen, places, phases, ratio) {
  for (const { line, begin, end, colour } of phases) {
    const row = places.row(line);
    if (!row) continue;
    const height = Math.min(BAR * ratio, (row.bottom - row.top) / 3);
    const [left, right] = [places.x(begin), places.x(end)];
    pen.fillStyle = cssVariable("--ground");
    pen.fillRect(left, row.top, Math.max(ratio, right - left), height + 2 * ratio);
    pen.fillStyle = colour;
    // What follows at once is told apart by the ground between.
    pen.fillRect(left, row.top + ratio, Math.max(ratio, right - left - ratio), height);
  }
}

/**
 * @param {Position} spot
 * @param {Places} places
 * @param {PhaseMark} phase
 */
function onBand({ x, y }, places, { line, begin, end }) {
  const row = places.row(line);
  return row !== null && y >= row.top && y < row.bottom && x >= places.x(begin) && x < places.x(end);
}

/**
 * @param {CanvasRenderingContext2D} pen
 * @param {Places} places
 * @param {MessageMark} message
 * @param {number} ratio
 */
function drawMessage(pen, places, { from, to, sent, received }, ratio) {
  const [sender, receiver] = [places.row(from), places.row(to)];
  if (!sender || !receiver) return;
  drawArrow(pen, { x: places.x(sent), y: sender.middle }, { x: places.x(received), y: receiver.middle }, "--text", ratio);
}

/**
 * @param {CanvasRenderingContext2D} pen
 * @param {Position} from in canvas pixels
 * @param {Position} to
 * @param {string} colour variable of the style sheet
 * @param {number} ratio
 */
export function drawArrow(pen, { x: x0, y: y0 }, { x: x1, y: y1 }, colour, ratio) {
  // Behind it the ground's colour: it is seen on any procedure's.
  for (const [width, drawn] of /** @type {[number, string][]} */ ([[3.5, "--ground"], [1.5, colour]])) {
    pen.lineWidth = width * ratio;
    pen.strokeStyle = cssVariable(drawn);
    pen.beginPath();
    pen.moveTo(x0, y0);
    pen.lineTo(x1, y1);
    pen.stroke();
  }
  const angle = Math.atan2(y1 - y0, x1 - x0);
  pen.fillStyle = cssVariable(colour);
  pen.strokeStyle = cssVariable("--ground");
  pen.lineWidth = ratio;
  pen.beginPath();
  pen.moveTo(x1, y1);
  for (const turn of [-0.4, 0.4]) pen.lineTo(x1 - 9 * ratio * Math.cos(angle + turn), y1 - 9 * ratio * Math.sin(angle + turn));
  pen.closePath();
  pen.fill();
  pen.stroke();
}

/**
 * A faint tick where each message is sent and received, each rank enters a collective operation: where they are
 * close together these are dark.
 * @param {CanvasRenderingContext2D} pen
 * @param {Places} places
 * @param {number[][]} spots a line and a time each
 * @param {string} colour variable of the style sheet
 * @param {number} ratio
 */
function drawDensity(pen, places, spots, colour, ratio) {
  pen.fillStyle = cssVariable(colour);
  pen.globalAlpha = 0.35;
  for (const [line, time] of spots) {
    const row = places.row(line);
    if (!row) continue;
    const height = Math.min(TICK * ratio, (row.bottom - row.top) / 3);
    // Between the text of a segment, in its middle, and calls, at its foot.
    const top = row.bottom - row.top > ROOMY * ratio ? row.bottom - (BAR + 2) * ratio - height : row.middle - height / 2;
    pen.fillRect(places.x(time), top, ratio, height);
  }
  pen.globalAlpha = 1;
}

/**
 * A rhomb where each rank enters, and a line through those of one operation.
 * @param {CanvasRenderingContext2D} pen
 * @param {Places} places
 * @param {CollectiveMark[]} entries those of one operation follow one another
 * @param {number} ratio
 */
function drawCollectives(pen, places, entries, ratio) {
  /** @type {{ operation: number, x: number, y: number, size: number }[]} */
  const points = [];
  for (const { operation, line, begin } of entries) {
    const row = places.row(line);
    if (row) points.push({ operation, x: places.x(begin), y: row.middle, size: Math.min(5 * ratio, (row.bottom - row.top) / 2) });
  }
  for (const [width, colour] of /** @type {[number, string][]} */ ([[4, "--ground"], [1.5, "--collective"]])) {
    pen.lineWidth = width * ratio;
    pen.strokeStyle = cssVariable(colour);
    pen.beginPath();
    points.sort((one, two) => one.operation - two.operation || one.y - two.y).forEach(({ operation, x, y }, i) => {
      if (points[i - 1]?.operation === operation) pen.lineTo(x, y); else pen.moveTo(x, y);
    });
    pen.stroke();
  }
  pen.fillStyle = cssVariable("--collective");
  pen.strokeStyle = cssVariable("--ground");
  pen.lineWidth = ratio;
  for (const { x, y, size } of points) {
    if (size < LEAST_RHOMB * ratio) continue; // in low rows the line is enough
    pen.beginPath();
    for (const [dx, dy] of [[0, -size], [size, 0], [0, size], [-size, 0]]) pen.lineTo(x + dx, y + dy);
    pen.closePath();
    pen.fill();
    pen.stroke();
  }
}

/**
 * From a spot to a message's line, px; without end where it is not drawn.
 * @param {Position} spot
 * @param {Places} places
 * @param {MessageMark} message
 */
function distance(spot, places, { from, to, sent, received }) {
  const [sender, receiver] = [places.row(from), places.row(to)];
  if (!sender || !receiver) return Infinity;
  const [x, y] = [places.x(sent), sender.middle];
  const [dx, dy] = [places.x(received) - x, receiver.middle - y];
  const along = Math.min(1, Math.max(0, ((spot.x - x) * dx + (spot.y - y) * dy) / (dx * dx + dy * dy || 1)));
  return Math.hypot(spot.x - x - along * dx, spot.y - y - along * dy);
}
