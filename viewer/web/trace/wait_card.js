// @ts-check
// The card of the wait at the crosshair: who ended it, in which call path, and what it came down to.
// Each thread among these leads to where it did that, and back; an arrow over the rows leads to it, too.

import { cssOfPixel } from "../core/colour.js";
import { isAbort } from "../core/failure.js";
import { formatCount, formatPercent, formatTime } from "../core/format.js";
import { cssVariable } from "../widgets/canvas.js";
import { textElement } from "../widgets/elements.js";
import { drawArrow } from "./call_marks.js";
import { Overlay } from "./overlay.js";

export const WAIT_HTML = `
  <section class="wait" id="wait" aria-label="Wait" hidden><h2 id="wait-of"></h2><p id="wait-when" class="soft"></p>
    <button id="wait-back" hidden></button><button id="wait-partners" title="Lines that this one wakes or is woken by in the time in view (O)">Only lines that interact</button><h3>Ended by</h3><ol id="wait-ended"></ol><h3>Due to</h3><ol id="wait-roots"></ol></section>`;

const MOST = 6; // causes of a list

/**
 * An entry of a list of causes, with the colour and the whole names of its call path.
 * @param {PageContext} context
 * @param {"span" | "button"} kind
 * @param {string} text
 * @param {number} node -1: not known
 */
export function causeEntry({ tree, opened }, kind, text, node) {
  const entry = textElement(kind, text, "cause");
  if (node < 0) return entry;
  const chip = document.createElement("i");
  chip.style.background = cssOfPixel(opened.picture().colours[tree.procedure[node]]);
  entry.prepend(chip);
  entry.title = tree.path(node).map((one) => tree.names[tree.entity[one]]).join("\n");
  return entry;
}

/** @extends {Overlay<WaitAnswer>} with an answer about the crosshair, not about the time and lines in view */
export class WaitCard extends Overlay {
  /**
   * @param {HTMLElement} element
   * @param {PageParts} page
   * @param {() => void} redraw the picture
   * @param {() => number} columns of the trace view
   */
  constructor(element, page, redraw, columns) {
    super(element, page, redraw);
    const { store } = page;
    this.columns = columns;
    this.requested = "";
    /** @type {WaitAnswer | null} */
    this.wait = null;
    /** @type {Map<string, { thread: string, patch: Partial<State> }>} where each place that was gone to was gone from */
    this.origins = new Map();
    this.at("wait-back").addEventListener("click", () => this.goBack());
    this.at("wait-partners").addEventListener("click", () => { if (this.wait) this.context.togglePartners(this.wait.row); });
    // Lines have other numbers in another revision.
    this.ends = [store.subscribe(["revision"], () => this.origins.clear()), store.subscribe(["partners"], () => this.show()), store.subscribe(["line", "time", "revision", "native"], () => this.load())];
  }

  /** @param {Pick<State, "line" | "time">} at */
  place({ line, time } = this.store.state) { return `${line}:${time}`; }

  async load() {
    const { store, api, context } = this;
    const { line, time, t0, t1, revision, native } = store.state;
    const key = JSON.stringify([store.db, revision, native, line, time]);
    if (key === this.requested) return;
    this.requested = key;
    let wait = null;
    if (context.database && context.summary.waits && line !== undefined && time !== undefined) {
      try { wait = await api.wait(store.db, store.state, line, time, (t1 - t0) / this.columns()); } catch (error) {
        if (!isAbort(error)) context.fail(error);
      }
    }
    if (key !== this.requested) return;
    this.wait = wait;
    this.show();
    this.redraw();
  }

  show() {
    const { wait } = this;
    const origin = this.origins.get(this.place());
    this.at("wait").hidden = !wait && !origin;
    this.at("wait-back").hidden = !origin;
    this.at("wait-back").textContent = origin ? `Back to ${origin.thread}` : "";
    for (const list of this.element.querySelectorAll("#wait h2, #wait h3, #wait ol, #wait p")) if (list instanceof HTMLElement) list.hidden = !wait;
    this.at("wait-partners").hidden = !wait;
    if (!wait) return;
    this.at("wait-partners").textContent = this.context.partnersOf === wait.row ? "All lines again" : "Only lines that interact";
    const length = wait.end - wait.begin;
    this.at("wait-of").textContent = `${wait.thread} waits ${formatTime(length)}`;
    this.at("wait-when").textContent = [`from ${formatTime(wait.begin, this.context.summary.duration_ns)} on`, ...(wait.node < 0 ? [] : [`in ${this.context.tree.innermost(wait.node)}`]),
      ...(wait.in_vain ? [`woken in vain, waits on until ${formatTime(wait.until, this.context.summary.duration_ns)}`] : [])].join(", ");
    this.list("wait-ended", wait.ended_by, wait.ended_by_of, length, ({ end }) => end);
    this.list("wait-roots", wait.roots, wait.roots_of, length, ({ begin, end }) => Math.floor((begin + end) / 2));
  }

  /**
   * @param {string} id
   * @param {WaitCause[]} causes
   * @param {number} of
   * @param {number} length of the wait, ns
   * @param {(cause: WaitCause) => number} moment that a cause leads to
   */
  list(id, causes, of, length, moment) {
    const { tree } = this.context;
    const items = causes.slice(0, MOST).map((cause) => {
      const item = document.createElement("li");
      const text = cause.node < 0 ? cause.text : `${cause.text}: ${tree.innermost(cause.node)}`;
      const entry = causeEntry(this.context, cause.line < 0 ? "span" : "button", text, cause.node);
      if (cause.line >= 0) entry.addEventListener("click", () => this.follow(cause, moment(cause)));
      item.append(entry, textElement("small", `${formatTime(cause.seconds * 1e9)} ${formatPercent((cause.seconds * 1e9) / length)}`));
      return item;
    });
    if (of > items.length) items.push(textElement("li", `${formatCount(of - items.length)} more`));
    this.at(id).replaceChildren(...items);
  }

  /**
   * Puts the crosshair where a cause is.
   * @param {WaitCause} cause
   * @param {number} time
   */
  follow(cause, time) {
    const { store, context, wait } = this;
    if (!wait) return;
    const { line: from, time: since, t0, t1, l0, l1, pinned } = store.state;
    this.origins.set(this.place({ line: cause.row, time }), { thread: wait.thread, patch: { line: from, time: since, t0, t1, l0, l1, pinned } });
    store.set(context.crosshairAt(cause, time));
  }

  goBack() {
    const origin = this.origins.get(this.place());
    if (origin) this.store.set(origin.patch);
  }

  /**
   * A frame around the wait, and an arrow from who ended it.
   * @param {CanvasRenderingContext2D} pen
   * @param {Places} places
   */
  draw(pen, places) {
    const { wait } = this;
    const row = wait && places.row(wait.row);
    if (!wait || !row) return;
    const ratio = devicePixelRatio || 1;
    const [left, right] = [places.x(wait.begin), places.x(wait.end)];
    pen.strokeStyle = cssVariable("--cross");
    pen.lineWidth = 2 * ratio;
    pen.strokeRect(left, row.top + ratio, Math.max(ratio, right - left), row.bottom - row.top - 2 * ratio);
    const last = wait.ended_by.find(({ line, end }) => line >= 0 && line !== wait.line && end === wait.end);
    const waker = last && places.row(last.row);
    if (last && waker) drawArrow(pen, { x: right, y: waker.middle }, { x: right, y: row.middle }, "--cross", ratio);
  }
}
