// @ts-check
// Puts the page together: store, server, panes, keys.

import { Api } from "./api.js";
import { LineChoiceBar } from "../trace/line_choice.js";
import { colourRulesDialog, rememberedColourRules } from "./colour_rules.js";
import { fillHelp, commandPalette } from "./commands.js";
import { PageContext } from "./context.js";
import { mountDepthChoice } from "./depth_choice.js";
import { exportView } from "./export.js";
import { isAbort, messageOf } from "./failure.js";
import { followRecording, stateInRevision } from "./live.js";
import { OpenDatabase } from "./open_database.js";
import { mountFindings } from "./findings.js";
import { PANES } from "./panes.js";
import { Store } from "./store.js";
import { part, textElement } from "../widgets/elements.js";

/**
 * @typedef {import("./pane_types.js").Pane} Pane
 */

const NOTHING = "No thread was recorded. Processes that matched may have ended before hpcd attached, or begun after it ended; hpcd status tells of a recording that runs.";
const PATIENCE_MS = 2000; // how long what is shown beside a picture waits for it
const at = (/** @type {string} */ id) => part(document, id, HTMLElement);
const searchInput = part(document, "search", HTMLInputElement);
const databaseSelect = part(document, "database", HTMLSelectElement);
const helpDialog = part(document, "help-dialog", HTMLDialogElement);
const exportDialog = part(document, "export-dialog", HTMLDialogElement);
const store = new Store();
const api = new Api(store.token);
/** @type {Pane | null} */
let mounted = null;

const context = new PageContext(store, {
  count: () => choice.count(),
  toggleFold: () => choice.toggleFold(),
  reach: () => mounted?.reach?.(),
  fail(error) {
    if (isAbort(error)) return;
    say(messageOf(error));
    // Until something works again.
    api.heard = () => { api.heard = null; say(""); };
  },
});

/** @type {LineChoiceBar} */
const choice = new LineChoiceBar(at("choice"), { store, api, context });

const depthChoice = mountDepthChoice(at("depth-choice"), { store, api, context });

const findingsLine = mountFindings(at("findings"), { store, api, context }, depthChoice);

const live = followRecording({ store, api, context, button: at("live"), renew });

/** @param {string} text */
function say(text) {
  at("status").textContent = text;
  at("status").classList.toggle("shown", Boolean(text));
}

function theme() {
  const dark = store.state.theme ? store.state.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.classList.toggle("dark", dark);
  return dark;
}

function unmount() {
  mounted?.dispose();
  mounted = null;
  // What was said of its picture, for tests.
  const { dataset } = at("main");
  for (const name of Object.keys(dataset)) delete dataset[name];
}

/** @param {string | undefined} pane */
function show(pane = PANES[0].name) {
  unmount();
  const { mount } = PANES.find(({ name }) => name === pane) ?? PANES[0];
  const empty = !context.summary.lines || !context.summary.duration_ns;
  at("main").className = empty ? "nothing" : pane;
  if (empty) at("main").replaceChildren(textElement("p", NOTHING, "empty"));
  else mounted = mount(at("main"), { store, api, context });
  showTabs(pane);
}

/** @param {string | undefined} pane the one that is shown */
function showTabs(pane = PANES[0].name) {
  const { recorded } = context.summary;
  /** @type {Record<string, boolean>} panes that not every recording has something for */
  const empties = { messages: !recorded.mpi, recorded: !Object.keys(recorded).length };
  PANES.forEach(({ name }, i) => {
    const tab = at("panes").children[i];
    tab.setAttribute("aria-selected", String(name === pane));
    tab.toggleAttribute("hidden", Boolean(empties[name]) && name !== pane);
  });
}

/** @param {OpenDatabase} database */
function put(database) {
  context.database = database;
  api.revision = database.summary.live?.revision;
}

/**
 * Shows a newer revision of a recording that is looked at.
 * @param {import("./api_types.js").LiveAnswer} now
 */
