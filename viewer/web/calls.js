// The profile as tables: top-down, bottom-up, flat, by loop and by line, of the lines and time in view.

import { matcher, percent, quantity } from "./format.js";
import { chosen, selected } from "./selected.js";
import { WINDOW } from "./store.js";
import { TreeTable } from "./table.js";
import { LOOP, STATEMENT } from "./tree.js";

// [name, title, the view whose tree it is made of (see docs/viewer-api.md), column to sort by].
const VIEWS = [
  ["down", "Top-down", "top-down", 0], ["up", "Bottom-up", "flat", 1], ["flat", "Flat", "flat", 1],
  ["loops", "Loops", "loops", 0], ["lines", "Lines", "lines", 1],
];
const LONGEST = 350; // of a context's nodes in a request

export function mount(element, { store, api, context }) {
  element.innerHTML = `
    <section class="calls" aria-label="Profile"><div class="bar">
      <div role="group" class="joined" id="views" aria-label="View"></div>
      <label>Only <input id="only" type="search" placeholder="names with" autocomplete="off"></label>
      <label>Add <input id="formulas" type="search" placeholder="name = formula" autocomplete="off" spellcheck="false"
        title="Metrics by formula: numbers, metrics, + - * / abs sqrt min max; several between semicolons"></label>
      <button id="hot" title="Open the costliest path down to where the cost divides (H)">Hot path</button>
      <button id="each" title="What the chosen row cost on each line">Over lines</button>
      <button id="code" title="The chosen row's source lines or instructions with what they cost">Source</button>
      <output id="what" aria-live="polite"></output></div>
      <div id="table" class="grow"></div></section>`;
  const at = (id) => element.querySelector("#" + id);
  const view = () => VIEWS.find(([name]) => name === store.state.view) ?? VIEWS[0];
  let table = null;
  let made = null;
  let profile = null;
  let gone = false;
  let wanted = null;
  let laid = null; // the view that the table shows
  let turns = 0;
  for (const [name, title] of VIEWS) {
    const button = Object.assign(document.createElement("button"), { textContent: title });
    button.dataset.view = name;
    button.addEventListener("click", () => store.set({ view: name }));
    at("views").append(button);
  }
  at("formulas").value = store.state.formulas ?? "";

  async function load() {
    const turn = ++turns;
    const [name, , of, sort] = view();
    at("what").textContent = "adding up …";
    for (const each of at("views").children) each.setAttribute("aria-pressed", each.dataset.view === name);
    let kept;
    try {
      const found = await selected({ store, api, context });
      const costs = await found.profile(of);
      if (gone || turn !== turns) return;
      // Of other lines, another time, or a newer revision: what was open stays open.
      kept = table && laid === name ? table.kept(title) : null;
      [made, profile, laid] = [found, costs, name];
    } catch (error) { at("what").textContent = ""; context.fail(error); return; }
    const columns = made.metrics.flatMap(({ name: metric, unit, additive = true }, i) => [
      ["inclusive", metric], ["exclusive", metric + " self"],
    ].map(([kind, title]) => {
      const share = (row) => (additive ? row[kind][i] / (profile.total[i] || 1) : 0);
      return {
        title: title.replaceAll("_", " "),
        value: (row) => row[kind][i],
        text: (row) => (row[kind][i] ? quantity(row[kind][i], unit) + (additive ? `  ${percent(share(row))}` : "") : ""),
        share,
      };
    }));
    const main = chosen(made.metrics, store.state.metric);
    // The metric that is looked at stands first, what was added beside it.
    const added = columns.splice(2 * made.measured.length);
    const first = main < made.measured.length ? columns.splice(2 * main, 2) : added.splice(2 * (main - made.measured.length), 2);
    columns.unshift(...first, ...added);
    table?.dispose();
    table = new TreeTable(at("table"), "Calling contexts and their costs", columns, draw, { choose, keep, sort });
    mark();
    const rows = rowsOf(name);
    table.show(rows);
    // The outermost frames are of no interest where there is only one.
    if (name === "down") for (let row = rows; row.length === 1; row = row[0].children()) table.open.add(row[0]);
    if (kept) table.keepTo(kept, title); else table.lay();
    at("what").textContent = rows.length ? made.note : nothing(name);
    at("what").classList.toggle("wrong", Boolean(made.wrong));
    if (made.wrong) at("what").textContent = made.wrong;
    element.dataset.rows = `${name} ${rows.length}`;
  }

  const title = (row) => profile.tree.names[row.procedure];

  function rowsOf(name) {
    if (name === "down") return profile.root().children();
    if (name === "up") return profile.procedures();
    const { listed, kind } = profile.tree.entities;
    // Code whose line is unknown leaves its cost with the procedure.
    const shown = ({ procedure, exclusive }) => listed[procedure] || (name === "lines" && kind[procedure] < LOOP && exclusive.some(Boolean));
    return profile.procedures(false).filter(shown);
  }

  function nothing(name) {
    if (name === "loops" && !profile.tree.entities.kind.includes(LOOP)) return "no loops are known: no code that ran could be read";
    return "nothing ran in what is in view: press Home to see everything";
  }

  function draw({ procedure }) {
    const { tree } = profile;
    const { kind, files, file, line } = tree.entities;
    const box = document.createElement("span");
    const chip = document.createElement("i");
    chip.style.background = context.css(procedure, tree);
    const found = context.found(tree);
    box.className = found ? (found[procedure] ? "found" : "faded") : "";
    box.classList.toggle("scope", kind[procedure] > 0);
    box.append(chip, tree.names[procedure]);
    box.title = tree.names[procedure] + (file[procedure] ? `\n${files[file[procedure]]}:${line[procedure]}` : "");
    return box;
  }

  // Which nodes have a procedure that was asked for, in them or below them.
  function mark() {
    const text = at("only").value;
    if (!text) { wanted = null; return; }
    const { tree } = profile;
    const fits = matcher(text);
    const named = Uint8Array.from(tree.names, (each) => (fits(each) ? 1 : 0));
    const below = tree.procedure.map((each) => named[each]);
    for (let node = below.length - 1; node > 0; node--) if (below[node]) below[tree.parent[node]] = 1;
    wanted = { named, below };
  }

  function keep(row) {
    if (!wanted) return true;
    if (view()[0] === "down") return row.nodes.some((node) => wanted.below[node]) || row.nodes.some(above);
    return table.top.includes(row) ? wanted.named[row.procedure] : true;
  }

  // What is below a match stays.
  function above(node) {
    const { tree } = profile;
    for (let each = node; each; each = tree.parent[each]) if (wanted.named[tree.procedure[each]]) return true;
    return false;
  }

  // The other panes are about it then: over lines its context, the code its procedure.
  function choose(row) {
    const [name, , of] = view();
    const { tree } = profile;
    const { kind, file, line } = tree.entities;
    const placed = kind[row.procedure] >= LOOP && kind[row.procedure] <= STATEMENT && file[row.procedure];
    store.set({
      context: (name === "down" && nodesOf(row)) || `${of}:${tree.names[row.procedure]}`,
      about: context.opened.procedureOf(tree, row.procedure),
      spot: placed ? `${file[row.procedure]}:${line[row.procedure]}` : undefined,
    });
  }

  // The outermost nodes of the calling context tree in what a row stands for; null of too many.
  function nodesOf(row) {
    const { parent, place } = profile.tree;
    const inside = new Uint8Array(parent.length);
    for (const node of row.nodes) inside[node] = 1;
    for (let node = 1; node < inside.length; node++) inside[node] |= inside[parent[node]];
    const found = [];
    for (let node = 1; node < place.length; node++) {
      if (inside[place[node]] && !inside[place[context.tree.parent[node]]]) found.push(node);
    }
    const text = "n" + found.join(".");
    return found.length && text.length < LONGEST ? text : null;
  }

  at("only").addEventListener("input", () => { if (profile) { mark(); table.lay(); } });
  at("formulas").addEventListener("change", () => store.set({ formulas: at("formulas").value || undefined }));
  at("hot").addEventListener("click", () => table?.hotPath());
  at("each").addEventListener("click", () => store.set({ pane: "lines" }));
  at("code").addEventListener("click", () => store.set({ pane: "source" }));
  const ends = [
    store.subscribe([...WINDOW, "view", "formulas"], load),
    store.subscribe(["search", "theme"], () => table?.paint()),
  ];
  load();
  return {
    dispose: () => { gone = true; table?.dispose(); ends.forEach((end) => end()); },
    hotPath: () => table?.hotPath(),
    tree: true,
    csv: () => csv(),
  };

  function csv() {
    const { metrics } = made;
    const lines = [["depth", "procedure", ...metrics.flatMap(({ name: each, unit }) => [`${each} (${unit || "count"})`, `${each} self`])]];
    for (const { row, level } of table.shown) {
      lines.push([level, profile.tree.names[row.procedure], ...metrics.flatMap((_, i) => [row.inclusive[i], row.exclusive[i]])]);
    }
    return lines;
  }
}
