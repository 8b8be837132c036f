// @ts-check
// Rows that a person wants to see whatever is in view: above the others, over the same time.

import { WINDOW } from "../core/store.js";
import { LinesOverTime } from "./lines_over_time.js";

const HEIGHT = 22; // px of a row

export class PinnedRows {
  /**
   * @param {HTMLElement} element
   * @param {PageParts} page
   * @param {Pick<import("./lines_over_time.js").PictureOptions, "cross" | "marks"> & { open: (position: Position) => void }} options
   */
  constructor(element, { store, api, context }, { cross, marks, open }) {
    this.element = element;
    this.context = context;
    const { mouse } = context;
    this.picture = new LinesOverTime(element, {
      api, name: "pinned", label: "Pinned trace lines over time", cross, marks,
      source: () => {
        const lines = context.pinned();
        const window = { ...store.window(), rows: lines.join(","), l0: 0, l1: lines.length };
        return context.database && lines.length ? { db: store.db, window, database: context.database } : null;
      },
      on: {
        failed: context.fail, pin: (line) => context.pin(line), pinned: true, move: (line, above) => context.movePinned(line, above), open, click: mouse.click,
        // Of rows those below are selected and zoomed.
        drag: (rectangle) => context.select({ ...rectangle, y0: null, y1: null }),
        wheel: (factor, position) => mouse.wheel(factor, position, false),
        point: (position) => mouse.point(position && { ...position, y: 0 }),
      },
    });
    this.ends = [store.subscribe(WINDOW, this.picture.load), store.subscribe(["pinned"], () => this.arrange())];
    this.arrange();
  }

  dispose() {
    this.ends.forEach((end) => end());
    this.picture.dispose();
  }

  arrange() {
    const { length } = this.context.pinned();
    this.element.hidden = !length;
    this.element.style.height = `${HEIGHT * length}px`;
    this.picture.fit();
    this.picture.load();
  }

  draw() { this.picture.draw(); }
}
