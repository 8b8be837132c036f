// @ts-check
// Charts of a cost over lines: histogram, sorted curve, and lines x procedures.

import { colourParts } from "../core/colour.js";
import { formatCount } from "../core/format.js";
import { context2d, drawScaled } from "../core/paint.js";
import { cssVariable } from "../widgets/canvas.js";

const LEAST_BAR = 2; // px: a bar of one line among thousands is still seen

/**
 * An empty canvas: what draws on it, its width, and its height without the axis.
 * @param {HTMLCanvasElement} canvas
 */
function emptied(canvas) {
  const pen = context2d(canvas);
  const ratio = devicePixelRatio || 1;
  pen.clearRect(0, 0, canvas.width, canvas.height);
  pen.font = `${11 * ratio}px system-ui, sans-serif`;
  pen.fillStyle = cssVariable("--soft");
  return { pen, ratio, width: canvas.width, height: canvas.height - 18 * ratio };
}

/**
 * The ends of an axis below a chart.
 * @param {CanvasRenderingContext2D} pen
 * @param {string} left
 * @param {string} right
 */
function axisEnds(pen, left, right) {
  const { width, height } = pen.canvas;
  pen.fillText(left, 0, height - 4);
  pen.textAlign = "right";
  pen.fillText(right, width, height - 4);
  pen.textAlign = "left";
}

/**
 * How many lines have which cost.
 * @param {HTMLCanvasElement} canvas
 * @param {OverAnswer} over
 * @param {(value: number) => string} text
 */
export function drawHistogram(canvas, { counts, edges }, text) {
  const { pen, width, height } = emptied(canvas);
  const most = Math.max(...counts, 1);
  axisEnds(pen, text(edges[0]), text(edges[edges.length - 1]));
  pen.fillStyle = cssVariable("--accent");
  counts.forEach((count, i) => {
    const tall = count ? Math.max(LEAST_BAR, (count / most) * (height - 4)) : 0;
    pen.fillRect((i * width) / counts.length, height - tall, Math.max(1, width / counts.length - 1), tall);
  });
}

/**
 * The cost of each line, from least to most.
 * @param {HTMLCanvasElement} canvas
 * @param {OverAnswer} over
 * @param {(value: number) => string} text
 */
export function drawCurve(canvas, over, text) {
  const { pen, ratio, width, height } = emptied(canvas);
  const { value, place } = over.curve;
  const top = over.max || 1;
  const x = (/** @type {number} */ i) => (place[i] / Math.max(1, over.lines - 1)) * (width - 2) + 1;
  const y = (/** @type {number} */ cost) => height - (cost / top) * (height - 4);
  // Above its line, or below it where there is no room.
  const mean = y(over.mean);
  pen.fillText(`mean ${text(over.mean)}`, 4, mean > 18 * ratio ? mean - 4 : mean + 14 * ratio);
  axisEnds(pen, "0", `${formatCount(over.lines)} line${over.lines === 1 ? "" : "s"}`);
  pen.fillRect(0, mean, width, 1);
  pen.strokeStyle = cssVariable("--accent");
  pen.lineWidth = 2 * ratio;
  pen.beginPath();
  value.forEach((cost, i) => pen.lineTo(x(i), y(cost)));
  if (value.length === 1) pen.lineTo(width, y(value[0]));
  pen.stroke();
}

/**
 * Costs of procedures on lines; procedures that the search finds are outlined.
 * @param {HTMLCanvasElement} canvas
 * @param {Heat} heat
 * @param {Uint8Array | null} hits of each procedure whether the search finds it
 */
export function drawHeatMap(canvas, heat, hits) {
  const pen = context2d(canvas);
  pen.clearRect(0, 0, canvas.width, canvas.height);
  if (!heat.h || !heat.w) return;
  const most = heat.values.reduce((one, two) => Math.max(one, two), 0) || 1;
  const [ground, full] = [colourParts(cssVariable("--ground")), colourParts(cssVariable("--accent"))];
  const image = new ImageData(heat.w, heat.h);
  for (let i = 0; i < heat.values.length; i++) {
    const share = Math.sqrt(heat.values[i] / most); // small differences of small costs show
    for (let k = 0; k < 3; k++) image.data[4 * i + k] = ground[k] + share * (full[k] - ground[k]);
    image.data[4 * i + 3] = 255;
  }
  drawScaled(pen, image, 0, 0, canvas.width, canvas.height);
  pen.strokeStyle = cssVariable("--cross");
  pen.lineWidth = 2;
  heat.procedures.forEach((procedure, i) => {
    if (hits?.[procedure]) pen.strokeRect((i * canvas.width) / heat.w + 1, 1, canvas.width / heat.w - 2, canvas.height - 2);
  });
}
