// @ts-check
// The summary view: which share of the lines was in each procedure, over time.

import { fittedCanvas } from "../widgets/canvas.js";
import { context2d } from "../core/paint.js";
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
    // Two keys a procedure: what the search finds lies at the bottom, where its amount can be read.
    const key = (/** @type {number} */ node) => 2 * shown[node] + (lit && !lit[node] ? 1 : 0);
    const keys = 2 * context.tree.names.length;
    const order = largestFirst(pixels.add(new Float64Array(keys), key)).map(([number]) => number).sort((one, other) => (one & 1) - (other & 1));
    const sums = new Float64Array(keys);
    for (let stretch = 0; stretch < pixels.stretches; stretch++) {
      pixels.add(sums.fill(0), key, stretch, stretch + 1);
      let y = height;
      for (const number of order) {
        const part = (sums[number] / pixels.width[stretch]) * height;
        if (part < THINNEST) continue;
        pen.globalAlpha = number & 1 ? 0.15 : 1;
        pen.fillStyle = context.css(number >> 1);
        pen.fillRect((stretch * width) / pixels.stretches, y - part, width / pixels.stretches + 1, part);
        y -= part;
      }
    }
    pen.globalAlpha = 1;
  }

  return { canvas, draw, dispose };
}
