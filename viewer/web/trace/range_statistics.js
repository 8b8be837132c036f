// @ts-check
// Statistics beside the picture, of what is selected or else of what is in view: what the threads do, in
// which procedures, their messages and waits; and what can be done with a selection.

import { ASLEEP, isOnCpu, RUNNABLE, RUNNING, WAITING } from "../core/cct.js";
import { formatBytes, formatCount, formatFixed, formatPercent, formatTime } from "../core/format.js";
import { SAMPLED } from "../profile/selected_profile.js";
import { part, textElement } from "../widgets/elements.js";
import { largestFirst } from "./pixel_counts.js";
import { procedureItem } from "./procedure_lists.js";
import { largestShares } from "./shares.js";

const LONGEST = 30; // entries of the list of procedures
const PAUSE_MS = 400; // time without a change of the view before exact times are requested
const MOST_WAITS = 3;
const STATES = 4; // and above them what is waited for
const ORDER = [RUNNING, RUNNABLE, WAITING, ASLEEP];
/** @type {Record<number, { name: string, colour: string, look: string }>} colour: a variable of the style sheet; look: in the picture */
const STATE_LOOKS = {
  [RUNNING]: { name: "running", colour: "--state-running", look: "solid" }, [RUNNABLE]: { name: "ready, no CPU", colour: "--state-ready", look: "pale" },
  [WAITING]: { name: "waiting", colour: "--state-awaiting", look: "tinted" }, [ASLEEP]: { name: "asleep", colour: "--state-asleep", look: "blank" },
};

export const STATISTICS_HTML = `
  <section class="selected" id="selected" aria-label="Statistics"><h2 id="range"></h2><p id="extent" class="soft"></p>
    <div class="acts" id="acts" role="group" aria-label="With the selection" hidden>
      <button data-act="zoom" title="Zoom to the selection (Z, F or double click)">Zoom <kbd>Z</kbd></button>
      <button data-act="compare">Compare with…</button>
      <button data-act="rows" title="Leave only the selected rows in view">Only these rows</button>
      <button data-act="link" title="Copy a link to this view and selection">Copy link</button>
      <button data-act="clear" title="Select nothing (Escape)" aria-label="Select nothing">×</button></div>
    <div class="stack" id="stack" role="img"></div><table id="states" aria-label="Time by state"></table><ul id="facts"></ul></section>
  <section class="shares" aria-label="Procedures"><h2>By procedure <small id="shares-note"></small></h2><ol id="shares"></ol></section>`;

export class RangeStatistics {
  /**
   * @param {HTMLElement} element
   * @param {Shared} shared
   * @param {(key: string) => void} exactShown called when exact times of the window that key identifies are shown
   */
  constructor(element, { store, api, context, counts }, exactShown) {
    this.element = element;
    this.store = store;
    this.api = api;
    this.context = context;
    this.counts = counts;
    this.exactShown = exactShown;
    this.timer = 0;
    this.disposed = false;
    /** @type {{ key: string, values: Float64Array, estimated: boolean } | null} seconds by node */
    this.times = null;
    /** @type {{ key: string, lines: string[] } | null} */
    this.facts = null;
    const buttons = part(element, "acts", HTMLElement).querySelectorAll("button");
    buttons.forEach((button) => button.addEventListener("click", () => this.act(button.dataset.act ?? "", button)));
    this.end = store.subscribe(["s0", "s1", "r0", "r1", "against"], () => { this.show(); this.load(); });
  }

  dispose() {
    this.disposed = true;
    clearTimeout(this.timer);
    this.end();
  }

  key() { return this.store.key(this.context.extent()); }

  at(/** @type {string} */ id) { return part(this.element, id, HTMLElement); }

  show() {
    const { context } = this;
    const selected = context.selection();
    const { t0, t1, l0, l1 } = this.context.extent();
    const span = context.summary.duration_ns;
    this.at("range").textContent = selected ? `Selected: ${formatTime(t0, span)} to ${formatTime(t1, span)}` : "In view";
    this.at("extent").textContent = `${formatCount(l1 - l0)} row${l1 - l0 === 1 ? "" : "s"}, ${formatTime(t1 - t0)}`;
    this.at("acts").hidden = !selected;
    if (selected) this.showActs();
    this.showStates(t1 - t0);
    this.showShares(Boolean(selected));
  }

