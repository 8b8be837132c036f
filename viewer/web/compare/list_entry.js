// @ts-check
// An entry of the list of the program's own contexts: where it is, a note, and what became of it.

import { endOfText } from "../core/format.js";

/**
 * @param {string} path in short names
 * @param {string} title
 * @param {string} note
 * @param {string[][]} pills [class, text] each
 * @param {() => void} act what a click does
 */
export function listEntry(path, title, note, pills, act) {
  const item = document.createElement("li");
  const button = Object.assign(document.createElement("button"), { className: "ending", title });
  button.append(endOfText(path));
  button.addEventListener("click", act);
  item.append(button, Object.assign(document.createElement("small"), { textContent: note }),
    ...pills.map(([name, text]) => Object.assign(document.createElement("span"), { className: `pill ${name}`, textContent: text })));
  return item;
}
