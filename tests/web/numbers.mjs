// Compares the page's numbers in words with those of Python.

import * as format from "../../viewer/web/core/format.js";

const FUNCTIONS = {
  fixed: format.formatFixed, compact: format.formatCompact, bytes: format.formatBytes, percent: format.formatPercent,
  change: format.formatChange, quantity: format.formatQuantity,
  time: (seconds, largest = seconds) => format.formatTime(1e9 * seconds, 1e9 * largest),
};

// The cases, [function, values, text], whose text is another here, with that text.
export function differences(cases) {
  return cases.map(([name, values, text]) => [name, values, text, FUNCTIONS[name](...values)]).filter(([, , text, here]) => text !== here);
}
