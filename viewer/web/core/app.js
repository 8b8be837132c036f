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
import { followRecording, partnersInRevision, stateInRevision } from "./live.js";
import { OpenDatabase } from "./open_database.js";
import { FindBox } from "./find.js";
import { mountFindings } from "./findings.js";
import { PANES } from "./panes.js";
import { CHOICE, Store } from "./store.js";
import { part, select, textElement } from "../widgets/elements.js";

const NOTHING = "No thread was recorded. Processes that matched may have ended before hpcd attached, or begun after it ended; hpcd status tells of a recording that runs.";
const PATIENCE_MS = 2000; // how long what is shown beside a picture waits for it
const at = (/** @type {string} */ id) => part(document, id, HTMLElement);
const databaseSelect = part(document, "database", HTMLSelectElement);
const helpDialog = part(document, "help-dialog", HTMLDialogElement);
const nativeFrames = part(document, "native", HTMLInputElement);
const criticalPath = part(document, "critical", HTMLInputElement);
const exportDialog = part(document, "export-dialog", HTMLDialogElement);
const store = new Store();
const api = new Api(store.token);
/** @type {Pane | null} */
let mounted = null;

const context = new PageContext(store, {
  size: () => choice.size(),
  showAllLines: () => choice.change({ filter: "", partners: "" }),
  toggleFold: () => choice.toggleFold(),
  choosePartners: (partners) => choice.change({ partners }),
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

const find = new FindBox(at("find"), { store, api, context }, {
  filter: (filter) => choice.change({ filter }),
  unfold: context.toggleFold,
  pane: () => mounted,
});

const depthChoice = mountDepthChoice(at("depth-choice"), { store, api, context });

const findingsLine = mountFindings(at("findings"), { store, api, context });

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
  else mounted = mount(at("main"), { store, api, context, find });
  showTabs(pane);
}

/** @param {string | undefined} pane the one that is shown */
function showTabs(pane = PANES[0].name) {
  const { recorded, lines } = context.summary;
  /** @type {Record<string, boolean>} panes that not every recording has something for */
  const empties = { messages: !recorded.mpi, recorded: !Object.keys(recorded).length, lines: lines < 2 };
  PANES.forEach(({ name }, i) => {
    const tab = at("panes").children[i];
    tab.setAttribute("aria-selected", String(name === pane));
    tab.toggleAttribute("hidden", Boolean(empties[name]) && name !== pane);
    if (name === pane) tab.scrollIntoView({ block: "nearest", inline: "nearest" });
  });
  at("native-label").hidden = !context.summary.python;
  nativeFrames.checked = Boolean(store.state.native);
  at("critical-label").hidden = pane !== PANES[0].name || !context.summary.waits;
  criticalPath.checked = Boolean(store.state.critical);
  at("depth-choice").hidden = pane !== PANES[0].name && pane !== "compare";
}

/** @param {OpenDatabase} database */
function put(database) {
  context.database = database;
  api.revision = database.summary.live?.revision;
}

/**
 * Shows a newer revision of a recording that is looked at.
 * @param {LiveAnswer} now
 */
async function renew(now) {
  const { db } = store;
  const key = store.key();
  const chosen = { ...store.state, partners: partnersInRevision(store.state, now.lines) };
  const [summary, cct, size, depths, findings] = await Promise.all([
    api.summary(db), api.cct(db, now.revision), api.selection(db, chosen, now.revision),
    api.depths(db, now.revision), api.findings(db, now.revision),
  ]);
  // Something else is looked at by now, or there is a newer one yet: the next look tells.
  if (key !== store.key() || summary.live?.revision !== now.revision) return;
  const database = new OpenDatabase(store, summary, cct);
  const beginning = !context.summary.lines || !context.summary.duration_ns;
  const patch = stateInRevision(store.state, context.opened, database, now.lines, { before: context.count(), now: size.count });
  put(database);
  await recoloured();
  choice.sizes.renew(chosen, size);
  store.settle(patch);
  depthChoice.renew(depths);
  choice.show();
  showFindings(findings);
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
  api.native = store.state.native;
  open(await api.opening(db, asked)).catch(context.fail);
}

/** @param {OpeningAnswer} opening */
async function open({ db, databases, summary, cct, depths }) {
  if (!context.databases.length) offer(databases);
  databaseSelect.value = db;
  const revision = summary.live?.revision;
  api.revision = revision; // what is asked from here on is of it, whenever it is answered
  const asked = depths ? Promise.resolve(depths) : api.depths(db, revision);
  const database = new OpenDatabase(store, summary, cct);
  const before = context.database;
  put(database);
  await recoloured(db);
  document.title = `${summary.name} – hpcd`;
  const { state } = store;
  // A depth of another database means nothing here.
  const depth = isOf(db) ? state.depth : undefined;
  const window = await linkedWindow(db, summary) ?? everything(summary);
  // Or it would request what it shows of this database, too.
  unmount();
  const opened = { db, revision, depth, ...window };
  if (before && db !== state.db) store.set(opened); else store.settle(opened);
  depthChoice.show();
  const depthsKnown = asked.then((depths) => { if (context.database === database) depthChoice.renew(depths); });
  live.begin(summary.live);
  choice.show();
  showFindings({ scene: "", findings: [], costliest: null });
  say("");
  show(state.pane);
  find.show();
  find.load();
  await depthsKnown;
  await Promise.race([mounted?.begun, new Promise((resolve) => setTimeout(resolve, PATIENCE_MS))]);
  // Takes as long as a picture, and nothing waits for it.
  const findings = await api.findings(db, revision);
  if (context.database === database) showFindings(findings);
}

/** @param {FindingsAnswer} answer */
function showFindings(answer) {
  context.costliest = answer.costliest;
  findingsLine.renew(answer);
  mounted?.detailed?.();
}

/** @param {string[]} databases names of those that are served */
function offer(databases) {
  context.databases = databases;
  for (const name of databases) databaseSelect.append(new Option(name, name));
  at("database-label").hidden = databases.length < 2;
}

/**
 * Whether what the store says is of a database. A link that names none is of the first.
 * @param {string} db
 */
function isOf(db) { return store.state.db === undefined || store.state.db === db; }

/**
 * The window of a link, all of what it does not name; null where it is none of the database: a link may be
 * older than it, or mistyped.
 * @param {string} db
 * @param {Summary} summary
 */
async function linkedWindow(db, summary) {
  if (!isOf(db)) return null;
  const chooses = CHOICE.some((key) => store.state[key]);
  const rows = chooses ? await choice.sizes.ask(store.state, db).then(({ count }) => count, () => 0) : summary.rows;
  const { t0 = 0, t1 = summary.duration_ns, l0 = 0, l1 = rows } = store.state;
  const fits = t0 >= 0 && t1 > t0 && t1 <= summary.duration_ns && l0 >= 0 && l1 > l0 && l1 <= rows;
  return fits ? { t0, t1, l0, l1 } : null;
}

/**
 * All lines of a database, all its time, and nothing chosen; what was looked at before is forgotten.
 * @param {Summary} summary
 */
function everything(summary) {
  return {
    t0: 0, t1: summary.duration_ns, l0: 0, l1: summary.rows, filter: "", sort: "", group: "", all: "", unfolded: "", moved: "", partners: "", pinned: "", phase: "",
    s0: undefined, s1: undefined, r0: undefined, r1: undefined, against: undefined, root: undefined,
    time: undefined, line: undefined, context: undefined, about: undefined, spot: undefined, ranks: undefined,
  };
}

// A link may hold what is no colour.
async function recoloured(db = store.db) {
  if (store.state.colours) await context.opened.recolour(api, db).catch(() => store.settle({ colours: undefined }));
}

/** @param {string | undefined} wanted */
async function recolour(wanted) {
  const before = store.state.colours;
  store.set({ colours: wanted });
  try {
    await context.opened.recolour(api, store.db);
  } catch (error) {
    store.settle({ colours: before });
    throw error;
  }
  show(store.state.pane);
}

function zoomToSelected() { if (mounted?.zoomToSelected) mounted.zoomToSelected(); else context.zoomToSelection(); }

/** @type {Record<string, (gesture?: string) => void>} gesture: a key that is held down */
const KEYS = {
  "?": () => helpDialog.showModal(),
  "/": () => find.focus(),
  n: () => find.go(1), N: () => find.go(-1),
  f: zoomToSelected, z: zoomToSelected,
  x: () => context.beginRange(),
  l: () => mounted?.selectRows?.(),
  p: () => { if (store.state.line !== undefined) context.pin(store.state.line); },
  o: () => { if (store.state.line !== undefined || store.state.partners) context.togglePartners(store.state.line); },
  "<": () => mounted?.moveRow?.(-1), ">": () => mounted?.moveRow?.(1),
  Escape: () => context.unselect(),
  k: commandPalette(part(document, "palette-dialog", HTMLDialogElement), {
    run: (key) => KEYS[key](),
    find: (name) => store.set({ search: name }),
    names: () => context.tree.names,
  }),
  "[": () => depthChoice.step(-1),
  "]": () => depthChoice.step(1),
  w: (gesture) => context.zoomTime(0.7, undefined, gesture), s: (gesture) => context.zoomTime(1 / 0.7, undefined, gesture),
  W: (gesture) => context.zoomLines(0.7, undefined, gesture), S: (gesture) => context.zoomLines(1 / 0.7, undefined, gesture),
  a: (gesture) => context.move(-0.25, 0, gesture), d: (gesture) => context.move(0.25, 0, gesture),
  ArrowLeft: (gesture) => context.move(-0.25, 0, gesture), ArrowRight: (gesture) => context.move(0.25, 0, gesture),
  ArrowUp: (gesture) => context.move(0, -0.25, gesture), ArrowDown: (gesture) => context.move(0, 0.25, gesture),
  u: () => store.back(), r: () => store.forward(),
  Home: () => context.showEverything(),
  End: () => context.toEnd(),
  y: () => { if (context.summary.waits) store.set({ critical: store.state.critical ? undefined : "1" }); },
  m: () => store.set({ marks: store.state.marks ? undefined : "0" }),
  // Nodes have other numbers then, and paths other depths.
  i: () => { if (context.summary.python) store.set({ native: store.state.native ? undefined : "1", context: undefined, depth: undefined }); },
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
  act(event.repeat ? event.key : "");
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && onInput(event) && event.target instanceof HTMLElement) event.target.blur();
});

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
for (const [id, key] of Object.entries({ colours: "c", theme: "t", help: "?", export: "e" })) at(id).addEventListener("click", () => KEYS[key]());
// Where there is no room for all of them.
for (const bar of [at("panes"), select(document, ".bar.choice", HTMLElement)]) bar.addEventListener("wheel", ({ deltaX, deltaY }) => { bar.scrollLeft += deltaX || deltaY; }, { passive: true });
nativeFrames.addEventListener("change", () => KEYS.i());
criticalPath.addEventListener("change", () => KEYS.y());
store.subscribe(["critical"], ({ critical }) => { criticalPath.checked = Boolean(critical); });
databaseSelect.addEventListener("change", () => load(databaseSelect.value).catch(context.fail));
store.subscribe(["pane"], ({ pane }) => show(pane));
store.subscribe(["theme"], theme);
store.subscribe(["native"], () => load(store.db).catch(context.fail));
theme();
store.state.colours ??= rememberedColourRules();
// A view of the profile is what such a link is about.
store.state.pane ??= store.state.view ? "calls" : PANES[0].name;
store.reopen = (/** @type {string} */ db) => { load(db).catch(context.fail); };

try {
  await load(store.state.db, firstAnswer);
} catch (error) {
  context.fail(error);
  // Another may open.
  api.databases().then(({ databases }) => offer(databases), context.fail);
}
