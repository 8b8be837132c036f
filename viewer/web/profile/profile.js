// @ts-check
// Costs as trees of rows, each made when it is first looked at: callees, callers, or a flat list.

import { evaluateAll } from "./formula_input.js";

/**
 * @typedef {object} Row
 * @property {string} name
 * @property {number} procedure
 * @property {number[]} nodes of the row
 * @property {number[]} inclusive by metric
 * @property {number[]} exclusive by metric
 * @property {() => Row[]} make makes its children
 * @property {() => Row[]} children made when they are first looked at
 */

/** @template {CallingContextTree} [Tree=CallingContextTree] */
export class Profile {
  /**
   * @param {Tree} tree
   * @param {Float64Array[]} values by metric the exclusive cost of each node
   * @param {Pick<import("./formula_input.js").Formula, "of">[]} formulas metrics derived from these
   */
  constructor(tree, values, formulas = []) {
    this.tree = tree;
    this.exclusive = values;
    this.inclusive = values.map((costs) => tree.inclusive(costs));
    this.derived = (/** @type {number[]} */ costs) => evaluateAll(costs, formulas);
    this.total = this.derived(this.inclusive.map((costs) => costs[0]));
    // Of each node whether it cost anything.
    this.used = new Uint8Array(tree.parent.length);
    for (const costs of this.inclusive) for (let node = 0; node < costs.length; node++) if (costs[node]) this.used[node] = 1;
  }

  root() { return this.callees(0, [0]); }

  /**
   * @param {number} procedure
   * @param {number[]} nodes
   */
  callees(procedure, nodes) {
    const { tree } = this;
    const row = this.row(procedure, nodes, nodes, nodes);
    row.make = () => {
      /** @type {Map<number, number[]>} */
      const groups = new Map();
      for (const node of nodes) {
        for (let child = tree.firstChild[node]; child < tree.firstChild[node + 1]; child++) {
          if (this.used[child]) put(groups, tree.procedure[child], child);
        }
      }
      return [...groups].map(([callee, members]) => this.callees(callee, members));
    };
    return row;
  }

  // Every procedure; with its callers below it, and theirs below them, if asked.
  procedures(callers = true) {
    /** @type {Map<number, number[]>} */
    const groups = new Map();
    for (let node = 1; node < this.used.length; node++) if (this.used[node]) put(groups, this.tree.procedure[node], node);
    return [...groups].map(([procedure, nodes]) => (
      callers ? this.callers(procedure, nodes, nodes) : this.row(procedure, nodes, nodes, this.outermost(nodes))));
  }

  /**
   * @param {number} procedure
   * @param {number[]} tops where the cost is
   * @param {number[]} at the frame of each that this row is about
   */
  callers(procedure, tops, at) {
    const row = this.row(procedure, at, tops, this.outermost(tops));
    row.make = () => {
      /** @type {Map<number, [number[], number[]]>} */
      const groups = new Map();
      at.forEach((node, i) => {
        const caller = this.tree.parent[node];
        if (!caller) return;
        const callingProcedure = this.tree.procedure[caller];
        const group = groups.get(callingProcedure) ?? [[], []];
        groups.set(callingProcedure, group);
        group[0].push(tops[i]);
        group[1].push(caller);
      });
      return [...groups].map(([callingProcedure, [above, callersAt]]) => this.callers(callingProcedure, above, callersAt));
    };
    return row;
  }

  /**
   * Nodes of a procedure wherever it is called, recursion counted once.
   * @param {number} procedure
   */
  everywhere(procedure) {
    const nodes = [];
    for (let node = 1; node < this.used.length; node++) if (this.used[node] && this.tree.procedure[node] === procedure) nodes.push(node);
    return this.outermost(nodes);
  }

  /**
   * Of nodes, those with no other of them above.
   * @param {number[]} nodes
   */
  outermost(nodes) {
    const { begin, end } = this.tree.walk;
    let furthest = -1;
    return nodes.slice().sort((one, two) => begin[one] - begin[two]).filter((node) => {
      if (begin[node] < furthest) return false;
      furthest = end[node];
      return true;
    });
  }

  /**
   * @param {number} procedure
   * @param {number[]} nodes
   * @param {number[]} own nodes whose exclusive costs are the row's
   * @param {number[]} whole nodes whose inclusive costs are the row's
   */
  row(procedure, nodes, own, whole) {
    const { exclusive, inclusive } = this;
    /** @type {Row[] | null} */
    let children = null;
    /** @type {Row} */
    const row = {
      name: this.tree.names[procedure], procedure, nodes, make: () => [],
      exclusive: this.derived(exclusive.map((costs) => sum(costs, own))),
      inclusive: this.derived(inclusive.map((costs) => sum(costs, whole))),
      children: () => (children ??= row.make()),
    };
    return row;
  }
}

/**
 * @param {Map<number, number[]>} groups
 * @param {number} key
 * @param {number} value
 */
function put(groups, key, value) {
  const list = groups.get(key);
  if (list) list.push(value); else groups.set(key, [value]);
}

/**
 * @param {Float64Array} values
 * @param {number[]} nodes
 */
function sum(values, nodes) {
  let total = 0;
  for (const node of nodes) total += values[node];
  return total;
}
