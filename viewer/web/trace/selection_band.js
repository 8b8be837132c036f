// @ts-check
// The selected range over the ruler, the curves and all pictures below: a band with its length, and handles
// on the ruler.

import { formatTime } from "../core/format.js";
import { dragging } from "../widgets/dragging.js";
import { select } from "../widgets/elements.js";

const STEP = 0.005; // of the window, by an arrow key

const HTML = `<div class="band" hidden><div class="rows"></div><span class="length" aria-live="polite"></span>
  <div class="handle" data-end="s0" role="slider" tabindex="0" aria-label="Begin of the selection"></div>
  <div class="handle" data-end="s1" role="slider" tabindex="0" aria-label="End of the selection"></div></div>
  <div class="band against" hidden><span class="length"></span></div>`;

export class SelectionBand {
  /**
   * @param {HTMLElement} element over what it marks
   * @param {Shared} shared
   * @param {import("./lines_over_time.js").LinesOverTime} picture of the rows
   */
  constructor(element, { store, context }, picture) {
    element.innerHTML = HTML;
    this.element = element;
    this.store = store;
    this.context = context;
    this.picture = picture;
    this.band = select(element, ".band", HTMLElement);
    this.against = select(element, ".against", HTMLElement);
    this.drags = 0;
    this.listen();
    this.dispose = store.subscribe(["s0", "s1", "r0", "r1", "against", "t0", "t1", "l0", "l1"], () => this.draw());
    this.draw();
  }

  draw() {
    const { band, store: { state } } = this;
    const window = this.context.selection();
    band.hidden = !window;
    const [a0, a1] = (state.against ?? "").split(":").map(Number);
    this.against.hidden = !(a1 > a0);
    if (!this.against.hidden) this.place(this.against, a0, a1, "compared with");
    if (!window) return;
    this.place(band, window.t0, window.t1, formatTime(window.t1 - window.t0));
    band.querySelectorAll(".handle").forEach((handle, i) => {
      const time = i ? window.t1 : window.t0;
      handle.setAttribute("aria-valuenow", String(time));
      handle.setAttribute("aria-valuetext", formatTime(time, window.t1));
    });
    this.drawRows(window);
  }

  /**
   * @param {HTMLElement} band
   * @param {number} from
   * @param {number} to
   * @param {string} text
   */
  place(band, from, to, text) {
    const { t0, t1 } = this.store.state;
    const share = (/** @type {number} */ time) => (100 * (time - t0)) / (t1 - t0);
    Object.assign(band.style, { left: `${share(from)}%`, width: `${share(to) - share(from)}%` });
    select(band, ".length", HTMLElement).textContent = text;
  }

  /**
   * Where some rows are selected, a frame around these.
   * @param {import("../core/store.js").Window} window
   */
  drawRows({ l0: r0, l1: r1 }) {
    const rows = select(this.band, ".rows", HTMLElement);
    const { l0, l1 } = this.store.state;
    rows.hidden = r0 <= l0 && r1 >= l1;
    const { layout, fill } = this.picture;
    const place = (/** @type {number} */ row) => layout.heightOf(Math.min(1, Math.max(0, (row - l0) / (l1 - l0)))) * fill.clientHeight;
    Object.assign(rows.style, { top: `${fill.offsetTop + place(r0)}px`, height: `${place(r1) - place(r0)}px` });
  }

  listen() {
    const { band, element, store } = this;
    for (const handle of band.querySelectorAll(".handle")) {
      if (!(handle instanceof HTMLElement)) continue;
      dragging(handle, () => {
        const gesture = `selection ${++this.drags}`;
        return (now) => {
          const { left, width } = element.getBoundingClientRect();
          const { t0, t1 } = store.state;
          this.put(handle, t0 + Math.min(1, Math.max(0, (now.clientX - left) / width)) * (t1 - t0), gesture);
        };
      });
      handle.addEventListener("keydown", (event) => {
        const step = { ArrowLeft: -STEP, ArrowRight: STEP }[event.key];
        if (!step) return;
        event.preventDefault();
        event.stopPropagation();
        const { t0, t1 } = store.state;
        this.put(handle, Number(handle.getAttribute("aria-valuenow")) + step * (t1 - t0), `selection by ${handle.dataset.end}`);
      });
    }
  }

  /**
   * Moves an end of the selection, not beyond the other.
   * @param {HTMLElement} handle
   * @param {number} time
   * @param {string} gesture
   */
  put(handle, time, gesture) {
    const { s0 = 0, s1 = 0 } = this.store.state;
    const whole = Math.min(Math.max(Math.round(time), 0), this.context.reach());
    if (handle.dataset.end === "s0") this.store.set({ s0: Math.min(whole, s1 - 1) }, gesture);
    else this.store.set({ s1: Math.max(whole, s0 + 1) }, gesture);
  }
}
