// A canvas that fills its element at the screen's resolution.

export function fitted(element, label, draw) {
  const canvas = document.createElement("canvas");
  canvas.tabIndex = 0;
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", label);
  element.append(canvas);
  const observer = new ResizeObserver(() => {
    const ratio = devicePixelRatio || 1;
    const width = Math.max(1, Math.round(element.clientWidth * ratio));
    const height = Math.max(1, Math.round(element.clientHeight * ratio));
    if (canvas.width === width && canvas.height === height) return;
    canvas.width = width;
    canvas.height = height;
    draw();
  });
  observer.observe(element);
  return { canvas, dispose: () => { observer.disconnect(); canvas.remove(); } };
}

// Where an event is on its canvas, from 0 to 1 both ways.
export function place(canvas, event) {
  const box = canvas.getBoundingClientRect();
  return {
    x: Math.min(Math.max((event.clientX - box.left) / box.width, 0), 1),
    y: Math.min(Math.max((event.clientY - box.top) / box.height, 0), 1),
  };
}

export function ink(name) { return getComputedStyle(document.documentElement).getPropertyValue(name).trim(); }

// Once the frame that is being made has been shown.
export function seen() {
  return new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));
}
