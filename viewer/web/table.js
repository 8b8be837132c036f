// A tree table of any size: only the rows on screen exist as elements.

const HEIGHT = 22;

// columns: { title, value(row), text(row), share(row), mark(row): a class, if any }; draw(row): the element that names it.
export class TreeTable {
  constructor(element, label, columns, draw, { choose, keep = () => true, sort = 0 }) {
    Object.assign(this, { columns, draw, choose, keep, sort, descending: true, top: [], shown: [], current: null, open: new Set() });
    element.innerHTML = '<div class="table" role="treegrid" tabindex="0"><div class="head" role="row"></div><div class="rows" role="presentation"></div></div>';
    this.box = element.firstChild;
    this.box.setAttribute("aria-label", label);
    [this.head, this.rows] = this.box.children;
    this.box.addEventListener("scroll", () => this.paint());
    this.box.addEventListener("keydown", (event) => this.key(event));
    this.observer = new ResizeObserver(() => this.paint());
    this.observer.observe(this.box);
    this.header();
  }

  dispose() { this.observer.disconnect(); }

  header() {
    this.box.style.setProperty("--columns", `minmax(0, 1fr) repeat(${this.columns.length}, 134px)`);
    this.box.style.setProperty("--wide", `${300 + 134 * this.columns.length}px`);
    const name = Object.assign(document.createElement("span"), { textContent: "Name" });
    name.setAttribute("role", "columnheader");
    this.head.replaceChildren(name, ...this.columns.map((column, i) => {
      const button = document.createElement("button");
      button.setAttribute("role", "columnheader");
      button.textContent = column.title + (i === this.sort ? (this.descending ? " ▾" : " ▴") : "");
      button.setAttribute("aria-sort", i === this.sort ? (this.descending ? "descending" : "ascending") : "none");
      button.title = "Sort by " + column.title;
      button.addEventListener("click", () => {
        this.descending = i === this.sort ? !this.descending : true;
        this.sort = i;
        this.header();
        this.lay();
      });
      return button;
    }));
  }

  show(rows) {
    this.top = rows;
    this.current = null;
    this.open = new Set();
    this.lay();
  }

  // What is open, chosen and scrolled to, by the rows' names: other rows may be shown in its place.
  kept(name) {
    const open = new Set();
    const current = [];
    const pending = this.top.map((row) => [row, ""]);
    while (pending.length) {
      const [row, above] = pending.pop();
      const path = `${above}\0${name(row)}`;
      if (row === this.current) current.push(path);
      if (!this.open.has(row)) continue;
      open.add(path);
      for (const child of row.children()) pending.push([child, path]);
    }
    return { open, current, scrolled: this.box.scrollTop, sort: this.columns[this.sort].title, descending: this.descending };
  }

  keepTo({ open, current, scrolled, sort, descending }, name) {
    const same = this.columns.findIndex(({ title }) => title === sort);
    if (same >= 0) Object.assign(this, { sort: same, descending });
    const pending = this.top.map((row) => [row, ""]);
    while (pending.length) {
      const [row, above] = pending.pop();
      const path = `${above}\0${name(row)}`;
      if (current.includes(path)) this.current = row;
      if (!open.has(path)) continue;
      this.open.add(row);
      for (const child of row.children()) pending.push([child, path]);
    }
    this.header();
    this.lay();
    this.box.scrollTop = scrolled;
  }

  sorted(rows) {
    const { value } = this.columns[this.sort];
    const sign = this.descending ? 1 : -1;
    return rows.filter(this.keep).sort((one, two) => sign * (value(two) - value(one)));
  }

  lay() {
    this.shown = [];
    const pending = this.sorted(this.top).reverse().map((row) => [row, 1]);
    while (pending.length) {
      const [row, level] = pending.pop();
      this.shown.push({ row, level });
      if (this.open.has(row)) for (const child of this.sorted(row.children()).reverse()) pending.push([child, level + 1]);
    }
    this.rows.style.height = `${this.shown.length * HEIGHT}px`;
    this.box.setAttribute("aria-rowcount", this.shown.length);
    this.paint();
  }

