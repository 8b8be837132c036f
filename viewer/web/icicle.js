// A tree of costs as boxes under one another (or above): width is cost. What is drawn can be found
// again under the mouse, and entered.

import { ink, place } from "./canvas.js";

const ROW = 18;

// look: { fill(row), dark(row), text(row), faded(row), marked(row) }.
export class Icicle {
  constructor(canvas, look) {
    Object.assign(this, { canvas, look, boxes: [], above: [], root: null });
  }

  show(root) {
    this.root = root;
    this.above = []; // rows around what is shown in full width
  }

  // What led to what is shown in full width, by names; and the same way in another tree, as far as it goes.
  way(name) { return this.root ? [...this.above, this.root].slice(1).map(name) : []; }

  follow(way, name) {
    for (const wanted of way) {
      const next = this.root?.children().find((row) => name(row) === wanted);
      if (!next) return;
      this.above = [...this.above, this.root];
      this.root = next;
    }
  }

  // From a box that was hit on: it becomes the whole, those around it stay above it.
  enter(hit) {
    const known = this.above.indexOf(hit.row);
    if (known >= 0) this.above = this.above.slice(0, known);
    else if (hit.row !== this.root) {
      const way = [];
      for (let each = hit; each?.parent; each = this.boxes.find(({ row }) => row === each.parent)) way.unshift(each.parent);
      this.above = [...this.above, ...way.filter((row) => !this.above.includes(row))];
    }
    this.root = hit.row;
  }

  get ratio() { return devicePixelRatio || 1; }
  get height() { return ROW * this.ratio; }

  clear() {
    const pen = this.canvas.getContext("2d");
    pen.clearRect(0, 0, this.canvas.width, this.canvas.height);
    pen.font = `${12 * this.ratio}px system-ui, sans-serif`;
    pen.textBaseline = "middle";
    this.boxes = [];
  }

  // The root in full width below what is around it, and what is in it; width(row) is its cost.
  draw(width) {
    this.clear();
    // The outermost row is everything: it needs no box.
    [...this.above, this.root].forEach((row, i) => { if (i) this.box(row, 0, (i - 1) * this.height, this.canvas.width); });
    this.spread(this.root, this.above.length * this.height, this.height, width);
  }

  spread(from, top, step, width) {
    const pending = [[from, 0, this.canvas.width, top]];
    while (pending.length) {
      const [row, left, whole, y] = pending.pop();
      if (y < 0 || y > this.canvas.height) continue;
      let x = left;
      const all = width(row);
      for (const child of row.children().slice().sort((one, two) => width(two) - width(one))) {
        const part = (width(child) / all) * whole;
        if (!(part >= 0.7 * this.ratio)) break;
        this.box(child, x, y, part, row);
        pending.push([child, x, part, y + step]);
        x += part;
      }
    }
  }

  box(row, x, y, width, parent) {
    const { look, ratio, height } = this;
    const pen = this.canvas.getContext("2d");
    pen.globalAlpha = look.faded(row) ? 0.25 : 1;
    pen.fillStyle = look.fill(row);
    pen.fillRect(x, y, Math.max(width - 1, 0.5), height - 1);
    pen.globalAlpha = 1;
    if (look.marked(row)) {
      pen.strokeStyle = ink("--cross");
      pen.strokeRect(x + 0.5, y + 0.5, Math.max(width - 2, 0.5), height - 2);
    }
    if (width > 40 * ratio) {
      pen.save();
      pen.beginPath();
      pen.rect(x, y, width - 4, height);
      pen.clip();
      pen.fillStyle = look.dark(row) ? "#fff" : "#000";
      pen.fillText(look.text(row), x + 4 * ratio, y + height / 2);
      pen.restore();
    }
    this.boxes.push({ row, parent, x, y, width, height });
  }

  under(event) {
    const spot = place(this.canvas, event);
    const x = spot.x * this.canvas.width;
    const y = spot.y * this.canvas.height;
    return this.boxes.find((each) => x >= each.x && x < each.x + each.width && y >= each.y && y < each.y + each.height);
  }

  // tip: an element that tells of the row under the mouse what text(row) says.
  explain(tip, text) {
    this.canvas.addEventListener("pointermove", (event) => {
      const hit = this.under(event);
      tip.hidden = !hit;
      if (!hit) return;
      tip.textContent = text(hit.row);
      const box = tip.offsetParent.getBoundingClientRect();
      tip.style.left = `${Math.min(event.clientX - box.left + 12, box.width - tip.offsetWidth - 4)}px`;
      tip.style.top = `${Math.min(event.clientY - box.top + 12, box.height - tip.offsetHeight - 4)}px`;
    });
    this.canvas.addEventListener("pointerleave", () => { tip.hidden = true; });
  }

  // As an export wants them.
  drawn() {
    return this.boxes.map(({ row, x, y, width, height }) => ({ x, y, width, height, fill: this.look.fill(row), dark: this.look.dark(row), text: this.look.text(row) }));
  }
}
