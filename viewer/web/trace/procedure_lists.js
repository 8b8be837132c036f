// @ts-check
// The lists beside the trace view: procedures in view by share, and the call path at the crosshair.

import { bareName } from "../core/cct.js";
import { cssOfPixel } from "../core/colour.js";
import { formatPercent } from "../core/format.js";
import { SAMPLED } from "../profile/selected_profile.js";
import { colouredName, textElement } from "../widgets/elements.js";
import { largestShares } from "./shares.js";

const LONGEST = 30; // entries of the list of procedures
const PAUSE_MS = 400; // time without a change of the view before exact times are requested

/**
 * @param {HTMLElement} list
 * @param {HTMLElement} note says what the shares are of
 * @param {import("./trace.js").Shared} shared
 * @param {(key: string) => void} exactShown called when exact shares of the window that key identifies are shown
 */
export function procedureShares(list, note, { store, api, context, counts }, exactShown) {
  let timer = 0;
  let disposed = false;

  // Shares of pixels at once; exact ones instead as soon as the server has computed them.
  function show() {
    const pixels = counts();
    if (!pixels) return;
    const { shown } = context.picture();
    const sums = pixels.add(new Float64Array(context.tree.names.length), (node) => shown[node]);
    const total = sums.reduce((sum, count) => sum + count, 0);
    const exact = exactTimes(shown);
    list.replaceChildren(...largestShares(sums, exact, LONGEST).map((share) => shareItem(share, total)));
    note.textContent = (exact ? "exact share of time" : "share of pixels") + (pixels.left ? ", without helpers" : "");
    note.title = pixels.left ? "Launchers and threads that hardly ran are left out, folded or not" : "";
    if (!total) list.replaceChildren(textElement("li", "No samples here. Press Home to show everything."));
  }

  /**
   * @param {import("./shares.js").Share} share
   * @param {number} pixels in view
   */
  function shareItem({ procedure, ofPixels, exact }, pixels) {
    const error = 2 * Math.sqrt((ofPixels * (1 - ofPixels)) / pixels);
    const item = procedureItem(context, store, procedure, exact === null ? `${formatPercent(ofPixels)} ± ${formatPercent(error)}` : formatPercent(exact));
    item.title = `${formatPercent(ofPixels)} of the pixels in view, ± ${formatPercent(error)} (twice the standard error)`
      + (exact === null ? "" : `\n${formatPercent(exact)} of the time of all lines in view, exactly`);
    return item;
  }

  /**
   * Exact times by procedure; null where they are not known of this window.
   * @param {Uint32Array} shown
   */
  function exactTimes(shown) {
    if (context.exact?.key !== store.key()) return null;
    const times = new Float64Array(context.tree.names.length);
    context.exact.values.forEach((time, node) => { times[shown[node]] += time; });
    return times.some(Boolean) ? times : null;
  }

  function loadExact() {
    clearTimeout(timer);
    timer = window.setTimeout(async () => {
      const key = store.key();
      try {
        const { kind, values } = await api.profile(store.db, store.state, true);
        if (disposed || key !== store.key() || kind === SAMPLED) return;
        context.exact = { key, values: values[0] };
        show();
        exactShown(key);
      } catch (error) { context.fail(error); }
    }, PAUSE_MS);
  }

  return { show, loadExact, dispose() { disposed = true; clearTimeout(timer); } };
}

/**
 * @param {HTMLElement} list
 * @param {import("./trace.js").Shared} shared
 */
export function callPathList(list, { store, context }) {
  /** @type {number[]} */
  let path = [];

  /** @param {number[] | null} nodes outermost first; null: no line and moment is chosen */
  function show(nodes) {
    path = nodes ?? [];
    // Seen while the list is empty.
    list.dataset.hint = nodes ? "The thread did not exist at that moment, or was not watched." : "Click into the picture to see the call path there.";
    list.replaceChildren(...path.map((node) => {
      const { colours, shown } = context.picture();
      const depth = store.state.depth ?? 0;
      const { procedure } = context.tree;
      const current = depth ? context.tree.depth[node] === depth : procedure[node] === shown[path.at(-1) ?? 0];
      const item = procedureItem(context, store, procedure[node], "", context.tree.nameOf(node));
      item.querySelector("i")?.style.setProperty("background", cssOfPixel(colours[procedure[node]]));
      item.classList.toggle("current", current);
      // Goes to the depth instead of searching.
      item.querySelector("button")?.addEventListener("click", (event) => {
        event.stopImmediatePropagation();
        store.set({ depth: context.tree.depth[node] });
      }, true);
      return item;
    }));
  }

  // Name of the procedure that is shown of the path.
  function procedureAtDepth() {
    const node = path.at(-1);
    return node === undefined ? undefined : bareName(context.tree.names[context.picture().shown[node]]);
  }

  return { show, procedureAtDepth };
}

/**
 * @param {import("../core/context.js").PageContext} context
 * @param {import("../core/store.js").Store} store
 * @param {number} procedure
 * @param {string} note
 * @param {string} [name] other than the procedure's
 */
function procedureItem(context, store, procedure, note, name = context.tree.names[procedure]) {
  const item = document.createElement("li");
  const button = document.createElement("button");
  button.append(...colouredName(cssOfPixel(context.picture().colours[procedure]), name).childNodes);
  button.addEventListener("click", () => store.set({ search: bareName(name) }));
  item.append(button);
  if (note) item.append(textElement("small", note));
  return item;
}
