// @ts-check
// How many rows choices of lines have: asked once each.

/** @typedef {import("../core/api_types.js").LineChoice} LineChoice */

export class RowCounts {
  /**
   * @param {import("../core/store.js").Store} store
   * @param {Pick<import("../core/api.js").Api, "selection">} api
   */
  constructor(store, api) {
    this.store = store;
    this.api = api;
    /** @type {Map<string, number>} by database and choice */
    this.counts = new Map();
  }

  /** @param {LineChoice} choice */
  key({ filter, sort, group, all, unfolded }) {
    return JSON.stringify([this.store.state.db, ...[filter, sort, group, all, unfolded].map((value) => value ?? "")]);
  }

  /**
   * What is known already; undefined where nothing is.
   * @param {LineChoice} choice
   */
  known(choice) { return this.counts.get(this.key(choice)); }

  /** @param {LineChoice} choice */
  async ask(choice) {
    const key = this.key(choice);
    const counted = this.counts.get(key);
    if (counted !== undefined) return counted;
    const { count } = await this.api.selection(this.store.db, choice);
    this.counts.set(key, count);
    return count;
  }

  /**
   * Of a newer revision of the database.
   * @param {number} count of the store's choice
   */
  renew(count) {
    this.counts.clear();
    this.counts.set(this.key(this.store.state), count);
  }
}
