// The server's answers as typed arrays; docs/viewer-api.md tells what they hold.

export class Api {
  constructor(token) {
    this.token = token;
  }

  async fetch(path, signal) {
    const answer = await fetch(path, { headers: { "x-hpcd-token": this.token }, signal });
    if (!answer.ok) {
      const text = await answer.text();
      let message = text;
      try { message = JSON.parse(text).error; } catch { /* plain text */ }
      throw new Error(message);
    }
    return answer;
  }

  async json(path) { return (await this.fetch(path)).json(); }
  async words(path, signal) { return new Uint32Array(await (await this.fetch(path, signal)).arrayBuffer()); }

  databases() { return this.json("api/v1/databases"); }
  base(db) { return "api/v1/db/" + encodeURIComponent(db); }
  summary(db) { return this.json(this.base(db)); }

  async cct(db) {
    const words = await this.words(this.base(db) + "/cct");
    const n = words[0];
    return { parent: words.subarray(1, 1 + n), procedure: words.subarray(1 + n, 1 + 2 * n) };
  }

  async labels(db, from, count) {
    return (await this.json(`${this.base(db)}/lines?from=${from}&count=${count}`)).labels;
  }

  async grid(db, { t0, t1, l0, l1, h, w }, signal) {
    const query = new URLSearchParams({ t0: Math.round(t0), t1: Math.round(t1), l0, l1, h, w });
    const words = await this.words(`${this.base(db)}/grid?${query}`, signal);
    const rows = words[0];
    return { h: rows, w: words[1], lines: words.subarray(2, 2 + rows), nodes: words.subarray(2 + rows) };
  }

  async metric(db, name) {
    const buffer = await (await this.fetch(`${this.base(db)}/metric/${encodeURIComponent(name)}`)).arrayBuffer();
    return new Float64Array(buffer, 8);
  }
}
