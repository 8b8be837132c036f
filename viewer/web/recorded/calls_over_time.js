// @ts-check
// Above the table of recorded calls: how much of their kind there was over the same time.

import { drawCurve, describeCurve, highest, ON_REQUEST, quantity, requestCurve } from "../trace/curves.js";
import { drawTimeAxis } from "../trace/time_axis.js";
import { fittedCanvas, relativePosition } from "../widgets/canvas.js";
import { textElement } from "../widgets/elements.js";

export class CallsOverTime {
  /**
   * @param {HTMLElement} element
   * @param {PageParts} page
   */
  constructor(element, page) {
    this.element = element;
    this.page = page;
    this.name = textElement("div", "", "name");
    this.axis = textElement("div", "", "axis");
    const box = textElement("div", "", "fill");
    element.append(this.axis, this.name, box);
    const { canvas, fit, dispose } = fittedCanvas(box, "What was recorded, over time", () => this.draw());
    this.canvas = canvas;
    this.fit = fit;
    this.dispose = dispose;
    this.kind = "";
    /** @type {import("../trace/curves.js").Curve | undefined} */
    this.curve = undefined;
    canvas.addEventListener("pointermove", (event) => { if (this.curve) canvas.title = describeCurve(this.curve, relativePosition(canvas, event).x, this.curve); });
  }

  /** @param {string | undefined} group of calls */
  async show(group) {
    const { store, api, context } = this.page;
    const offer = ON_REQUEST.find((kind) => kind.group === group);
    this.element.hidden = !offer;
    this.kind = offer?.kind ?? "";
    if (!offer) return;
    const window = context.extent();
    const key = store.key(window);
    try {
      const curve = await requestCurve(api, store.db, window, offer.kind);
      if (this.kind !== offer.kind || key !== store.key(context.extent())) return;
      this.curve = curve;
      const names = curve.series.length > 1 ? curve.series.map(({ name, colour }) => chip(name, colour)) : [];
      this.name.replaceChildren(`${offer.title}, to ${quantity(highest(curve), curve.unit)}`, ...names);
      this.fit();
      this.draw();
    } catch (error) { context.fail(error); }
  }

  draw() {
    const { curve } = this;
    if (!curve) return;
    this.canvas.dataset.most = String(highest(curve));
    drawTimeAxis(this.axis, curve);
    drawCurve(this.canvas, curve, highest(curve), curve);
  }
}

/**
 * A name beside its colour.
 * @param {string} text
 * @param {string} colour a variable of the style sheet
 */
function chip(text, colour) {
  const name = textElement("span", text, "chip");
  const sign = document.createElement("i");
  sign.style.background = `var(${colour})`;
  name.prepend(sign);
  return name;
}
