// @ts-check
// Requests to the server: its token, the revision that is shown, and errors as people read them.

import { isAbort } from "./failure.js";

export class Connection {
  /** @param {string} token */
  constructor(token) {
    this.token = token;
    /** @type {number | undefined} of a recording that is followed, the one the page shows */
    this.revision = undefined;
    /** @type {string | undefined} "1": the frames of Python's interpreter are shown */
    this.native = undefined;
    /** @type {(() => void) | undefined} called when the page's revision is no longer kept */
    this.stale = undefined;
    /** @type {(() => void) | null} called when the server has answered */
    this.heard = null;
  }

  /**
   * Of a recording being written, what is asked is of the revision the page shows (live.js): what a
   * newer one has overtaken is dropped, for it is asked again.
   * @param {string} path
   * @param {AbortSignal} [signal]
   * @param {number | null} [revision] null: the newest, whichever that is when the answer comes
   * @param {Promise<Response>} [asked] the answer, if it has been requested
   */
  async fetch(path, signal, revision = this.revision, asked = undefined) {
    const shown = this.revision;
    let answer;
    try {
      /** @type {Record<string, string>} */
      const headers = { "x-hpcd-token": this.token };
      if (revision) headers["x-hpcd-revision"] = String(revision);
      answer = await (asked ?? fetch(path, { headers, signal }));
    } catch (error) {
      if (isAbort(error)) throw error;
      throw new Error("The viewer does not answer: start hpcd view again, and open the URL it prints.");
    }
    if (answer.status === 409) this.stale?.();
    if (answer.status === 409 || (revision !== null && shown !== this.revision)) throw new DOMException("overtaken", "AbortError");
    if (!answer.ok) {
      const text = await answer.text();
      let message = text;
      try { message = JSON.parse(text).error; } catch { /* plain text */ }
      throw new Error(message);
    }
    this.heard?.();
    return answer;
  }

  /**
   * The caller's return type says what the answer is.
   * @param {string} path
   * @param {number | null} [revision]
   */
  async json(path, revision) { return (await this.fetch(path, undefined, revision)).json(); }

  /**
   * @param {string} path
   * @param {AbortSignal} [signal]
   * @param {number | null} [revision]
   */
  async buffer(path, signal, revision) { return (await this.fetch(path, signal, revision)).arrayBuffer(); }

  /**
   * Arrays by name, of two dimensions as rows, of none as a number (docs/database.md tells the form).
   * The caller's return type says what the answer is.
   * @param {string} path
   * @param {AbortSignal} [signal]
   * @param {number | null} [revision]
   * @param {Promise<Response>} [asked] the answer, if it has been requested
   */
  async arrays(path, signal, revision, asked) {
    const buffer = await (await this.fetch(path, signal, revision, asked)).arrayBuffer();
    const [size] = new Uint32Array(buffer, 8, 1);
    /** @type {ReturnType<typeof JSON.parse>} */
    const arrays = {};
    let at = 16 + size;
    for (const [name, kind, shape] of parsed(new Uint8Array(buffer, 16, size))) {
      const [height, width] = [1, 1, ...shape].slice(-2);
      const rows = Array.from({ length: height }, (_, row) => new KINDS[kind](buffer, at + row * width * KINDS[kind].BYTES_PER_ELEMENT, width));
      arrays[name] = [rows[0]?.[0], rows[0], rows][shape.length];
      at += height * width * KINDS[kind].BYTES_PER_ELEMENT;
      at += -at & 7;
    }
    return arrays;
  }
}

/** @type {Record<string, typeof Uint8Array | typeof Uint16Array | typeof Uint32Array | typeof Float32Array | typeof Float64Array>} */
const KINDS = { "|u1": Uint8Array, "<u2": Uint16Array, "<u4": Uint32Array, "<f4": Float32Array, "<f8": Float64Array };

/** @param {Uint8Array} text JSON */
export function parsed(text) { return JSON.parse(new TextDecoder().decode(text)); }
