// @ts-check
// Rows are dragged by their labels to another place among the rows, and selected by a click.

import { relativePosition } from "../widgets/canvas.js";

const CLICK = 4; // px: what the pointer moves less is no drag

/**
 * @param {HTMLElement} labels
 * @param {() => RowLayout} layout of the rows
 * @param {(line: number, edge: number) => void} move puts a line's row above the row of that number, or behind the last
 * @param {(line: number) => void} click
 */
export function addRowDragging(labels, layout, move, click) {
  const mark = document.createElement("i");
  mark.className = "drop";
  labels.addEventListener("pointerdown", (event) => {
    const label = event.target instanceof Element ? event.target.closest("[data-line]") : null;
    if (event.button !== 0 || !(label instanceof HTMLElement)) return;
    const line = Number(label.dataset.line);
    let edge = -1;
    const follow = (/** @type {PointerEvent} */ now) => {
      if (edge < 0 && Math.abs(now.clientY - event.clientY) < CLICK) return;
      labels.setPointerCapture(now.pointerId);
      edge = layout().edgeAt(relativePosition(labels, now).y);
      mark.style.top = `${100 * layout().edges[edge]}%`;
      labels.append(mark);
    };
    const end = (/** @type {PointerEvent} */ now) => {
      labels.removeEventListener("pointermove", follow);
      mark.remove();
      if (now.type !== "pointerup") return;
      if (edge >= 0) move(line, edge);
      else if (!(event.target instanceof HTMLButtonElement)) click(line);
    };
    labels.addEventListener("pointermove", follow);
    for (const name of /** @type {const} */ (["pointerup", "pointercancel"])) labels.addEventListener(name, end, { once: true });
  });
}
