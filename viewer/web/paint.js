// From nodes to pixels: the one loop over every pixel of a picture.

import { BLOCKED, COMMUNICATION, NO_NODE } from "./tree.js";

// nodes: Uint32Array of h rows of w; shown: procedure of each node at the depth; lit: null or for
// each node whether what is looked for is on its path; high: of the image, whose rows are repeated.
export function paint(nodes, w, h, tree, shown, blank, lit, high = h) {
  const image = new ImageData(w, high);
  const pixels = new Uint32Array(image.data.buffer);
  const { colours, marks } = tree;
  for (let y = 0, at = 0; y < high; y++) {
    const row = Math.floor((y * h) / high) * w;
    for (let x = 0; x < w; x++, at++) {
      const node = nodes[row + x];
      if (node === NO_NODE) { pixels[at] = blank; continue; }
      const procedure = shown[node];
      let colour = colours[procedure];
      // Stripes where a thread waits, dots where it communicates.
      if (marks[node] === BLOCKED) { if (((x + y) & 7) < 3) colour = lighter(colour, blank, 1); }
      else if (marks[node] === COMMUNICATION && (x & 3) === 0 && ((y + ((x >> 2) & 1) * 2) & 3) === 0) colour = lighter(colour, 0xff000000, 1);
      if (lit && !lit[node]) colour = lighter(colour, blank, 3);
      pixels[at] = colour;
    }
  }
  return image;
}

// Part of the way to the background: a half (1), three quarters (2), seven eighths (3).
function lighter(colour, blank, steps) {
  const keep = 8 >> steps;
  const mix = (shift) => ((((colour >>> shift) & 255) * keep + ((blank >>> shift) & 255) * (8 - keep)) >> 3) << shift;
  return (0xff000000 | mix(16) | mix(8) | mix(0)) >>> 0;
}

// A CSS colour such as #aabbcc as the pixel it is.
export function pixel(css) {
  const value = parseInt(css.slice(1), 16);
  return (0xff000000 | ((value & 255) << 16) | (value & 0xff00) | (value >> 16)) >>> 0;
}

export function stretch(context, image, x, y, w, h) {
  const held = document.createElement("canvas");
  held.width = image.width;
  held.height = image.height;
  held.getContext("2d").putImageData(image, 0, 0);
  context.imageSmoothingEnabled = false;
  context.drawImage(held, x, y, w, h);
}
