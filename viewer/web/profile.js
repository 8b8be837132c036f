// Costs as trees of rows, each made when it is first looked at: callees, callers, or a flat list.
// A row: procedure, nodes it stands for, inclusive and exclusive costs (one per metric), children().

import { evaluateAll } from "./formula.js";

export class Profile {
  // values: per metric the exclusive cost of each node; formulas: metrics derived from these.
  constructor(tree, values, formulas = []) {
    this.tree = tree;
    this.exclusive = values;
    this.inclusive = values.map((each) => tree.inclusive(each));
    this.derived = (costs) => evaluateAll(costs, formulas);
    this.total = this.derived(this.inclusive.map((each) => each[0]));
    this.used = new Uint8Array(tree.parent.length);
    for (const each of this.inclusive) for (let node = 0; node < each.length; node++) if (each[node]) this.used[node] = 1;
  }

  root() { return this.callees(0, [0]); }

  callees(procedure, nodes) {
    const { tree } = this;
    const row = this.row(procedure, nodes, nodes, nodes);
    row.make = () => {
      const groups = new Map();
      for (const node of nodes) {
        for (let child = tree.firstChild[node]; child < tree.firstChild[node + 1]; child++) {
          if (this.used[child]) put(groups, tree.procedure[child], child);
        }
      }
      return [...groups].map(([each, members]) => this.callees(each, members));
    };
    return row;
  }

  // Every procedure with its callers below it, and theirs below them.
  procedures(callers = true) {
    const groups = new Map();
    for (let node = 1; node < this.used.length; node++) if (this.used[node]) put(groups, this.tree.procedure[node], node);
    return [...groups].map(([each, nodes]) => (callers ? this.callers(each, nodes, nodes) : this.row(each, nodes, nodes, this.outermost(nodes))));
  }

  // tops: where the cost is; at: the frame of each that this row is about.
  callers(procedure, tops, at) {
    const row = this.row(procedure, at, tops, this.outermost(tops));
    row.make = () => {
      const groups = new Map();
      at.forEach((node, i) => {
        const caller = this.tree.parent[node];
        if (!caller) return;
        const each = this.tree.procedure[caller];
        if (!groups.has(each)) groups.set(each, [[], []]);
        groups.get(each)[0].push(tops[i]);
        groups.get(each)[1].push(caller);
      });
      return [...groups].map(([each, [above, callersAt]]) => this.callers(each, above, callersAt));
    };
    return row;
  }

  // A procedure wherever it is called, recursion counted once.
  everywhere(procedure) {
    const nodes = [];
    for (let node = 1; node < this.used.length; node++) if (this.used[node] && this.tree.procedure[node] === procedure) nodes.push(node);
    return this.outermost(nodes);
  }

  // Of nodes, those with no other of them above.
  outermost(nodes) {
    const { begin, end } = this.tree.walk;
    let furthest = -1;
    return nodes.slice().sort((one, two) => begin[one] - begin[two]).filter((node) => {
      if (begin[node] < furthest) return false;
      furthest = end[node];
      return true;
    });
  }

  row(procedure, nodes, own, whole) {
    const { exclusive, inclusive } = this;
    let made = null;
    const row = {
      procedure, nodes, make: () => [],
      exclusive: this.derived(exclusive.map((each) => sum(each, own))),
      inclusive: this.derived(inclusive.map((each) => sum(each, whole))),
      children: () => (made ??= row.make()),
    };
    return row;
  }
}

function put(groups, key, value) {
  const list = groups.get(key);
  if (list) list.push(value); else groups.set(key, [value]);
}

function sum(values, nodes) {
  let total = 0;
  for (const node of nodes) total += values[node];
  return total;
}
