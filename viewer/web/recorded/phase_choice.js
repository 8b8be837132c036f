// @ts-check
// Which phases costs and calls are of: a field beside the choice of lines, where calls were recorded that can
// mark any.

import { messageOf } from "../core/failure.js";
import { part } from "../widgets/elements.js";

const HTML = `
    <label>in phase <input id="phase" type="search" list="phases" placeholder="any: solve(n=3)" autocomplete="off" spellcheck="false"
      title="Costs, source lines and calls within these phases alone, and bands over the lines: FUNCTION, FUNCTION(VALUE), FUNCTION(VALUE=PATTERN) or BEGIN..END of recorded calls; with @process of all threads of a process"></label>
    <datalist id="phases"></datalist>`;
const FIRST = "probe"; // what was probed is offered before system calls

/**
 * @param {HTMLElement} element
 * @param {PageParts} page
 * @param {(text: string) => void} fail says what is wrong with what was entered
 */
export function mountPhaseChoice(element, { store, api, context }, fail) {
  element.innerHTML = HTML;
  const input = part(element, "phase", HTMLInputElement);
  const offered = part(element, "phases", HTMLDataListElement);
  let requests = 0;

  function show() {
    const groups = Object.entries(context.summary.recorded).sort(([one], [two]) => Number(two === FIRST) - Number(one === FIRST));
    const names = groups.flatMap(([, functions]) => functions.filter((name) => !name.includes("/")));
    element.hidden = !names.length;
    offered.replaceChildren(...names.map((name) => new Option(name, name)));
    if (document.activeElement !== input) input.value = store.state.phase ?? "";
  }

  async function change() {
    const phase = input.value.trim();
    const request = ++requests;
    try {
      // What no call marks is said here, once, and nothing changes.
      if (phase) await api.phases(store.db, store.state, phase);
      if (request === requests) store.set({ phase });
    } catch (error) {
      if (request === requests) fail(messageOf(error));
    }
  }

  input.addEventListener("change", change);
  return { show };
}