async function renew(now) {
  const { db } = store;
  const key = store.key();
  const [summary, cct, { count }, depths, findings] = await Promise.all([
    api.summary(db), api.cct(db, now.revision), api.selection(db, store.state, now.revision),
    api.depths(db, now.revision), api.findings(db, now.revision),
  ]);
  // Something else is looked at by now, or there is a newer one yet: the next look tells.
  if (key !== store.key() || summary.live?.revision !== now.revision) return;
  const database = new OpenDatabase(store, summary, cct);
  const beginning = !context.summary.lines || !context.summary.duration_ns;
  const patch = stateInRevision(store.state, context.opened, database, now.lines, { before: context.count(), now: count });
  put(database);
  await recoloured();
  choice.rowCounts.renew(count);
  store.set(patch);
  depthChoice.renew(depths);
  choice.show();
  findingsLine.renew(findings);
  live.begin(summary.live);
  if (beginning) show(store.state.pane); else showTabs(store.state.pane);
}

/**
 * Opens a database.
 * @param {string} [db] the store's, or the first, if no other is given
 * @param {Promise<Response>} [asked] what was requested for the page before this script had come
 */
async function load(db, asked) {
  say("Loading" + (db ? " " + db : ""));
  live.begin(null);
  open(await api.opening(db, asked)).catch(context.fail);
}

/** @param {import("./api_types.js").OpeningAnswer} opening */
async function open({ db, databases, summary, cct, depths }) {
  if (!context.databases.length) offer(databases);
  databaseSelect.value = db;
  const revision = summary.live?.revision;
  api.revision = revision; // what is asked from here on is of it, whenever it is answered
  const asked = depths ? Promise.resolve(depths) : api.depths(db, revision);
  const database = new OpenDatabase(store, summary, cct);
  put(database);
  await recoloured(db);
  document.title = `${summary.name} – hpcd`;
  const { state } = store;
  // A depth of another database means nothing here.
  const depth = state.db === db ? state.depth : undefined;
  const window = await windowFits(db, summary) ? {} : everything(summary);
  // Or it would request what it shows of this database, too.
  unmount();
  store.set({ db, revision, depth, ...window });
  depthChoice.show();
  const depthsKnown = asked.then((depths) => { if (context.database === database) depthChoice.renew(depths); });
  live.begin(summary.live);
  choice.show();
  findingsLine.renew({ scene: "", findings: [] });
  say("");
  show(state.pane);
  await depthsKnown;
  await Promise.race([mounted?.begun, new Promise((resolve) => setTimeout(resolve, PATIENCE_MS))]);
  // Takes as long as a picture, and nothing waits for it.
  const findings = await api.findings(db, revision);
  if (context.database === database) findingsLine.renew(findings);
}

/** @param {string[]} databases names of those that are served */
function offer(databases) {
  context.databases = databases;
  for (const name of databases) databaseSelect.append(new Option(name, name));
}

/**
 * Whether the store's window is one of a database. A link may be older than it, or mistyped.
 * @param {string} db
 * @param {import("./api_types.js").Summary} summary
 */
async function windowFits(db, summary) {
  const { state } = store;
  if (state.db !== db) return false;
  const lines = await choice.rowCounts.ask(state).catch(() => 0);
  const { t0, t1, l0, l1 } = state;
  return t0 >= 0 && t1 > t0 && t1 <= summary.duration_ns && l0 >= 0 && l1 > l0 && l1 <= lines;
}

/**
 * All lines of a database, all its time, and nothing chosen; what was looked at before is forgotten.
 * @param {import("./api_types.js").Summary} summary
 */
function everything(summary) {
  store.past = [];
  store.future = [];
  return {
    t0: 0, t1: summary.duration_ns, l0: 0, l1: summary.rows, filter: "", sort: "", group: "", all: "", unfolded: "", phase: "",
    time: undefined, line: undefined, context: undefined, about: undefined, spot: undefined, ranks: undefined,
  };
}

