// @ts-check
// The critical path of what is in view: a line along the rows it is on, which passes to another row where a thread
// woke the next; all else is dimmed. Beside the rows its shares, by what threads do on it and by call path.

import { formatCount, formatPercent, formatTime } from "../core/format.js";
import { cssVariable } from "../widgets/canvas.js";
import { textElement } from "../widgets/elements.js";
import { drawArrow } from "./call_marks.js";
import { Overlay } from "./overlay.js";
import { causeEntry } from "./wait_card.js";

/**
 * @typedef {object} DrawnStep in canvas pixels
 * @property {number} at number of the step
 * @property {number} left
 * @property {number} right
 * @property {import("./call_marks.js").Band} band its row
 * @property {number} y of the line
 */

export const CRITICAL_PATH_HTML = `
  <section class="critical wait" id="critical-path" aria-label="Critical path" hidden><h2>Critical path of what is in view</h2><p id="critical-of"></p>
    <div class="stack" id="critical-stack" role="img"></div><table id="critical-kinds" aria-label="Critical path by what threads do"></table>
    <h3>At the crosshair</h3><p id="critical-here"></p>
    <div class="acts"><button data-step="-1" title="The step before">‹ Step before</button><button data-step="1" title="The next step">Next step ›</button></div>
    <h3>By call path</h3><ol id="critical-parts"></ol></section>`;

const MOST = 8; // parts of the list
const ARROWS = 60; // changes of row: of more only faint lines are drawn, dark where they are close together
const FAINT = 0.3;
const DIMMED = 0.72; // opacity of all that is not on the path
const LINE = 4; // px
const ROOMY = 14; // px: in higher rows the line is below the text

/** @type {Record<string, string>} variables of the style sheet by kind */
const COLOURS = {
  thread: "--state-running", runnable: "--state-ready", timer: "--path-timer", interrupt: "--path-device", softirq: "--path-device", "not-seen": "--path-unseen",
};

/** @param {string} kind */
function colourOf(kind) { return COLOURS[kind] ?? "--path-other"; }

