// A database that is open: its calling context tree, and what of it the store's depth and search
// show. What needs no request.

import { matcher } from "./format.js";
import { Tree } from "./tree.js";

const INLINED = / \[inlined\]$/;

export class Opened {
  constructor(store, summary, cct) {
    this.store = store;
    this.summary = summary;
    this.tree = new Tree(cct, summary);
    this.at = { depth: 0, shown: null };
    this.views = new Map();
    // Panes take these apart from the rest.
    for (const name of ["shown", "found", "lit", "css", "dark"]) this[name] = this[name].bind(this);
  }

  // The procedure each node shows at the depth.
  shown() {
    const { depth } = this.store.state;
    if (this.at.depth !== depth) this.at = { depth, shown: this.tree.at(depth) };
    return this.at.shown;
  }

  // The tree that a view of the profile is made of, asked for once: inlined calls, loops and lines
  // stand in it as procedures do. place: where in it the own cost of each node of the other belongs.
  view(api, db, view) {
    if (!this.views.has(view)) {
      const made = this.makeView(api, db, view);
      this.views.set(view, made);
      made.catch(() => this.views.delete(view));
    }
    return this.views.get(view);
  }

  async makeView(api, db, view) {
    const { colours } = this.store.state;
    const [tree, entities, painted] = await Promise.all([api.tree(db, view), api.entities(db, view), api.colours(db, colours, view)]);
    const marks = new Uint8Array(entities.name.length);
    const made = new Tree(tree, { procedures: entities.name, colours: painted, marks }, entities.kind);
    return Object.assign(made, { place: tree.place, view, entities });
  }

  // The procedure that something in a view's tree is, or is in.
  procedureOf(tree, number) {
    const { kind, procedure } = tree.entities;
    return kind[number] < 2 ? tree.names[number].replace(INLINED, "") : this.summary.procedures[procedure[number]];
  }

  // Colours as the store's patterns have them.
  async recolour(api, db) {
    const { colours } = this.store.state;
    const paint = async (made, view) => {
      const tree = await made;
      tree.paint(await api.colours(db, colours, view));
    };
    await Promise.all([paint(this.tree), ...[...this.views].map(([view, made]) => paint(made, view))]);
  }

  // Of each procedure whether it is looked for; null where nothing is.
  found(tree = this.tree) {
    if (!this.store.state.search) return null;
    const wanted = matcher(this.store.state.search);
    return Uint8Array.from(tree.names, (name) => (wanted(name) ? 1 : 0));
  }

  // Of each node whether what is looked for is on its path: pixels of a picture stay lit then.
  lit() {
    const found = this.found();
    if (!found) return null;
    const { parent, procedure } = this.tree;
    const lit = new Uint8Array(parent.length);
    for (let node = 1; node < lit.length; node++) lit[node] = found[procedure[node]] | lit[parent[node]];
    return lit;
  }

  css(procedure, tree = this.tree) {
    const colour = tree.colours[procedure];
    return `rgb(${colour & 255} ${(colour >> 8) & 255} ${(colour >> 16) & 255})`;
  }

  dark(procedure, tree = this.tree) {
    const colour = tree.colours[procedure];
    return 0.3 * (colour & 255) + 0.59 * ((colour >> 8) & 255) + 0.11 * ((colour >> 16) & 255) < 130;
  }
}
