// @ts-check
// How often what called what on each side: visits, as a sampled trace shows them.

import { formatCount, formatFixed, formatQuantity, nameMatcher } from "../core/format.js";
import { colouredName } from "../widgets/elements.js";
import { TreeTable } from "../widgets/table.js";
import { CHANGE_CLASSES, SAME, changeOfVisits, changeText, sideLetter } from "./changes.js";

/**
 * @typedef {object} CallPoint
 * @property {string} name
 * @property {string} caller
 * @property {string} callee
 * @property {number[]} visits by side, of each rank
 * @property {number[]} cost by side
 * @property {() => CallPoint[]} children none
 */

/** @type {MountView} */
export async function mountCallCounts(element, { store, api, aligned, query, limits, say, done }, stale) {
  const [comparison, calls] = await Promise.all([aligned(), api.comparedCalls(query())]);
  if (stale()) return null;
  const { sides, database } = comparison;
  const steps = sides.slice(1).map((_, step) => step);
  /** @type {CallPoint[]} */
  const rows = calls.calls.map(({ caller, name: callee, visits, cost }) => ({ name: `${caller} → ${callee}`, caller, callee, visits, cost, children: () => [] }));

  const change = (/** @type {CallPoint} */ { visits }, /** @type {number} */ step) => changeOfVisits(
    visits[step], visits[step + 1], calls.ranks[step], calls.ranks[step + 1], limits().sensitivity);

  /** @param {CallPoint} row */
  function nameOf({ caller, callee }) {
    const { tree } = database;
    const number = tree.numbers.get(callee);
    const box = colouredName(number === undefined ? "" : database.css(number), `${tree.shortened(caller)} → ${tree.shortened(callee)}`);
    const fits = store.state.search ? nameMatcher(store.state.search) : null;
    box.className = fits ? (fits(caller) || fits(callee) ? "found" : "faded") : "";
    box.title = `${caller} called ${callee}`;
    return box;
  }

  const columns = callColumns(comparison, calls, change);
  const table = new TreeTable(element, store, "Calls by caller and callee", columns, nameOf, { sort: columns.length - 1 });
  table.show(rows);
  const update = () => {
    table.lay();
    const unlike = rows.filter((row) => steps.some((step) => change(row, step) !== SAME)).length;
    say(`${sides.map(({ label }, side) => `${sideLetter(side)} ${label}`).join(", ")}: visits of each rank; ${formatCount(unlike)} of ${formatCount(rows.length)} call points differ`
      + (calls.of > rows.length ? ` (of ${formatCount(calls.of)}, the costliest)` : ""));
    done(`calls ${rows.length} ${unlike}`);
  };
  const ends = [store.subscribe(["sensitivity"], update), store.subscribe(["search", "theme"], () => table.paint())];
  update();
  return {
    dispose() { table.dispose(); ends.forEach((end) => end()); },
    csv: () => [["depth", "call", ...columns.map(({ title }) => title)],
      ...table.shown.map(({ row, level }) => [level, `${row.caller} -> ${row.callee}`, ...columns.map(({ value }) => value(row))])],
  };
}

/**
 * Visits of each side, their changes, and costs.
 * @param {AlignedTree} comparison
 * @param {CallsAnswer} calls
 * @param {(row: CallPoint, step: number) => number} change
 * @returns {import("../widgets/table.js").Column<CallPoint>[]}
 */
function callColumns({ sides, metric, unit, total }, calls, change) {
  const most = sides.map((_, side) => calls.calls.reduce((largest, { visits }) => Math.max(largest, visits[side]), 1));
  return [
    ...sides.map((_, side) => ({
      title: `visits in ${sideLetter(side)}`, value: (/** @type {CallPoint} */ row) => row.visits[side], share: (/** @type {CallPoint} */ row) => row.visits[side] / most[side],
      text: (/** @type {CallPoint} */ row) => (row.visits[side] ? formatFixed(row.visits[side], 1) : ""),
      mark: (/** @type {CallPoint} */ row) => (row.visits[side] ? "" : "gap"),
    })),
    ...sides.slice(1).map((_, step) => ({
      title: `${sideLetter(step)} to ${sideLetter(step + 1)}`, value: (/** @type {CallPoint} */ row) => Math.abs(row.visits[step + 1] - row.visits[step]), share: () => 0,
      text: (/** @type {CallPoint} */ row) => changeText(change(row, step), row.visits[step], row.visits[step + 1]),
      mark: (/** @type {CallPoint} */ row) => `change ${CHANGE_CLASSES[change(row, step)]}`,
    })),
    ...sides.map((_, side) => ({
      title: `${metric} of ${sideLetter(side)}`, value: (/** @type {CallPoint} */ row) => row.cost[side], share: (/** @type {CallPoint} */ row) => row.cost[side] / (total[side] || 1),
      text: (/** @type {CallPoint} */ row) => (row.cost[side] ? formatQuantity(row.cost[side], unit) : ""),
    })),
  ];
}
