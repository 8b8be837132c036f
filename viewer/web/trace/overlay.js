// @ts-check
// A view drawn over the rows, of an answer that is requested after the picture, which does not wait for it.

import { isAbort } from "../core/failure.js";
import { part } from "../widgets/elements.js";

/** @template Answer */
export class Overlay {
  /**
   * @param {HTMLElement} element
   * @param {PageParts} page
   * @param {() => void} redraw the picture
   */
  constructor(element, { store, api, context }, redraw) {
    this.element = element;
    this.store = store;
    this.api = api;
    this.context = context;
    this.redraw = redraw;
    /** @type {{ key: string, answer: Answer } | null} */
    this.loaded = null;
    /** @type {(() => void)[]} called when it is disposed of */
    this.ends = [];
  }

  dispose() { this.ends.forEach((end) => end()); }

  at(/** @type {string} */ id) { return part(this.element, id, HTMLElement); }

  // The loaded answer, if it is about the time and lines in view.
  get inView() { return this.loaded?.key === this.store.key() ? this.loaded.answer : null; }

  /**
   * Loads the answer, unless it is there, and draws it; false: it failed, or other time or lines are in view by now.
   * @param {() => Promise<Answer>} ask
   */
  async request(ask) {
    if (this.inView) return true;
    const key = this.store.key();
    let answer;
    try { answer = await ask(); } catch (error) {
      if (!isAbort(error)) this.context.fail(error);
      return false;
    }
    if (key !== this.store.key()) return false;
    this.loaded = { key, answer };
    this.redraw();
    return true;
  }
}
