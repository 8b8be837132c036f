// @ts-check
// A database that is open: its calling context tree, and what of it the store's depth and search
// show. What needs no request.

import { cssOfPixel, isDarkPixel } from "./colour.js";
import { bareName, CallingContextTree, LOOP } from "./cct.js";
import { pictureColours } from "./picture_colours.js";

/**
 * The tree of a view. place: of each node of the database's tree, where its exclusive cost belongs.
 * @typedef {CallingContextTree & { view: string, place: Uint32Array, entities: Entities }} ViewTree
 *
 * @typedef {Pick<Api, "tree" | "entities" | "colours">} TreeApi the requests made here
 */

/** @template {Procedures} [Described=Summary] what is said about the tree */
export class OpenDatabase {
  /**
   * @param {Store} store
   * @param {Described} summary
   * @param {TreeColumns} cct
   */
  constructor(store, summary, cct) {
    this.store = store;
    this.summary = summary;
    this.tree = new CallingContextTree(cct, summary, summary.kinds ?? null);
    /** @type {{ depth: number, loops: boolean, picture: import("./picture_colours.js").PictureColours } | null} */
    this.at = null;
    /** @type {Map<string, Promise<ViewTree>>} */
    this.views = new Map();
    // Panes call these without the object.
    this.picture = this.picture.bind(this);
    this.searchHits = this.searchHits.bind(this);
    this.lit = this.lit.bind(this);
    this.css = this.css.bind(this);
    this.dark = this.dark.bind(this);
  }

  // The procedure each node shows in pictures over time, and the colours of procedures there.
  picture() {
    const { depth = 0, loops } = this.store.state;
    const withLoops = Boolean(loops);
    if (this.at?.depth !== depth || this.at.loops !== withLoops) {
      if (this.at?.loops !== withLoops) this.tree.showLoops(withLoops);
      const { palette = [], rest = 0 } = this.summary;
      this.at = { depth, loops: withLoops, picture: pictureColours(this.tree, depth, { palette, rest }) };
    }
    return this.at.picture;
  }

  /**
   * The tree of a view of the profile, requested once: inlined calls, loops and lines are nodes of it
   * as procedures are.
   * @param {TreeApi} api
   * @param {string} db
   * @param {string} view
   */
  view(api, db, view) {
    const pending = this.views.get(view);
    if (pending) return pending;
    const tree = this.loadView(api, db, view);
    this.views.set(view, tree);
    tree.catch(() => this.views.delete(view));
    return tree;
  }

  /**
   * @param {TreeApi} api
   * @param {string} db
   * @param {string} view
   * @returns {Promise<ViewTree>}
   */
  async loadView(api, db, view) {
    const { colours } = this.store.state;
    const [columns, entities, painted] = await Promise.all([api.tree(db, view), api.entities(db, view), api.colours(db, colours, view)]);
    const marks = entities.name.map((_, i) => this.summary.marks[i] ?? 0);
    const tree = new CallingContextTree(columns, { procedures: entities.name, short: entities.short, colours: painted, marks }, entities.kind);
    tree.showLoops(true);
    return Object.assign(tree, { place: columns.place, view, entities });
  }

  /**
   * Name of the procedure that an entity of a view's tree is, or is in.
   * @param {ViewTree} tree
   * @param {number} number
   */
  procedureOf(tree, number) {
    const { kind, procedure } = tree.entities;
    return kind[number] < LOOP ? bareName(tree.names[number]) : this.summary.procedures[procedure[number]];
  }

  /**
   * Takes over the colours of the store's patterns.
   * @param {TreeApi} api
   * @param {string} db
   */
  async recolour(api, db) {
    const { colours } = this.store.state;
    /**
     * @param {CallingContextTree | Promise<CallingContextTree>} pending
     * @param {string} [view]
     */
    const paint = async (pending, view) => {
      const tree = await pending;
      tree.paint(await api.colours(db, colours, view));
    };
    this.at = null;
    await Promise.all([paint(this.tree), ...[...this.views].map(([view, tree]) => paint(tree, view))]);
  }

  // Of each procedure 1 where the search finds it; null without a search.
  searchHits(tree = this.tree) {
    return this.store.state.search ? tree.matching(this.store.state.search) : null;
  }

  // Of each node 1 where the search finds something on its path: its pixels stay lit then; null without a search.
  lit() {
    const hits = this.searchHits();
    if (!hits) return null;
    const { parent, procedure } = this.tree;
    const lit = new Uint8Array(parent.length);
    for (let node = 1; node < lit.length; node++) lit[node] = hits[procedure[node]] | lit[parent[node]];
    return lit;
  }

  /**
   * @param {number} procedure
   * @param {CallingContextTree} [tree]
   */
  css(procedure, tree = this.tree) { return cssOfPixel(tree.colours[procedure]); }

  /**
   * Whether text on a procedure's colour must be light.
   * @param {number} procedure
   * @param {CallingContextTree} [tree]
   */
  dark(procedure, tree = this.tree) { return isDarkPixel(tree.colours[procedure]); }
}