  showActs() {
    const { against } = this.store.state;
    const button = this.at("acts").querySelector("[data-act=compare]");
    if (!(button instanceof HTMLElement)) return;
    const [a0] = (against ?? "").split(":").map(Number);
    button.textContent = against ? `Compare with ${formatTime(a0, this.context.summary.duration_ns)}` : "Compare with…";
    button.title = against ? "Compare this range with the one marked before" : "Then select another range, and compare the two";
    button.toggleAttribute("disabled", against === this.span());
    if (against === this.span()) button.textContent = "Now select the other";
    const rows = this.at("acts").querySelector("[data-act=rows]");
    rows?.toggleAttribute("hidden", this.store.state.r0 === undefined);
  }

  span() { return `${this.store.state.s0}:${this.store.state.s1}`; }

  /**
   * @param {string} act
   * @param {HTMLElement} button
   */
  act(act, button) {
    const { store, context } = this;
    const window = context.selection();
    if (!window) return;
    if (act === "zoom") context.zoomToSelection();
    else if (act === "rows") context.zoomTo({ l0: window.l0, l1: window.l1 });
    else if (act === "clear") context.unselect();
    else if (act === "link") {
      store.flush();
      navigator.clipboard.writeText(location.href).then(() => { button.textContent = "Copied"; }, () => { button.textContent = "The URL above is the link"; });
    } else if (!store.state.against) store.set({ against: this.span() });
    else {
      const sides = [store.state.against, this.span()].map((span) => span.split(":").map((time) => Number(time) / 1e9).join(":"));
      store.set({ pane: "compare", versus: "window", sides: sides.join(" "), against: undefined });
    }
  }

  // Seconds by node: exact ones where they are there, else by the pixels of what is in view.
  seconds() {
    const { times, context } = this;
    if (times?.key === this.key()) return { values: times.values, exact: !times.estimated };
    const pixels = context.selection() ? null : this.counts();
    if (!pixels) return null;
    const { t0, t1 } = this.store.state;
    return { values: pixels.seconds(context.tree.parent.length, t1 - t0), exact: false };
  }

  /** @param {number} span ns */
  showStates(span) {
    const times = this.seconds();
    const { state } = this.context.tree;
    const { causes } = this.context.summary;
    const sums = new Float64Array(STATES * (causes.length + 1));
    // Of those that wait it matters for what.
    times?.values.forEach((value, node) => { sums[(state[node] & 3) === WAITING ? state[node] : state[node] & 3] += value; });
    const total = sums.reduce((sum, value) => sum + value, 0);
    const rows = largestFirst(sums).map(([key, seconds]) => {
      const { name, colour, look } = STATE_LOOKS[key & 3];
      return { key, colour, look, seconds, share: seconds / total, name: key < STATES ? name : `${name} ${causes[key >> 2]}`.trim() };
    }).sort((one, two) => ORDER.indexOf(one.key & 3) - ORDER.indexOf(two.key & 3));
    const stack = this.at("stack");
    stack.replaceChildren(...rows.map(({ colour, share, name }) => {
      const piece = document.createElement("i");
      Object.assign(piece.style, { background: `var(${colour})`, width: `${100 * share}%` });
      piece.title = `${name} ${formatPercent(share)}`;
      return piece;
    }));
    stack.setAttribute("aria-label", rows.map(({ name, share }) => `${name} ${formatPercent(share)}`).join(", "));
    this.at("states").replaceChildren(...rows.map(({ name, colour, look, seconds, share }) => {
      const row = document.createElement("tr");
      const label = textElement("td", "");
      const chip = document.createElement("i");
      chip.style.background = `var(${colour})`;
      label.append(chip, `${name} `, textElement("small", look));
      row.append(label, textElement("td", formatTime(seconds * 1e9)), textElement("td", formatPercent(share)));
      return row;
    }));
    const onCpu = sums.reduce((sum, seconds, key) => sum + (isOnCpu(key, causes) ? seconds : 0), 0);
    const busy = span ? onCpu / (span / 1e9) : 0;
    const facts = total ? [`${formatFixed(busy, 2)} CPUs busy on average`, ...(this.facts?.key === this.key() ? this.facts.lines : [])] : [];
    this.at("facts").replaceChildren(...facts.map((text) => textElement("li", text)));
  }

