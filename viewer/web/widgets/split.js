// @ts-check
// Borders between panes that a person may move; where they are is remembered by the browser.

import { remember, remembered } from "../core/remembered.js";
import { dragging } from "./dragging.js";

const KEY = "hpcd.panes";

/**
 * @param {HTMLElement} box
 * @param {HTMLElement} bar the border
 * @param {object} size in px
 * @param {string} size.name the CSS variable it sets on box
 * @param {string} size.label
 * @param {boolean} size.across whether it moves sideways
 * @param {number} size.least
 * @param {number} size.most
 * @param {number} size.usual
 */
export function splitter(box, bar, { name, label, across, least, most, usual }) {
  /** @type {number} */
  let size = remembered(KEY)[name] ?? usual;
  bar.tabIndex = 0;
  for (const [key, value] of Object.entries({
    role: "separator", "aria-label": label, "aria-orientation": across ? "vertical" : "horizontal", "aria-valuemin": least, "aria-valuemax": most,
  })) bar.setAttribute(key, String(value));

  /**
   * @param {number} wanted
   * @param {boolean} [keep] remembers it
   */
  function put(wanted, keep = true) {
    size = Math.round(Math.min(Math.max(wanted, least), most));
    box.style.setProperty(name, `${size}px`);
    bar.setAttribute("aria-valuenow", String(size));
    if (keep) remember(KEY, { [name]: size });
  }

  dragging(bar, (event) => {
    const [from, before] = [across ? event.clientX : event.clientY, size];
    return (now) => put(before + from - (across ? now.clientX : now.clientY));
  });
  bar.addEventListener("keydown", (event) => {
    /** @type {Record<string, number>} */
    const steps = { ArrowUp: 10, ArrowLeft: 10, ArrowDown: -10, ArrowRight: -10 };
    const step = steps[event.key];
    if (!step) return;
    event.preventDefault();
    event.stopPropagation();
    put(size + step);
  });
  bar.addEventListener("dblclick", () => put(usual));
  put(size, false);
}
