// @ts-check
// What the browser remembers of a person's choices; where it remembers nothing, all is as usual.

/**
 * @param {string} key
 * @returns {Record<string, any>}
 */
export function remembered(key) {
  try { return JSON.parse(localStorage.getItem(key) ?? "{}"); } catch { return {}; }
}

/**
 * @param {string} key
 * @param {Record<string, unknown>} change what is added to what is remembered
 */
export function remember(key, change) {
  try { localStorage.setItem(key, JSON.stringify({ ...remembered(key), ...change })); } catch { /* not remembered then */ }
}
