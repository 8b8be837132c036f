// @ts-check
// The sides of coupled traces: which lines and time of which database each is, and which window of it
// stands beside the window of the first.

import { OpenDatabase } from "../core/open_database.js";
import { sharedColours } from "../core/picture_colours.js";

/**
 * @typedef {object} TraceSide
 * @property {string} label
 * @property {string} db
 * @property {OpenDatabase} database
 * @property {number} from of its time, ns
 * @property {number} to
 * @property {LineChoice} choice of its lines
 * @property {number} count of its lines
 */

/**
 * How long a side is, ns.
 * @param {Pick<TraceSide, "from" | "to">} side
 */
export function sideLength({ from, to }) { return to - from; }

/**
 * The window of a side that stands beside a window of the first.
 * @param {TraceSide} side
 * @param {TraceSide} first
 * @param {Pick<State, "t0" | "t1" | "l0" | "l1">} window of the first
 * @param {number} lines how many lines the window's places are of
 * @param {boolean} sameTime whether windows are equally long, or the same share of their sides
 */
export function coupledWindow(side, first, { t0, t1, l0, l1 }, lines, sameTime) {
  const scale = sameTime ? 1 : sideLength(side) / sideLength(first);
  const moment = (/** @type {number} */ time) => Math.round(side.from + (time - first.from) * scale);
  const place = (/** @type {number} */ line) => Math.round((line / lines) * side.count);
  const from = Math.min(side.count - 1, place(l0));
  return {
    ...side.choice, t0: moment(t0), t1: Math.max(moment(t0) + 1, moment(t1)),
    l0: from, l1: Math.max(from + 1, Math.min(side.count, place(l1))),
  };
}

/**
 * The sides of what is compared. Fails where one has none of the chosen lines.
 * @param {ViewParts} view
 * @returns {Promise<TraceSide[]>}
 */
export async function loadSides(view) {
  const { store, api, context, sides } = view;
  const { filter, sort, group, all, unfolded } = store.state;
  /**
   * @param {string} db
   * @param {Partial<TraceSide>} [patch] what is not of all lines and time
   */
  const side = async (db, patch) => {
    const database = await openDatabase(view, db);
    return { label: db, db, database, from: 0, to: database.summary.duration_ns, choice: { filter, sort, group, all, unfolded: db === store.db ? unfolded : "" }, count: 0, ...patch };
  };
  /** @type {TraceSide[]} */
  let loaded;
  const query = sides.query();
  if (sides.kind === "runs") loaded = await Promise.all(query.getAll("db").map((db) => side(db)));
  else if (sides.kind === "rank") {
    loaded = await Promise.all(query.getAll("rank").map((number) => side(store.db, {
      label: `rank ${number}`, choice: { filter: `label:(^| )rank ${number}( |$)`, sort, group, all, unfolded },
    })));
  } else {
    const comparison = await view.aligned();
    loaded = await Promise.all(comparison.sides.map(({ label, begin_ns, end_ns }) => (
      side(store.db, { label, ...(begin_ns === null || end_ns === null ? {} : { from: begin_ns, to: end_ns }) }))));
  }
  for (const part of loaded) {
    // Lines of the same choice of the same database are counted already.
    part.count = part.db === store.db && part.choice.filter === filter ? context.count() : (await api.selection(part.db, part.choice)).count;
    if (!part.count) throw new Error(`${part.label} has none of the chosen lines`);
  }
  return loaded;
}

/**
 * A database by its name; others than the one on top of the page are kept.
 * @param {PageParts} page
 * @param {string} name
 */
function openDatabase(page, name) {
  const { store, context } = page;
  if (name === store.state.db) return context.opened;
  const key = JSON.stringify([store.state.db, name, store.state.colours]);
  const pending = context.compared.get(key) ?? loadDatabase(page, name);
  context.compared.set(key, pending);
  pending.catch(() => context.compared.delete(key));
  return pending;
}

/**
 * @param {PageParts} page
 * @param {string} name
 */
async function loadDatabase({ store, api, context }, name) {
  const [summary, cct] = await Promise.all([api.summary(name), api.cct(name)]);
  const database = new OpenDatabase(store, summary, cct);
  if (store.state.colours) await database.recolour(api, name);
  // What has one name has one colour on all sides.
  database.tree.paint(sharedColours(database.tree, context.opened.tree, summary.palette));
  return database;
}
