// @ts-check
// Numbers for people.

/** @type {[number, string][]} of time, in ns */
export const UNITS = [[1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"]];

/**
 * A time with the unit and as many digits as tell moments of a span apart.
 * @param {number} ns
 * @param {number} [span] ns
 */
export function formatTime(ns, span = ns) {
  const [factor, unit] = UNITS.find(([least]) => Math.abs(span) >= least) ?? [1, "ns"];
  const digits = Math.max(0, Math.min(6, 3 - Math.floor(Math.log10(Math.max(Math.abs(span) / factor, 1e-9)))));
  const value = ns / factor;
  return `${Math.abs(value) < 1000 || digits ? value.toFixed(digits) : formatCount(value)} ${unit}`;
}

/**
 * A whole number, its digits in groups of three. toLocaleString gives the same, but the first time it is
 * called loads the languages' tables, which takes as long as the first picture.
 * @param {number} count
 */
export function formatCount(count) { return Math.round(count).toFixed().replace(/\B(?=(\d{3})+$)/g, ","); }

/** @param {number} share 1 is 100 % */
export function formatPercent(share) { return (100 * share).toFixed(share < 0.0995 ? 2 : 1) + " %"; }

/**
 * @param {number} value
 * @param {string} unit empty for counts and ratios
 * @param {number} [largest] of the values beside which it stands: all have one unit
 */
export function formatQuantity(value, unit, largest) {
  if (unit === "%") return value.toFixed(2) + " %";
  if (unit === "B") return formatBytes(value);
  if (unit === "s") {
    const whole = Math.abs(largest ?? value);
    return whole < 1 ? (1e3 * value).toFixed(2) + " ms" : value.toFixed(largest === undefined || whole >= 100 ? 2 : 3) + " s";
  }
  if (!unit && value !== Math.round(value) && Math.abs(value) < 1000) return value.toPrecision(4);
  return formatCount(value) + (unit ? " " + unit : "");
}

/** @type {[number, string][]} */
const BYTES = [[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "kB"]];

/**
 * An amount of bytes in three digits.
 * @param {number} bytes
 */
export function formatBytes(bytes) {
  const [factor, unit] = BYTES.find(([least]) => Math.abs(bytes) >= 0.9995 * least) ?? [1, "B"];
  const value = bytes / factor;
  return `${unit === "B" ? Math.round(value) : value.toFixed(Math.max(0, 2 - Math.floor(Math.log10(Math.abs(value) * 1.0005))))} ${unit}`;
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
