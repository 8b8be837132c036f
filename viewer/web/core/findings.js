// @ts-check
// On top of each pane: what it shows, and what stands out in the recording, the costliest first. Each finding
// is a link to where it is to be seen.

import { textElement } from "../widgets/elements.js";
import { PANES } from "./panes.js";

const MOST = 3; // are seen at once: as many have room before they are known
/** @type {Record<string, string>} panes that show findings which have no place in the trace */
const ELSEWHERE = { messages: "messages", io: "recorded", memory: "recorded" };

/**
 * @param {HTMLElement} element
 * @param {PageParts} page
 */
export function mountFindings(element, { store, context }) {
  /** @type {FindingsAnswer} */
  let answer = { scene: "", findings: [], costliest: null };
  let all = false;

  function show() {
    const entry = PANES.find(({ name }) => name === store.state.pane) ?? PANES[0];
    const kinds = entry.tells ?? [];
    const told = answer.findings.filter(({ kind }) => kinds === "all" || kinds.includes(kind));
    const empty = context.database !== null && !context.summary.lines;
    const shows = empty ? "There is nothing to show." : entry.shows ?? answer.scene;
    const { seen } = context.database ? context.summary : { seen: "" };
    const list = document.createElement("ol");
    list.append(...told.slice(0, all ? told.length : MOST).map(asItem));
    if (told.length > MOST) list.lastElementChild?.append(moreButton(told.length - MOST));
    element.replaceChildren(textElement("p", [shows, ...(seen ? [`Part of a run: ${seen}.`] : [])].join(" ")), ...(told.length ? [list] : []));
    element.hidden = !context.database;
  }

  /** @param {number} count */
  function moreButton(count) {
    const button = textElement("button", all ? "fewer" : `${count} more`, "more-findings");
    button.setAttribute("aria-expanded", String(all));
    button.addEventListener("click", () => { all = !all; show(); });
    return button;
  }

  /** @param {Finding} finding */
  function asItem(finding) {
    const item = document.createElement("li");
    const { kind, text, procedure, at } = finding;
    const leads = at !== null || procedure || ELSEWHERE[kind];
    const sentence = textElement(leads ? "button" : "span", text.replaceAll(" %", "\u00a0%"), "finding");
    if (leads) sentence.addEventListener("click", () => go(finding));
    item.append(sentence);
    return item;
  }

  // In other panes than the trace its procedure is found there.
  function go(/** @type {Finding} */ { kind, procedure, line, at }) {
    const { pane, search } = store.state;
    if (pane !== "trace" && procedure) { store.set({ search: search === procedure ? "" : procedure }); return; }
    if (!at) { store.set(ELSEWHERE[kind] ? { pane: ELSEWHERE[kind] } : { search: procedure, line: line ?? undefined }); return; }
    // Its row may be out of view.
    store.set({ pane: "trace", search: procedure, ...context.placeOf(at), t0: at.t0, t1: at.t1, l0: 0, l1: context.count() });
    if (store.state.filter || store.state.partners) context.showAllLines();
  }

  store.subscribe(["pane"], show);
  return {
    /** @param {FindingsAnswer} next */
    renew(next) {
      answer = next;
      show();
    },
  };
}
