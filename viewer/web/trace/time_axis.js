// @ts-check
// Ticks of an axis of time: at round moments, as many as have room.

import { UNITS } from "../core/format.js";

/**
 * The least of 1, 2 and 5 times a power of ten that divides a span into at most `most` parts.
 * @param {number} span ns
 * @param {number} most
 */
function roundStep(span, most) {
  const least = Math.max(1, span / most);
  const power = 10 ** Math.floor(Math.log10(least));
  return power * ([1, 2, 5].find((factor) => factor * power >= least * (1 - 1e-9)) ?? 10);
}

/**
 * The round moments of a window of time, all in one unit and with as many digits as tell them apart.
 * @param {number} t0 ns
 * @param {number} t1 ns
 * @param {number} most parts that the ticks may divide the window into
 * @returns {{ time: number, text: string }[]}
 */
export function timeTicks(t0, t1, most) {
  if (!(t1 > t0)) return [];
  const step = roundStep(t1 - t0, most);
  const [factor, unit] = UNITS.find(([size]) => t1 - t0 >= size) ?? UNITS[UNITS.length - 1];
  const digits = Math.max(0, Math.ceil(-Math.log10(step / factor) - 1e-9));
  const first = Math.ceil(t0 / step);
  const count = Math.floor(t1 / step) - first + 1;
  return Array.from({ length: count }, (_, i) => {
    const time = (first + i) * step;
    return { time, text: `${(time / factor).toFixed(digits)} ${unit}` };
  });
}

const LABEL_WIDTH = 70; // px, with the space between two

/**
 * @param {HTMLElement} axis as wide as the picture
 * @param {{ t0: number, t1: number }} window
 */
export function drawTimeAxis(axis, { t0, t1 }) {
  const width = axis.clientWidth;
  axis.replaceChildren(...timeTicks(t0, t1, Math.max(1, Math.floor(width / LABEL_WIDTH))).map(({ time, text }) => {
    const tick = document.createElement("span");
    const share = (time - t0) / (t1 - t0);
    tick.style.left = `${100 * share}%`;
    // At the end there may be no room for a label.
    tick.textContent = (1 - share) * width < LABEL_WIDTH ? "" : text;
    return tick;
  }));
}
