// How many pixels of each stretch of a picture's columns show which node: counted once, and added up
// for any depth and any search without another look at the pixels.

export class Tally {
  // nodes below n exist; stretches of columns are as wide as each other, within a pixel.
  constructor({ nodes, w, h }, n, stretches) {
    this.stretches = stretches;
    this.width = Float64Array.from({ length: stretches }, (_, i) => (this.begin(i + 1, w) - this.begin(i, w)) * h);
    this.start = new Uint32Array(stretches + 1);
    const found = new Uint32Array(n);
    const seen = new Uint32Array(n);
    const node = [], count = [];
    for (let stretch = 0; stretch < stretches; stretch++) {
      const from = this.begin(stretch, w);
      const to = this.begin(stretch + 1, w);
      let distinct = 0;
      for (let y = 0; y < h; y++) {
        for (let at = y * w + from, end = y * w + to; at < end; at++) {
          const each = nodes[at];
          if (each < n && found[each]++ === 0) seen[distinct++] = each;
        }
      }
      for (let i = 0; i < distinct; i++) {
        node.push(seen[i]);
        count.push(found[seen[i]]);
        found[seen[i]] = 0;
      }
      this.start[stretch + 1] = node.length;
    }
    this.node = Uint32Array.from(node);
    this.count = Uint32Array.from(count);
  }

  begin(stretch, w) { return Math.floor((stretch * w) / this.stretches); }

  // Pixels by key(node) < keys, of some stretches; adds to sums.
  add(sums, key, from = 0, to = this.stretches) {
    for (let i = this.start[from]; i < this.start[to]; i++) sums[key(this.node[i])] += this.count[i];
    return sums;
  }
}
