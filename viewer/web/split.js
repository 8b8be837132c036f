// Borders between panes that a person may move; where they are is remembered by the browser.

const KEY = "hpcd.panes";

// bar: the border. name: the CSS variable it sets on box, in px. across: whether it moves sideways.
export function split(box, bar, { name, label, across, least, most, usual }) {
  const kept = read();
  let size = kept[name] ?? usual;
  bar.tabIndex = 0;
  for (const [key, value] of Object.entries({
    role: "separator", "aria-label": label, "aria-orientation": across ? "vertical" : "horizontal", "aria-valuemin": least, "aria-valuemax": most,
  })) bar.setAttribute(key, value);

  function put(wanted, keep = true) {
    size = Math.round(Math.min(Math.max(wanted, least), most));
    box.style.setProperty(name, `${size}px`);
    bar.setAttribute("aria-valuenow", size);
    if (keep) try { localStorage.setItem(KEY, JSON.stringify({ ...read(), [name]: size })); } catch { /* not remembered then */ }
  }

  bar.addEventListener("pointerdown", (event) => {
    const [from, before] = [across ? event.clientX : event.clientY, size];
    bar.setPointerCapture(event.pointerId);
    const move = (each) => put(before + from - (across ? each.clientX : each.clientY));
    bar.addEventListener("pointermove", move);
    bar.addEventListener("pointerup", () => bar.removeEventListener("pointermove", move), { once: true });
  });
  bar.addEventListener("keydown", (event) => {
    const step = { ArrowUp: 10, ArrowLeft: 10, ArrowDown: -10, ArrowRight: -10 }[event.key];
    if (!step) return;
    event.preventDefault();
    event.stopPropagation();
    put(size + step);
  });
  bar.addEventListener("dblclick", () => put(usual));
  put(size, false);
}

function read() {
  try { return JSON.parse(localStorage.getItem(KEY)) ?? {}; } catch { return {}; }
}
