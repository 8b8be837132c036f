// @ts-check
// A tree of costs as boxes under one another (or above): width is cost. What is drawn can be found
// again under the mouse, and entered.

import { context2d } from "../core/paint.js";
import { cssVariable, relativePosition } from "./canvas.js";
import { placeTip } from "./elements.js";

/**
 * @typedef {object} Look of rows
 * @property {(row: Row) => string} fill
 * @property {(row: Row) => boolean} dark whether text on it must be light
 * @property {(row: Row) => string} text
 * @property {(row: Row) => boolean} faded
 * @property {(row: Row) => boolean} marked outlined
 *
 * @typedef {object} Box a row as drawn, in canvas pixels
 * @property {Row} row
 * @property {Row} [parent]
 * @property {number} x
 * @property {number} y
 * @property {number} width
 * @property {number} height
 */

const ROW = 18;
const THINNEST = 0.7; // px: narrower boxes are not drawn

export class Icicle {
  /**
   * @param {HTMLCanvasElement} canvas
   * @param {Look} look
   */
  constructor(canvas, look) {
    this.canvas = canvas;
    this.look = look;
    /** @type {Box[]} */
    this.boxes = [];
    /** @type {Row[]} */
    this.above = []; // rows around what is shown in full width
    /** @type {Row | null} */
    this.root = null;
  }

  /** @param {Row | null} root */
  show(root) {
    this.root = root;
    this.above = [];
  }

  /**
   * What led to what is shown in full width, by names; and the same way in another tree, as far as it goes.
   * @param {(row: Row) => string} name
   */
  way(name) { return this.root ? [...this.above, this.root].slice(1).map(name) : []; }

  /**
   * @param {string[]} way
   * @param {(row: Row) => string} name
   */
  follow(way, name) {
    for (const wanted of way) {
      const next = this.root?.children().find((row) => name(row) === wanted);
      if (!this.root || !next) return;
      this.above = [...this.above, this.root];
      this.root = next;
    }
  }

  /**
   * From a box that was hit on: it becomes the whole, those around it stay above it.
   * @param {Box} hit
   */
  enter(hit) {
    const position = this.above.indexOf(hit.row);
    if (position >= 0) this.above = this.above.slice(0, position);
    else if (hit.row !== this.root) {
      const way = [];
      for (let parent = hit.parent; parent; parent = this.boxOf(parent)?.parent) way.unshift(parent);
      this.above = [...this.above, ...way.filter((row) => !this.above.includes(row))];
    }
    this.root = hit.row;
  }

  /** @param {Row} row */
  boxOf(row) { return this.boxes.find((box) => box.row === row); }

  get ratio() { return devicePixelRatio || 1; }
  get height() { return ROW * this.ratio; }

  clear() {
    const pen = context2d(this.canvas);
    pen.clearRect(0, 0, this.canvas.width, this.canvas.height);
    pen.font = `${12 * this.ratio}px system-ui, sans-serif`;
    pen.textBaseline = "middle";
    this.boxes = [];
  }

  /**
   * The root in full width below what is around it, and what is in it.
   * @param {(row: Row) => number} width of a row: its cost
   */
  draw(width) {
    this.clear();
    if (!this.root) return;
    // The outermost row is everything: it needs no box.
    [...this.above, this.root].forEach((row, i) => { if (i) this.box(row, 0, (i - 1) * this.height, this.canvas.width); });
    this.spread(this.root, this.above.length * this.height, this.height, width);
  }

  /**
   * What is in a row that has the canvas's width, from top on.
   * @param {Row} from
   * @param {number} top
   * @param {number} step from a row to its children, px
   * @param {(row: Row) => number} width
   */
  spread(from, top, step, width) {
    const pending = [{ row: from, left: 0, whole: this.canvas.width, y: top }];
    for (let next = pending.pop(); next; next = pending.pop()) {
      const { row, left, whole, y } = next;
      if (y < 0 || y > this.canvas.height) continue;
      let x = left;
      const all = width(row);
      for (const child of row.children().slice().sort((one, two) => width(two) - width(one))) {
        const part = (width(child) / all) * whole;
        if (!(part >= THINNEST * this.ratio)) break;
        this.box(child, x, y, part, row);
        pending.push({ row: child, left: x, whole: part, y: y + step });
        x += part;
      }
    }
  }

  /**
   * @param {Row} row
   * @param {number} x
   * @param {number} y
   * @param {number} width
   * @param {Row} [parent]
   */
  box(row, x, y, width, parent) {
    const { look, ratio, height } = this;
    const pen = context2d(this.canvas);
    pen.globalAlpha = look.faded(row) ? 0.25 : 1;
    pen.fillStyle = look.fill(row);
    pen.fillRect(x, y, Math.max(width - 1, 0.5), height - 1);
    pen.globalAlpha = 1;
    if (look.marked(row)) {
      pen.strokeStyle = cssVariable("--cross");
      pen.strokeRect(x + 0.5, y + 0.5, Math.max(width - 2, 0.5), height - 2);
    }
    if (width > 40 * ratio) {
      pen.save();
      pen.beginPath();
      pen.rect(x, y, width - 4, height);
      pen.clip();
      pen.fillStyle = look.dark(row) ? "#fff" : "#000";
      pen.fillText(look.text(row), x + 4 * ratio, y + height / 2);
      pen.restore();
    }
    this.boxes.push({ row, parent, x, y, width, height });
  }

  /** @param {MouseEvent} event */
  under(event) {
    const spot = relativePosition(this.canvas, event);
    const x = spot.x * this.canvas.width;
    const y = spot.y * this.canvas.height;
    return this.boxes.find((box) => x >= box.x && x < box.x + box.width && y >= box.y && y < box.y + box.height);
  }

  /**
   * @param {HTMLElement} tip tells of the row under the mouse what text says
   * @param {(row: Row) => string} text
   */
  explain(tip, text) {
    this.canvas.addEventListener("pointermove", (event) => {
      const hit = this.under(event);
      tip.hidden = !hit;
      if (!hit) return;
      tip.textContent = text(hit.row);
      if (tip.offsetParent instanceof HTMLElement) placeTip(tip, tip.offsetParent, event);
    });
    this.canvas.addEventListener("pointerleave", () => { tip.hidden = true; });
  }

  // As an export wants them.
  drawn() {
    return this.boxes.map(({ row, x, y, width, height }) => ({ x, y, width, height, fill: this.look.fill(row), dark: this.look.dark(row), text: this.look.text(row) }));
  }
}
