// Puts the page together: store, server, panes, keys.

import { Api } from "./api.js";
import { mount as flame } from "./flame.js";
import { mount as calls } from "./calls.js";
import { mount as chooser } from "./choice.js";
import { mount as compare } from "./compare.js";
import { mount as colours, remembered } from "./colours.js";
import { help, palette } from "./commands.js";
import { save } from "./export.js";
import { follow, moved } from "./live.js";
import { Opened } from "./opened.js";
import { mount as overlines } from "./overlines.js";
import { mount as source } from "./source.js";
import { Store } from "./store.js";
import { mount as trace } from "./trace.js";

const PANES = [["trace", "Trace", trace], ["flame", "Flame graph", flame], ["calls", "Profile", calls], ["lines", "Over lines", overlines], ["compare", "Compare", compare], ["source", "Source", source]];
const at = (id) => document.getElementById(id);
const store = new Store();
const api = new Api(store.token);
let mounted = null;

// What panes share besides the store; open adds the database's (opened.js).
const context = {
  tree: null, summary: null, opened: null, selected: null, databases: [],
  count: () => choice.count(),
  // Until when there is something to look at, ns.
  reach: () => mounted?.reach?.() ?? context.summary.duration_ns,
  fail(error) {
    if (error.name === "AbortError") return;
    say(error.message);
    // Until something works again.
    api.heard = () => { api.heard = null; say(""); };
  },
  zoomTo(patch) {
    const lines = context.count();
    const next = { ...store.window(), ...patch };
    next.t0 = Math.max(0, Math.round(next.t0));
    next.t1 = Math.min(context.reach(), Math.round(next.t1));
    next.l0 = Math.max(0, next.l0);
    next.l1 = Math.min(lines, Math.max(next.l0 + 1, next.l1));
    if (next.t1 - next.t0 >= 100) store.zoom(next);
  },
  zoomTime(factor, x) {
    const { t0, t1 } = store.state;
    const centre = t0 + x * (t1 - t0);
    context.zoomTo({ t0: centre - (centre - t0) * factor, t1: centre + (t1 - centre) * factor });
  },
  zoomLines(factor, y) {
    const { l0, l1 } = store.state;
    const centre = l0 + y * (l1 - l0);
    context.zoomTo({ l0: Math.floor(centre - (centre - l0) * factor), l1: Math.ceil(centre + (l1 - centre) * factor) });
  },
  move(timeShare, lineShare) {
    const { t0, t1, l0, l1 } = store.state;
    const lines = context.count();
    const shift = Math.min(Math.max((t1 - t0) * timeShare, -t0), context.reach() - t1);
    const step = Math.min(Math.max(Math.round((l1 - l0) * lineShare) || Math.sign(lineShare), -l0), lines - l1);
    context.zoomTo({ t0: t0 + shift, t1: t1 + shift, l0: l0 + step, l1: l1 + step });
  },
  toEnd() {
    const { t0, t1 } = store.state;
    const { duration_ns } = context.summary;
    context.zoomTo({ t0: duration_ns - (t1 - t0), t1: duration_ns });
  },
  // What the mouse does to a trace view, which says where in shares of itself.
  mouse: {
    click: ({ x, line }) => store.set({ time: Math.round(store.state.t0 + x * (store.state.t1 - store.state.t0)), line }),
    drag({ x0, x1, y0, y1 }) {
      const { t0, t1, l0, l1 } = store.state;
      const patch = { t0: t0 + x0 * (t1 - t0), t1: t0 + x1 * (t1 - t0) };
      if (y0 !== null) {
        patch.l0 = l0 + Math.floor(y0 * (l1 - l0));
        patch.l1 = Math.max(patch.l0 + 1, l0 + Math.ceil(y1 * (l1 - l0)));
      }
      if (t1 - t0 > 1000) context.zoomTo(patch);
    },
    wheel(factor, { x, y }, lines) { if (lines) context.zoomLines(factor, y); else context.zoomTime(factor, x); },
  },
};

const choice = chooser(at("choice"), { store, api, context });

const live = follow({ store, api, context, button: at("live"), renew });

function say(text) {
  at("status").textContent = text;
  at("status").classList.toggle("shown", Boolean(text));
}

function theme() {
  const dark = store.state.theme ? store.state.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.classList.toggle("dark", dark);
  return dark;
}

function show(pane) {
  mounted?.dispose();
  const [, , mount] = PANES.find(([name]) => name === pane) ?? PANES[0];
  at("main").className = pane;
  mounted = mount(at("main"), { store, api, context });
  for (const tab of at("panes").children) tab.setAttribute("aria-selected", tab.dataset.pane === pane);
}

function put(opened) {
  const { summary, tree, shown, found, lit, css, dark } = opened;
  Object.assign(context, { opened, summary, tree, shown, found, lit, css, dark });
  api.revision = summary.live?.revision;
}

// A newer revision of a recording that is looked at.
async function renew(now) {
  const { db } = store.state;
  const key = store.key();
  const [summary, cct, { count }] = await Promise.all([
    api.summary(db), api.cct(db, now.revision), api.selection(db, store.state, now.revision),
  ]);
  // Something else is looked at by now, or there is a newer one yet: the next look tells.
  if (key !== store.key() || summary.live.revision !== now.revision) return;
  const opened = new Opened(store, summary, cct);
  const patch = moved(store.state, context.opened, opened, now.lines, { before: context.count(), now: count });
  put(opened);
  await recoloured();
  at("depth").max = Math.min(context.tree.deepest, 100);
  choice.renew(count);
  store.set(patch);
  choice.show();
  live.begin(summary.live);
}