/** @extends {Overlay<CriticalPathAnswer>} */
export class CriticalPath extends Overlay {
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
    for (const button of element.querySelectorAll("#critical-path [data-step]")) {
      if (button instanceof HTMLElement) button.addEventListener("click", () => this.go(Number(button.dataset.step)));
    }
    this.ends = [
      store.subscribe(["critical"], () => { this.load(); this.redraw(); }),
      store.subscribe(["line", "time", "theme"], () => this.showHere()),
    ];
  }

  get shown() { return Boolean(this.store.state.critical) && this.context.summary.waits; }

  get answer() { return this.shown ? this.inView : null; }

  async load() {
    const { store, api } = this;
    if (!this.shown || await this.request(() => api.criticalPath(store.db, store.state, this.columns()))) this.show();
  }

  show() {
    const { answer } = this;
    this.at("critical-path").hidden = !answer;
    if (!answer) return;
    const { seconds, changes, threads, thread, kinds, words, sentence } = answer;
    const among = `${formatCount(threads)} thread${threads === 1 ? "" : "s"}`;
    this.at("critical-of").textContent = `${formatTime(seconds * 1e9)}, ${formatCount(changes)} change${changes === 1 ? "" : "s"} of thread among ${among}, ends on ${thread}${sentence && `. ${sentence}`}`;
    const rows = Object.entries(kinds).map(([kind, value]) => ({ kind, value, share: value / seconds, name: words[kind] })).sort((one, two) => two.value - one.value);
    const stack = this.at("critical-stack");
    stack.replaceChildren(...rows.map(({ kind, share, name }) => {
      const piece = document.createElement("i");
      Object.assign(piece.style, { background: `var(${colourOf(kind)})`, width: `${100 * share}%` });
      piece.title = `${name} ${formatPercent(share)}`;
      return piece;
    }));
    stack.setAttribute("aria-label", rows.map(({ name, share }) => `${name} ${formatPercent(share)}`).join(", "));
    this.at("critical-kinds").replaceChildren(...rows.map(({ kind, value, share, name }) => {
      const row = document.createElement("tr");
      const label = textElement("td", name);
      const chip = document.createElement("i");
      chip.style.background = `var(${colourOf(kind)})`;
      label.prepend(chip);
      row.append(label, textElement("td", formatTime(value * 1e9)), textElement("td", formatPercent(share)));
      return row;
    }));
    this.showParts(answer);
    this.showHere();
  }

  /** @param {CriticalPathAnswer} answer */
  showParts({ parts, parts_of: of, seconds }) {
    const items = parts.slice(0, MOST).map((one) => {
      const item = document.createElement("li");
      const more = one.threads > 1 ? ` and ${formatCount(one.threads - 1)} more` : "";
      const entry = causeEntry(this.context, "button", `${this.describePart(one)}, ${one.thread}${more}`, one.node);
      entry.addEventListener("click", () => this.store.set(this.context.crosshairAt(one, Math.floor((one.begin + one.end) / 2))));
      item.append(entry, textElement("small", `${formatTime(one.seconds * 1e9)} ${formatPercent(one.seconds / seconds)}`));
      return item;
    });
    if (of > items.length) items.push(textElement("li", `${formatCount(of - items.length)} more: hpcd critical-path`));
    this.at("critical-parts").replaceChildren(...items);
  }

  /** @param {CriticalPart} part */
  describePart({ kind, text, node }) {
    const path = node < 0 ? "" : this.context.tree.innermost(node);
    return kind === "thread" && path ? path : [text, path].filter(Boolean).join(": ");
  }

  // The step that the crosshair is on, or else was on last at its time.
  showHere() {
    const { answer } = this;
    if (!answer) return;
    const { time, line } = this.store.state;
    const { begin, end, row, part: of } = answer.steps;
    const step = time === undefined ? -1 : stepAt(answer, time);
    const one = step < 0 ? null : answer.parts[of[step]];
    const elsewhere = one && line !== row[step] ? `on another row: ` : "";
    this.at("critical-here").textContent = one ? `${elsewhere}${one.kind === "thread" ? "running " : ""}${this.describePart(one)}, ${formatTime(end[step] - begin[step])}` : "click on a row";
  }

  /**
   * Puts the crosshair on the step before or after the one at its time; if its row is another than that step's,
   * on that step itself.
   * @param {number} by -1 or 1
   */
  go(by) {
    const { answer } = this;
    if (!answer) return;
    const { begin, end, row, place } = answer.steps;
    const { time, line } = this.store.state;
    const now = time === undefined ? -1 : stepAt(answer, time);
    const next = now < 0 ? (by > 0 ? 0 : begin.length - 1) : line === row[now] ? Math.min(begin.length - 1, Math.max(0, now + by)) : now;
    this.store.set(this.context.crosshairAt({ row: row[next], place: place[next] }, Math.floor((begin[next] + end[next]) / 2)));
  }

  /**
   * Where the steps are in a picture, in order of time.
   * @param {CriticalPathAnswer} answer
   * @param {Places} places
   * @returns {DrawnStep[]}
   */
  drawnSteps({ steps: { begin, end, row, place } }, places) {
    const ratio = devicePixelRatio || 1;
    /** @type {DrawnStep[]} */
    const drawn = [];
    begin.forEach((from, at) => {
      const to = place[at];
      const band = places.row(row[at]) ?? (to === null ? null : places.near(to));
      if (!band) return;
      const y = band.bottom - band.top > ROOMY * ratio ? band.bottom - (LINE + 2) * ratio : band.middle;
      const left = places.x(from);
      drawn.push({ at, left, right: Math.max(left + 1, places.x(end[at])), band, y });
    });
    return drawn;
  }

  /**
   * @param {CanvasRenderingContext2D} pen
   * @param {Places} places
   */
  draw(pen, places) {
    const { answer } = this;
    if (!answer) return;
    const ratio = devicePixelRatio || 1;
    const drawn = this.drawnSteps(answer, places);
    const { width, height } = pen.canvas;
    // Even-odd: what is on the path is left out.
    pen.beginPath();
    pen.rect(0, 0, width, height);
    for (const { left, right, band } of united(drawn)) pen.rect(left, band.top, right - left, band.bottom - band.top);
    pen.globalAlpha = DIMMED;
    pen.fillStyle = cssVariable("--ground");
    pen.fill("evenodd");
    pen.globalAlpha = 1;
    const changes = drawn.slice(1).map((step, i) => ({ from: drawn[i], to: step })).filter(({ from, to }) => from.y !== to.y);
    const few = changes.length <= ARROWS;
    if (!few) {
      pen.globalAlpha = FAINT;
      pen.fillStyle = cssVariable("--text");
      for (const { from, to } of changes) pen.fillRect(to.left, Math.min(from.y, to.y), ratio, Math.abs(to.y - from.y));
      pen.globalAlpha = 1;
    }
    const colours = new Map(answer.parts.map(({ kind }) => [kind, cssVariable(colourOf(kind))]));
    for (const { at, left, right, y } of drawn) {
      pen.fillStyle = cssVariable("--ground");
      pen.fillRect(left, y - (LINE / 2 + 1) * ratio, right - left, (LINE + 2) * ratio);
      pen.fillStyle = colours.get(answer.parts[answer.steps.part[at]].kind) ?? "";
      pen.fillRect(left, y - (LINE / 2) * ratio, right - left, LINE * ratio);
    }
    if (few) for (const { from, to } of changes) drawArrow(pen, { x: to.left, y: from.y }, { x: to.left, y: to.y }, "--text", ratio);
  }

  /**
   * What of the path is under the mouse, a line.
   * @param {Position} spot in canvas pixels
   * @param {Places} places
   */
  describe(spot, places) {
    const { answer } = this;
    if (!answer) return [];
    const hit = this.drawnSteps(answer, places).find(({ left, right, band }) => spot.x >= left && spot.x < right && spot.y >= band.top && spot.y < band.bottom);
    if (!hit) return [];
    const { begin, end, part: of } = answer.steps;
    const { text, seconds } = answer.parts[of[hit.at]];
    return [`on the critical path: ${text}, ${formatTime(end[hit.at] - begin[hit.at])}; in this call path ${formatTime(seconds * 1e9)}, ${formatPercent(seconds / answer.seconds)}`];
  }
}

/**
 * Where any of some steps is drawn, without overlaps: short ones are drawn wider than they are.
 * @param {DrawnStep[]} drawn in order of time
 */
function united(drawn) {
  /** @type {Map<number, Pick<DrawnStep, "left" | "right" | "band">>} the last of each row, by its top */
  const last = new Map();
  const pieces = [];
  for (const { left, right, band } of drawn) {
    const before = last.get(band.top);
    if (before && left <= before.right) { before.right = Math.max(before.right, right); continue; }
    const piece = { left, right, band };
    last.set(band.top, piece);
    pieces.push(piece);
  }
  return pieces;
}

/**
 * The step at a time, or the last before it among those that are drawn; -1: there is none.
 * @param {CriticalPathAnswer} answer
 * @param {number} time
 */
function stepAt({ steps: { begin } }, time) {
  let [low, high] = [0, begin.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (begin[middle] <= time) low = middle + 1; else high = middle;
  }
  return low - 1;
}
