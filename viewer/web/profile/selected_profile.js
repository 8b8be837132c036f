// @ts-check
// The profile of what is in view, requested once however many panes show it.

import { formatCount } from "../core/format.js";
import { parseFormulas } from "./formula_input.js";
import { Profile } from "./profile.js";

export const SUMS = 0;
export const TIMES = 1;
export const SAMPLED = 2;

/**
 * @typedef {import("./formula_input.js").Formula} Formula
 *
 * @typedef {object} SelectedProfile
 * @property {Metric[]} measured
 * @property {Formula[]} formulas of derived metrics
 * @property {Metric[]} metrics those measured, then those derived
 * @property {string} wrong what is wrong with other formulas
 * @property {(view: string) => Promise<Profile<ViewTree>>} profile costs over the tree of a view
 * @property {string} note what the costs are of, and how exact
 */

/**
 * @param {PageParts} page
 * @returns {Promise<SelectedProfile>}
 */
export function selectedProfile({ store, api, context }) {
  const key = JSON.stringify([store.key(context.extent()), store.state.formulas, store.state.nameless]);
  if (context.selected?.key === key) return context.selected.profile;
  const profile = requestProfile(store, api, context);
  context.selected = { key, profile };
  // What failed is requested again.
  profile.catch(() => { if (context.selected?.profile === profile) context.selected = null; });
  return profile;
}

/**
 * @param {Store} store
 * @param {Api} api
 * @param {PageContext} context
 * @returns {Promise<SelectedProfile>}
 */
async function requestProfile(store, api, context) {
  const { db } = store;
  const { formulas: text } = store.state;
  const { opened: database, summary } = context;
  const { kind, pixels, values } = await api.profile(db, context.extent());
  const measured = kind === SUMS ? summary.metrics : [{ name: "time", unit: "s" }];
  const { formulas, wrong } = await parseFormulas(api, db, text, summary.metrics, measured);
  /** @type {Map<string, Profile<ViewTree>>} */
  const profiles = new Map();
  const ending = viewEnding(store.state);
  /** @param {string} name */
  const profile = async (name) => {
    const tree = await database.view(api, db, name + ending);
    const ready = profiles.get(name);
    if (ready) return ready;
    const viewed = new Profile(tree, values.map((costs) => placed(costs, tree)), formulas);
    profiles.set(name, viewed);
    return viewed;
  };
  return { measured, formulas, metrics: [...measured, ...formulas], wrong, profile, note: note(kind, pixels, context, summary) };
}

/**
 * What ends names of views where procedures without names have rows of their own.
 * @param {State} state
 */
export function viewEnding({ nameless }) { return nameless ? "+nameless" : ""; }

/**
 * Costs of the database's nodes as costs of a view's.
 * @param {Float64Array} values
 * @param {ViewTree} tree
 */
function placed(values, { place, parent, stands }) {
  const own = new Float64Array(parent.length);
  // Who was preempted by an interrupt stands where that came.
  for (let node = 0; node < values.length; node++) own[stands[place[node]]] += values[node];
  return own;
}

/**
 * @param {number} kind
 * @param {number} pixels
 * @param {PageContext} context
 * @param {Summary} summary
 */
function note(kind, pixels, context, { duration_ns: duration }) {
  const { t0, t1, l0, l1, phase } = context.extent();
  const time = `the time ${context.extentWord()}`;
  const whole = l1 - l0 === context.count();
  const count = whole ? context.lineCount() : l1 - l0;
  const lines = `${formatCount(count)} line${count === 1 ? "" : "s"}${!whole && context.count() < context.lineCount() ? " and their helper threads" : ""}`;
  if (phase) return `${lines}, ${t0 > 0 || t1 < duration ? time : "all their time"} in phase ${phase}: exact`;
  if (kind === SUMS) return `${lines}, all ${count === 1 ? "its" : "their"} time: exact`;
  if (kind === TIMES) return `${lines}, ${time}: exact`;
  return `${lines}, ${time}: estimated from ${formatCount(pixels)} samples`;
}

/**
 * The metric a person chose, or the one that tells most, among those a profile has.
 * @param {Metric[]} metrics
 * @param {string | undefined} name
 */
export function chosenMetric(metrics, name) {
  const numbers = [name, "cpu_time", "time"].map((wanted) => metrics.findIndex((metric) => metric.name === wanted));
  return Math.max(0, numbers.find((number) => number >= 0) ?? 0);
}

/**
 * Offers metrics for choosing.
 * @param {HTMLSelectElement} select
 * @param {Pick<Metric, "name">[]} metrics
 * @param {string} chosen
 */
export function offerMetrics(select, metrics, chosen) {
  select.replaceChildren(...metrics.map(({ name }) => new Option(name.replaceAll("_", " "), name)));
  select.value = chosen;
}

/**
 * The row of a procedure, inlined calls of it included; of the one of the highest exclusive cost where
 * there is none of that name; undefined where nothing cost anything.
 * @param {Profile<ViewTree>} profile of the view flat
 * @param {OpenDatabase} database
 * @param {string | undefined} name
 * @param {number} metric
 */
export function procedureRow(profile, database, name, metric) {
  const rows = profile.procedures(false);
  return rows.find(({ procedure }) => database.procedureOf(profile.tree, procedure) === name)
    ?? rows.sort((one, two) => two.exclusive[metric] - one.exclusive[metric])[0];
}
