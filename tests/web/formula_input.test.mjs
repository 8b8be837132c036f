import assert from "node:assert/strict";
import { test } from "node:test";

import { evaluate, evaluateAll, parseFormulas } from "../../viewer/web/profile/formula_input.js";
import { vectors } from "./vectors.mjs";

const { metrics, units, values, cases } = vectors("formula");

test("formulas evaluate to the shared vectors'", () => {
  for (const { text, tree, value } of cases) {
    value.forEach((expected, node) => assert.ok(evaluate(tree, values.map((row) => row[node])) === expected, text));
  }
});

// Answers as the server does for texts it knows.
const api = {
  async formula(db, text) {
    const known = cases.find((each) => each.text === text);
    if (!known) throw new Error(`${text}: not a formula`);
    return known;
  },
};
const all = metrics.map((name, i) => ({ name, unit: units[i] }));

test("a metric's number is looked up among those there are costs of", async () => {
  const some = [all[3], all[1]]; // blocked_time, cpu_time
  const { formulas, wrong } = await parseFormulas(api, "run.db", "w = cpu_time + blocked_time", all, some);
  assert.equal(wrong, "");
  assert.deepEqual(evaluateAll([1, 2], formulas), [1, 2, 3]);
});

test("what is wrong is said, the rest is kept", async () => {
  const text = "nonsense; w = cpu_time + blocked_time;; w = abs(blocked_time - cpu_time) + 1";
  const { formulas, wrong } = await parseFormulas(api, "run.db", text, all, all);
  assert.deepEqual(formulas.map(({ name, unit }) => [name, unit]), [["w", "s"]]);
  assert.match(wrong, /nonsense: not a formula; w is defined twice/);
});

test("a formula of a metric without costs is refused", async () => {
  const { formulas, wrong } = await parseFormulas(api, "run.db", "w = cache_misses / samples", all, [all[1]]);
  assert.deepEqual(formulas, []);
  assert.match(wrong, /press Home/);
});

test("no text is no formulas", async () => {
  assert.deepEqual(await parseFormulas(api, "run.db", undefined, all, all), { formulas: [], wrong: "" });
});
