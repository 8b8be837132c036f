// @ts-check
// The calling context tree in the browser: what needs no request.

import { nameMatcher } from "./format.js";

const INNERMOST = 3; // frames of a path in a list

export const BLOCKED = 1;
export const INTERRUPT = 4; // of a procedure: what is BLOCKED below it was preempted where the interrupt came

// States of a thread: as RUNNING and so on of viewer/picture_tree.py.
export const RUNNING = 0;
export const RUNNABLE = 1;
export const ASLEEP = 2;
export const WAITING = 3;

/**
 * Whether a thread has a CPU: it runs, or waits for others on one.
 * @param {number} state of a node: RUNNING and so on in the lowest two bits, the cause above
 * @param {string[]} causes of waits; the second half is for threads on a CPU
 */
export function isOnCpu(state, causes) { return (state & 3) === RUNNING || state >> 2 >= causes.length / 2; }

// Kinds of what a tree's nodes are: procedures, inlined calls of some, loops, source lines.
export const LOOP = 2;
export const STATEMENT = 3;

const INLINED = / \[inlined\]$/;

/**
 * The name of a procedure, inlined or not.
 * @param {string} name
 */
export function bareName(name) { return name.replace(INLINED, ""); }

export class CallingContextTree {
  /**
   * @param {TreeColumns} columns
   * @param {Pick<Procedures, "procedures" | "short" | "colours" | "marks">} summary of what the nodes are
   * @param {ArrayLike<number> | null} kinds of what the nodes are; null: procedures
   */
  constructor({ parent, procedure, paths = parent.length, owner, state, cost }, summary, kinds = null) {
    this.parent = parent;
    this.names = summary.procedures;
    // The same as people read them: texts of the page have these, links and searches the whole names.
    this.short = summary.short ?? this.names;
    this.kinds = kinds;
    // What each node is, by its own name. Procedures of one name are one: code made at run time is a module
    // of each process; in a database's tree, whose colours have owners, inlined ones too.
    this.entity = procedure;
    /** @type {Map<string, number>} */
    const first = new Map();
    const same = Uint32Array.from(this.names, (label, i) => {
      if (kinds && kinds[i] >= LOOP) return i;
      const name = owner ? bareName(label) : label;
      const number = first.get(name) ?? i;
      first.set(name, number);
      return number;
    });
    // The number of the procedure of a name.
    this.numbers = first;
    this.procedure = procedure.map((number) => same[number]);
    const n = parent.length;
    // Of a database's tree: the procedure whose colour each node has, its state in the lowest two bits and
    // the cause above, how much it counts.
    this.owner = owner ?? null;
    this.state = state ?? new Uint32Array(n);
    this.cost = cost ?? new Float32Array(n);
    this.colours = new Uint32Array(0);
    // Of each of what the nodes are 1 where it has one of the distinct colours, or a person's own.
    this.distinct = new Uint8Array(0);
    this.paint(summary.colours);
    /** @type {{ begin: Float64Array, end: Float64Array } | null} */
    this.order = null;
    this.depth = new Uint16Array(n);
    this.deepest = 0;
    // Of each node 1 where it is a loop and these are not shown.
    this.hidden = new Uint8Array(n);
    const mark = Uint8Array.from(summary.marks);
    // Of each node the innermost INTERRUPT on its path, or 0.
    const interrupt = new Uint32Array(n);
    // The node whose procedure each node shows: of a preempted thread where it was interrupted.
    this.stands = Uint32Array.from({ length: n }, (_, node) => node);
    // The call paths that are children of a node follow one another, from firstChild on.
    this.firstChild = new Uint32Array(n + 1);
    for (let node = 1; node < n; node++) {
      const own = mark[this.procedure[node]];
      interrupt[node] = own === INTERRUPT ? node : interrupt[parent[node]];
      const above = this.stands[parent[node]];
      if (above !== parent[node]) this.stands[node] = above;
      else if (interrupt[node] && own === BLOCKED) this.stands[node] = parent[interrupt[node]];
      if (node < paths) this.firstChild[parent[node] + 1] = node + 1;
    }
    this.firstChild[0] = 1;
    for (let node = 1; node <= n; node++) this.firstChild[node] = Math.max(this.firstChild[node], this.firstChild[node - 1]);
    this.showLoops(false);
  }

  /**
   * Whether loops are frames: they have a depth of their own then.
   * @param {boolean} shown
   */
  showLoops(shown) {
    const { parent, depth, hidden, kinds, entity } = this;
    this.deepest = 0;
    for (let node = 1; node < parent.length; node++) {
      hidden[node] = !shown && kinds !== null && kinds[entity[node]] === LOOP ? 1 : 0;
      depth[node] = depth[parent[node]] + 1 - hidden[node];
      if (depth[node] > this.deepest) this.deepest = depth[node];
    }
  }

  /** @param {ArrayLike<number>} colours of procedures: red, green << 8, blue << 16 */
  paint(colours) {
    this.colours = Uint32Array.from(colours, (word) => (0xff000000 | word) >>> 0);
    this.distinct = Uint8Array.from(colours, (word) => word >>> 24);
  }

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
      shown[node] = at !== node ? shown[at] : this.depth[node] <= depth && !this.hidden[node] ? procedure[node] : shown[parent[node]];
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
   * Nodes from the outermost frame to where the thread stands at node, without loops unless they are shown.
   * @param {number} node
   */
  path(node) {
    const nodes = [];
    for (let at = this.stands[node]; at; at = this.parent[at]) if (!this.hidden[at]) nodes.push(at);
    return nodes.reverse();
  }

  /**
   * The innermost frames of a node's path, in short.
   * @param {number} node
   */
  innermost(node) { return this.path(node).slice(-INNERMOST).reverse().map((one) => this.shortOf(one)).join(" ‹ "); }

  /**
   * What a node is called on the page: an inlined call says so.
   * @param {number} node
   */
  shortOf(node) { return this.short[this.entity[node]]; }

  /**
   * The short name of a procedure, and below it the whole one if that says more.
   * @param {number} procedure
   */
  both(procedure) { return [...new Set([this.short[procedure], this.names[procedure]])].join("\n"); }

  /**
   * The short name of a procedure.
   * @param {string} name the whole one, which is returned where no procedure has it
   */
  shortened(name) {
    const short = this.short[this.numbers.get(name) ?? -1] ?? name;
    // The first of this name may be an inlined call.
    return name === bareName(name) ? bareName(short) : short;
  }

  /**
   * Whether the name of each procedure, whole or short, contains a text: 1 or 0.
   * @param {string} text in small letters for any case
   */
  matching(text) {
    const fits = nameMatcher(text);
    return Uint8Array.from(this.names, (name, i) => (fits(name) || fits(this.short[i]) ? 1 : 0));
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
