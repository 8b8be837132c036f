// @ts-check
// Which rows of a profile are shown where only some names are requested.


const MOST = 1000; // rows that are gone through

export class NameFilter {
  /**
   * @param {CallingContextTree} tree
   * @param {string} text that names contain
   */
  constructor(tree, text) {
    this.tree = tree;
    // Of each procedure 1 where its name fits.
    this.named = tree.matching(text);
    // Of each node 1 where it fits, or one below it.
    this.below = tree.procedure.map((procedure) => this.named[procedure]);
    for (let node = this.below.length - 1; node > 0; node--) if (this.below[node]) this.below[tree.parent[node]] = 1;
  }

  /** @param {Row} row */
  fits(row) { return this.named[row.procedure] === 1; }

  /**
   * The rows that fit, in the order of the table, each behind those it is in: of the top-down tree all, of
   * others the outermost.
   * @param {Row[]} top
   * @param {(rows: Row[]) => Row[]} sorted
   * @param {boolean} inside whether rows below are looked at
   */
  paths(top, sorted, inside) {
    /** @type {Row[][]} */
    const paths = [];
    const pending = sorted(top).reverse().map((row) => [row]);
    for (let path = pending.pop(); path && paths.length < MOST; path = pending.pop()) {
      const row = path[path.length - 1];
      if (this.fits(row)) paths.push(path);
      if (!inside || !row.nodes.some((node) => this.below[node] === 1)) continue;
      for (const child of sorted(row.children()).reverse()) pending.push([...path, child]);
    }
    return paths;
  }

  /**
   * Whether a row of the top-down tree is on the way to what fits, or below it.
   * @param {Row} row
   */
  isOnPath(row) { return row.nodes.some((node) => this.below[node] === 1 || this.isInside(node)); }

  /** @param {number} node */
  isInside(node) {
    const { parent, procedure } = this.tree;
    for (let at = node; at; at = parent[at]) if (this.named[procedure[at]]) return true;
    return false;
  }
}
