// @ts-check
// One box that finds: procedures whose names contain a text, on the lines that a pattern leaves. It says how
// many stretches of the lines' time are in them, and goes from one to the next.

import { isAbort, messageOf } from "./failure.js";
import { formatCount, formatTime } from "./format.js";
import { CHOICE } from "./store.js";
import { select } from "../widgets/elements.js";

/**
 * A stretch of a line in a procedure that is searched for. place: of its row; null: it is folded into one.
 * @typedef {{ line: number, place: number | null, begin: number, end: number }} Match
 *
 * @typedef {object} Page what the box acts on
 * @property {(filter: string) => void} filter leaves the lines that fit
 * @property {() => void} unfold gives lines that are folded rows of their own
 * @property {() => Pane | null} pane
 */

const TYPING_MS = 250; // after the last letter it is searched
const LINES = /(?:^|\s)(line|label|process|thread|job|host):(?!:)/;

/**
 * The text of procedures and the pattern of lines that a text in the box says: names first, then from
 * "line:", "process:", "thread:", "job:" or "host:" on what lines must match.
 * @param {string} text
 */
export function parseFind(text) {
  const lines = LINES.exec(text);
  if (!lines) return { search: text.trim(), filter: "" };
  const pattern = text.slice(lines.index).trimStart();
  return { search: text.slice(0, lines.index).trim(), filter: pattern.startsWith("line:") ? pattern.slice("line:".length).trim() : pattern };
}

/**
 * The text that parseFind reads so.
 * @param {{ search?: string, filter?: string }} state
 */
export function findText({ search = "", filter = "" }) {
  const lines = !filter ? "" : LINES.test(filter) ? filter : `line:${filter}`;
  return [search, lines].filter(Boolean).join(" ");
}

export class FindBox {
  /**
   * @param {HTMLElement} element
   * @param {PageParts} parts
   * @param {Page} page
   */
  constructor(element, { store, api, context }, page) {
    this.store = store;
    this.api = api;
    this.context = context;
    this.page = page;
    this.input = select(element, "input", HTMLInputElement);
    this.output = select(element, "output", HTMLOutputElement);
    /** @type {Match[]} in order of time */
    this.matches = [];
    this.count = 0;
    this.current = -1;
    /** @type {Match | null} to go to once its line has a row */
    this.wanted = null;
    this.requests = 0;
    this.timer = 0;
    this.listen(element);
    store.subscribe(["search", "filter"], () => this.show());
    store.subscribe(["db", "revision", "search", "pane", ...CHOICE], () => this.load());
  }

  /** @param {HTMLElement} element */
  listen(element) {
    const { input, store } = this;
    input.addEventListener("input", () => {
      const { search, filter } = parseFind(input.value);
      store.set({ search }, "find");
      clearTimeout(this.timer);
      this.timer = window.setTimeout(() => { if (filter !== (store.state.filter ?? "")) this.page.filter(filter); }, TYPING_MS);
    });
    input.addEventListener("keydown", (event) => {
      if (event.key !== "Enter") return;
      event.preventDefault();
      this.go(event.shiftKey ? -1 : 1);
    });
    element.querySelectorAll("button").forEach((button) => button.addEventListener("click", () => this.go(button.dataset.step === "-1" ? -1 : 1)));
  }

  focus() {
    this.input.focus();
    this.input.select();
  }

  show() { if (document.activeElement !== this.input) this.input.value = findText(this.store.state); }

  /** @param {string} text */
  say(text, wrong = false) {
    this.output.textContent = text;
    this.output.classList.toggle("wrong", wrong);
    this.output.dataset.matches = String(this.count);
  }

  async load() {
    const request = ++this.requests;
    const { search = "", pane } = this.store.state;
    this.matches = [];
    this.count = 0;
    this.current = -1;
    if (!search || !this.context.database) { this.say(""); this.page.pane()?.matched?.(); return; }
    if (pane !== "trace") { this.sayProcedures(); return; }
    this.say("…");
    await new Promise((resolve) => setTimeout(resolve, TYPING_MS));
    if (request !== this.requests) return;
    try {
      const answer = await this.api.find(this.store.db, this.store.state, search);
      if (request !== this.requests) return;
      this.count = answer.count;
      this.matches = answer.line.map((line, i) => ({
        line, place: answer.place[i] < 0 ? null : answer.place[i], begin: answer.begin[i], end: answer.end[i],
      }));
      const { wanted } = this;
      this.wanted = null;
      this.sayWhere();
      this.page.pane()?.matched?.();
      const again = wanted ? this.matches.findIndex(({ line, begin }) => line === wanted.line && begin === wanted.begin) : -1;
      if (again >= 0) this.goTo(again);
    } catch (error) {
      if (request === this.requests && !isAbort(error)) this.say(messageOf(error), true);
    }
  }

  // Where no line is drawn: how many procedures there are.
  sayProcedures() {
    const hits = this.context.opened.searchHits();
    const { names } = this.context.tree;
    // Those of one name are one.
    this.count = hits ? new Set(names.filter((_, i) => i && hits[i])).size : 0; // the root is no procedure
    this.say(this.count ? `${formatCount(this.count)} procedure${this.count === 1 ? "" : "s"}` : "no match", !this.count);
  }

  sayWhere() {
    const { count, current } = this;
    if (!count) { this.say("no match", true); return; }
    this.say(current < 0 ? `${formatCount(count)} match${count === 1 ? "" : "es"}` : `${formatCount(current + 1)} of ${formatCount(count)}`);
    const match = this.matches[current];
    this.output.title = match ? `${formatTime(match.end - match.begin)} from ${formatTime(match.begin, this.context.summary.duration_ns)} on` : "Stretches of the lines' time in procedures of this name";
  }

  /** @param {number} step 1: the next, -1: the one before */
  go(step) {
    const { matches, current } = this;
    const pane = this.page.pane();
    if (pane?.goToMatch) {
      const reached = pane.goToMatch(step);
      this.say(reached ? `${formatCount(reached.at)} of ${formatCount(reached.count)}` : "no match", !reached);
      return;
    }
    if (!matches.length) return;
    if (current >= 0) { this.goTo((current + step + matches.length) % matches.length); return; }
    // From the crosshair on, or from the begin of what is in view.
    const { time, t0 } = this.store.state;
    const from = time ?? t0;
    const next = matches.findIndex(({ begin }) => begin >= from);
    const first = next < 0 ? 0 : next;
    this.goTo(step > 0 ? first : (first - 1 + matches.length) % matches.length);
  }

  /** @param {number} number among the matches */
  goTo(number) {
    const match = this.matches[number];
    if (match.place === null) {
      this.wanted = match;
      this.page.unfold();
      return;
    }
    this.current = number;
    this.store.set({ line: match.line, time: Math.round((match.begin + match.end) / 2), ...this.context.windowWith((match.begin + match.end) / 2, match.place) }, "match");
    this.sayWhere();
    this.page.pane()?.matched?.();
  }
}
