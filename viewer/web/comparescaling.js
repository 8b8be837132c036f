// What a program loses as it runs on more ranks, by calling context (SC 2009, sections 2.3 and 3.1).

import { TREES } from "./aligned.js";
import { entry } from "./comparelist.js";
import { quantity } from "./format.js";
import { joined } from "./joined.js";
import { TreeTable } from "./table.js";

const MODES = [["weak", "Weak", "Each rank had the same work in all runs"], ["strong", "Strong", "All ranks together had the same work in all runs"]];
const LEAST = 0.005; // of the run: regions that lose or gain less are not listed

export async function mount(element, { store, aligned, tools, say, done }, stale) {
  const made = await aligned();
  if (stale()) return null;
  const { order, why } = made.ranks;
  if (why) throw new Error(why);
  const { sides, profile, unit, opened } = made;
  const { tree } = opened;
  const [base, ...runs] = order;
  element.innerHTML = `<div class="beside-list"><div class="grow" id="loss-table"></div>
    <aside class="differing" aria-label="Where the program lost it"><h2 title="The program's own contexts, libraries counted to their callers">Where the program lost it</h2><ol id="losses"></ol></aside></div>`;
  const at = (id) => element.querySelector("#" + id);
  let table = null;
  const strong = () => store.state.scaling === "strong";
  const down = () => !["up", "flat"].includes(store.state.view);
  const of = (values, side) => made.loss(values, base, side, strong());
  const size = (side) => `${sides[side].size} ranks`;

  const columns = [
    ...runs.flatMap((side) => [["inclusive", `loss to ${size(side)}`], ["exclusive", "self"]].map(([kind, title]) => ({
      title,
      value: (row) => of(row[kind], side).loss,
      text: (row) => signed(of(row[kind], side).loss),
      share: (row) => Math.abs(of(row[kind], side).loss),
      mark: (row) => (of(row[kind], side).loss < 0 ? "gain" : "loss"),
    }))),
    ...runs.map((side) => ({
      title: `excess of ${size(side)}`,
      value: (row) => of(down() ? row.inclusive : row.exclusive, side).excess,
      text: (row) => quantity(of(down() ? row.inclusive : row.exclusive, side).excess, unit),
      share: () => 0,
    })),
    ...order.map((side) => ({
      title: `each of ${sides[side].size}`,
      value: (row) => (down() ? row.inclusive : row.exclusive)[side],
      text: (row) => quantity((down() ? row.inclusive : row.exclusive)[side], unit),
      share: (row) => (down() ? row.inclusive : row.exclusive)[side] / (made.total[side] || 1),
    })),
  ];

  function fill() {
    table?.dispose();
    const last = 2 * (runs.length - 1);
    table = new TreeTable(at("loss-table"), "Loss by calling context", columns, (row) => made.tag(row), { choose: () => {}, sort: down() ? last : last + 1 });
    table.show(down() ? profile.root().children() : profile.procedures(store.state.view === "up"));
    if (down()) for (let rows = table.top; rows.length === 1; rows = rows[0].children()) table.open.add(rows[0]);
    tell();
  }

  function tell() {
    table.lay();
    const side = runs.at(-1);
    const lost = ({ values }) => of(values, side);
    const regions = made.regions.filter((each) => Math.abs(lost(each).loss) >= LEAST).sort((one, two) => lost(two).loss - lost(one).loss);
    at("losses").replaceChildren(...regions.slice(0, 100).map((each) => {
      const { loss, excess } = lost(each);
      return entry(made.pathOf(each.node), quantity(excess, unit), [[loss < 0 ? "less" : "gone", signed(loss)]], () => store.set({ search: made.name(each.node) }));
    }));
    const word = strong() ? "strong" : "weak";
    say(runs.map((each) => {
      const { loss, excess } = of(made.total, each);
      return `${word} scaling from ${sides[base].size} to ${size(each)}: ${signed(loss)} lost, ${quantity(excess, unit)} of excess work`;
    }).join(" · "));
    done(`scaling ${word} ${table.shown.length}`);
  }

  const ends = [
    joined(tools, store, "scaling", "Scaling", MODES),
    joined(tools, store, "view", "Tree", TREES),
    store.subscribe(["scaling"], tell),
    store.subscribe(["view"], fill),
    store.subscribe(["search", "theme"], () => table.paint()),
  ];
  fill();
  return {
    dispose() { table?.dispose(); ends.forEach((end) => end()); },
    hotPath: () => table.hotPath(),
    csv: () => [["depth", "procedure", ...columns.map(({ title }) => title)],
      ...table.shown.map(({ row, level }) => [level, tree.names[row.procedure], ...columns.map(({ value }) => value(row))])],
  };
}

const signed = (share) => `${share < 0 ? "−" : ""}${Math.abs(100 * share).toFixed(2)} %`;
