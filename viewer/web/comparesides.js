// What is compared: the database on top of the page with others, or parts of it.

import { letter } from "./aligned.js";

const KINDS = [["runs", "with other runs"], ["window", "windows of its time"], ["rank", "its ranks"], ["iteration", "its iterations"]];
const PLACEHOLDERS = { rank: "0 1", iteration: "shortest, median, longest", window: "seconds: 0:1 1:2" };
const MOST = 8;

export function mount(element, { store, context }) {
  element.innerHTML = `<label>Compare <select id="versus"></select></label>
    <span class="joined" id="others" role="group" aria-label="Runs to compare with"></span>
    <label id="parts-label"><span id="parts-name"></span><input id="parts" autocomplete="off" spellcheck="false"></label>
    <span class="joined" id="take" role="group" aria-label="Time in view"></span>`;
  const at = (id) => element.querySelector("#" + id);
  const kinds = KINDS.filter(([kind]) => kind !== "runs" || context.databases.length > 1);
  for (const [value, title] of kinds) at("versus").append(new Option(title, value));
  for (const side of [0, 1]) {
    const button = Object.assign(document.createElement("button"), { textContent: `View as ${letter(side)}`, title: `Compare the time that is in view as ${letter(side)}` });
    button.addEventListener("click", () => {
      const windows = texts();
      const { t0, t1 } = store.state;
      windows[side] = `${t0 / 1e9}:${t1 / 1e9}`;
      store.set({ sides: windows.join(" ") });
    });
    at("take").append(button);
  }

  const kind = () => (kinds.some(([each]) => each === store.state.versus) ? store.state.versus : kinds[0][0]);

  // The parts as texts: names of other databases, or what the input says.
  function texts() {
    const { db, sides } = store.state;
    if (kind() === "runs") {
      const others = context.databases.filter((name) => name !== db);
      const chosen = (sides ?? "").split("/").filter((name) => others.includes(name));
      return chosen.length ? chosen : others.slice(0, MOST - 1);
    }
    const given = (sides ?? "").split(/[\s,;]+/).filter(Boolean);
    if (given.length || kind() === "iteration") return given;
    if (kind() === "rank") return ["0", "1"];
    const { duration_ns } = context.summary;
    return [`0:${duration_ns / 2e9}`, `${duration_ns / 2e9}:${duration_ns / 1e9}`];
  }

  function show() {
    const runs = kind() === "runs";
    at("versus").value = kind();
    const chosen = texts();
    at("others").hidden = !runs;
    at("parts-label").hidden = runs;
    at("take").hidden = kind() !== "window";
    at("parts-name").textContent = { window: "from:to, s ", rank: "numbers ", iteration: "numbers " }[kind()] ?? "";
    if (document.activeElement !== at("parts")) at("parts").value = runs ? "" : chosen.join(" ");
    at("parts").placeholder = PLACEHOLDERS[kind()] ?? "";
    if (!runs) return;
    at("others").replaceChildren(...context.databases.filter((name) => name !== store.state.db).map((name) => {
      const button = Object.assign(document.createElement("button"), { textContent: name, title: `Whether ${name} is compared` });
      button.setAttribute("aria-pressed", chosen.includes(name));
      button.addEventListener("click", () => {
        const next = context.databases.filter((each) => (each === name) !== chosen.includes(each));
        if (next.length && next.length < MOST) store.set({ sides: next.join("/") });
      });
      return button;
    }));
  }

  at("versus").addEventListener("change", () => store.set({ versus: at("versus").value, sides: "" }));
  at("parts").addEventListener("change", () => store.set({ sides: at("parts").value }));
  const end = store.subscribe(["versus", "sides", "db"], show);
  show();

  return {
    kind, dispose: end,
    // As the server wants it.
    query() {
      const query = new URLSearchParams({ db: store.state.db });
      for (const each of kind() === "runs" ? texts() : []) query.append("db", each);
      if (kind() === "runs") return query;
      for (const each of texts()) query.append(kind(), kind() === "window" ? each.split(":").map((part) => Math.round(Number(part) * 1e9)).join(":") : each);
      if (kind() === "iteration" && !texts().length) query.append("iteration", "");
      return query;
    },
  };
}
