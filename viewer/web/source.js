// The code of the chosen procedure with what it cost in what is in view: source lines, or instructions
// where there are none or they are asked for. Only the rows on screen exist as elements.

import { percent, quantity } from "./format.js";
import { evaluateAll } from "./formula.js";
import { chosen, selected } from "./selected.js";
import { WINDOW } from "./store.js";

const HEIGHT = 18;
const KINDS = [["lines", "Source"], ["assembly", "Instructions"]];

export function mount(element, { store, api, context }) {
  element.innerHTML = `
    <section class="source" aria-label="Source"><div class="bar">
      <span id="of"></span>
      <div role="group" class="joined" id="kinds" aria-label="Code"></div>
      <label>by <select id="metric"></select></label>
      <label>in <select id="file"></select></label>
      <button id="hottest" title="Go to the line that costs most itself">Hottest</button>
      <output id="what" aria-live="polite"></output></div>
      <div class="grow"><div class="table code" role="table" tabindex="0" aria-label="Code and its costs"><div class="head" role="row"></div><div class="rows" role="presentation"></div></div></div></section>`;
  const at = (id) => element.querySelector("#" + id);
  const box = element.querySelector(".code");
  const [head, body] = box.children;
  let rows = []; // { place, text, inclusive, exclusive }; costs by metric, null where there is none
  let columns = [];
  let made = null;
  let profile = null;
  let current = -1;
  let gone = false;
  let turns = 0;
  for (const [code, title] of KINDS) {
    const button = Object.assign(document.createElement("button"), { textContent: title });
    button.dataset.code = code;
    button.addEventListener("click", () => store.set({ code }));
    at("kinds").append(button);
  }
  const observer = new ResizeObserver(() => paint());
  observer.observe(box);
  box.addEventListener("scroll", () => paint());

  async function load() {
    const turn = ++turns;
    at("what").textContent = "adding up …";
    let answer;
    let kind;
    try {
      made = await selected({ store, api, context });
      profile = await made.profile("flat");
      const procedure = number();
      if (procedure === undefined) {
        if (turn === turns && !gone) { at("what").textContent = "nothing ran in what is in view: press Home to see everything"; fill([]); }
        return;
      }
      const { db, code } = store.state;
      const file = store.state.spot?.split(":")[0];
      kind = code === "assembly" ? code : "lines";
      at("of").textContent = context.opened.procedureOf(profile.tree, procedure);
      if (kind === "lines") {
        answer = await api.code(db, "source", store.state, procedure, file).catch(() => api.code(db, "source", store.state, procedure));
        // Where no line is known the instructions are all there is.
        if (code !== kind && !answer.files.length) kind = "assembly";
      }
      if (kind === "assembly") answer = await api.code(db, "assembly", store.state, procedure);
    } catch (error) { at("what").textContent = ""; context.fail(error); return; }
    if (gone || turn !== turns) return;
    for (const each of at("kinds").children) each.setAttribute("aria-pressed", each.dataset.code === kind);
    metrics();
    at("file").parentElement.hidden = kind !== "lines" || !answer.files.length;
    if (kind === "lines") lines(answer); else instructions(answer);
    element.dataset.code = `${kind} ${rows.length}`;
  }

  // The entity of the view flat that the store's procedure is; the costliest where there is none.
  function number() {
    const found = profile.procedures(false);
    const named = found.find(({ procedure }) => context.opened.procedureOf(profile.tree, procedure) === store.state.about);
    const main = chosen(made.measured, store.state.metric);
    return (named ?? found.sort((one, two) => two.exclusive[main] - one.exclusive[main])[0])?.procedure;
  }

  // The chosen metric stands first, the derived ones beside it.
  function metrics() {
    at("metric").replaceChildren(...made.metrics.map(({ name }) => new Option(name.replaceAll("_", " "), name)));
    const main = chosen(made.metrics, store.state.metric);
    at("metric").value = made.metrics[main].name;
    const shown = [main, ...made.formulas.map((_, i) => made.measured.length + i).filter((i) => i !== main)];
    columns = shown.flatMap((i) => [["inclusive", ""], ["exclusive", " self"]].map(([kind, more]) => ({ i, kind, title: made.metrics[i].name.replaceAll("_", " ") + more })));
  }

  // By place: costs of all metrics there.
  function costs({ place, inclusive, exclusive }) {
    const of = (values, k) => evaluateAll(values.map((each) => each[k]), made.formulas);
    return new Map(place.map((each, k) => [each, { inclusive: of(inclusive, k), exclusive: of(exclusive, k) }]));
  }

  function lines({ files, shown, unplaced }) {
    const main = chosen(made.measured, store.state.metric);
    at("file").replaceChildren(...files.map(({ file, name, exclusive }) => new Option(`${name.split("/").at(-1)}  ${quantity(exclusive[main], made.measured[main].unit)}`, file)));
    if (!shown) { fill([]); at("what").textContent = "its lines are not known: nothing of it has debug information"; return; }
    at("file").value = shown.file;
    const { name } = files.find(({ file }) => file === shown.file) ?? { name: "" };
    at("file").title = name;
    const known = costs(shown);
    const list = shown.text.map((text, i) => ({ place: shown.first + i, text, ...known.get(shown.first + i) }));
    // Of a file that is not there, or is shorter now, the lines that cost something.
    const last = shown.first + shown.text.length;
    for (const [place, cost] of known) if (place >= last || place < shown.first) list.push({ place, text: "", ...cost });
    const elsewhere = unplaced.reduce((sum, { exclusive }) => sum + exclusive[main], 0);
    const missing = elsewhere ? `; ${quantity(elsewhere, made.measured[main].unit)} in lines unknown` : "";
    at("what").textContent = (shown.found ? made.note : `${name}: ${shown.note}`) + missing;
    at("what").classList.toggle("wrong", !shown.found);
    const [file, line] = (store.state.spot ?? "").split(":").map(Number);
    fill(list, file === shown.file ? line : undefined);
  }

  function instructions({ code }) {
    const list = [];
    for (const { name, module, note, address, text, ...cost } of code) {
      const known = costs(cost);
      const places = address.length ? address : cost.place;
      list.push({ heading: `${name} of ${module || "no file"}${note ? ` (${note})` : ""}` });
      places.forEach((place, i) => list.push({ place, hex: true, text: text[i] ?? "", ...known.get(place) }));
    }
    at("what").textContent = made.note;
    at("what").classList.remove("wrong");
    fill(list);
  }

  function fill(found, line) {
    rows = found;
    box.style.setProperty("--columns", `repeat(${columns.length}, 126px) minmax(0, 1fr)`);
    box.style.setProperty("--wide", `${400 + 126 * columns.length}px`);
    head.replaceChildren(...[...columns.map(({ title }) => title), ""].map((textContent) => {
      const cell = Object.assign(document.createElement("span"), { textContent });
      cell.setAttribute("role", "columnheader");
      return cell;
    }));
    body.style.height = `${rows.length * HEIGHT}px`;
    box.setAttribute("aria-rowcount", rows.length);
    const spot = line === undefined ? -1 : rows.findIndex(({ place }) => place === line);
    go(spot >= 0 ? spot : hottest());
  }

  function hottest() {
    const { i } = columns[1] ?? { i: 0 };
    let best = -1;
    rows.forEach(({ exclusive }, k) => { if (exclusive && (best < 0 || exclusive[i] > rows[best].exclusive[i])) best = k; });
    return best;
  }

  function go(row) {
    current = row;
    box.scrollTop = Math.max(0, (row + 1) * HEIGHT - box.clientHeight / 2);
    paint();
  }

  function paint() {
    const first = Math.max(0, Math.floor(box.scrollTop / HEIGHT) - 4);
    const last = Math.min(rows.length, first + Math.ceil(box.clientHeight / HEIGHT) + 8);
    body.replaceChildren(...rows.slice(first, last).map((row, k) => draw(row, first + k)));
  }

  function draw(row, k) {
    const line = document.createElement("div");
    line.className = k === current ? "row current" : "row";
    line.setAttribute("role", "row");
    line.setAttribute("aria-rowindex", k + 1);
    line.style.top = `${k * HEIGHT}px`;
    const cells = row.heading ? [] : columns.map(({ i, kind }) => {
      const { unit, additive = true } = made.metrics[i];
      const value = row[kind]?.[i];
      const share = additive && value ? value / (profile.total[i] || 1) : 0;
      const cell = Object.assign(document.createElement("span"), { className: "cell", textContent: value ? quantity(value, unit) + (additive ? `  ${percent(share)}` : "") : "" });
      cell.style.setProperty("--share", `${100 * Math.min(1, Math.max(0, share))}%`);
      return cell;
    });
    const text = document.createElement("code");
    const place = document.createElement("b");
    place.textContent = row.heading ? "" : row.hex ? row.place.toString(16) : row.place;
    text.append(...(row.heading ? [row.heading] : [place, row.text.replaceAll("\t", "    ")]));
    if (row.heading) line.classList.add("heading");
    line.append(...cells, text);
    for (const each of line.children) each.setAttribute("role", "cell");
    line.addEventListener("click", () => { current = k; paint(); });
    return line;
  }

  at("metric").addEventListener("change", () => store.set({ metric: at("metric").value }));
  at("file").addEventListener("change", () => store.set({ spot: `${at("file").value}:0` }));
  at("hottest").addEventListener("click", () => go(hottest()));
  const ends = [store.subscribe([...WINDOW, "about", "spot", "code", "metric", "formulas"], load)];
  load();
  return {
    dispose: () => { gone = true; observer.disconnect(); ends.forEach((end) => end()); },
    csv: () => [["place", "code", ...columns.map(({ title }) => title)],
      ...rows.map((row) => [row.heading ? "" : row.hex ? row.place.toString(16) : row.place, row.heading ?? row.text, ...columns.map(({ i, kind }) => row[kind]?.[i] ?? "")])],
  };
}
