// @ts-check
// Everything a person can do by a key: one list for the keyboard, the help and the palette.
// What they do is app.js's.

import { select, textElement } from "../widgets/elements.js";

/** @type {[string, string][]} key and name */
export const COMMANDS = [
  ["1", "Trace"], ["2", "Flame graph"], ["3", "Profile tables"], ["4", "Cost over lines"],
  ["5", "Compare runs or parts of one"], ["6", "Source and instructions"],
  ["7", "Stacks: where all threads stand"], ["8", "Messages and wait states of MPI"], ["9", "Recorded calls: files, bandwidth, memory"],
  ["w", "Zoom in in time"], ["s", "Zoom out in time"], ["W", "Zoom in in lines"], ["S", "Zoom out in lines"],
  ["a", "Earlier"], ["d", "Later"], ["ArrowUp", "Lines above"], ["ArrowDown", "Lines below"],
  ["Home", "Show everything"], ["End", "To the end of time; follows what is being recorded"], ["u", "Back, as the browser's button"], ["r", "Forward"],
  ["z", "Zoom to what is selected: a range, or the stretch at the crosshair (also F)"], ["x", "Begin a range at the crosshair; it ends where the crosshair goes"], ["l", "Select the rows of the crosshair's process"], ["Escape", "Select nothing"],
  ["p", "Pin the crosshair's row to the top, or put it back"],
  ["o", "Only lines that the crosshair's wakes or is woken by in view, or all"],
  ["<", "Move the crosshair's row up"], [">", "Move the crosshair's row down"],
  ["[", "Depth: one frame out"], ["]", "Depth: one frame in"],
  ["/", "Find procedures, or lines (line:)"], ["n", "Next match"], ["N", "Match before"], ["h", "Hot path"], ["m", "Messages and calls over the trace lines: show or hide"], ["y", "Critical path over the trace lines: show or hide"], ["i", "Native frames of Python's interpreter: show or hide"],
  ["e", "Export"], ["c", "Colours of procedures"], ["t", "Dark or light"], ["k", "Command palette (also Ctrl K)"], ["?", "Help"],
];

const MOST_PROCEDURES = 30;
const MOST_HITS = 40;

/** @param {HTMLElement} table */
export function fillHelp(table) {
  const mouse = [
    ["drag", "select a range, on the ruler of time alone, in the trace view also of rows"],
    ["double click", "zoom to the range, or to the stretch in one procedure"],
    ["labels", "click to select the rows of a process; drag to move a row; the signs at the left pin it to the top, and leave only lines that it wakes or is woken by"],
    ["whole run", "drag the frame or its ends, or draw another"],
    ["wheel", "zoom in time at the pointer; with Shift in lines; W and S zoom there too"],
    ["click", "crosshair: its call path and depth view; with the trace view in focus, Enter and Shift with arrows"],
  ];
  table.replaceChildren(...[...mouse, ...COMMANDS].map(([key, name]) => {
    const row = document.createElement("tr");
    row.append(textElement("td", key), textElement("td", name));
    return row;
  }));
}

/**
 * Asks for a command or a procedure by parts of its name. Returns what opens the dialog.
 * @param {HTMLDialogElement} dialog
 * @param {object} page
 * @param {(key: string) => void} page.run a command
 * @param {(name: string) => void} page.find a procedure
 * @param {() => string[]} page.names of procedures
 */
export function commandPalette(dialog, { run, find, names }) {
  const input = select(dialog, "input", HTMLInputElement);
  const list = select(dialog, "ul", HTMLUListElement);
  /** @type {{ name: string, key: string, act: () => void }[]} */
  let hits = [];
  let current = 0;

  function fill() {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    const fits = (/** @type {string} */ text) => words.every((word) => text.toLowerCase().includes(word));
    const procedures = words.length ? [...new Set(names().filter(fits))].slice(0, MOST_PROCEDURES) : [];
    hits = [
      ...COMMANDS.filter(([, name]) => fits(name)).map(([key, name]) => ({ name, key, act: () => run(key) })),
      ...procedures.map((name) => ({ name: `Find ${name}`, key: "", act: () => find(name) })),
    ].slice(0, MOST_HITS);
    current = 0;
    show();
  }

  function show() {
    list.replaceChildren(...hits.map(({ name, key, act }, i) => {
      const item = document.createElement("li");
      item.id = `command-${i}`;
      item.setAttribute("role", "option");
      item.setAttribute("aria-selected", String(i === current));
      item.append(name, textElement("kbd", key));
      item.addEventListener("click", () => { dialog.close(); act(); });
      return item;
    }));
    input.setAttribute("aria-activedescendant", hits.length ? `command-${current}` : "");
    list.children[current]?.scrollIntoView({ block: "nearest" });
  }

  input.addEventListener("input", fill);
  input.addEventListener("keydown", (event) => {
    const step = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
    if (step) { current = Math.min(Math.max(current + step, 0), hits.length - 1); show(); }
    if (event.key === "Enter" && hits[current]) { dialog.close(); hits[current].act(); }
    if (step || event.key === "Enter") event.preventDefault();
  });
  return () => { input.value = ""; fill(); dialog.showModal(); input.focus(); };
}
