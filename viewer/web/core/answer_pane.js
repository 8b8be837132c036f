// @ts-check
// A pane that shows the answer to its newest request: those that a newer one has overtaken are not shown.

import { part } from "../widgets/elements.js";
import { isAbort } from "./failure.js";

export class AnswerPane {
  /**
   * @param {HTMLElement} element
   * @param {PageParts} page
   * @param {string} html its contents, among them #what, which says how requests go
   */
  constructor(element, page, html) {
    element.innerHTML = html;
    this.element = element;
    this.page = page;
    this.what = part(element, "what", HTMLOutputElement);
    this.disposed = false;
    this.requests = 0;
    /** @type {(() => void)[]} called when it is disposed of */
    this.ends = [];
  }

  dispose() {
    this.disposed = true;
    this.ends.forEach((end) => end());
  }

  // Requests what it shows, and shows it.
  async load() {}

  /**
   * What `ask` answers; null when a newer request was made meanwhile, when the pane is gone, or when it
   * failed, which is shown. What was given up for a newer revision of a recording is requested in that.
   * @template T
   * @param {() => Promise<T>} ask
   * @param {string} [meanwhile]
   * @returns {Promise<T | null>}
   */
  async newestAnswer(ask, meanwhile = "loading …") {
    const request = ++this.requests;
    const overtaken = () => this.disposed || request !== this.requests;
    this.what.textContent = meanwhile;
    try {
      const answer = await ask();
      return overtaken() ? null : answer;
    } catch (error) {
      if (overtaken()) return null;
      this.what.textContent = "";
      if (isAbort(error)) this.load(); else this.page.context.fail(error);
      return null;
    }
  }
}
