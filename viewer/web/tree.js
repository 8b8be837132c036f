// The calling context tree in the browser: what needs no request.

export const BLOCKED = 1;
export const COMMUNICATION = 2;

// Kinds of what a view's nodes are: procedures, inlined calls of some, loops, source lines.
export const LOOP = 2;
export const STATEMENT = 3;

export class Tree {
  // kinds: of a view's tree, whose nodes are entities rather than procedures.
  constructor({ parent, procedure }, summary, kinds = null) {
    this.parent = parent;
    this.names = summary.procedures;
    // Procedures of one name are one: code made at run time is a module of each process.
    const first = new Map();
    const same = Uint32Array.from(this.names, (name, i) => {
      if (kinds?.[i] >= LOOP) return i;
      if (!first.has(name)) first.set(name, i);
      return first.get(name);
    });
    this.numbers = first;
    this.procedure = procedure.map((each) => same[each]);
    this.paint(summary.colours);
    const n = parent.length;
    this.depth = new Uint16Array(n);
    // Of each node: whether its thread sleeps there, else whether it is inside communication.
    this.marks = new Uint8Array(n);
    const mark = Uint8Array.from(summary.marks);
    // The children of a node follow one another, from firstChild on.
    this.firstChild = new Uint32Array(n + 1);
    for (let node = 1; node < n; node++) {
      this.depth[node] = this.depth[parent[node]] + 1;
      this.marks[node] = mark[this.procedure[node]] || (this.marks[parent[node]] & COMMUNICATION);
      this.firstChild[parent[node] + 1] = node + 1;
    }
    this.firstChild[0] = 1;
    for (let node = 1; node <= n; node++) this.firstChild[node] = Math.max(this.firstChild[node], this.firstChild[node - 1]);
    this.deepest = this.depth.reduce((most, depth) => Math.max(most, depth), 0);
  }

  paint(colours) { this.colours = Uint32Array.from(colours, (rgb) => (0xff000000 | rgb) >>> 0); }

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

  // Whether a pixel shows a node: where nothing ran it shows none.
  has(node) { return node < this.parent.length; }
  children(node) { return Array.from({ length: this.firstChild[node + 1] - this.firstChild[node] }, (_, i) => this.firstChild[node] + i); }

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

  // Where each node is in a depth-first walk, and where its subtree ends.
  get walk() {
    if (!this.order) {
      const n = this.parent.length;
      const size = this.inclusive(new Float64Array(n).fill(1));
      const begin = new Float64Array(n);
      const next = new Float64Array(n);
      next[0] = 1;
      for (let node = 1; node < n; node++) {
        begin[node] = next[this.parent[node]];
        next[this.parent[node]] += size[node];
        next[node] = begin[node] + 1;
      }
      this.order = { begin, end: begin.map((each, node) => each + size[node]) };
    }
    return this.order;
  }
}
