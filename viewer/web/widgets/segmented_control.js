// @ts-check
// A row of buttons of which one is pressed.

import { textElement } from "./elements.js";

/** @typedef {[value: string, text: string, title?: string, ...more: unknown[]]} Choice */

/**
 * Returns what presses the button of a value.
 * @param {HTMLElement} box
 * @param {string} label
 * @param {Choice[]} choices
 * @param {(value: string) => void} choose called by a click
 */
export function buttonGroup(box, label, choices, choose) {
  const group = textElement("div", "", "joined");
  group.setAttribute("role", "group");
  group.setAttribute("aria-label", label);
  const buttons = choices.map(([value, text, title]) => {
    const button = Object.assign(textElement("button", text), { title: title ?? text });
    button.addEventListener("click", () => choose(value));
    return button;
  });
  group.append(...buttons);
  box.append(group);
  return (/** @type {string} */ value) => {
    buttons.forEach((button, i) => button.setAttribute("aria-pressed", String(choices[i][0] === value)));
  };
}

/**
 * Buttons for a key of the store and its values. Returns what ends it.
 * @param {HTMLElement} box
 * @param {Store} store
 * @param {keyof State} key
 * @param {string} label
 * @param {Choice[]} choices the first is pressed where the store has none of them
 */
export function segmentedControl(box, store, key, label, choices) {
  const press = buttonGroup(box, label, choices, (value) => store.set({ [key]: value }));
  const update = () => press(chosen(choices, store.state[key]));
  update();
  return store.subscribe([key], update);
}

/**
 * The value among choices; the first where it is none of them.
 * @param {Choice[]} choices
 * @param {unknown} value
 */
export function chosen(choices, value) { return (choices.find(([choice]) => choice === value) ?? choices[0])[0]; }
