// @ts-check
// Shares of procedures in what is in view: of pixels at once, exact ones when the server has computed them.

import { largestFirst } from "./pixel_counts.js";

/**
 * @typedef {object} Share of a procedure
 * @property {number} procedure
 * @property {number} ofPixels
 * @property {number | null} exact of the time of all lines; null as long as it is not computed
 */

/**
 * The largest shares, in the order of what is shown: of the exact shares where they are there.
 * @param {Float64Array} pixels by procedure
 * @param {Float64Array | null} times by procedure, exact; null where they are not known
 * @param {number} most how many
 * @returns {Share[]}
 */
export function largestShares(pixels, times, most) {
  const pixelTotal = total(pixels);
  const timeTotal = times ? total(times) : 0;
  const exact = times !== null && timeTotal > 0 ? times : null;
  return largestFirst(exact ?? pixels).slice(0, most).map(([procedure]) => ({
    procedure, ofPixels: pixelTotal ? pixels[procedure] / pixelTotal : 0, exact: exact && exact[procedure] / timeTotal,
  }));
}

/** @param {Float64Array} values */
function total(values) { return values.reduce((sum, value) => sum + value, 0); }
