// The aligned call graph: every context once, with what it cost each side and what became of it.
// Moving a slider judges all of them anew, here.

import { CLASSES, TREES, WORDS, differs, growth, letter } from "./aligned.js";
import { entry } from "./comparelist.js";
import { quantity } from "./format.js";
import { joined } from "./joined.js";
import { TreeTable } from "./table.js";

export async function mount(element, { store, aligned, tools, limits, say, done }, stale) {
  const made = await aligned();
  if (stale()) return null;
  const { sides, profile, unit, opened } = made;
  const { tree } = opened;
  element.innerHTML = `<div class="beside-list"><div class="grow" id="graph-table"></div>
    <aside class="differing" aria-label="Regions that differ"><h2 title="The program's own contexts, without what they call">Regions that differ</h2><ol id="regions"></ol></aside></div>`;
  const at = (id) => element.querySelector("#" + id);
  const steps = sides.slice(1).map((_, step) => step);
  let different = null; // of each node whether it or one below it differs
  let table = null;
  const kind = () => (TREES.some(([each]) => each === store.state.view) ? store.state.view : "down");
  const values = (row) => (kind() === "down" ? row.inclusive : row.exclusive);
  const change = (row, step) => made.change(values(row), step, limits());

  const columns = [
    ...sides.map(({ label }, side) => ({
      title: `${letter(side)}  ${label}`,
      value: (row) => values(row)[side],
      text: (row) => (values(row)[side] ? quantity(values(row)[side], unit) : ""),
      share: (row) => values(row)[side] / (made.total[side] || 1),
      // Where a side has nothing a gap shows where it would be.
      mark: (row) => (values(row)[side] ? "" : "gap"),
    })),
    ...steps.map((step) => ({
      title: `${letter(step)} to ${letter(step + 1)}`,
      value: (row) => Math.abs(values(row)[step + 1] - values(row)[step]),
      text: (row) => growth(change(row, step), values(row)[step], values(row)[step + 1]),
      share: () => 0,
      mark: (row) => `change ${CLASSES[change(row, step)]}`,
    })),
  ];

  // What is below the hotspot threshold on all sides is not judged, and not shown.
  function keep(row) {
    if (steps.every((step) => ["", "minor"].includes(CLASSES[change(row, step)]))) return false;
    return !store.state.differing || steps.some((step) => differs(change(row, step))) || row.nodes.some((node) => different[node]);
  }

  function judge() {
    const { inclusive, exclusive } = profile;
    const costs = kind() === "down" ? inclusive : exclusive;
    const now = limits();
    different = new Uint8Array(tree.parent.length);
    for (let node = different.length - 1; node > 0; node--) {
      if (!different[node]) {
        const mine = costs.map((each) => each[node]);
        if (steps.some((step) => differs(made.change(mine, step, now)))) different[node] = 1;
      }
      if (different[node] && kind() === "down") different[tree.parent[node]] = 1;
    }
    list();
    table.lay();
    const counts = made.steps(now).map(({ common, gone, added, different: unlike }, step) =>
      `${common.toLocaleString("en")} contexts in common, ${gone.toLocaleString("en")} only in ${letter(step)}, ${added.toLocaleString("en")} only in ${letter(step + 1)}; ${unlike.toLocaleString("en")} of those in common differ`);
    say(counts.length === 1 ? counts[0] : counts.map((each, step) => `${letter(step)} to ${letter(step + 1)}: ${each}`).join(" · "));
    done(`graph ${kind()} ${table.shown.length} ${different.reduce((sum, each) => sum + each, 0)}`);
  }

  function list() {
    const regions = made.differing(limits());
    at("regions").replaceChildren(...regions.slice(0, 100).map(({ node, values: costs, changes }) => entry(
      made.pathOf(node), sides.map((_, side) => quantity(costs[side], unit)).join(" → "),
      changes.map((each) => [CLASSES[each], WORDS[each]]), () => reveal(node),
    )));
    if (!regions.length) at("regions").replaceChildren(Object.assign(document.createElement("li"), { textContent: "None, by these thresholds." }));
  }

  function reveal(node) {
    store.set({ view: "down", differing: "" });
    let [row, rows] = [null, table.top];
    for (const each of tree.path(node)) {
      const next = rows.find(({ nodes }) => nodes.includes(each));
      if (!next) break;
      if (row) table.open.add(row);
      [row, rows] = [next, next.children()];
    }
    table.lay();
    if (row) table.select(row);
  }

  function fill() {
    table?.dispose();
    table = new TreeTable(at("graph-table"), "Aligned calling contexts and their costs", columns, (row) => made.tag(row), { choose: () => {}, keep, sort: sides.length - 1 });
    table.top = kind() === "down" ? profile.root().children() : profile.procedures(kind() === "up");
    judge();
    // Down to what differs; or, where nothing does, to where the program divides.
    if (kind() !== "down") return;
    const pending = table.top.map((row) => [row, table.top.length === 1]);
    while (pending.length) {
      const [row, alone] = pending.pop();
      if (!keep(row) || !(alone || row.nodes.some((node) => different[node]))) continue;
      table.open.add(row);
      const rows = row.children();
      pending.push(...rows.map((each) => [each, alone && rows.length === 1]));
    }
    table.lay();
  }

  const only = Object.assign(document.createElement("input"), { type: "checkbox", id: "differing", checked: Boolean(store.state.differing) });
  const label = document.createElement("label");
  label.append(only, "only what differs");
  only.addEventListener("change", () => store.set({ differing: only.checked ? "1" : "" }));
  const ends = [
    joined(tools, store, "view", "Tree", TREES),
    store.subscribe(["sensitivity", "hotspot"], judge),
    store.subscribe(["differing"], () => { only.checked = Boolean(store.state.differing); table.lay(); }),
    store.subscribe(["view"], fill),
    store.subscribe(["search", "theme"], () => table.paint()),
  ];
  tools.append(label);
  fill();
  return {
    dispose() { table?.dispose(); ends.forEach((end) => end()); },
    hotPath: () => table.hotPath(),
    csv: () => [["depth", "procedure", ...sides.map(({ label: each }) => `${each} (${unit})`), ...steps.map((step) => `${letter(step)} to ${letter(step + 1)}`)],
      ...table.shown.map(({ row, level }) => [level, tree.names[row.procedure], ...sides.map((_, side) => values(row)[side]), ...steps.map((step) => CLASSES[change(row, step)])])],
  };
}
