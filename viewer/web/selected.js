// The profile of what is in view, asked for once however many panes show it.

import { understood } from "./formula.js";
import { Profile } from "./profile.js";

export const SUMS = 0, TIMES = 1, SAMPLED = 2;

export function selected({ store, api, context }) {
  const key = store.key() + (store.state.formulas ?? "");
  if (context.selected?.key !== key) {
    const made = make(store, api, context);
    context.selected = { key, made };
    // What failed is asked for again.
    made.catch(() => { if (context.selected?.made === made) context.selected = null; });
  }
  return context.selected.made;
}

// metrics: the last are derived; profile(view): its costs over the tree of a view.
async function make(store, api, context) {
  const { db, formulas: text } = store.state;
  const { opened, summary } = context;
  const { kind, pixels, values } = await api.profile(db, store.state);
  const measured = kind === SUMS ? summary.metrics : [{ name: "time", unit: "s" }];
  const { formulas, wrong } = await understood(api, db, text, summary.metrics, measured);
  const profiles = new Map();
  const profile = async (view) => {
    const tree = await opened.view(api, db, view);
    if (!profiles.has(view)) profiles.set(view, new Profile(tree, values.map((each) => placed(each, tree)), formulas));
    return profiles.get(view);
  };
  return { kind, pixels, measured, formulas, metrics: [...measured, ...formulas], wrong, profile, note: note(kind, pixels, store.state) };
}

function placed(values, { place, parent }) {
  const own = new Float64Array(parent.length);
  for (let node = 0; node < values.length; node++) own[place[node]] += values[node];
  return own;
}

function note(kind, pixels, { l0, l1 }) {
  const lines = `${(l1 - l0).toLocaleString("en")} line${l1 - l0 === 1 ? "" : "s"}`;
  if (kind === SUMS) return `${lines}, all their time: exact`;
  if (kind === TIMES) return `${lines}, the time in view: exact`;
  return `${lines}, the time in view: estimated from ${pixels.toLocaleString("en")} samples`;
}

// The metric a person chose, or the one that tells most, among those a profile has.
export function chosen(metrics, name) {
  const wanted = [name, "cpu_time", "time"].map((each) => metrics.findIndex((metric) => metric.name === each));
  return Math.max(0, wanted.find((each) => each >= 0) ?? 0);
}
