// @ts-check
// Labels of trace lines, by their places in the chosen order.

import { textElement } from "../widgets/elements.js";

/**
 * measurement: whose recording the line is of; folded: number of helpers' lines that the row shows, 0 for
 * the program's own; process: its number.
 * @typedef {{ line: number, label: string, group: string, measurement: number, folded: number, process: number }} LineLabel
 *
 * What can be done at labels.
 * @typedef {object} LabelActs
 * @property {() => void} [fold] folds or unfolds launchers and helper threads
 * @property {(line: number) => void} [pin] puts a row above the others, or back among them
 * @property {(line: number) => void} [partners] leaves only lines that interact with a row's, or all again
 * @property {(line: number, above: number | null) => void} [move] puts a row directly below another's; null: to the top
 * @property {(from: number, to: number) => void} [select] selects rows by their places
 * @property {boolean} [pinned] whether these rows are those above the others
 */

const MOST_LINES = 2000; // of more lines than these only a few labels are requested
const ROW_HEIGHT = 15; // px
const THREAD = " · "; // between a process and its thread

/**
 * The labels of a window's lines; of those of thousands of lines, four.
 * @param {Api} api
 * @param {string} db
 * @param {RowWindow} window
 * @param {Uint32Array} places of the rows
 * @returns {Promise<Map<number, LineLabel>>} by place
 */
export async function loadLineLabels(api, db, window, places) {
  const { l0, l1 } = window;
  const quarters = new Set([0, 0.25, 0.5, 0.75].map((share) => places[Math.floor(share * places.length)]));
  const spans = l1 - l0 <= MOST_LINES ? [{ from: l0, count: l1 - l0 }] : [...quarters].map((from) => ({ from, count: 1 }));
  const answers = await Promise.all(spans.map(({ from, count }) => api.lines(db, window, from, count)));
  return new Map(answers.flatMap(({ labels, lines, groups, measurements, folded, processes }, i) => labels.map(
    (label, k) => /** @type {[number, LineLabel]} */ ([spans[i].from + k, {
      label, line: lines[k], group: groups[k], measurement: measurements[k], folded: folded[k], process: processes[k],
    }]))));
}

/**
 * Labels beside the rows of a picture, as many as have room; the first line of each group has the group's too.
 * @param {HTMLElement} element
 * @param {Uint32Array} places of the rows
 * @param {Map<number, LineLabel>} labels
 * @param {RowLayout} layout
 * @param {number} height of the picture, px
 * @param {LabelActs} acts
 * @param {boolean} [unfolded] whether launchers and helper threads are
 */
export function drawLineLabels(element, places, labels, layout, height, acts, unfolded = false) {
  const items = [];
  let last = "";
  let above = ""; // process of the row above
  let free = 0; // px, from where on there is room
  for (let row = 0; row < places.length; row++) {
    const line = labels.get(places[row]);
    const top = layout.edges[row] * height;
    if (!line) continue;
    const { label, folded } = line;
    // The row of helpers, which is the last, is named whatever stands above it.
    if (top < free - 0.5 && folded > 1) items.pop();
    else if (top < free - 0.5) continue;
    const group = folded > 1 ? "" : line.group;
    free = top + ROW_HEIGHT;
    const heads = Boolean(group) && group !== last;
    const full = heads && group !== label ? `${group}: ${label}` : label;
    // A process is named at the first of its rows.
    const process = label.split(THREAD, 1)[0];
    const text = process === above && full === label && process !== label ? label.slice(process.length + 1) : full;
    const item = rowLabel(line, { text, full, heads, unfolded }, acts);
    item.style.top = `${top}px`;
    item.classList.toggle("roomy", (layout.edges[row + 1] - layout.edges[row]) * height >= 2 * ROW_HEIGHT);
    items.push(item);
    [last, above] = [group, process];
  }
  element.replaceChildren(...items);
}

/**
 * @param {LineLabel} line
 * @param {{ text: string, full: string, heads: boolean, unfolded: boolean }} look heads: begins a group
 * @param {LabelActs} acts
 */
function rowLabel(line, { text, full, heads, unfolded }, { fold, pin, partners, move, pinned }) {
  const folds = fold && (line.folded > 1 || (line.folded && unfolded)) ? fold : null;
  const item = textElement("span", folds ? "" : text, heads ? "heads" : "");
  item.title = full;
  if (folds) item.append(foldButton(text, line.folded, () => folds()));
  if (move) item.dataset.line = String(line.line);
  if (pin) item.append(pinButton(line, pin, pinned));
  if (partners) {
    const button = labelButton("partners", `${line.label}: only lines that it wakes or is woken by, or all again (O)`);
    button.addEventListener("click", () => partners(line.line));
    item.append(button);
  }
  return item;
}

/**
 * Seen where the pointer is; the key P does the same at the crosshair.
 * @param {LineLabel} line
 * @param {(line: number) => void} pin
 * @param {boolean} [pinned]
 */
function pinButton({ line, label }, pin, pinned = false) {
  const button = labelButton("pin", pinned ? `${label}: back among the others (P)` : `${label}: pin to the top (P)`);
  button.setAttribute("aria-pressed", String(pinned));
  button.addEventListener("click", () => pin(line));
  return button;
}

/**
 * @param {string} sign its class, which has the sign
 * @param {string} title
 */
function labelButton(sign, title) {
  const button = textElement("button", "", sign);
  button.title = title;
  button.setAttribute("aria-label", title);
  return button;
}

/**
 * @param {string} text
 * @param {number} folded number of lines that the row shows
 * @param {() => void} act
 */
function foldButton(text, folded, act) {
  const button = textElement("button", `${folded > 1 ? "▸" : "▾"} ${text}`);
  button.title = folded > 1 ? `${text}: show them` : `${text}: back into one row`;
  button.setAttribute("aria-expanded", String(folded === 1));
  button.addEventListener("click", act);
  return button;
}
