// @ts-check
// The summary view: which share of the lines was in each procedure, over time.

import { BLOCKED } from "../core/cct.js";
import { pixelOfColour } from "../core/colour.js";
import { context2d, stripePattern } from "../core/paint.js";
import { cssVariable, fittedCanvas } from "../widgets/canvas.js";
import { largestFirst } from "./pixel_counts.js";

const THINNEST = 0.2; // px: less of a procedure is not drawn

/**
 * @param {HTMLElement} element
 * @param {import("./trace.js").Shared} shared
 */
export function summaryView(element, { context, counts }) {
  const { canvas, dispose } = fittedCanvas(element, "Share of the lines in each procedure over time", draw);

  function draw() {
    const pixels = counts();
    if (!pixels) return;
    const { width, height } = canvas;
    const pen = context2d(canvas);
    pen.clearRect(0, 0, width, height);
    const shown = context.shown();
    const lit = context.lit();
    const { marks, names } = context.tree;
    // Four keys a procedure: what the search finds lies at the bottom, where its amount can be read;
    // threads that wait lie above the others.
    const key = (/** @type {number} */ node) => 4 * shown[node] + (lit && !lit[node] ? 2 : 0) + (marks[node] === BLOCKED ? 1 : 0);
    const keys = 4 * names.length;
    const order = largestFirst(pixels.add(new Float64Array(keys), key)).map(([number]) => number).sort((one, other) => (one & 3) - (other & 3));
    const stripes = stripePattern(pen, pixelOfColour(cssVariable("--blank")));
    const sums = new Float64Array(keys);
    for (let stretch = 0; stretch < pixels.stretches; stretch++) {
      pixels.add(sums.fill(0), key, stretch, stretch + 1);
      let y = height;
      for (const number of order) {
        const part = (sums[number] / pixels.width[stretch]) * height;
        if (part < THINNEST) continue;
        pen.globalAlpha = number & 2 ? 0.15 : 1;
        for (const style of number & 1 ? [context.css(number >> 2), stripes] : [context.css(number >> 2)]) {
          pen.fillStyle = style;
          pen.fillRect((stretch * width) / pixels.stretches, y - part, width / pixels.stretches + 1, part);
        }
        y -= part;
      }
    }
    pen.globalAlpha = 1;
  }

  return { canvas, draw, dispose };
}
