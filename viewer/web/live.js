// A measurement being written: its database is made anew as it grows, and the page goes along. Node
// and line numbers differ between revisions, so what the page keeps by number is looked up again.

const LOOK_MS = 1000;

// put(state): shows that button's state; renew(summary, moved): opens the newest revision.
export function follow({ store, api, context, button, renew }) {
  let timer = 0;
  let looking = false;
  let state = null;

  async function look() {
    const { db, line, l0, l1 } = store.state;
    if (looking || !state?.recording || document.hidden) return;
    looking = true;
    try {
      const now = await api.live(db, state.revision, line === undefined ? [l0, l1 - 1] : [l0, l1 - 1, line]);
      if (now.revision === state.revision) state = now;
      else await renew(now);
      show();
    } catch (error) { context.fail(error); }
    looking = false;
  }

  function show() {
    button.hidden = !state;
    if (!state) return;
    const follows = store.state.t1 >= context.summary.duration_ns;
    button.textContent = !state.recording ? "Recording ended" : follows ? "● Recording" : "● Recording: to its end";
    button.title = !state.recording ? "This is all of it" : state.failure ? `The last update failed: ${state.failure}`
      : follows ? "What is shown follows the recording, until you look elsewhere" : "Follow what is new (End)";
  }

  button.addEventListener("click", () => context.toEnd());
  store.subscribe(["t0", "t1"], show);
  return {
    // Of the database that was opened: null where it is finished.
    begin(live) {
      state = live;
      api.stale = look;
      clearInterval(timer);
      if (live) timer = setInterval(look, LOOK_MS);
      show();
    },
  };
}

// What the store holds, as it is in a newer revision. lines: what l0, l1 - 1 and the crosshair's line
// are now; count: how many lines the choice has, before and now.
export function moved(state, before, after, lines, count) {
  const patch = { revision: after.summary.live.revision };
  const [end, now] = [before.summary.duration_ns, after.summary.duration_ns];
  // Who looks at the end goes along: with everything in view, or with a strip that slides.
  if (state.t1 >= end) Object.assign(patch, { t1: now, t0: state.t0 > 0 ? state.t0 + now - end : 0 });
  if (state.l0 === 0 && state.l1 === count.before) patch.l1 = count.now;
  else if (!state.filter && !state.sort && !state.group && lines[0] !== null && lines[1] !== null) Object.assign(patch, { l0: lines[0], l1: lines[1] + 1 });
  else patch.l0 = Math.min(state.l0, (patch.l1 = Math.min(state.l1, count.now)) - 1);
  if (state.line !== undefined) patch.line = lines[2] ?? undefined;
  if (state.context) patch.context = contextIn(state.context, before.tree, after.tree);
  return patch;
}

// A context is n and node numbers, all of one path of names; or a view and a name in it (calls.js).
function contextIn(about, before, after) {
  if (!/^n[\d.]+$/.test(about)) return about;
  const number = Number(about.slice(1).split(".")[0]);
  let nodes = [0];
  for (const node of before.path(number)) {
    const wanted = after.numbers.get(before.names[before.procedure[node]]);
    nodes = nodes.flatMap((each) => after.children(each)).filter((each) => after.procedure[each] === wanted);
  }
  return nodes.length ? "n" + nodes.join(".") : undefined;
}
