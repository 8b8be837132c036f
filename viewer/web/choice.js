// Which lines are shown and in what order: one bar above all panes.

const SORTS = [["", "rank"], ["start", "start"], ["label", "name"]];
const GROUPS = [["", "nothing"], ["job", "job"], ["rank", "rank"], ["process", "process"]];

export function mount(element, { store, api, context }) {
  element.innerHTML = `
    <label>Lines <input id="filter" type="search" placeholder="all: a regular expression" autocomplete="off" spellcheck="false"
      title="Matches label, process, thread, job or host; host:node1 matches hosts alone"></label>
    <label>sorted by <select id="sort"></select></label>
    <label>grouped by <select id="group"></select></label>
    <output id="count" aria-live="polite"></output>`;
  const at = (id) => element.querySelector("#" + id);
  const counts = new Map();
  let turns = 0;
  for (const [value, title] of GROUPS) at("group").append(new Option(title, value));

  const key = ({ filter, sort, group }) => JSON.stringify([store.state.db, filter ?? "", sort ?? "", group ?? ""]);

  function show() {
    const { filter, sort, group } = store.state;
    const metrics = context.summary?.metrics ?? [];
    at("sort").replaceChildren(...[...SORTS, ...metrics.map(({ name }) => [name, name.replaceAll("_", " ")])].map(([value, title]) => new Option(title, value)));
    at("sort").value = sort ?? "";
    at("group").value = group ?? "";
    if (document.activeElement !== at("filter")) at("filter").value = filter ?? "";
    const { lines } = context.summary;
    const count = context.count();
    at("count").textContent = count === lines ? `${lines.toLocaleString("en")} lines` : `${count.toLocaleString("en")} of ${lines.toLocaleString("en")} lines`;
    const lost = context.summary.losses.reduce((sum, [, , , samples]) => sum + samples, 0);
    if (lost) at("count").textContent += `, ${lost.toLocaleString("en")} samples dropped`;
    at("count").classList.remove("wrong");
  }

  // Asks how many lines a choice has; it is shown when that is known.
  async function change(patch) {
    const next = { filter: store.state.filter, sort: store.state.sort, group: store.state.group, ...patch };
    const turn = ++turns;
    try {
      const count = await ask(next);
      if (turn !== turns) return;
      if (!count) {
        at("count").textContent = "no line matches";
        at("count").classList.add("wrong");
        return;
      }
      const kept = count === context.count() ? {} : { l0: 0, l1: count };
      store.zoom({ ...store.window(), ...next, ...kept });
    } catch (error) {
      if (turn !== turns) return;
      at("count").textContent = error.message;
      at("count").classList.add("wrong");
    }
  }

  async function ask(choice) {
    const name = key(choice);
    if (!counts.has(name)) counts.set(name, (await api.selection(store.state.db, choice)).count);
    return counts.get(name);
  }

  let typing = 0;
  at("filter").addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(() => change({ filter: at("filter").value }), 250);
  });
  at("sort").addEventListener("change", () => change({ sort: at("sort").value }));
  at("group").addEventListener("change", () => change({ group: at("group").value }));
  store.subscribe(["filter", "sort", "group", "db"], show);
  // Of a newer revision of the database.
  function renew(count) {
    counts.clear();
    counts.set(key(store.state), count);
  }

  return { show, ask, renew, count: () => counts.get(key(store.state)) ?? context.summary.lines };
}
