// @ts-check
// Elements of the page: found by id with the class they have, and made with a text.

/**
 * The element of an id inside another. A page that lacks it is broken: an error.
 * @template {Element} Kind
 * @param {ParentNode} inside
 * @param {string} id
 * @param {new () => Kind} kind
 */
export function part(inside, id, kind) { return select(inside, "#" + id, kind); }

/**
 * The first element that a selector fits.
 * @template {Element} Kind
 * @param {ParentNode} inside
 * @param {string} selector
 * @param {new () => Kind} kind
 * @returns {Kind}
 */
export function select(inside, selector, kind) {
  const element = inside.querySelector(selector);
  if (!(element instanceof kind)) throw new Error(`the page has no ${selector} of ${kind.name}`);
  return element;
}

/**
 * @template {keyof HTMLElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {string} textContent
 */
export function textElement(tag, textContent, className = "") {
  return Object.assign(document.createElement(tag), { textContent, className });
}

/**
 * An entry of a list of sentences that leads to what its sentence says.
 * @param {string} text
 * @param {() => void} go
 */
export function linkItem(text, go) {
  const item = document.createElement("li");
  const button = textElement("button", text, "finding");
  button.addEventListener("click", go);
  item.append(button);
  return item;
}

/**
 * The chip of a procedure's colour and its name.
 * @param {string} colour CSS
 * @param {string} name
 */
export function colouredName(colour, name) {
  const box = document.createElement("span");
  const chip = document.createElement("i");
  chip.style.background = colour;
  box.append(chip, name);
  return box;
}

/**
 * Puts a tip beside the mouse, inside its box.
 * @param {HTMLElement} tip
 * @param {HTMLElement} box what its position is relative to
 * @param {MouseEvent} event
 */
export function placeTip(tip, box, event) {
  const { left, top, width, height } = box.getBoundingClientRect();
  tip.style.left = `${Math.min(event.clientX - left + 12, width - tip.offsetWidth - 4)}px`;
  tip.style.top = `${Math.max(0, Math.min(event.clientY - top + 12, height - tip.offsetHeight - 4))}px`;
}
