// A database that is open: its calling context tree, and what of it the store's depth and search
// show. What needs no request.

import { matcher } from "./format.js";
import { Tree } from "./tree.js";

export class Opened {
  constructor(store, summary, cct) {
    this.store = store;
    this.summary = summary;
    this.tree = new Tree(cct, summary);
    this.at = { depth: 0, shown: null };
    // Panes take these apart from the rest.
    for (const name of ["shown", "found", "lit", "css", "dark"]) this[name] = this[name].bind(this);
  }

  // The procedure each node shows at the depth.
  shown() {
    const { depth } = this.store.state;
    if (this.at.depth !== depth) this.at = { depth, shown: this.tree.at(depth) };
    return this.at.shown;
  }

  // Of each procedure whether it is looked for; null where nothing is.
  found() {
    if (!this.store.state.search) return null;
    const wanted = matcher(this.store.state.search);
    return Uint8Array.from(this.tree.names, (name) => (wanted(name) ? 1 : 0));
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

  css(procedure) {
    const colour = this.tree.colours[procedure];
    return `rgb(${colour & 255} ${(colour >> 8) & 255} ${(colour >> 16) & 255})`;
  }

  dark(procedure) {
    const colour = this.tree.colours[procedure];
    return 0.3 * (colour & 255) + 0.59 * ((colour >> 8) & 255) + 0.11 * ((colour >> 16) & 255) < 130;
  }
}
