// @ts-check
// What follows the pointer while a button is held down.

/**
 * @param {HTMLElement} element
 * @param {(event: PointerEvent) => (now: PointerEvent) => void} begin called by a press; returns what each move does
 */
export function dragging(element, begin) {
  element.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    const move = begin(event);
    element.setPointerCapture(event.pointerId);
    element.addEventListener("pointermove", move);
    for (const end of ["pointerup", "pointercancel"]) element.addEventListener(end, () => element.removeEventListener("pointermove", move), { once: true });
  });
}
