// @ts-check
// A picture: which node each pixel shows. Neighbours show the same more often than not, so it comes as
// runs of pixels where these take less, and is kept as it came.

export class Grid {
  /**
   * @param {GridRows} rows
   * @param {Uint16Array | Uint32Array} nodes of each pixel, row after row, or of each run; numbers beyond the tree are blank
   * @param {Uint16Array | null} ends of the runs: the column behind each, a row's last is w; null: pixels
   */
  constructor({ h, w, revision, lines, places, folded }, nodes, ends) {
    this.h = h;
    this.w = w;
    this.revision = revision;
    this.lines = lines;
    this.places = places;
    this.folded = folded;
    this.nodes = nodes;
    this.ends = ends;
    // Where each row's nodes begin; and the end.
    this.starts = Uint32Array.from({ length: h + 1 }, (_, row) => row * w);
    if (ends) for (let i = 0, row = 1; i < ends.length; i++) if (ends[i] === w) this.starts[row++] = i + 1;
  }

  /**
   * @param {number} row
   * @param {number} column
   */
  nodeAt(row, column) {
    const { nodes, ends, starts } = this;
    if (!ends) return nodes[starts[row] + column];
    let [low, high] = [starts[row], starts[row + 1] - 1];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (ends[middle] > column) high = middle; else low = middle + 1;
    }
    return nodes[low];
  }

  /**
   * The nodes of a row's pixels.
   * @param {number} row
   */
  rowNodes(row) {
    const { w, nodes, ends, starts } = this;
    if (!ends) return nodes.subarray(starts[row], starts[row + 1]);
    const pixels = new Uint32Array(w);
    for (let i = starts[row], x = 0; i < starts[row + 1]; x = ends[i++]) pixels.fill(nodes[i], x, ends[i]);
    return pixels;
  }
}
