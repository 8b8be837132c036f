// @ts-check
// Labels of trace lines, by their places in the chosen order.

import { textElement } from "../widgets/elements.js";

/**
 * @typedef {{ label: string, group: string, measurement: number }} LineLabel measurement: whose recording the line is of
 * @typedef {import("../core/api_types.js").Window} Window
 */

const MOST_LINES = 2000; // of more lines than these only a few labels are requested
const ROW_HEIGHT = 15; // px

/**
 * The labels of a window's lines; of those of thousands of lines, four.
 * @param {import("../core/api.js").Api} api
 * @param {string} db
 * @param {Window} window
 * @param {Uint32Array} places of the rows
 * @returns {Promise<Map<number, LineLabel>>} by place
 */
export async function loadLineLabels(api, db, window, places) {
  const { l0, l1 } = window;
  const quarters = new Set([0, 0.25, 0.5, 0.75].map((share) => places[Math.floor(share * places.length)]));
  const spans = l1 - l0 <= MOST_LINES ? [{ from: l0, count: l1 - l0 }] : [...quarters].map((from) => ({ from, count: 1 }));
  const answers = await Promise.all(spans.map(({ from, count }) => api.lines(db, window, from, count)));
  return new Map(answers.flatMap(({ labels, groups, measurements }, i) => labels.map(
    (label, k) => /** @type {[number, LineLabel]} */ ([spans[i].from + k, { label, group: groups[k], measurement: measurements[k] }]))));
}

/**
 * Labels beside the rows of a picture, as many as have room; the first line of each group has the group's too.
 * @param {HTMLElement} element
 * @param {Uint32Array} places of the rows
 * @param {Map<number, LineLabel>} labels
 * @param {number} height of the picture, px
 */
export function drawLineLabels(element, places, labels, height) {
  const rowHeight = height / places.length;
  const every = Math.max(1, Math.ceil(ROW_HEIGHT / rowHeight));
  const items = [];
  let last = "";
  for (let row = 0; row < places.length; row += every) {
    const line = labels.get(places[row]);
    if (!line) continue;
    const { label, group } = line;
    const heads = Boolean(group) && group !== last;
    const item = textElement("span", heads && group !== label ? `${group}: ${label}` : label, heads ? "heads" : "");
    item.title = item.textContent ?? "";
    item.style.top = `${row * rowHeight}px`;
    last = group;
    items.push(item);
  }
  element.replaceChildren(...items);
}
