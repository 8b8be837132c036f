// @ts-check
// A line on top of each pane: what it shows, and what stands out in the recording.

import { textElement } from "../widgets/elements.js";
import { describeDepth } from "./depth_choice.js";
import { PANES } from "./panes.js";

/**
 * @typedef {import("./api_types.js").Finding} Finding
 * @typedef {import("./api_types.js").FindingsAnswer} FindingsAnswer
 */

/**
 * @param {HTMLElement} element
 * @param {import("./pane_types.js").PageParts} page
 * @param {{ content: () => import("./api_types.js").DepthContent | undefined }} depths
 */
export function mountFindings(element, { store, context }, depths) {
  /** @type {FindingsAnswer} */
  let answer = { scene: "", findings: [] };

  function show() {
    const entry = PANES.find(({ name }) => name === store.state.pane) ?? PANES[0];
    const kinds = entry.tells ?? [];
    const told = answer.findings.filter(({ kind }) => kinds === "all" || kinds.includes(kind));
    const empty = context.database !== null && !context.summary.lines;
    const shows = empty ? "There is nothing to show." : entry.shows ?? (context.database ? traceSentence() : "");
    const { seen } = context.database ? context.summary : { seen: "" };
    const line = document.createElement("span");
    line.append(...(seen ? [textElement("span", `Part of a run: ${seen}.`)] : []), ...told.map(asItem));
    element.replaceChildren(textElement("span", shows), ...(line.childNodes.length ? [line] : []));
    element.title = [shows, ...(seen ? [seen] : []), ...told.map(({ text }) => text)].join("\n");
    element.hidden = !context.database;
  }

  function traceSentence() {
    const content = depths.content();
    const { depth = 0 } = store.state;
    const { rule } = context.summary;
    return `${answer.scene} Colour is ${depth ? `the procedure at depth ${depth}${content ? `: ${describeDepth(content)}` : ""}` : rule}.`;
  }

  /** @param {Finding} finding */
  function asItem({ text, procedure, line }) {
    if (!procedure && line === null) return textElement("span", text, "finding");
    const button = textElement("button", text, "finding");
    button.title = `${text} ${procedure ? "Click: find it." : "Click: show it."}`;
    button.addEventListener("click", () => {
      if (procedure) { store.set({ search: store.state.search === procedure ? "" : procedure }); return; }
      const { t0, t1, time } = store.state;
      store.set({ line: line ?? undefined, time: time ?? Math.round((t0 + t1) / 2), pane: "trace" });
    });
    return button;
  }

  store.subscribe(["pane", "depth"], show);
  return {
    /** @param {FindingsAnswer} next */
    renew(next) {
      answer = next;
      show();
    },
  };
}
