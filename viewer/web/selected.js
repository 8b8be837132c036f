// The profile of what is in view, asked for once however many panes show it.

import { Profile } from "./profile.js";

export const SUMS = 0, TIMES = 1, SAMPLED = 2;

export function selected({ store, api, context }) {
  const key = store.key();
  if (context.selected?.key !== key) {
    const made = make(store, api, context);
    context.selected = { key, made };
    // What failed is asked for again.
    made.catch(() => { if (context.selected?.made === made) context.selected = null; });
  }
  return context.selected.made;
}

async function make(store, api, context) {
  const { kind, pixels, values } = await api.profile(store.state.db, store.state);
  const metrics = kind === SUMS ? context.summary.metrics : [{ name: "time", unit: "s" }];
  return { kind, pixels, metrics, profile: new Profile(context.tree, values), note: note(kind, pixels, store.state) };
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
