// Metrics by formula: NAME = EXPRESSION, several between semicolons. The server understands the text,
// as it does that of hpcd report --metric; the sums are done here, for each row.

const ACTS = {
  "+": (one, two) => one + two, "-": (one, two) => one - two, "*": (one, two) => one * two, "/": (one, two) => one / two,
  negate: (one) => -one, abs: Math.abs, sqrt: Math.sqrt, min: Math.min, max: Math.max,
};

// tree: a number, ["metric", n], or [act, ...trees]; costs: of each metric.
export function evaluate(tree, costs) {
  const value = of(tree, costs);
  return Number.isFinite(value) ? value : 0;
}

// costs, and what formulas make of them.
export function evaluateAll(costs, formulas) { return [...costs, ...formulas.map((each) => each.of(costs))]; }

function of(tree, costs) {
  if (typeof tree === "number") return tree;
  const [act, ...parts] = tree;
  return act === "metric" ? costs[parts[0]] : ACTS[act](...parts.map((each) => of(each, costs)));
}

// { formulas: [{ name, unit, additive, of(costs) }], wrong: what is wrong with the rest }. metrics:
// what there is costs of, some of the database's, which are all.
export async function understood(api, db, text, all, metrics) {
  const texts = (text ?? "").split(";").map((each) => each.trim()).filter(Boolean);
  const answers = await Promise.allSettled(texts.map((each) => api.formula(db, each)));
  const formulas = [];
  const wrong = [];
  const names = new Set();
  answers.forEach(({ status, value, reason }, i) => {
    if (status === "rejected") wrong.push(reason.message);
    else if (names.has(value.name)) wrong.push(`${value.name} is there twice`);
    else {
      names.add(value.name);
      const tree = renumbered(value.tree, (number) => metrics.findIndex(({ name }) => name === all[number].name));
      if (tree) formulas.push({ ...value, of: (costs) => evaluate(tree, costs) });
      else wrong.push(`${texts[i]}: known of all their time only: press Home`);
    }
  });
  return { formulas, wrong: wrong.join("; ") };
}

function renumbered(tree, number) {
  if (typeof tree === "number") return tree;
  const [act, ...parts] = tree;
  if (act === "metric") return number(parts[0]) < 0 ? null : [act, number(parts[0])];
  const made = parts.map((each) => renumbered(each, number));
  return made.includes(null) ? null : [act, ...made];
}