async function open(db) {
  say("Loading " + db);
  live.begin(null);
  const summary = await api.summary(db);
  put(new Opened(store, summary, await api.cct(db, summary.live?.revision)));
  await recoloured(db);
  document.title = `${summary.name} – hpcd`;
  at("depth").max = Math.min(context.tree.deepest, 100);
  const { state } = store;
  // A link may be older than the database, or mistyped: what does not fit shows everything.
  const known = state.db === db && await choice.ask(state, db).catch(() => 0);
  const fits = known && state.t1 > state.t0 && state.t0 >= 0 && state.t1 <= summary.duration_ns && state.l1 > state.l0 && state.l0 >= 0 && state.l1 <= known;
  const window = fits ? {} : {
    t0: 0, t1: summary.duration_ns, l0: 0, l1: summary.lines, filter: "", sort: "", group: "",
    time: undefined, line: undefined, context: undefined, about: undefined, spot: undefined,
  };
  if (!fits) { store.past = []; store.future = []; }
  store.set({ db, revision: summary.live?.revision, pane: state.pane ?? "trace", depth: state.depth ?? Math.min(8, context.tree.deepest), ...window });
  live.begin(summary.live);
  depthShown();
  choice.show();
  say(summary.lines && summary.duration_ns ? "" : "This database holds no trace lines: nothing ran while it was recorded.");
  show(store.state.pane);
}

function depthShown() {
  at("depth").value = store.state.depth;
  at("depth-value").textContent = store.state.depth;
}

// A link may hold what is no colour.
async function recoloured(db = store.state.db) {
  if (store.state.colours) await context.opened.recolour(api, db).catch(() => store.set({ colours: undefined }));
}

async function recolour(wanted) {
  const before = store.state.colours;
  store.set({ colours: wanted });
  try {
    await context.opened.recolour(api, store.state.db);
  } catch (error) {
    store.set({ colours: before });
    throw error;
  }
  show(store.state.pane);
}

const KEYS = {
  "?": () => at("help-dialog").showModal(),
  "/": () => at("search").focus(),
  f: () => at("filter").focus(),
  k: palette(at("palette-dialog"), {
    run: (key) => KEYS[key](),
    find: (name) => store.set({ search: name }),
    names: () => context.tree.names,
  }),
  "[": () => store.set({ depth: Math.max(1, store.state.depth - 1) }),
  "]": () => store.set({ depth: Math.min(context.tree.deepest, store.state.depth + 1) }),
  w: () => context.zoomTime(0.7, 0.5), s: () => context.zoomTime(1 / 0.7, 0.5),
  W: () => context.zoomLines(0.7, 0.5), S: () => context.zoomLines(1 / 0.7, 0.5),
  a: () => context.move(-0.25, 0), d: () => context.move(0.25, 0),
  ArrowLeft: () => context.move(-0.25, 0), ArrowRight: () => context.move(0.25, 0),
  ArrowUp: () => context.move(0, -0.25), ArrowDown: () => context.move(0, 0.25),
  u: () => store.undo(), r: () => store.redo(),
  Home: () => context.zoomTo({ t0: 0, t1: context.reach(), l0: 0, l1: context.count() }),
  End: () => context.toEnd(),
  t: () => store.set({ theme: theme() ? "light" : "dark" }),
  h: () => { if (mounted?.hotPath) mounted.hotPath(); else store.set({ pane: "calls" }); },
  c: colours(at("colours-dialog"), { store, change: recolour }),
  e: () => at("export-dialog").showModal(),
};
PANES.forEach(([pane], i) => { KEYS[i + 1] = () => store.set({ pane }); });
help(at("keys"));

document.addEventListener("keydown", (event) => {
  const act = KEYS[event.ctrlKey || event.metaKey ? { k: "k" }[event.key] : event.key];
  if (event.altKey || !act || !context.tree || document.querySelector("dialog[open]")) return;
  if (/INPUT|SELECT|TEXTAREA/.test(event.target.tagName) && !event.ctrlKey && !event.metaKey) return;
  event.preventDefault();
  act();
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && /INPUT|SELECT|TEXTAREA/.test(event.target.tagName)) event.target.blur();
});

at("export").addEventListener("click", KEYS.e);
at("export-dialog").addEventListener("close", () => {
  const kind = at("export-dialog").returnValue;
  at("export-dialog").returnValue = "";
  if (kind) save(kind, mounted, `${context.summary.name} ${store.state.pane}`).catch(context.fail);
});

for (const [name, title] of PANES) {
  const tab = document.createElement("button");
  Object.assign(tab, { textContent: title });
  tab.dataset.pane = name;
  tab.setAttribute("role", "tab");
  tab.addEventListener("click", () => store.set({ pane: name }));
  at("panes").append(tab);
}
at("undo").addEventListener("click", KEYS.u);
at("redo").addEventListener("click", KEYS.r);
at("home").addEventListener("click", KEYS.Home);
at("colours").addEventListener("click", KEYS.c);
at("theme").addEventListener("click", KEYS.t);
at("help").addEventListener("click", KEYS["?"]);
at("depth").addEventListener("input", () => store.set({ depth: Number(at("depth").value) }));
at("search").addEventListener("input", () => store.set({ search: at("search").value }));
at("database").addEventListener("change", () => open(at("database").value).catch(context.fail));
store.subscribe(["depth"], depthShown);
store.subscribe(["search"], ({ search }) => { at("search").value = search ?? ""; });
store.subscribe(["pane"], ({ pane }) => show(pane));
store.subscribe(["theme"], theme);
theme();
store.state.colours ??= remembered();
at("search").value = store.state.search ?? "";

try {
  const { databases } = await api.databases();
  context.databases = databases;
  for (const name of databases) at("database").append(new Option(name, name));
  const first = databases.includes(store.state.db) ? store.state.db : databases[0];
  at("database").value = first;
  await open(first);
} catch (error) { context.fail(error); }