// A link may hold what is no colour.
async function recoloured(db = store.db) {
  if (store.state.colours) await context.opened.recolour(api, db).catch(() => store.set({ colours: undefined }));
}

/** @param {string | undefined} wanted */
async function recolour(wanted) {
  const before = store.state.colours;
  store.set({ colours: wanted });
  try {
    await context.opened.recolour(api, store.db);
  } catch (error) {
    store.set({ colours: before });
    throw error;
  }
  show(store.state.pane);
}

/** @type {Record<string, () => void>} */
const KEYS = {
  "?": () => helpDialog.showModal(),
  "/": () => searchInput.focus(),
  f: () => at("filter").focus(),
  k: commandPalette(part(document, "palette-dialog", HTMLDialogElement), {
    run: (key) => KEYS[key](),
    find: (name) => store.set({ search: name }),
    names: () => context.tree.names,
  }),
  "[": () => depthChoice.step(-1),
  "]": () => depthChoice.step(1),
  w: () => context.zoomTime(0.7, 0.5), s: () => context.zoomTime(1 / 0.7, 0.5),
  W: () => context.zoomLines(0.7, 0.5), S: () => context.zoomLines(1 / 0.7, 0.5),
  a: () => context.move(-0.25, 0), d: () => context.move(0.25, 0),
  ArrowLeft: () => context.move(-0.25, 0), ArrowRight: () => context.move(0.25, 0),
  ArrowUp: () => context.move(0, -0.25), ArrowDown: () => context.move(0, 0.25),
  u: () => store.undo(), r: () => store.redo(),
  Home: () => context.zoomTo({ t0: 0, t1: context.reach(), l0: 0, l1: context.count() }),
  End: () => context.toEnd(),
  m: () => store.set({ marks: store.state.marks ? undefined : "0" }),
  t: () => store.set({ theme: theme() ? "light" : "dark" }),
  h: () => { if (mounted?.hotPath) mounted.hotPath(); else store.set({ pane: "calls" }); },
  c: colourRulesDialog(part(document, "colours-dialog", HTMLDialogElement), { store, change: recolour }),
  e: () => exportDialog.showModal(),
};
PANES.forEach(({ name: pane }, i) => { KEYS[i + 1] = () => store.set({ pane }); });
fillHelp(at("keys"));

/**
 * Whether keys are the input's of its target; a checkbox has none of ours.
 * @param {KeyboardEvent} event
 */
function onInput({ target }) { return target instanceof Element && target.matches("input:not([type=checkbox]), select, textarea"); }

document.addEventListener("keydown", (event) => {
  const withControl = event.ctrlKey || event.metaKey;
  const act = withControl && event.key !== "k" ? undefined : KEYS[event.key];
  if (event.altKey || !act || !context.database || document.querySelector("dialog[open]")) return;
  if (onInput(event) && !withControl) return;
  event.preventDefault();
  act();
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && onInput(event) && event.target instanceof HTMLElement) event.target.blur();
});

at("export").addEventListener("click", KEYS.e);
exportDialog.addEventListener("close", () => {
  const kind = exportDialog.returnValue;
  exportDialog.returnValue = "";
  if (kind && mounted) exportView(kind, mounted, `${context.summary.name} ${store.state.pane}`).catch(context.fail);
});

for (const { name, title } of PANES) {
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
searchInput.addEventListener("input", () => store.set({ search: searchInput.value }));
databaseSelect.addEventListener("change", () => load(databaseSelect.value).catch(context.fail));
store.subscribe(["search"], ({ search }) => { searchInput.value = search ?? ""; });
store.subscribe(["pane"], ({ pane }) => show(pane));
store.subscribe(["theme"], theme);
theme();
store.state.colours ??= rememberedColourRules();
store.state.pane ??= PANES[0].name;
searchInput.value = store.state.search ?? "";

try {
  await load(store.state.db, firstAnswer);
} catch (error) {
  context.fail(error);
  // Another may open.
  api.databases().then(({ databases }) => offer(databases), context.fail);
}
