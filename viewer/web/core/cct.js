// @ts-check
// The calling context tree in the browser: what needs no request.

export const BLOCKED = 1;
export const COMMUNICATION = 2;
export const SLEEPING = 3; // of a procedure: it and all below it is BLOCKED
export const INTERRUPT = 4; // of a procedure: what is BLOCKED below it was preempted where the interrupt came

// Kinds of what a view's nodes are: procedures, inlined calls of some, loops, source lines.
export const LOOP = 2;
export const STATEMENT = 3;

/** @typedef {import("./api_types.js").Summary} Summary */

export class CallingContextTree {
  /**
   * @param {import("./api_types.js").TreeColumns} columns
   * @param {Pick<Summary, "procedures" | "colours" | "marks">} summary of what the nodes are
   * @param {ArrayLike<number> | null} kinds of a view's tree, whose nodes are entities rather than procedures
   */
  constructor({ parent, procedure }, summary, kinds = null) {
    this.parent = parent;
    this.names = summary.procedures;
    // Procedures of one name are one: code made at run time is a module of each process.
    /** @type {Map<string, number>} */
    const first = new Map();
    const same = Uint32Array.from(this.names, (name, i) => {
      if (kinds && kinds[i] >= LOOP) return i;
      const number = first.get(name) ?? i;
      first.set(name, number);
      return number;
    });
    // The number of the procedure of a name.
    this.numbers = first;
    this.procedure = procedure.map((number) => same[number]);
    this.colours = opaque(summary.colours);
    /** @type {{ begin: Float64Array, end: Float64Array } | null} */
    this.order = null;
    const n = parent.length;
    this.depth = new Uint16Array(n);
    // Of each node: whether its thread sleeps there, else whether it is inside communication.
    this.marks = new Uint8Array(n);
    const mark = Uint8Array.from(summary.marks);
    // Of each node whether a procedure on its path is SLEEPING.
    const asleep = new Uint8Array(n);
    // Of each node the innermost INTERRUPT on its path, or 0.
    const interrupt = new Uint32Array(n);
    // The node whose procedure each node shows: of a preempted thread where it was interrupted.
    this.stands = Uint32Array.from({ length: n }, (_, node) => node);
    // The children of a node follow one another, from firstChild on.
    this.firstChild = new Uint32Array(n + 1);
    for (let node = 1; node < n; node++) {
      this.depth[node] = this.depth[parent[node]] + 1;
      const own = mark[this.procedure[node]];
      asleep[node] = own === SLEEPING ? 1 : asleep[parent[node]];
      this.marks[node] = asleep[node] ? BLOCKED : (own === INTERRUPT ? 0 : own) || (this.marks[parent[node]] & COMMUNICATION);
      interrupt[node] = own === INTERRUPT ? node : interrupt[parent[node]];
      const above = this.stands[parent[node]];
      if (above !== parent[node]) this.stands[node] = above;
      else if (interrupt[node] && own === BLOCKED) this.stands[node] = parent[interrupt[node]];
      this.firstChild[parent[node] + 1] = node + 1;
    }
    this.firstChild[0] = 1;
    for (let node = 1; node <= n; node++) this.firstChild[node] = Math.max(this.firstChild[node], this.firstChild[node - 1]);
    this.deepest = this.depth.reduce((deepest, depth) => Math.max(deepest, depth), 0);
  }

  /** @param {ArrayLike<number>} colours of procedures: red, green << 8, blue << 16 */
  paint(colours) { this.colours = opaque(colours); }

  /**
   * The procedure each node shows at a depth (its own where its path is shorter; of a preempted thread
   * what it was doing). One pass: a parent precedes its children.
   * @param {number} depth 1 is the outermost frame
   */
  at(depth) {
    const { parent, procedure } = this;
    const shown = new Uint32Array(parent.length);
    for (let node = 0; node < parent.length; node++) {
      const at = this.stands[node];
      shown[node] = at !== node ? shown[at] : this.depth[node] <= depth ? procedure[node] : shown[parent[node]];
    }
    return shown;
  }

  /**
   * Whether a pixel shows a node: where nothing ran it shows none.
   * @param {number} node
   */
  has(node) { return node < this.parent.length; }

  /** @param {number} node */
  children(node) { return Array.from({ length: this.firstChild[node + 1] - this.firstChild[node] }, (_, i) => this.firstChild[node] + i); }

  /**
   * Nodes from the outermost frame to node.
   * @param {number} node
   */
  path(node) {
    const nodes = [];
    for (let at = node; at; at = this.parent[at]) nodes.push(at);
    return nodes.reverse();
  }

  /**
   * Of each node the sum over its subtree.
   * @param {ArrayLike<number>} exclusive of each node
   */
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
      this.order = { begin, end: begin.map((first, node) => first + size[node]) };
    }
    return this.order;
  }
}

/** @param {ArrayLike<number>} colours */
function opaque(colours) { return Uint32Array.from(colours, (rgb) => (0xff000000 | rgb) >>> 0); }
