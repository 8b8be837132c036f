// @ts-check
// What is compared: the database on top of the page with others, or parts of it.

import { part, textElement } from "../widgets/elements.js";
import { chosen } from "../widgets/segmented_control.js";
import { sideLetter } from "./changes.js";

/** @type {[string, string][]} */
const KINDS = [["runs", "with other runs"], ["window", "windows of its time"], ["rank", "its ranks"], ["iteration", "its iterations"]];
/** @type {Record<string, string>} */
const PLACEHOLDERS = { rank: "0 1", iteration: "shortest, median, longest", window: "seconds: 0:1 1:2" };
/** @type {Record<string, string>} */
const UNITS = { window: "from:to, s ", rank: "numbers ", iteration: "numbers " };
const MOST = 8;

const HTML = `<label>Compare <select id="versus"></select></label>
    <span class="joined" id="others" role="group" aria-label="Runs to compare with"></span>
    <label id="parts-label"><span id="parts-name"></span><input id="parts" autocomplete="off" spellcheck="false"></label>
    <span class="joined" id="take" role="group" aria-label="Time in view"></span>`;

export class Sides {
  /**
   * @param {HTMLElement} element
   * @param {Pick<PageParts, "store" | "context">} page
   */
  constructor(element, { store, context }) {
    element.innerHTML = HTML;
    this.store = store;
    this.context = context;
    /** @type {string[]} databases of the same program, once known: they are compared unless others are chosen */
    this.related = [];
    this.all = false; // whether runs of other programs are offered
    this.kinds = KINDS.filter(([kind]) => kind !== "runs" || context.databases.length > 1);
    this.versus = part(element, "versus", HTMLSelectElement);
    this.others = part(element, "others", HTMLElement);
    this.label = part(element, "parts-label", HTMLElement);
    this.name = part(element, "parts-name", HTMLElement);
    this.parts = part(element, "parts", HTMLInputElement);
    this.take = part(element, "take", HTMLElement);
    for (const [value, title] of this.kinds) this.versus.append(new Option(title, value));
    for (const side of [0, 1]) {
      const button = Object.assign(textElement("button", `View as ${sideLetter(side)}`), { title: `Compare the time that is in view as ${sideLetter(side)}` });
      button.addEventListener("click", () => this.takeWindow(side));
      this.take.append(button);
    }
    this.versus.addEventListener("change", () => store.set({ versus: this.versus.value, sides: "" }));
    this.parts.addEventListener("change", () => store.set({ sides: this.parts.value }));
    this.dispose = store.subscribe(["versus", "sides", "db"], () => this.show());
    this.show();
  }

  /** @param {string[]} names */
  setRelated(names) {
    this.related = names;
    this.show();
  }

  get kind() { return chosen(this.kinds, this.store.state.versus); }

  /** @param {number} side */
  takeWindow(side) {
    const windows = this.texts();
    const { t0, t1 } = this.store.state;
    windows[side] = `${t0 / 1e9}:${t1 / 1e9}`;
    this.store.set({ sides: windows.join(" ") });
  }

  // The parts as texts: names of other databases, or what the input says.
  texts() {
    const { db, sides = "" } = this.store.state;
    const { kind } = this;
    if (kind === "runs") {
      const others = this.context.databases.filter((name) => name !== db);
      const names = sides.split("/").filter((name) => others.includes(name));
      return names.length ? names : others.filter((name) => this.related.includes(name)).slice(0, MOST - 1);
    }
    const given = sides.split(/[\s,;]+/).filter(Boolean);
    if (given.length || kind === "iteration") return given;
    if (kind === "rank") return ["0", "1"];
    const { duration_ns } = this.context.summary;
    return [`0:${duration_ns / 2e9}`, `${duration_ns / 2e9}:${duration_ns / 1e9}`];
  }

  show() {
    const { kind } = this;
    const runs = kind === "runs";
    this.versus.value = kind;
    this.others.hidden = !runs;
    this.label.hidden = runs;
    this.take.hidden = kind !== "window";
    this.name.textContent = UNITS[kind] ?? "";
    if (document.activeElement !== this.parts) this.parts.value = runs ? "" : this.texts().join(" ");
    this.parts.placeholder = PLACEHOLDERS[kind] ?? "";
    if (runs) this.offerRuns();
  }

  // Runs of the same program, and those that are compared; runs of others on request, or where there is no other.
  offerRuns() {
    const names = this.texts();
    const { databases } = this.context;
    const others = databases.filter((name) => name !== this.store.state.db);
    const first = others.filter((name) => this.related.includes(name) || names.includes(name));
    const all = this.all || !first.length;
    this.others.replaceChildren(...(all ? others : first).map((name) => {
      const button = Object.assign(textElement("button", name), { title: `Compare with ${name}` });
      button.setAttribute("aria-pressed", String(names.includes(name)));
      button.addEventListener("click", () => {
        const next = databases.filter((other) => (other === name) !== names.includes(other));
        if (next.length && next.length < MOST) this.store.set({ sides: next.join("/") });
      });
      return button;
    }));
    if (all || first.length === others.length) return;
    const more = Object.assign(textElement("button", `+ ${others.length - first.length} of other programs`), { title: "Offer runs of other programs too" });
    more.addEventListener("click", () => { this.all = true; this.offerRuns(); });
    this.others.append(more);
  }

  // As the server wants it.
  query() {
    const query = new URLSearchParams({ db: this.store.db });
    const { kind } = this;
    const texts = this.texts();
    for (const text of texts) {
      if (kind === "runs") query.append("db", text);
      else query.append(kind, kind === "window" ? text.split(":").map((time) => Math.round(Number(time) * 1e9)).join(":") : text);
    }
    if (kind === "iteration" && !texts.length) query.append("iteration", "");
    return query;
  }
}

/**
 * Names of the other databases that are recordings of the same program, wherever it is installed.
 * @param {Record<string, string>} programs path of each database's, empty where it is not known
 * @param {string} db
 */
export function sameProgram(programs, db) {
  const name = (/** @type {string} */ path) => path.slice(path.lastIndexOf("/") + 1);
  const own = name(programs[db] ?? "");
  return Object.keys(programs).filter((other) => own && other !== db && name(programs[other]) === own);
}
