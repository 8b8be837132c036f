// Numbers for people.

const UNITS = [[1, "ns"], [1e3, "µs"], [1e6, "ms"], [1e9, "s"]];

export function time(ns, span = ns) {
  const [factor, unit] = UNITS.findLast(([each]) => Math.abs(span) >= each) ?? UNITS[0];
  const digits = Math.max(0, Math.min(6, 3 - Math.floor(Math.log10(Math.max(Math.abs(span) / factor, 1e-9)))));
  return `${(ns / factor).toFixed(digits)} ${unit}`;
}

export function percent(share) { return (100 * share).toFixed(share < 0.0995 ? 2 : 1) + " %"; }

export function quantity(value, unit) {
  if (unit === "%") return value.toFixed(2) + " %";
  if (unit === "s") return Math.abs(value) >= 1 ? value.toFixed(2) + " s" : (1e3 * value).toFixed(2) + " ms";
  if (!unit && value !== Math.round(value) && Math.abs(value) < 1000) return value.toPrecision(4);
  return Math.round(value).toLocaleString("en") + (unit ? " " + unit : "");
}

// Whether a name has a text in it. Capitals in the text mean themselves, small letters either.
export function matcher(text) {
  if (text !== text.toLowerCase()) return (name) => name.includes(text);
  return (name) => name.toLowerCase().includes(text);
}

// A text of which the end is shown where there is no room for all of it; its box has the class ending.
export function ending(text) { return Object.assign(document.createElement("bdi"), { textContent: text }); }
