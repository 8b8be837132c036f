// An entry of the list of the program's own contexts: where it is, a note, and what became of it.

import { ending } from "./format.js";

// words: [class, text] each.
export function entry(path, note, words, act) {
  const item = document.createElement("li");
  const button = Object.assign(document.createElement("button"), { className: "ending", title: path });
  button.append(ending(path));
  button.addEventListener("click", act);
  item.append(button, Object.assign(document.createElement("small"), { textContent: note }),
    ...words.map(([name, text]) => Object.assign(document.createElement("span"), { className: `pill ${name}`, textContent: text })));
  return item;
}
