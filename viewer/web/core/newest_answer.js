// @ts-check
// What a pane requested last: answers that a newer request has overtaken are not shown.

import { isAbort } from "./failure.js";

/**
 * A pane that shows the answer to its newest request. what: says how that goes.
 * @typedef {{ requests: number, disposed: boolean, what: HTMLElement, page: import("./pane_types.js").PageParts, load(): Promise<void> }} AskingPane
 */

/**
 * What `ask` answers; null when a newer request was made meanwhile, when the pane is gone, or when it
 * failed, which is shown. What was given up for a newer revision of a recording is requested in that.
 * @template T
 * @param {AskingPane} pane
 * @param {() => Promise<T>} ask
 * @param {string} [meanwhile]
 * @returns {Promise<T | null>}
 */
export async function newestAnswer(pane, ask, meanwhile = "loading …") {
  const request = ++pane.requests;
  const overtaken = () => pane.disposed || request !== pane.requests;
  pane.what.textContent = meanwhile;
  try {
    const answer = await ask();
    return overtaken() ? null : answer;
  } catch (error) {
    if (overtaken()) return null;
    pane.what.textContent = "";
    if (isAbort(error)) pane.load(); else pane.page.context.fail(error);
    return null;
  }
}
