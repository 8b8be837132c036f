// @ts-check
// A line on top of each pane: what it shows, and what stands out in the recording.

import { textElement } from "../widgets/elements.js";
import { describeDepth } from "./depth_choice.js";

/**
 * @typedef {import("./api_types.js").Finding} Finding
 * @typedef {import("./api_types.js").FindingsAnswer} FindingsAnswer
 */

/** @type {Record<string, string>} */
const SHOWS = {
  flame: "Width is cost, outermost frames on top; a click shows a frame in full width.",
  calls: "Costs by calling context; a click on a heading sorts by it.",
  lines: "What the chosen context costs on each trace line.",
  stacks: "Where every thread stands at one moment, as one tree; a click on a moment of the trace view chooses another.",
  messages: "Who sent how much to whom, and who waited for whom; a click on a wait state puts the crosshair there.",
  recorded: "What recorded calls did: bytes, time and bandwidth by what they have in common, and the growth of memory.",
  source: "The code of the procedure chosen last, with what each line or instruction costs.",
  compare: "The same program, or parts of one run, side by side: what costs more, less, is new or gone.",
};
/** @type {Record<string, string[]>} kinds of findings that a pane shows something of, first those it shows best */
const TELLS = {
  trace: ["imbalance", "hot", "blocked", "communication", "runnable", "processes"],
  flame: ["hot", "communication", "processes", "blocked"],
  calls: ["hot", "communication", "processes", "blocked"],
  lines: ["imbalance", "hot"],
  stacks: [],
  messages: [],
  recorded: [],
  source: ["hot"],
  compare: [],
};
const MOST = 3;

/**
 * @param {HTMLElement} element
 * @param {import("./pane_types.js").PageParts} page
 * @param {{ content: () => import("./api_types.js").DepthContent | undefined }} depths
 */
export function mountFindings(element, { store, context }, depths) {
  /** @type {FindingsAnswer} */
  let answer = { scene: "", findings: [] };

  function show() {
    const { pane = "trace" } = store.state;
    const kinds = TELLS[pane] ?? TELLS.trace;
    const told = answer.findings.filter(({ kind }) => kinds.includes(kind))
      .sort((one, two) => kinds.indexOf(one.kind) - kinds.indexOf(two.kind)).slice(0, MOST);
    const empty = context.database !== null && !context.summary.lines;
    const shows = empty ? "There is nothing to show." : SHOWS[pane] ?? traceSentence();
    const line = document.createElement("span");
    line.append(...told.map(asItem));
    element.replaceChildren(textElement("span", shows), ...(told.length ? [line] : []));
    element.title = [shows, ...told.map(({ text }) => text)].join("\n");
    element.hidden = !context.database;
  }

  function traceSentence() {
    const content = depths.content();
    const { depth = 1 } = store.state;
    return `${answer.scene} Colour is the procedure at depth ${depth}${content ? `: ${describeDepth(content)}` : ""}.`;
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
