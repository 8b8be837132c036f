// @ts-check
// How a context changed from one side of a comparison to the next. The same rules as in
// analysis/parallel/comparison.py; tests/data/vectors/comparison.json holds both to them.

import { formatChange } from "../core/format.js";

export const ABSENT = 0;
export const SAME = 1;
export const MORE = 2;
export const LESS = 3;
export const NEW = 4;
export const GONE = 5;
export const MINOR = 6;
/** CSS class of each change. */
export const CHANGE_CLASSES = ["", "same", "more", "less", "new", "gone", "minor"];
/** Label of each change. */
export const CHANGE_LABELS = ["", "=", "▲ more", "▼ less", "+ new", "× gone", ""];
/** Sampling alone makes equal costs differ: a difference counts beyond this many standard deviations. */
export const DEVIATIONS = 3;

/**
 * Limits of a comparison, as shares (0.05 is 5 %).
 * @typedef {object} Limits
 * @property {number} sensitivity differences up to this share of the earlier cost count as none
 * @property {number} hotspot contexts below this share of the whole on both sides are not judged
 */

/**
 * Change of a cost.
 * @param {number} before cost on the earlier side
 * @param {number} after cost on the later side
 * @param {number} variance sum of the variances of both costs
 * @param {number} totalBefore cost of everything on the earlier side
 * @param {number} totalAfter cost of everything on the later side
 * @param {Limits} limits
 * @returns {number} one of ABSENT to MINOR
 */
export function changeOfCost(before, after, variance, totalBefore, totalAfter, { sensitivity, hotspot }) {
  if (before <= 0 && after <= 0) return ABSENT;
  const share = Math.max(totalBefore > 0 ? before / totalBefore : 0, totalAfter > 0 ? after / totalAfter : 0);
  if (share < hotspot) return MINOR;
  const difference = Math.abs(after - before);
  const significant = difference > DEVIATIONS * Math.sqrt(variance) && difference > sensitivity * before
    && difference >= hotspot * Math.max(totalBefore, totalAfter);
  return significant ? direction(before, after) : SAME;
}

/**
 * Change of a number of visits per rank. Whether a short visit is sampled is chance, so that numbers
 * of visits have the variance of counts.
 * @param {number} before
 * @param {number} after
 * @param {number} ranksBefore ranks of the earlier side
 * @param {number} ranksAfter ranks of the later side
 * @param {number} sensitivity as of Limits
 * @returns {number} SAME, MORE, LESS, NEW or GONE
 */
export function changeOfVisits(before, after, ranksBefore, ranksAfter, sensitivity) {
  const deviation = Math.sqrt(before / ranksBefore + after / ranksAfter);
  if (Math.abs(after - before) <= Math.max(sensitivity * before, DEVIATIONS * deviation)) return SAME;
  return direction(before, after);
}

/**
 * @param {number} before
 * @param {number} after
 */
function direction(before, after) {
  if (before <= 0) return NEW;
  if (after <= 0) return GONE;
  return after > before ? MORE : LESS;
}

/**
 * Whether a change is a difference: more, less, new or gone.
 * @param {number} change
 */
export function isDifference(change) { return change >= MORE && change <= GONE; }

/**
 * A change and its size, such as "▲ +12.0 %".
 * @param {number} change
 * @param {number} before
 * @param {number} after
 */
export function changeText(change, before, after) {
  if (change === NEW || change === GONE) return CHANGE_LABELS[change];
  const arrow = { [MORE]: "▲", [LESS]: "▼" }[change];
  return [arrow, formatChange(before, after)].filter(Boolean).join(" ");
}

/**
 * The letter that names a side: A, B, ...
 * @param {number} side
 */
export function sideLetter(side) { return String.fromCharCode(65 + side); }
