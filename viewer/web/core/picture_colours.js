// @ts-check
// Which procedure each node shows in pictures over time, and in which colour: by the program's own
// procedures, or by the frames at one depth. As viewer/picture_colours.py; tests/data/vectors/palette.json
// holds both to it.

import { bareName } from "./cct.js";

/**
 * @typedef {object} PictureColours
 * @property {Uint32Array} shown procedure of each node
 * @property {Uint32Array} colours pixel of each procedure
 */

/**
 * @param {CallingContextTree} tree
 * @param {number} depth 0: by the owners of colours
 * @param {Pick<Summary, "palette" | "rest">} summary distinct colours, and that of what has none
 * @returns {PictureColours}
 */
export function pictureColours(tree, depth, { palette, rest }) {
  const shown = depth || !tree.owner ? tree.at(depth || 1) : tree.owner;
  const colours = new Uint32Array(tree.names.length).fill(opaque(rest));
  const { colours: own, distinct } = tree;
  if (!depth && tree.owner) {
    for (let i = 0; i < colours.length; i++) if (distinct[i]) colours[i] = own[i];
    return { shown, colours };
  }
  return { shown, colours: depthColours(shown, tree.cost, own, distinct, Uint32Array.from(palette, opaque), opaque(rest)) };
}

/**
 * Colours of another run's procedures: those that `first` has distinct ones of have them here, too; the rest of the
 * distinct ones go to this run's own, which keep theirs where they can.
 * @param {Pick<CallingContextTree, "names" | "colours" | "distinct">} tree
 * @param {Pick<CallingContextTree, "names" | "colours" | "distinct">} first
 * @param {ArrayLike<number>} palette
 * @returns {number[]} as CallingContextTree.paint takes them
 */
export function sharedColours(tree, first, palette) {
  /** @type {Map<string, number | undefined>} by name */
  const colourOf = new Map();
  first.names.forEach((name, i) => { if (first.distinct[i]) colourOf.set(bareName(name), first.colours[i]); });
  const taken = new Set(colourOf.values());
  const free = new Set(Array.from(palette, opaque).filter((colour) => !taken.has(colour)));
  return tree.names.map((label, i) => {
    const name = bareName(label);
    if (tree.distinct[i] && !colourOf.has(name)) {
      const [colour] = free.has(tree.colours[i]) ? [tree.colours[i]] : free;
      free.delete(colour);
      colourOf.set(name, colour);
    }
    const colour = colourOf.get(name);
    return colour === undefined ? tree.colours[i] & 0xffffff : (colour & 0xffffff) | 1 << 24;
  });
}

/**
 * Colours where nodes show procedures: whoever has one of its own keeps it as long as it is among the costliest;
 * the others of these have those that are left.
 * @param {Uint32Array} shown of each node
 * @param {ArrayLike<number>} cost of each node
 * @param {Uint32Array} own pixels of procedures
 * @param {ArrayLike<number>} distinct of each 1 where its own is distinct
 * @param {Uint32Array} palette
 * @param {number} rest
 */
export function depthColours(shown, cost, own, distinct, palette, rest) {
  const colours = new Uint32Array(own.length).fill(rest);
  const sums = new Float64Array(own.length);
  for (let node = 0; node < shown.length; node++) sums[shown[node]] += cost[node];
  const ranked = [...sums.keys()].filter((i) => sums[i] > 0).sort((one, other) => sums[other] - sums[one] || one - other).slice(0, palette.length);
  const free = new Set(palette);
  for (const i of ranked) if (distinct[i]) { colours[i] = own[i]; free.delete(own[i]); }
  const left = [...free];
  for (const i of ranked) if (!distinct[i]) colours[i] = left.shift() ?? rest;
  return colours;
}

/** @param {number} rgb */
function opaque(rgb) { return (0xff000000 | rgb) >>> 0; }