  paint() {
    const first = Math.max(0, Math.floor(this.box.scrollTop / HEIGHT) - 4);
    const last = Math.min(this.shown.length, first + Math.ceil(this.box.clientHeight / HEIGHT) + 8);
    this.rows.replaceChildren(...this.shown.slice(first, last).map((each, i) => this.line(each, first + i)));
  }

  line({ row, level }, number) {
    const line = document.createElement("div");
    line.className = row === this.current ? "row current" : "row";
    line.setAttribute("role", "row");
    line.setAttribute("aria-level", level);
    line.setAttribute("aria-rowindex", number + 1);
    line.setAttribute("aria-selected", row === this.current);
    line.style.top = `${number * HEIGHT}px`;
    const name = document.createElement("span");
    name.className = "name";
    name.setAttribute("role", "gridcell");
    name.style.paddingLeft = `${6 + 14 * (level - 1)}px`;
    const twist = document.createElement("span");
    twist.className = "twist";
    if (row.children().length) {
      twist.textContent = this.open.has(row) ? "▾" : "▸";
      line.setAttribute("aria-expanded", this.open.has(row));
      twist.addEventListener("click", (event) => { event.stopPropagation(); this.toggle(row); });
    }
    name.append(twist, this.draw(row));
    line.append(name, ...this.columns.map((column) => {
      const cell = document.createElement("span");
      cell.className = `cell ${column.mark?.(row) ?? ""}`;
      cell.setAttribute("role", "gridcell");
      cell.textContent = column.text(row);
      cell.style.setProperty("--share", `${100 * Math.min(1, Math.max(0, column.share(row)))}%`);
      return cell;
    }));
    line.addEventListener("click", () => this.select(row));
    line.addEventListener("dblclick", () => this.toggle(row));
    return line;
  }

  toggle(row, open = !this.open.has(row)) {
    if (open) this.open.add(row); else this.open.delete(row);
    this.lay();
  }

  select(row) {
    this.current = row;
    const at = this.shown.findIndex((each) => each.row === row);
    if (at * HEIGHT < this.box.scrollTop) this.box.scrollTop = at * HEIGHT;
    if ((at + 3) * HEIGHT > this.box.scrollTop + this.box.clientHeight) this.box.scrollTop = (at + 3) * HEIGHT - this.box.clientHeight;
    this.paint();
    this.choose(row);
  }

  // Down from the chosen row, or the costliest, as long as one child has at least half the cost
  // (HPCToolkit, CCPE 2010, section 5.2).
  hotPath() {
    const { value } = this.columns[this.sort];
    let row = this.current ?? this.sorted(this.top)[0];
    if (!row) return;
    for (;;) {
      const [child] = this.sorted(row.children());
      if (child) this.open.add(row);
      if (!child || value(child) < value(row) / 2) break;
      row = child;
    }
    this.lay();
    this.select(row);
  }

  key(event) {
    const at = this.shown.findIndex(({ row }) => row === this.current);
    const { row, level } = this.shown[at] ?? {};
    const acts = {
      ArrowDown: () => this.shown[at + 1] && this.select(this.shown[at + 1].row),
      ArrowUp: () => this.shown[at - 1] && this.select(this.shown[at - 1].row),
      ArrowRight: () => row?.children().length && (this.open.has(row) ? this.select(this.shown[at + 1].row) : this.toggle(row)),
      ArrowLeft: () => {
        if (row && this.open.has(row)) return this.toggle(row);
        const above = this.shown.slice(0, Math.max(at, 0)).findLast((each) => each.level < level);
        return above && this.select(above.row);
      },
      Enter: () => row && this.toggle(row),
    };
    if (!acts[event.key] || event.target.tagName === "BUTTON") return;
    event.preventDefault();
    event.stopPropagation();
    acts[event.key]();
  }
}
