// How often what called what on each side: visits, as a sampled trace shows them.

import { CLASSES, DEVIATIONS, GONE, LESS, MORE, NEW, SAME, growth, letter } from "./aligned.js";
import { matcher, quantity } from "./format.js";
import { TreeTable } from "./table.js";

export async function mount(element, { store, api, aligned, query, limits, say, done }, stale) {
  const [made, calls] = await Promise.all([aligned(), api.comparedCalls(query())]);
  if (stale()) return null;
  const { sides, unit, opened } = made;
  const steps = sides.slice(1).map((_, step) => step);
  const rows = calls.name.map((name, at) => ({
    name, caller: calls.caller[at], visits: calls.visits.map((each) => each[at]), cost: calls.cost.map((each) => each[at]), children: () => [],
  }));

  // Whether a short visit is seen is chance: they have the variance of counts.
  function change({ visits }, step) {
    const [before, after] = [visits[step], visits[step + 1]];
    const deviation = Math.sqrt(before / calls.ranks[step] + after / calls.ranks[step + 1]);
    if (Math.abs(after - before) <= Math.max(limits().sensitivity * before, DEVIATIONS * deviation)) return SAME;
    if (before <= 0) return NEW;
    if (after <= 0) return GONE;
    return after > before ? MORE : LESS;
  }

  const most = sides.map((_, side) => Math.max(...calls.visits[side], 1));
  const columns = [
    ...sides.map((_, side) => ({
      title: `visits in ${letter(side)}`, value: (row) => row.visits[side], share: (row) => row.visits[side] / most[side],
      text: (row) => (row.visits[side] ? row.visits[side].toLocaleString("en", { maximumFractionDigits: 1 }) : ""),
      mark: (row) => (row.visits[side] ? "" : "gap"),
    })),
    ...steps.map((step) => ({
      title: `${letter(step)} to ${letter(step + 1)}`, value: (row) => Math.abs(row.visits[step + 1] - row.visits[step]), share: () => 0,
      text: (row) => growth(change(row, step), row.visits[step], row.visits[step + 1]),
      mark: (row) => `change ${CLASSES[change(row, step)]}`,
    })),
    ...sides.map((_, side) => ({
      title: `${made.metric} of ${letter(side)}`, value: (row) => row.cost[side], share: (row) => row.cost[side] / (made.total[side] || 1),
      text: (row) => (row.cost[side] ? quantity(row.cost[side], unit) : ""),
    })),
  ];

  function name(row) {
    const box = document.createElement("span");
    const chip = document.createElement("i");
    const number = opened.tree.numbers.get(row.name);
    if (number !== undefined) chip.style.background = opened.css(number);
    const found = store.state.search ? matcher(store.state.search) : null;
    box.className = found ? (found(row.caller) || found(row.name) ? "found" : "faded") : "";
    box.append(chip, `${row.caller} → ${row.name}`);
    box.title = `${row.caller} called ${row.name}`;
    return box;
  }

  const table = new TreeTable(element, "Who called what, how often", columns, name, { choose: () => {}, sort: columns.length - 1 });
  table.show(rows);
  const tell = () => {
    table.lay();
    const unlike = rows.filter((row) => steps.some((step) => change(row, step) !== SAME)).length;
    say(`${sides.map(({ label }, side) => `${letter(side)} ${label}`).join(", ")}: visits of each rank; ${unlike.toLocaleString("en")} of ${rows.length.toLocaleString("en")} call points differ`
      + (calls.of > rows.length ? ` (of ${calls.of.toLocaleString("en")}, the costliest)` : ""));
    done(`calls ${rows.length} ${unlike}`);
  };
  const ends = [store.subscribe(["sensitivity"], tell), store.subscribe(["search", "theme"], () => table.paint())];
  tell();
  return {
    dispose() { table.dispose(); ends.forEach((end) => end()); },
    csv: () => [["depth", "call", ...columns.map(({ title }) => title)],
      ...table.shown.map(({ row, level }) => [level, `${row.caller} -> ${row.name}`, ...columns.map(({ value }) => value(row))])],
  };
}
