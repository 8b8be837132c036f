// The calling context tree in the browser: what needs no request.

export const NO_NODE = 0xffffffff;
const WAITS = new Set(["__schedule [k]", "schedule [k]"]);

export class Tree {
  constructor({ parent, procedure }, summary) {
    this.parent = parent;
    this.names = summary.procedures;
    // Procedures of one name are one: code made at run time is a module of each process.
    const first = new Map();
    const same = Uint32Array.from(this.names, (name, i) => {
      if (!first.has(name)) first.set(name, i);
      return first.get(name);
    });
    this.procedure = procedure.map((each) => same[each]);
    this.colours = Uint32Array.from(summary.colours, (rgb) => (0xff000000 | rgb) >>> 0);
    const n = parent.length;
    this.depth = new Uint16Array(n);
    for (let node = 1; node < n; node++) this.depth[node] = this.depth[parent[node]] + 1;
    this.deepest = this.depth.reduce((most, depth) => Math.max(most, depth), 0);
    const waits = this.names.map((name) => WAITS.has(name));
    this.waiting = Uint8Array.from(this.procedure, (each) => (waits[each] ? 1 : 0));
  }

  // The procedure each node shows at a depth (its own where its path is shorter). One pass: a
  // parent precedes its children.
  at(depth) {
    const { parent, procedure } = this;
    const shown = new Uint32Array(parent.length);
    for (let node = 0; node < parent.length; node++) {
      shown[node] = this.depth[node] <= depth ? procedure[node] : shown[parent[node]];
    }
    return shown;
  }

  // Nodes from the outermost frame to node.
  path(node) {
    const nodes = [];
    for (let each = node; each; each = this.parent[each]) nodes.push(each);
    return nodes.reverse();
  }

  inclusive(exclusive) {
    const total = Float64Array.from(exclusive);
    for (let node = total.length - 1; node > 0; node--) total[this.parent[node]] += total[node];
    return total;
  }
}
