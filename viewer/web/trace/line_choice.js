// @ts-check
// Which lines are shown and in what order: one bar above all panes.

import { messageOf } from "../core/failure.js";
import { part } from "../widgets/elements.js";

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
  const output = part(element, "count", HTMLOutputElement);
  /** @type {Map<string, number>} how many lines a choice has */
  const counts = new Map();
  let requests = 0;
  for (const [value, title] of GROUPS) groupSelect.append(new Option(title, value));

  const key = (/** @type {LineChoice} */ { filter, sort, group }) => JSON.stringify([store.state.db, filter ?? "", sort ?? "", group ?? ""]);

  function show() {
    const { filter, sort, group } = store.state;
    const { metrics } = context.summary;
    sortSelect.replaceChildren(...[...SORTS, ...metrics.map(({ name }) => [name, name.replaceAll("_", " ")])].map(([value, title]) => new Option(title, value)));
    sortSelect.value = sort ?? "";
    groupSelect.value = group ?? "";
    if (document.activeElement !== filterInput) filterInput.value = filter ?? "";
    say(describeChoice(context.summary, context.count()));
  }

  /** @param {string} text */
  function say(text, wrong = false) {
    output.textContent = text;
    output.classList.toggle("wrong", wrong);
  }

  /**
   * Asks how many lines a choice has; it is shown when that is known.
   * @param {LineChoice} patch
   */
  async function change(patch) {
    const { filter, sort, group } = store.state;
    const next = { filter, sort, group, ...patch };
    const request = ++requests;
    try {
      const count = await ask(next);
      if (request !== requests) return;
      if (!count) { say("no line matches", true); return; }
      const window = count === context.count() ? {} : { l0: 0, l1: count };
      store.zoom({ ...store.window(), ...next, ...window });
    } catch (error) {
      if (request === requests) say(messageOf(error), true);
    }
  }

  /**
   * How many lines a choice has.
   * @param {LineChoice} choice
   */
  async function ask(choice) {
    const name = key(choice);
    const counted = counts.get(name);
    if (counted !== undefined) return counted;
    const { count } = await api.selection(store.db, choice);
    counts.set(name, count);
    return count;
  }

  /**
   * Of a newer revision of the database.
   * @param {number} count
   */
  function renew(count) {
    counts.clear();
    counts.set(key(store.state), count);
  }

  let typing = 0;
  filterInput.addEventListener("input", () => {
    clearTimeout(typing);
    typing = window.setTimeout(() => change({ filter: filterInput.value }), TYPING_MS);
  });
  sortSelect.addEventListener("change", () => change({ sort: sortSelect.value }));
  groupSelect.addEventListener("change", () => change({ group: groupSelect.value }));
  store.subscribe(["filter", "sort", "group", "db"], show);
  return { show, ask, renew, count: () => counts.get(key(store.state)) ?? context.summary.lines };
}

/**
 * How many lines are chosen, and whether samples were dropped.
 * @param {import("../core/api_types.js").Summary} summary
 * @param {number} count
 */
function describeChoice({ lines, losses }, count) {
  const dropped = losses.reduce((sum, [, , , samples]) => sum + samples, 0);
  return (count === lines ? "" : `${count.toLocaleString("en")} of `) + `${lines.toLocaleString("en")} lines`
    + (dropped ? `, ${dropped.toLocaleString("en")} samples dropped` : "");
}
