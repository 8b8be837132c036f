// What the page shows, in one place, mirrored in the URL: a link is a view.

const KEPT = ["db", "pane", "t0", "t1", "l0", "l1", "filter", "sort", "group", "depth", "time", "line",
  "search", "theme", "metric", "view", "flame", "about", "spot", "code", "context", "formulas", "colours",
  "compare", "versus", "sides", "compared", "shares", "scopes", "sensitivity", "hotspot", "differing", "step", "width", "scaling", "coupled", "beside"];
const NUMBERS = new Set(["t0", "t1", "l0", "l1", "depth", "time", "line", "sensitivity", "hotspot", "step"]);
// What is looked at: lines and time. Others say how. A recording being written has revisions (live.js).
export const WINDOW = ["db", "revision", "t0", "t1", "l0", "l1", "filter", "sort", "group"];

export class Store {
  constructor() {
    this.state = {};
    this.listeners = [];
    this.past = [];
    this.future = [];
    const parameters = new URLSearchParams(location.hash.slice(1));
    this.token = parameters.get("token") ?? "";
    for (const key of KEPT) {
      const text = parameters.get(key);
      const value = NUMBERS.has(key) ? Number(text) : text;
      if (text !== null && !Number.isNaN(value)) this.state[key] = value;
    }
  }

  // Calls react(state) after any of keys has changed.
  subscribe(keys, react) {
    const entry = { keys: new Set(keys), react };
    this.listeners.push(entry);
    return () => { this.listeners = this.listeners.filter((each) => each !== entry); };
  }

  set(patch) {
    const changed = Object.keys(patch).filter((key) => this.state[key] !== patch[key]);
    if (!changed.length) return;
    Object.assign(this.state, patch);
    this.mirror();
    for (const { keys, react } of [...this.listeners]) {
      if (changed.some((key) => keys.has(key))) react(this.state);
    }
  }

  // As set, for the window of time and lines: can be undone.
  zoom(patch) {
    this.past.push(this.window());
    this.future = [];
    this.set(patch);
  }

  undo() { this.travel(this.past, this.future); }
  redo() { this.travel(this.future, this.past); }

  travel(from, to) {
    if (!from.length) return;
    to.push(this.window());
    this.set(from.pop());
  }

  window() {
    const { t0, t1, l0, l1, filter, sort, group } = this.state;
    return { t0, t1, l0, l1, filter, sort, group };
  }

  // Names what is looked at: what was answered for one key holds for no other.
  key() { return JSON.stringify([this.state.db, this.state.revision, this.window()]); }

  mirror() {
    const parameters = new URLSearchParams({ token: this.token });
    for (const key of KEPT) {
      if (this.state[key] !== undefined && this.state[key] !== "") parameters.set(key, this.state[key]);
    }
    history.replaceState(null, "", "#" + parameters);
  }
}
