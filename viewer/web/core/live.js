// @ts-check
// A measurement being written: its database is made anew as it grows, and the page goes along. Node
// and line numbers differ between revisions, so what the page keeps by number is looked up again.

import { numbers } from "./context.js";

/** @typedef {Pick<OpenDatabase, "summary" | "tree">} Revision */

const LOOK_MS = 1000;

/**
 * @param {object} page
 * @param {Store} page.store
 * @param {Pick<Api, "live" | "stale">} page.api
 * @param {PageContext} page.context
 * @param {HTMLElement} page.button shows the state; a click goes to the end of the recording
 * @param {(newest: LiveAnswer) => Promise<void>} page.renew opens the newest revision
 */
export function followRecording({ store, api, context, button, renew }) {
  let timer = 0;
  let looking = false;
  /** @type {LiveState | null} */
  let state = null;

  async function look() {
    const { db, line = 0, l0, l1, pinned, moved, partners } = store.state;
    if (looking || !state?.recording || document.hidden || db === undefined) return;
    looking = true;
    try {
      const newest = await api.live(db, state.revision, [l0, l1 - 1, line, ...numbers(pinned), ...numbers(moved), ...numbers(partners).slice(0, 1)]);
      if (newest.revision === state.revision) state = newest;
      else await renew(newest);
      show();
    } catch (error) { context.fail(error); }
    looking = false;
  }

  function show() {
    button.hidden = !state;
    if (!state) return;
    const follows = store.state.t1 >= context.summary.duration_ns;
    button.textContent = !state.recording ? "Recording ended" : follows ? "● Recording" : "● Recording: to its end";
    button.title = !state.recording ? "The recording is complete" : state.failure ? `The last update failed: ${state.failure}`
      : follows ? "The view follows the recording until you move it" : "Go to the end and follow the recording (End)";
  }

  button.addEventListener("click", () => context.toEnd());
  store.subscribe(["t0", "t1"], show);
  return {
    /** @param {LiveState | null} live of the database that is open: null where it is finished */
    begin(live) {
      state = live;
      api.stale = look;
      clearInterval(timer);
      if (live) timer = window.setInterval(look, LOOK_MS);
      show();
    },
  };
}

/**
 * What of the store's state differs in a newer revision.
 * @param {State} state
 * @param {Revision} before
 * @param {Revision} after
 * @param {(number | null)[]} lines what l0, l1 - 1, the crosshair's line, those that are pinned and moved, and that whose partners are chosen are now
 * @param {{ before: number, now: number }} count how many lines the choice has
 */
export function stateInRevision(state, before, after, lines, count) {
  /** @type {Partial<State>} */
  const patch = { revision: after.summary.live?.revision };
  const [end, now] = [before.summary.duration_ns, after.summary.duration_ns];
  // Who looks at the end goes along: with everything in view, or with a strip that slides.
  if (state.t1 >= end) Object.assign(patch, { t1: now, t0: state.t0 > 0 ? state.t0 + now - end : 0 });
  if (state.l0 === 0 && state.l1 === count.before) patch.l1 = count.now;
  else if (isPlain(state, before) && isPlain(state, after) && lines[0] !== null && lines[1] !== null) {
    Object.assign(patch, { l0: lines[0], l1: lines[1] + 1 });
  } else {
    patch.l1 = Math.min(state.l1, count.now);
    patch.l0 = Math.min(state.l0, patch.l1 - 1);
  }
  if (state.line !== undefined) patch.line = lines[2] ?? undefined;
  const [pinned, moved] = [lines.slice(3, 3 + numbers(state.pinned).length), lines.slice(3 + numbers(state.pinned).length).slice(0, numbers(state.moved).length)];
  if (state.pinned) patch.pinned = pinned.filter((line) => line !== null).join(".");
  // A row goes below another: both are there, or it stays.
  if (state.moved) patch.moved = moved.filter((line, i) => line !== null && moved[i ^ 1] !== null).join(".");
  if (state.partners) patch.partners = partnersInRevision(state, lines);
  if (state.context) patch.context = contextIn(state.context, before.tree, after.tree);
  return patch;
}

/**
 * The line whose partners are chosen, in a newer revision: none if it is not there any more.
 * @param {Pick<State, "partners">} state
 * @param {(number | null)[]} lines as of stateInRevision
 */
export function partnersInRevision({ partners }, lines) {
  const line = lines.at(-1) ?? null;
  return !partners || line === null ? "" : [line, ...numbers(partners).slice(1)].join(".");
}

/**
 * Whether places of the chosen order are the lines' own numbers.
 * @param {State} state
 * @param {Revision} revision
 */
function isPlain({ filter, sort, group, all, moved, partners }, { summary: { lines, rows } }) {
  return !filter && !sort && !group && !moved && !partners && (Boolean(all) || rows === lines);
}

/**
 * The context of the same path of names in another tree; undefined where there is none.
 * @param {string} context n and node numbers, all of one path of names; or VIEW:NAME (see profile_table.js)
 * @param {Revision["tree"]} before
 * @param {Revision["tree"]} after
 */
function contextIn(context, before, after) {
  if (!/^n[\d.]+$/.test(context)) return context;
  const number = Number(context.slice(1).split(".")[0]);
  let nodes = [0];
  for (const node of before.path(number)) {
    const procedure = after.numbers.get(before.names[before.procedure[node]]);
    nodes = nodes.flatMap((parent) => after.children(parent)).filter((child) => after.procedure[child] === procedure);
  }
  return nodes.length ? "n" + nodes.join(".") : undefined;
}
