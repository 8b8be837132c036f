// The traces of all sides, one crosshair and one window for all: zoomed together by the same share
// of their time or by the same nanoseconds, the same choice of lines, the same depth.

import { letter } from "./aligned.js";
import { ending, time } from "./format.js";
import { joined } from "./joined.js";
import { linesView } from "./linesview.js";
import { Opened } from "./opened.js";

const COUPLED = [["share", "Same share of time", "Windows are the same part of each side"], ["ns", "Same ns", "Windows are equally long, from each side's beginning on"]];
const BESIDE = [["", "Above one another"], ["1", "Side by side"]];

export async function mount(element, { store, api, context, sides, tools, say, aligned, done }, stale) {
  const parts = await which();
  if (stale()) return null;
  const length = ({ from, to }) => to - from;

  element.innerHTML = `<div class="traces">${parts.map((_, i) => `<section class="side"><h2></h2><div class="traceview" id="lines-${i}"></div></section>`).join("")}</div>`;
  const sections = [...element.querySelectorAll(".side")];
  const views = parts.map((part, i) => linesView(sections[i].lastChild, {
    api, name: `side-${i}`, label: `Trace lines of ${letter(i)}: ${part.label}`,
    source: () => ({ db: part.db, opened: part.opened, window: windowOf(part) }),
    cross: () => cross(i),
    on: {
      drawn: () => heading(i), failed: context.fail, ...context.mouse,
      labelled() {
        // A link tells the line by its number: now it has a name.
        if (i === 0 && chosen === null && sides.kind() !== "rank" && store.state.line !== undefined) {
          const row = views[0].grid.lines.indexOf(store.state.line);
          chosen = row < 0 ? null : views[0].labelOf(row) ?? null;
        }
        draw();
        // Once all show the window as it is now.
        const wanted = parts.map(windowOf).map((window) => [window.t0, window.t1, window.l0, window.l1].join("-"));
        if (sections.every((each, at) => each.lastChild.dataset.drawn === wanted[at])) done(`traces ${wanted.join(" ")}`);
      },
      click: (spot) => click(i, spot),
    },
  }));
  const headings = () => parts.forEach((_, i) => heading(i));

  // Of each side: its database, its time, and its lines if they are not those of the choice.
  async function which() {
    const { db, filter, sort, group } = store.state;
    const whole = async (name, label = name) => {
      const opened = await open(name);
      return { label, db: name, opened, from: 0, to: opened.summary.duration_ns, choice: { filter, sort, group } };
    };
    const query = sides.query();
    let found;
    if (sides.kind() === "runs") found = await Promise.all(query.getAll("db").map((name) => whole(name)));
    else if (sides.kind() === "rank") {
      found = await Promise.all(query.getAll("rank").map(async (number) => ({
        ...await whole(db, `rank ${number}`), choice: { filter: `label:(^| )rank ${number}( |$)`, sort, group },
      })));
    } else {
      const made = await aligned();
      found = await Promise.all(made.sides.map(async ({ label, begin_ns, end_ns }) => ({ ...await whole(db, label), from: begin_ns, to: end_ns })));
    }
    // Choices of the same lines of the same database are counted once.
    for (const part of found) {
      part.count = part.db === db && part.choice.filter === filter ? context.count() : (await api.selection(part.db, part.choice)).count;
      if (!part.count) throw new Error(`${part.label} has none of the lines that are chosen`);
    }
    return found;
  }

  function open(name) {
    if (name === store.state.db) return context.opened;
    context.others ??= new Map();
    const key = JSON.stringify([name, store.state.colours]);
    if (!context.others.has(key)) {
      const made = load(name);
      made.catch(() => context.others.delete(key));
      context.others.set(key, made);
    }
    return context.others.get(key);
  }

  async function load(name) {
    const [summary, cct] = await Promise.all([api.summary(name), api.cct(name)]);
    const opened = new Opened(store, summary, cct);
    if (store.state.colours) await opened.recolour(api, name);
    return opened;
  }

  // The window of the first side is the store's; others follow.
  function windowOf(part) {
    const { t0, t1, l0, l1 } = store.state;
    const [first] = parts;
    const scale = store.state.coupled === "ns" ? 1 : length(part) / length(first);
    const moment = (t) => Math.round(part.from + (t - first.from) * scale);
    const place = (l) => Math.round((l / context.count()) * part.count);
    const from = Math.min(part.count - 1, place(l0));
    return { ...part.choice, t0: moment(t0), t1: Math.max(moment(t0) + 1, moment(t1)), l0: from, l1: Math.max(from + 1, Math.min(part.count, place(l1))) };
  }

  // The line of one name is one line on all sides: rank 3 is compared with rank 3. Where names are not
  // known, because there are too many lines, and between ranks, the same height stands for it.
  let chosen = null;

  function click(i, { x, y }) {
    const [{ grid }, first] = [views[i], views[0]];
    if (!grid || !first.grid) return;
    chosen = sides.kind() === "rank" ? null : views[i].labelOf(Math.min(grid.h - 1, Math.floor(y * grid.h))) ?? null;
    const named = chosen === null ? -1 : first.rowOf(chosen);
    const row = named >= 0 ? named : Math.min(first.grid.h - 1, Math.floor(y * first.grid.h));
    context.mouse.click({ x, line: first.grid.lines[row] });
    draw(); // it may be another line of this side, and the same of the first
  }

  function cross(i) {
    const { t0, t1, time: when, line } = store.state;
    const [first, mine] = [views[0].grid, views[i].grid];
    if (when === undefined || !first || !mine) return { x: null, y: null };
    const x = (when - t0) / (t1 - t0);
    if (chosen !== null) {
      const row = views[i].rowOf(chosen);
      return { x, y: row < 0 ? null : (row + 0.5) / mine.h };
    }
    const row = first.lines.indexOf(line);
    return { x, y: row < 0 ? null : (row + 0.5) / first.h };
  }

  // Who it is, how long, and the call path at the crosshair.
  function heading(i) {
    const [part, { grid }] = [parts[i], views[i]];
    const { x, y } = cross(i);
    const head = sections[i].firstChild;
    const lines = `${part.count.toLocaleString("en")} line${part.count === 1 ? "" : "s"}`;
    head.replaceChildren(Object.assign(document.createElement("b"), { textContent: letter(i) }), ` ${part.label}`,
      Object.assign(document.createElement("small"), { textContent: `${time(length(part))}, ${lines}` }));
    if (!grid || x === null || y === null || x < 0 || x >= 1) return;
    const node = grid.nodes[Math.min(grid.h - 1, Math.floor(y * grid.h)) * grid.w + Math.floor(x * grid.w)];
    const { tree } = part.opened;
    const path = tree.has(node) ? tree.path(node).map((each) => tree.names[tree.procedure[each]]).join(" > ") : "not there";
    const way = Object.assign(document.createElement("span"), { className: "at ending", title: path });
    way.append(ending(path));
    head.append(way);
  }

  function arrange() {
    element.firstChild.classList.toggle("beside", Boolean(store.state.beside));
  }

  // As far as the longest side goes, where all show the same nanoseconds.
  const reach = () => (store.state.coupled === "ns" ? Math.max(...parts.map((part) => parts[0].from + length(part)), context.summary.duration_ns) : context.summary.duration_ns);

  const loadAll = () => views.forEach((each) => each.load());
  const draw = () => { views.forEach((each) => each.draw()); headings(); };
  const ends = [
    joined(tools, store, "coupled", "Coupling", COUPLED),
    joined(tools, store, "beside", "Arrangement", BESIDE),
    store.subscribe(["t0", "t1", "l0", "l1"], loadAll),
    store.subscribe(["coupled"], () => {
      const end = reach();
      if (store.state.t1 > end) store.set({ t0: 0, t1: end }); else loadAll();
    }),
    store.subscribe(["depth", "search", "theme", "time", "line"], draw),
    store.subscribe(["beside"], arrange),
  ];
  arrange();
  headings();
  // Parts of a run are looked at, not the run, unless somebody zoomed already.
  const { t0, t1 } = store.state;
  if (parts[0].db === store.state.db && length(parts[0]) < context.summary.duration_ns && t0 === 0 && t1 === context.summary.duration_ns) {
    context.zoomTo({ t0: parts[0].from, t1: parts[0].to });
  } else loadAll();
  say("");
  return {
    reach,
    canvases: () => views.map((each) => each.canvas),
    csv: () => views.flatMap((each) => each.csv()),
    dispose() {
      ends.forEach((end) => end());
      views.forEach((each) => each.dispose());
      const { duration_ns } = context.summary;
      if (store.state.t1 > duration_ns) store.set({ t0: Math.min(store.state.t0, duration_ns / 2), t1: duration_ns });
    },
  };
}
