// @ts-check
// Where the rows of a picture of trace lines are: those of launchers and helper threads are lower.
// Positions are shares, twice: of the height (y), and of the rows as if all were alike (place).

const TEXT = 18; // px
const FOLDED = 0.25; // height of a folded row, of that of others

export class RowLayout {
  /**
   * @param {ArrayLike<number>} folded number of helpers' lines that each row shows; 0: the program's own
   * @param {number} [height] px: one row of helpers among others is as high as a line of text there
   */
  constructor(folded, height = 0) {
    const h = folded.length;
    const helpers = Array.from(folded).filter(Boolean).length;
    const low = helpers === 1 && h > 1 && height > 2 * TEXT ? (TEXT * (h - 1)) / (height - TEXT) : FOLDED;
    this.rows = h;
    // Where each row begins, as a share of the height; and the end.
    this.edges = new Float64Array(h + 1);
    for (let row = 0; row < h; row++) this.edges[row + 1] = this.edges[row] + (folded[row] ? low : 1);
    const whole = this.edges[h];
    for (let row = 0; row <= h; row++) this.edges[row] /= whole;
  }

  /**
   * The row at a height.
   * @param {number} y
   */
  rowAt(y) {
    let [low, high] = [0, this.rows - 1];
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.edges[middle] <= y) low = middle; else high = middle - 1;
    }
    return low;
  }

  /**
   * The row whose upper border is closest to a height; behind the last, their number.
   * @param {number} y
   */
  edgeAt(y) {
    const row = this.rowAt(y);
    return y > (this.edges[row] + this.edges[row + 1]) / 2 ? row + 1 : row;
  }

  /**
   * The place at a height.
   * @param {number} y
   */
  placeAt(y) {
    const row = this.rowAt(y);
    const [top, bottom] = [this.edges[row], this.edges[row + 1]];
    return (row + Math.min(1, (y - top) / (bottom - top))) / this.rows;
  }

  /**
   * The height of a place.
   * @param {number} place
   */
  heightOf(place) {
    const row = this.rowOf(place);
    return this.edges[row] + (this.edges[row + 1] - this.edges[row]) * (place * this.rows - row);
  }

  /**
   * The row at a place.
   * @param {number} place
   */
  rowOf(place) { return Math.min(this.rows - 1, Math.floor(place * this.rows)); }

  /**
   * The rows of an image's lines of pixels.
   * @param {number} height px
   */
  rowsOfPixels(height) {
    const rows = new Uint32Array(height);
    for (let y = 0, row = 0; y < height; y++) {
      while (row < this.rows - 1 && Math.round(this.edges[row + 1] * height) <= y) row++;
      rows[y] = row;
    }
    return rows;
  }
}
