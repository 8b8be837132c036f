// @ts-check
// Which lines are shown and in what order: one bar above all panes.

import { messageOf } from "../core/failure.js";
import { formatCount } from "../core/format.js";
import { CHOICE } from "../core/store.js";
import { mountPhaseChoice } from "../recorded/phase_choice.js";
import { part } from "../widgets/elements.js";
import { RowCounts } from "./row_counts.js";

/**
 * @typedef {import("../core/api_types.js").LineChoice} LineChoice
 */

const SORTS = [["", "rank"], ["start", "start"], ["label", "name"]];
const GROUPS = [["", "nothing"], ["job", "job"], ["rank", "rank"], ["process", "process"]];
const TYPING_MS = 250; // after the last letter a filter is applied

const HTML = `
    <label>Lines <input id="filter" type="search" placeholder="all: a regular expression" autocomplete="off" spellcheck="false"
      title="Matches label, process, thread, job or host; host:node1 matches hosts alone"></label>
    <label>sorted by <select id="sort"></select></label>
    <label>grouped by <select id="group"></select></label>
    <label id="all-lines-label" title="A row of its own for every line, also of threads that hardly ran or lived briefly"><input type="checkbox" id="all-lines"> all lines</label>
    <span id="phase-choice"></span>
    <output id="count" aria-live="polite"></output>`;

/**
 * @param {HTMLElement} element
 * @param {import("../core/pane_types.js").PageParts} page
 */
export function mountLineChoice(element, { store, api, context }) {
  element.innerHTML = HTML;
  const filterInput = part(element, "filter", HTMLInputElement);
  const sortSelect = part(element, "sort", HTMLSelectElement);
  const groupSelect = part(element, "group", HTMLSelectElement);
  const allLines = part(element, "all-lines", HTMLInputElement);
  const allLinesLabel = part(element, "all-lines-label", HTMLElement);
  const output = part(element, "count", HTMLOutputElement);
  const counts = new RowCounts(store, api);
  let requests = 0;
  for (const [value, title] of GROUPS) groupSelect.append(new Option(title, value));
  const phases = mountPhaseChoice(part(element, "phase-choice", HTMLElement), { store, api, context }, (text) => say(text, true));

  function show() {
    const { filter, sort, group, all } = store.state;
    const { metrics, lines, rows } = context.summary;
    allLines.checked = Boolean(all);
    allLinesLabel.hidden = rows === lines;
    sortSelect.replaceChildren(...[...SORTS, ...metrics.map(({ name }) => [name, name.replaceAll("_", " ")])].map(([value, title]) => new Option(title, value)));
    sortSelect.value = sort ?? "";
    groupSelect.value = group ?? "";
    if (document.activeElement !== filterInput) filterInput.value = filter ?? "";
    phases.show();
    say(describeChoice(context.summary, context.count(), Boolean(filter)));
  }

  /** @param {string} text */
  function say(text, wrong = false) {
    output.textContent = text;
    output.classList.toggle("wrong", wrong);
  }

  /**
   * Asks how many rows a choice has; it is shown when that is known.
   * @param {LineChoice} patch
   * @param {boolean} [inPlace] the window stays where it is, and ends as many rows later as there are more
   */
  async function change(patch, inPlace = false) {
    const { filter, sort, group, all, unfolded, l0, l1 } = store.state;
    const next = { filter, sort, group, all, unfolded, ...patch };
    const request = ++requests;
    try {
      const count = await counts.ask(next);
      if (request !== requests) return;
      if (!count) { say("no line matches", true); return; }
      const more = count - context.count();
      const end = Math.min(count, Math.max(l0 + 1, l1 + more));
      const window = inPlace ? { l0: Math.min(l0, end - 1), l1: end } : { l0: 0, l1: count };
      store.zoom({ ...store.window(), ...next, ...(more ? window : {}) });
    } catch (error) {
      if (request === requests) say(messageOf(error), true);
    }
  }

  /**
   * Folds or unfolds the helper threads of a process.
   * @param {number} process
   */
  function toggleFold(process) {
    change({ unfolded: toggled(store.state.unfolded ?? "", String(process)) }, true);
  }

  let typing = 0;
  filterInput.addEventListener("input", () => {
    clearTimeout(typing);
    typing = window.setTimeout(() => change({ filter: filterInput.value }), TYPING_MS);
  });
  sortSelect.addEventListener("change", () => change({ sort: sortSelect.value }));
  groupSelect.addEventListener("change", () => change({ group: groupSelect.value }));
  allLines.addEventListener("change", () => change({ all: allLines.checked ? "1" : "", unfolded: "" }));
  store.subscribe(["db", ...CHOICE, "phase"], show);
  return {
    show, toggleFold,
    ask: (/** @type {LineChoice} */ choice) => counts.ask(choice),
    renew: (/** @type {number} */ count) => counts.renew(count),
    count: () => counts.known(store.state) ?? (store.state.all ? context.summary.lines : context.summary.rows),
  };
}

/**
 * Numbers between dots with one more, or without it where it is among them.
 * @param {string} numbers
 * @param {string} number
 */
function toggled(numbers, number) {
  const all = numbers.split(".").filter(Boolean);
  return (all.includes(number) ? all.filter((other) => other !== number) : [...all, number]).join(".");
}

/**
 * How many lines are chosen, how many share rows, and whether samples were dropped.
 * @param {import("../core/api_types.js").Summary} summary
 * @param {number} count of rows
 * @param {boolean} filtered
 */
function describeChoice({ lines, losses }, count, filtered) {
  const dropped = losses.reduce((sum, [, , , samples]) => sum + samples, 0);
  const all = `${formatCount(lines)} lines`;
  const rows = formatCount(count);
  return (count === lines ? all : filtered ? `${rows} of ${all}` : `${all} in ${rows} rows`)
    + (dropped ? `, ${formatCount(dropped)} samples dropped` : "");
}
