// @ts-check
// How many pixels of each stretch of a picture's columns show which node: counted once, and added up
// for any depth and any search without another look at the pixels.

export class PixelCounts {
  /**
   * Rows of helper threads are left out, folded or not, unless there are no others.
   * @param {Pick<Grid, "nodes" | "ends" | "starts" | "w" | "h"> & { folded?: Uint32Array }} grid
   * @param {number} n nodes below it exist, others are blank
   * @param {number} stretches into how many the columns are divided, as wide as each other within a pixel
   * @param {number[]} [every] rows; all of the picture
   */
  constructor({ nodes, ends, starts, w, h, folded }, n, stretches, every = Array.from({ length: h }, (_, row) => row)) {
    this.stretches = stretches;
    this.columns = w;
    this.scale = 1; // lines that a row of the picture shows
    const own = every.filter((row) => !folded?.[row]);
    const rows = own.length ? own : every;
    // How many rows are left out.
    this.left = every.length - rows.length;
    this.rows = rows.length;
    // Pixels of each stretch.
    this.width = Float64Array.from({ length: stretches }, (_, i) => (this.begin(i + 1, w) - this.begin(i, w)) * rows.length);
    this.start = new Uint32Array(stretches + 1);
    const pixels = new Uint32Array(n);
    const distinctNodes = new Uint32Array(n);
    // Of each row the run that the next stretch begins in; without runs, its first pixel.
    const at = Uint32Array.from(rows, (row) => starts[row]);
    /** @type {number[]} */
    const node = [];
    /** @type {number[]} */
    const count = [];
    for (let stretch = 0; stretch < stretches; stretch++) {
      const from = this.begin(stretch, w);
      const to = this.begin(stretch + 1, w);
      let distinct = 0;
      for (let row = 0; row < at.length && from < to; row++) {
        let i = at[row];
        for (let x = from; x < to;) {
          const end = ends ? Math.min(ends[i], to) : x + 1;
          const shown = nodes[i];
          if (shown < n) {
            if (pixels[shown] === 0) distinctNodes[distinct++] = shown;
            pixels[shown] += end - x;
          }
          if (!ends || ends[i] === end) i++;
          x = end;
        }
        at[row] = i;
      }
      for (let i = 0; i < distinct; i++) {
        node.push(distinctNodes[i]);
        count.push(pixels[distinctNodes[i]]);
        pixels[distinctNodes[i]] = 0;
      }
      this.start[stretch + 1] = node.length;
    }
    this.node = Uint32Array.from(node);
    this.count = Uint32Array.from(count);
  }

  /**
   * The first column of a stretch.
   * @param {number} stretch
   * @param {number} w
   * @returns {number}
   */
  begin(stretch, w) { return Math.floor((stretch * w) / this.stretches); }

  /**
   * Adds the pixels of some stretches to sums.
   * @param {Float64Array} sums by key
   * @param {(node: number) => number} key
   * @param {number} [from] the first stretch
   * @param {number} [to] the one after the last
   */
  add(sums, key, from = 0, to = this.stretches) {
    for (let i = this.start[from]; i < this.start[to]; i++) sums[key(this.node[i])] += this.count[i];
    return sums;
  }

  /**
   * Seconds by node of all lines that the rows represent.
   * @param {number} n nodes
   * @param {number} span ns of all columns
   */
  seconds(n, span) {
    const perPixel = (span / 1e9 / Math.max(1, this.columns)) * this.scale;
    return this.add(new Float64Array(n), (node) => node).map((count) => count * perPixel);
  }
}

/**
 * What there is any of, most first, as [key, how much].
 * @param {Float64Array} sums by key
 */
export function largestFirst(sums) {
  return [...sums.entries()].filter(([, sum]) => sum).sort(([, one], [, other]) => other - one);
}
