// @ts-check
// Metrics by formula: NAME = EXPRESSION, several between semicolons. The server parses the text, as it
// does that of hpcd report --metric; values are computed here, for each row.

/**
 * @typedef {object} Formula
 * @property {string} name
 * @property {string} unit
 * @property {boolean} additive
 * @property {(costs: number[]) => number} of its value, from the cost of each metric
 */

/** @type {Record<string, (...operands: number[]) => number>} */
const OPERATIONS = {
  "+": (left, right) => left + right, "-": (left, right) => left - right,
  "*": (left, right) => left * right, "/": (left, right) => left / right,
  negate: (operand) => -operand, abs: Math.abs, sqrt: Math.sqrt, min: Math.min, max: Math.max,
};

/**
 * The value of a formula; 0 where it is not a finite number.
 * @param {FormulaTree} tree
 * @param {ArrayLike<number>} costs of each metric
 */
export function evaluate(tree, costs) {
  const value = valueOf(tree, costs);
  return Number.isFinite(value) ? value : 0;
}

/**
 * Costs, and after them the values of formulas.
 * @param {number[]} costs of each metric
 * @param {Pick<Formula, "of">[]} formulas
 */
export function evaluateAll(costs, formulas) { return [...costs, ...formulas.map((formula) => formula.of(costs))]; }

/**
 * @param {FormulaTree} tree
 * @param {ArrayLike<number>} costs
 * @returns {number}
 */
function valueOf(tree, costs) {
  if (typeof tree === "number") return tree;
  const [operation, ...operands] = tree;
  if (operation === "metric") return costs[operands[0]];
  return OPERATIONS[operation](...operands.map((operand) => valueOf(operand, costs)));
}

/**
 * Formulas of a text, parsed by the server.
 * @param {{ formula(db: string, text: string): Promise<FormulaAnswer> }} api
 * @param {string} db
 * @param {string | undefined} text
 * @param {Metric[]} all metrics of the database
 * @param {Metric[]} measured those of them that there are costs of, in the order of costs
 * @returns {Promise<{ formulas: Formula[], wrong: string }>} wrong: what is wrong with the others
 */
export async function parseFormulas(api, db, text, all, measured) {
  const texts = (text ?? "").split(";").map((part) => part.trim()).filter(Boolean);
  const answers = await Promise.allSettled(texts.map((part) => api.formula(db, part)));
  /** @type {Formula[]} */
  const formulas = [];
  /** @type {string[]} */
  const wrong = [];
  const names = new Set();
  answers.forEach((answer, i) => {
    if (answer.status === "rejected") { wrong.push(answer.reason.message); return; }
    const { name, unit, additive, tree } = answer.value;
    if (names.has(name)) { wrong.push(`${name} is defined twice`); return; }
    names.add(name);
    const own = renumbered(tree, (number) => measured.findIndex((metric) => metric.name === all[number].name));
    if (own !== null) formulas.push({ name, unit, additive, of: (costs) => evaluate(own, costs) });
    else wrong.push(`${texts[i]}: its metrics are known of whole lines only: press Home`);
  });
  return { formulas, wrong: wrong.join("; ") };
}

/**
 * A tree with its metrics' numbers replaced; null where one has none (-1).
 * @param {FormulaTree} tree
 * @param {(number: number) => number} replacement
 * @returns {FormulaTree | null}
 */
function renumbered(tree, replacement) {
  if (typeof tree === "number") return tree;
  const [operation, ...operands] = tree;
  if (operation === "metric") {
    const number = replacement(operands[0]);
    return number < 0 ? null : [operation, number];
  }
  const own = operands.map((operand) => renumbered(operand, replacement));
  return own.includes(null) ? null : [operation, ...own];
}
