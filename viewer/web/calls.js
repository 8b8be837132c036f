// The profile as tables: top-down, bottom-up, flat, of the lines and time in view.

import { matcher, percent, quantity } from "./format.js";
import { chosen, selected } from "./selected.js";
import { WINDOW } from "./store.js";
import { TreeTable } from "./table.js";

const VIEWS = [["down", "Top-down"], ["up", "Bottom-up"], ["flat", "Flat"]];

export function mount(element, { store, api, context }) {
  element.innerHTML = `
    <section class="calls" aria-label="Profile"><div class="bar">
      <div role="group" class="joined" id="views" aria-label="View"></div>
      <label>Only <input id="only" type="search" placeholder="procedures with" autocomplete="off"></label>
      <button id="hot" title="Open the costliest path down to where the cost divides (H)">Hot path</button>
      <button id="each" title="What the chosen row cost on each line">Over lines</button>
      <output id="what" aria-live="polite"></output></div>
      <div id="table" class="grow"></div></section>`;
  const at = (id) => element.querySelector("#" + id);
  let table = null;
  let made = null;
  let gone = false;
  let wanted = null;
  let laid = null; // the view that the table shows
  for (const [view, title] of VIEWS) {
    const button = Object.assign(document.createElement("button"), { textContent: title });
    button.dataset.view = view;
    button.addEventListener("click", () => store.set({ view }));
    at("views").append(button);
  }

  async function load() {
    at("what").textContent = "adding up …";
    let next;
    try {
      next = await selected({ store, api, context });
    } catch (error) { at("what").textContent = ""; context.fail(error); return; }
    if (gone) return;
    // Of other lines, another time, or a newer revision: what was open stays open.
    const kept = table && laid === (store.state.view ?? "down") ? table.kept(title) : null;
    made = next;
    const { metrics, profile } = made;
    const columns = metrics.flatMap(({ name, unit }, i) => [
      ["inclusive", name], ["exclusive", name + " self"],
    ].map(([kind, title]) => ({
      title: title.replaceAll("_", " "),
      value: (row) => row[kind][i],
      text: (row) => (row[kind][i] ? `${quantity(row[kind][i], unit)}  ${percent(row[kind][i] / profile.total[i])}` : ""),
      share: (row) => row[kind][i] / (profile.total[i] || 1),
    })));
    const main = chosen(metrics, store.state.metric);
    // The metric that is looked at stands first.
    columns.unshift(...columns.splice(2 * main, 2));
    table?.dispose();
    table = new TreeTable(at("table"), "Calling contexts and their costs", columns, name, {
      choose: (row) => store.set({ context: contextOf(row), about: context.tree.names[row.procedure] }), keep,
      sort: (store.state.view ?? "down") === "down" ? 0 : 1,
    });
    fill(kept);
  }

  const title = (row) => made.profile.tree.names[row.procedure];

  function fill(kept = null) {
    if (!table) return;
    const view = store.state.view ?? "down";
    for (const each of at("views").children) each.setAttribute("aria-pressed", each.dataset.view === view);
    const { profile, note } = made;
    laid = view;
    mark();
    const rows = view === "down" ? profile.root().children() : profile.procedures(view === "up");
    table.sort = view === "down" ? 0 : 1;
    table.header();
    table.show(rows);
    // The outermost frames are of no interest where there is only one.
    if (view === "down") for (let row = rows; row.length === 1; row = row[0].children()) table.open.add(row[0]);
    if (kept) table.keepTo(kept, title); else table.lay();
    at("what").textContent = rows.length ? note : "nothing ran in what is in view: press Home to see everything";
    element.dataset.rows = `${view} ${rows.length}`;
  }

  function name(row) {
    const box = document.createElement("span");
    const chip = document.createElement("i");
    chip.style.background = context.css(row.procedure);
    const found = context.found();
    box.className = found ? (found[row.procedure] ? "found" : "faded") : "";
    box.append(chip, title(row));
    box.title = title(row);
    return box;
  }

  // Which nodes have a procedure that was asked for, in them or below them.
  function mark() {
    const text = at("only").value;
    if (!text) { wanted = null; return; }
    const { tree } = context;
    const fits = matcher(text);
    const named = Uint8Array.from(tree.names, (each) => (fits(each) ? 1 : 0));
    const below = tree.procedure.map((each) => named[each]);
    for (let node = below.length - 1; node > 0; node--) if (below[node]) below[tree.parent[node]] = 1;
    wanted = { named, below };
  }

  function keep(row) {
    if (!wanted) return true;
    if ((store.state.view ?? "down") === "down") return row.nodes.some((node) => wanted.below[node]) || row.nodes.some(above);
    return table.top.includes(row) ? wanted.named[row.procedure] : true;
  }

  // What is below a match stays.
  function above(node) {
    for (let each = node; each; each = context.tree.parent[each]) if (wanted.named[context.tree.procedure[each]]) return true;
    return false;
  }

  function contextOf(row) {
    if ((store.state.view ?? "down") === "down" && row.nodes.length <= 40) return "n" + row.nodes.join(".");
    return "p" + row.procedure;
  }

  at("only").addEventListener("input", () => { mark(); table?.lay(); });
  at("hot").addEventListener("click", () => table?.hotPath());
  at("each").addEventListener("click", () => store.set({ pane: "lines" }));
  const ends = [
    store.subscribe(WINDOW, load),
    store.subscribe(["view"], () => fill()),
    store.subscribe(["search", "theme"], () => table?.paint()),
  ];
  load();
  return {
    dispose: () => { gone = true; table?.dispose(); ends.forEach((end) => end()); },
    hotPath: () => table?.hotPath(),
    csv: () => csv(),
  };

  function csv() {
    const { metrics } = made;
    const lines = [["depth", "procedure", ...metrics.flatMap(({ name: each, unit }) => [`${each} (${unit || "count"})`, `${each} self`])]];
    for (const { row, level } of table.shown) {
      lines.push([level, context.tree.names[row.procedure], ...metrics.flatMap((_, i) => [row.inclusive[i], row.exclusive[i]])]);
    }
    return lines;
  }
}
