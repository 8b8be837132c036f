// Everything a person can do by a key: one list for the keyboard, the help and the palette.
// [keys, name, group]; what they do is app.js's.

export const COMMANDS = [
  ["1", "Trace", "panes"], ["2", "Flame graph", "panes"], ["3", "Profile tables", "panes"], ["4", "Cost over lines", "panes"],
  ["5", "Compare runs or parts of one", "panes"], ["6", "Source and instructions", "panes"],
  ["w", "Zoom in in time", "look"], ["s", "Zoom out in time", "look"],
  ["W", "Zoom in in lines", "look"], ["S", "Zoom out in lines", "look"],
  ["a", "Earlier", "look"], ["d", "Later", "look"],
  ["ArrowUp", "Lines above", "look"], ["ArrowDown", "Lines below", "look"],
  ["Home", "Show everything", "look"], ["End", "To the end of time; follows what is being recorded", "look"], ["u", "Undo", "look"], ["r", "Redo", "look"],
  ["[", "Depth: one frame out", "look"], ["]", "Depth: one frame in", "look"],
  ["/", "Find a procedure", "find"], ["f", "Filter lines", "find"], ["h", "Hot path", "find"],
  ["e", "Export", "page"], ["c", "Colours of procedures", "page"], ["t", "Dark or light", "page"], ["k", "Command palette (also Ctrl K)", "page"], ["?", "Help", "page"],
];

export function help(table) {
  const mouse = [
    ["drag", "zoom to a rectangle of the trace view"],
    ["wheel", "zoom in time at the cursor; with Shift in lines"],
    ["click", "crosshair: its call path and depth view; with the trace view in focus, Enter and Shift with arrows"],
  ];
  const rows = [...mouse, ...COMMANDS.map(([key, name]) => [key, name])];
  table.replaceChildren(...rows.map(([key, name]) => {
    const row = document.createElement("tr");
    for (const text of [key, name]) row.append(Object.assign(document.createElement("td"), { textContent: text }));
    return row;
  }));
}

// Asks for a command or a procedure by parts of its name.
export function palette(dialog, { run, find, names }) {
  const input = dialog.querySelector("input");
  const list = dialog.querySelector("ul");
  let hits = [];
  let current = 0;

  function fill() {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    const fits = (text) => words.every((word) => text.toLowerCase().includes(word));
    hits = COMMANDS.filter(([, name]) => fits(name)).map(([key, name]) => ({ name, key, act: () => run(key) }));
    if (words.length) hits.push(...[...new Set(names().filter(fits))].slice(0, 30));
    hits = hits.slice(0, 40).map((hit) => (typeof hit === "string" ? { name: `Find ${hit}`, key: "", act: () => find(hit) } : hit));
    current = 0;
    show();
  }

  function show() {
    list.replaceChildren(...hits.map(({ name, key, act }, i) => {
      const item = document.createElement("li");
      item.setAttribute("role", "option");
      item.setAttribute("aria-selected", i === current);
      item.append(name, Object.assign(document.createElement("kbd"), { textContent: key }));
      item.addEventListener("click", () => { dialog.close(); act(); });
      return item;
    }));
    list.children[current]?.scrollIntoView({ block: "nearest" });
  }

  input.addEventListener("input", fill);
  input.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) { current = Math.min(Math.max(current + step, 0), hits.length - 1); show(); }
    if (event.key === "Enter" && hits[current]) { dialog.close(); hits[current].act(); }
    if (step || event.key === "Enter") event.preventDefault();
  });
  return () => { input.value = ""; fill(); dialog.showModal(); input.focus(); };
}
