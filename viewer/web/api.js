// The server's answers as typed arrays; docs/viewer-api.md tells what they hold.

export class Api {
  constructor(token) {
    this.token = token;
  }

  // Of a recording being written, what is asked is of the revision the page shows (live.js): what a
  // newer one has overtaken is dropped, for it is asked again.
  async fetch(path, signal, revision = this.revision) {
    const shown = this.revision;
    let answer;
    try {
      const headers = { "x-hpcd-token": this.token };
      if (revision) headers["x-hpcd-revision"] = revision;
      answer = await fetch(path, { headers, signal });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new Error("The viewer does not answer: start hpcd view again, and open the URL it prints.");
    }
    if (answer.status === 409) this.stale?.();
    if (answer.status === 409 || shown !== this.revision) throw new DOMException("overtaken", "AbortError");
    if (!answer.ok) {
      const text = await answer.text();
      let message = text;
      try { message = JSON.parse(text).error; } catch { /* plain text */ }
      throw new Error(message);
    }
    this.heard?.();
    return answer;
  }

  async json(path, revision) { return (await this.fetch(path, undefined, revision)).json(); }
  async words(path, signal, revision) { return new Uint32Array(await (await this.fetch(path, signal, revision)).arrayBuffer()); }

  databases() { return this.json("api/v1/databases"); }
  base(db) { return "api/v1/db/" + encodeURIComponent(db); }
  // Of the newest revision.
  summary(db) { return this.json(this.base(db), null); }
  live(db, revision, lines) { return this.json(`${this.base(db)}/live?revision=${revision}&lines=${lines}`); }

  async cct(db, revision) {
    const words = await this.words(this.base(db) + "/cct", undefined, revision);
    const n = words[0];
    return { parent: words.subarray(1, 1 + n), procedure: words.subarray(1 + n, 1 + 2 * n) };
  }

  async tree(db, view) {
    const words = await this.words(`${this.base(db)}/tree?${new URLSearchParams({ view })}`);
    const [n, c] = words;
    return { parent: words.subarray(2, 2 + n), procedure: words.subarray(2 + n, 2 + 2 * n), place: words.subarray(2 + 2 * n, 2 + 2 * n + c) };
  }

  entities(db, view) { return this.json(`${this.base(db)}/entities?${new URLSearchParams({ view })}`); }

  // Of the procedures, or of a view's entities.
  colours(db, patterns = "", view = "") { return this.words(`${this.base(db)}/colours?${new URLSearchParams({ patterns, view })}`); }

  formula(db, text) { return this.json(`${this.base(db)}/formula?${new URLSearchParams({ text })}`); }

  // Which lines, in which order; l0 and l1 are places in it.
  choice({ filter, sort, group }) {
    const query = new URLSearchParams();
    for (const [name, value] of Object.entries({ filter, sort, group })) if (value) query.set(name, value);
    return query;
  }

  window(state) {
    const query = this.choice(state);
    for (const name of ["t0", "t1", "l0", "l1"]) query.set(name, Math.round(state[name]));
    return query;
  }

  selection(db, choice, revision) { return this.json(`${this.base(db)}/selection?${this.choice(choice)}`, revision); }

  // { labels, lines, groups } of places from on.
  lines(db, choice, from, count) {
    const query = this.choice(choice);
    query.set("from", from);
    query.set("count", count);
    return this.json(`${this.base(db)}/lines?${query}`);
  }

  async grid(db, query, signal) {
    const buffer = await (await this.fetch(`${this.base(db)}/grid?${query}`, signal)).arrayBuffer();
    const [h, w, bytes] = new Uint32Array(buffer, 0, 3);
    const words = new Uint32Array(buffer, 12, 2 * h);
    return {
      h, w, revision: this.revision, lines: words.subarray(0, h), places: words.subarray(h),
      nodes: new (bytes === 2 ? Uint16Array : Uint32Array)(buffer, 12 + 8 * h, h * w),
    };
  }

  picture(db, state, h, w, signal) {
    const query = this.window(state);
    query.set("h", h);
    query.set("w", w);
    return this.grid(db, query, signal);
  }

  lineOverTime(db, line, { t0, t1 }, w) {
    return this.grid(db, new URLSearchParams({ line, t0: Math.round(t0), t1: Math.round(t1), h: 1, w }));
  }

  async profile(db, state, times = false) {
    const query = this.window(state);
    if (times) query.set("times", 1);
    const buffer = await (await this.fetch(`${this.base(db)}/profile?${query}`)).arrayBuffer();
    const [n, m, kind, pixels] = new Uint32Array(buffer, 0, 4);
    return { kind, pixels, values: Array.from({ length: m }, (_, i) => new Float64Array(buffer, 16 + 8 * n * i, n)) };
  }

  // kind: source or assembly.
  code(db, kind, state, procedure, file) {
    const query = this.window(state);
    query.set("procedure", procedure);
    if (file !== undefined) query.set("file", file);
    return this.json(`${this.base(db)}/${kind}?${query}`);
  }

  over(db, state, metric, context) {
    const query = this.window(state);
    query.set("metric", metric);
    query.set("context", context);
    return this.json(`${this.base(db)}/over?${query}`);
  }

  async heat(db, state, metric, h, w) {
    const query = this.window(state);
    for (const [name, value] of Object.entries({ metric, h, w })) query.set(name, value);
    const buffer = await (await this.fetch(`${this.base(db)}/heat?${query}`)).arrayBuffer();
    const [rows, columns] = new Uint32Array(buffer, 0, 2);
    return {
      h: rows, w: columns, lines: new Uint32Array(buffer, 8, rows),
      procedures: new Uint32Array(buffer, 8 + 4 * rows, columns),
      values: new Float32Array(buffer, 8 + 4 * (rows + columns)),
    };
  }

  // Several runs, or parts of one, as one tree; query as compare.js makes it.
  async compare(query) {
    const buffer = await (await this.fetch(`api/v1/compare?${query}`)).arrayBuffer();
    const [size, n, sides] = new Uint32Array(buffer, 0, 3);
    const head = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 16, size)));
    const costs = Array.from({ length: 2 * sides }, (_, i) => new Float64Array(buffer, 16 + size + 8 * n * i, n));
    const [parent, procedure, owner] = [0, 1, 2].map((i) => new Uint32Array(buffer, 16 + size + 16 * n * sides + 4 * n * i, n));
    return { head, cost: costs.slice(0, sides), variance: costs.slice(sides), cct: { parent, procedure }, owner };
  }

  comparedCalls(query) { return this.json(`api/v1/compare/calls?${query}`); }
}
