// @ts-check
// The summary view: which share of the lines was in each procedure, over time: those that run, those that
// could, those that wait.

import { ASLEEP, RUNNABLE, RUNNING, WAITING } from "../core/cct.js";
import { cssOfPixel } from "../core/colour.js";

import { context2d, paler } from "../core/paint.js";
import { fittedCanvas, themeGrounds } from "../widgets/canvas.js";
import { largestFirst } from "./pixel_counts.js";

const THINNEST = 0.2; // px: less of a procedure is not drawn
const STATES = [RUNNING, RUNNABLE, WAITING, ASLEEP]; // from below

/**
 * @param {HTMLElement} element
 * @param {Shared} shared
 */
export function summaryView(element, { context, counts }) {
  const { canvas, dispose } = fittedCanvas(element, "Share of the lines in each procedure over time", draw);

  function draw() {
    const pixels = counts();
    if (!pixels) return;
    const { width, height } = canvas;
    const pen = context2d(canvas);
    pen.clearRect(0, 0, width, height);
    const { shown, colours } = context.opened.picture();
    const lit = context.opened.lit();
    const { state, names } = context.tree;
    const grounds = themeGrounds();
    // Eight keys a procedure: what the search finds lies at the bottom, where its amount can be read.
    const key = (/** @type {number} */ node) => 8 * shown[node] + (lit && !lit[node] ? 4 : 0) + (state[node] & 3);
    const keys = 8 * names.length;
    const place = (/** @type {number} */ number) => (number & 4) + STATES.indexOf(number & 3);
    const order = largestFirst(pixels.add(new Float64Array(keys), key)).map(([number]) => number).sort((one, other) => place(one) - place(other));
    const fills = new Map(order.map((number) => {
      const own = colours[number >> 3];
      const kind = number & 3;
      const still = kind === ASLEEP ? grounds.asleep : grounds.waiting;
      return [number, cssOfPixel(kind === RUNNING ? own : kind === RUNNABLE ? paler(own, grounds.blank) : still)];
    }));
    const sums = new Float64Array(keys);
    for (let stretch = 0; stretch < pixels.stretches; stretch++) {
      pixels.add(sums.fill(0), key, stretch, stretch + 1);
      let y = height;
      for (const number of order) {
        const part = (sums[number] / pixels.width[stretch]) * height;
        if (part < THINNEST) continue;
        pen.globalAlpha = number & 4 ? 0.15 : 1;
        pen.fillStyle = fills.get(number) ?? "";
        pen.fillRect((stretch * width) / pixels.stretches, y - part, width / pixels.stretches + 1, part);
        y -= part;
      }
    }
    pen.globalAlpha = 1;
  }

  return { canvas, draw, dispose };
}