  /** @param {boolean} selected */
  showShares(selected) {
    const { context } = this;
    const { shown } = context.opened.picture();
    const byProcedure = (/** @type {Float64Array} */ values) => {
      const sums = new Float64Array(context.tree.names.length);
      values.forEach((value, node) => { sums[shown[node]] += value; });
      return sums;
    };
    const times = this.seconds();
    const counted = this.counts();
    const pixels = counted ? counted.add(new Float64Array(context.tree.names.length), (node) => shown[node]) : new Float64Array(context.tree.names.length);
    const total = pixels.reduce((sum, count) => sum + count, 0);
    const note = this.at("shares-note");
    const list = this.at("shares");
    if (selected) {
      const sums = times ? byProcedure(times.values) : new Float64Array(0);
      const all = sums.reduce((sum, value) => sum + value, 0);
      note.textContent = times ? (times.exact ? "exact share of time" : "estimated share of time") : "…";
      list.replaceChildren(...largestFirst(sums).slice(0, LONGEST).map(([procedure, seconds]) => (
        procedureItem(context, this.store, procedure, `${formatTime(seconds * 1e9)}  ${formatPercent(seconds / all)}`))));
      return;
    }
    const exact = times?.exact ? byProcedure(times.values) : null;
    note.textContent = (exact ? "exact share of time" : "share of pixels") + (counted?.left ? ", without helpers" : "");
    note.title = counted?.left ? "Launchers and threads that hardly ran are left out, folded or not" : "";
    list.replaceChildren(...largestShares(pixels, exact, LONGEST).map((share) => this.shareItem(share, total)));
    if (counted && !total) list.replaceChildren(textElement("li", "No samples here. Press Home to show everything."));
  }

  /**
   * @param {import("./shares.js").Share} share
   * @param {number} pixels in view
   */
  shareItem({ procedure, ofPixels, exact }, pixels) {
    const error = 2 * Math.sqrt((ofPixels * (1 - ofPixels)) / pixels);
    const item = procedureItem(this.context, this.store, procedure, exact === null ? `${formatPercent(ofPixels)} ± ${formatPercent(error)}` : formatPercent(exact));
    item.title += `\n${formatPercent(ofPixels)} of the pixels in view, ± ${formatPercent(error)} (twice the standard error)`
      + (exact === null ? "" : `\n${formatPercent(exact)} of the time of all lines in view, exactly`);
    return item;
  }

  // Exact times instead of shares of pixels, as soon as the server has computed them.
  load() {
    clearTimeout(this.timer);
    this.timer = window.setTimeout(() => this.request(), PAUSE_MS);
  }

  async request() {
    const { api, store, context } = this;
    const window = this.context.extent();
    const key = this.key();
    const overtaken = () => this.disposed || key !== this.key();
    try {
      const { kind, values } = await api.profile(store.db, window, true);
      if (overtaken()) return;
      this.times = { key, values: values[0], estimated: kind === SAMPLED };
      this.show();
      if (kind !== SAMPLED) this.exactShown(key);
      if (!context.summary.recorded.mpi) return;
      const messages = await api.messages(store.db, window);
      if (overtaken()) return;
      this.facts = { key, lines: messageFacts(messages) };
      this.show();
    } catch (error) { context.fail(error); }
  }
}

/**
 * Messages and waits in a few words.
 * @param {MessagesAnswer} answer
 */
function messageFacts({ messages, bytes, waiting, waits }) {
  const sent = `${formatCount(messages)} message${messages === 1 ? "" : "s"}, ${formatBytes(bytes)}`;
  /** @type {Map<number, number>} */
  const late = new Map();
  for (const { delaying_rank: rank, seconds } of waits) late.set(rank, (late.get(rank) ?? 0) + seconds);
  const worst = [...late].sort(([, one], [, other]) => other - one).slice(0, MOST_WAITS);
  const whom = worst.map(([rank, seconds]) => `${formatTime(seconds * 1e9)} for rank ${rank}`).join(", ");
  return [sent, ...(waiting ? [`waits: ${whom}`] : [])];
}
