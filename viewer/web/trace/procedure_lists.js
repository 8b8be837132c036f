// @ts-check
// The call path beside the trace view, and an entry of lists of procedures.

import { bareName } from "../core/cct.js";
import { cssOfPixel } from "../core/colour.js";
import { colouredName, textElement } from "../widgets/elements.js";

/**
 * @param {HTMLElement} list
 * @param {Shared} shared
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
      const { colours, shown } = context.opened.picture();
      const depth = store.state.depth ?? 0;
      const { procedure } = context.tree;
      const current = depth ? context.tree.depth[node] === depth : procedure[node] === shown[path.at(-1) ?? 0];
      const item = procedureItem(context, store, context.tree.entity[node], "");
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
    return node === undefined ? undefined : bareName(context.tree.names[context.opened.picture().shown[node]]);
  }

  return { show, procedureAtDepth };
}

/**
 * @param {PageContext} context
 * @param {Store} store
 * @param {number} procedure or inlined call of one
 * @param {string} note
 */
export function procedureItem(context, store, procedure, note) {
  const { names, short } = context.tree;
  const item = document.createElement("li");
  const button = document.createElement("button");
  button.append(...colouredName(cssOfPixel(context.opened.picture().colours[procedure]), short[procedure]).childNodes);
  button.addEventListener("click", () => store.set({ search: bareName(names[procedure]) }));
  item.title = names[procedure];
  item.append(button);
  if (note) item.append(textElement("small", note));
  return item;
}
