// @ts-check
// Numbers in words, by the rules of hpcd/wording.py: tests/data/vectors/numbers.json holds both to them.

/** @type {[number, string][]} of time, in ns */
export const UNITS = [[1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"]];
const PREFIXES = ["", "k", "M", "G", "T"];
// The largest that is still below ten when rounded to so many digits.
const BELOW_TEN = { 3: 9.995, 4: 9.9995 };

/**
 * A number with so many decimals, its digits in groups of three. toLocaleString gives the same, but the first time
 * it is called loads the languages' tables, which takes as long as the first picture.
 * @param {number} value
 * @param {number} decimals
 */
export function formatFixed(value, decimals) {
  if (!Number.isFinite(value)) return "-";
  const [whole, part] = value.toFixed(decimals).split(".");
  return whole.replace(/\B(?=(\d{3})+$)/g, ",") + (part ? `.${part}` : "");
}

/**
 * The decimals that make so many digits; with `small` leading zeros do not count.
 * @param {number} magnitude
 * @param {3 | 4} digits
 */
function decimalsFor(magnitude, digits, small = false) {
  let decimals = digits - 1;
  const most = BELOW_TEN[digits];
  for (; magnitude >= most && decimals; decimals--) magnitude /= 10;
  for (; small && magnitude > 0 && magnitude < most / 10 && decimals < 9; decimals++) magnitude *= 10;
  return decimals;
}

/**
 * A time to four digits, with the unit and the decimals of a span whose moments are told apart, or of the largest
 * of the times that it stands beside.
 * @param {number} ns
 * @param {number} [span] ns
 */
export function formatTime(ns, span = ns) {
  const whole = Math.abs(span);
  if (!whole) return "0 s";
  const [factor, unit] = UNITS.find(([least]) => whole >= 0.99995 * least) ?? [1, "ns"];
  return `${formatFixed(ns / factor, decimalsFor(whole / factor, 4))} ${unit}`;
}

/** @param {number} count */
export function formatCount(count) { return formatFixed(count, 0); }

/**
 * An amount to three digits, in powers of 1000: "41.2k"; with a unit "41.2 kB".
 * @param {number} value
 * @param {string} [unit]
 */
export function formatCompact(value, unit) {
  let left = Math.abs(value);
  let exponent = 0;
  for (; left >= 999.5 && exponent < PREFIXES.length - 1; exponent++) left /= 1000;
  const number = formatFixed(value < 0 ? -left : left, exponent ? decimalsFor(left, 3) : 0);
  if (number === "-") return number;
  return number + (unit === undefined ? "" : " ") + PREFIXES[exponent] + (unit ?? "");
}

/** @param {number} bytes */
export function formatBytes(bytes) { return formatCompact(bytes, "B"); }

/**
 * To three digits but for very small ones.
 * @param {number} share 1 is 100 %
 */
export function formatPercent(share, decimals = Math.abs(share) < 0.0995 ? 2 : 1) { return `${formatFixed(100 * share, decimals)} %`; }

/**
 * By how much something changed, with its sign; "" where one of both is nothing.
 * @param {number} before
 * @param {number} after
 */
export function formatChange(before, after) {
  return before > 0 && after > 0 ? `${after >= before ? "+" : ""}${formatPercent(after / before - 1, 1)}` : "";
}

/**
 * @param {number} value
 * @param {string} unit empty for counts and ratios
 * @param {number} [largest] of the times that it stands beside: all have one unit
 */
export function formatQuantity(value, unit, largest = value) {
  if (!Number.isFinite(value)) return "-";
  if (unit === "s") return formatTime(1e9 * value, 1e9 * largest);
  if (unit === "B") return formatBytes(value);
  if (unit === "%") return formatPercent(value / 100, 2);
  const after = unit && ` ${unit}`;
  if (Math.abs(value) >= 1e9) return formatCompact(value) + after;
  if (!unit && value !== Math.round(value) && Math.abs(value) < 1000) return formatFixed(value, decimalsFor(Math.abs(value), 4, true));
  return formatCount(value) + after;
}

/**
 * A test whether a name contains a text. A text in small letters fits any case.
 * @param {string} text
 * @returns {(name: string) => boolean}
 */
export function nameMatcher(text) {
  if (text !== text.toLowerCase()) return (name) => name.includes(text);
  return (name) => name.toLowerCase().includes(text);
}

/**
 * A text whose end is shown where there is no room for all of it; its box has the class ending.
 * @param {string} text
 */
export function endOfText(text) { return Object.assign(document.createElement("bdi"), { textContent: text }); }
