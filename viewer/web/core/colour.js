// @ts-check
// Colours as numbers: red, green << 8, blue << 16, as the server sends them.

const DARK = 130;

/**
 * Whether text on a colour must be light. As is_dark of viewer/palette.py; tests/data/vectors/palette.json
 * holds both to it.
 * @param {number} red 0 to 255
 * @param {number} green
 * @param {number} blue
 */
export function isDark(red, green, blue) { return 0.3 * red + 0.59 * green + 0.11 * blue < DARK; }

/**
 * A CSS colour such as #aabbcc as a canvas pixel (little-endian RGBA).
 * @param {string} css
 */
export function pixelOfColour(css) {
  const value = parseInt(css.slice(1), 16);
  return (0xff000000 | ((value & 255) << 16) | (value & 0xff00) | (value >> 16)) >>> 0;
}

/**
 * Red, green and blue of a CSS colour such as #abc or #aabbcc.
 * @param {string} css
 */
export function colourParts(css) {
  const value = parseInt(css.slice(1).replace(/^(.)(.)(.)$/, "$1$1$2$2$3$3"), 16);
  return [value >> 16, (value >> 8) & 255, value & 255];
}

/**
 * A canvas pixel as a CSS colour.
 * @param {number} pixel
 */
export function cssOfPixel(pixel) { return `rgb(${pixel & 255} ${(pixel >> 8) & 255} ${(pixel >> 16) & 255})`; }

/**
 * Whether text on a canvas pixel must be light.
 * @param {number} pixel
 */
export function isDarkPixel(pixel) { return isDark(pixel & 255, (pixel >> 8) & 255, (pixel >> 16) & 255); }
