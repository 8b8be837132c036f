// @ts-check
// What pictures are coloured by: the program's own procedures, or the frames at a depth of the call path,
// chosen by a slider, above it a bar for each depth of how much it tells.

import { part } from "../widgets/elements.js";
import { formatCount, formatPercent } from "./format.js";

const DEEPEST = 100; // of the slider

const HTML = `<label>Colour by <select id="colour-by" title="What colours of pictures are of"><option value="">procedure</option><option value="depth">depth</option></select></label>
    <span class="depth-slider"><span id="depth-bars" class="depth-bars" aria-hidden="true"></span><input id="depth" type="range" min="1" max="30" value="1" aria-label="Depth"></span>
    <output id="depth-value" for="depth"></output>`;

/**
 * @param {HTMLElement} element
 * @param {PageParts} page
 */
export function mountDepthChoice(element, { store, context }) {
  element.innerHTML = HTML;
  const slider = part(element, "depth", HTMLInputElement);
  const by = part(element, "colour-by", HTMLSelectElement);
  const bars = part(element, "depth-bars", HTMLElement);
  const output = part(element, "depth-value", HTMLOutputElement);
  /** @type {DepthsAnswer} */
  let depths = { best: 1, depths: [] };

  function show() {
    const { depth = 0 } = store.state;
    by.value = depth ? "depth" : "";
    // By procedure the slider shows where to begin.
    element.classList.toggle("by-procedure", !depth);
    slider.value = String(depth || depths.best);
    output.textContent = depth ? String(depth) : "";
    const content = depths.depths[depth - 1];
    element.title = !depth ? (context.database ? `Colour is ${context.summary.rule}.` : "") : content ? `Depth ${depth} of ${deepest()}: ${describeDepth(content)}` : `Depth ${depth} of ${deepest()}`;
    slider.setAttribute("aria-valuetext", element.title);
    [...bars.children].forEach((bar, i) => bar.classList.toggle("current", i + 1 === depth));
  }

  const deepest = () => (context.database ? Math.min(context.tree.deepest, DEEPEST) : 1);

  function drawBars() {
    const most = Math.max(...depths.depths.map(({ variety }) => variety), 1e-9);
    bars.replaceChildren(...Array.from({ length: deepest() }, (_, i) => {
      const content = depths.depths[i];
      const bar = document.createElement("i");
      bar.style.height = `${content ? Math.max(8, (100 * content.variety) / most) : 8}%`;
      if (content) bar.title = `Depth ${i + 1}: ${describeDepth(content)}`;
      bar.classList.toggle("best", i + 1 === depths.best);
      bar.addEventListener("click", () => store.set({ depth: i + 1 }));
      return bar;
    }));
  }

  by.addEventListener("change", () => store.set({ depth: by.value ? depths.best : undefined }));
  slider.addEventListener("input", () => store.set({ depth: Number(slider.value) }, "depth"));
  store.subscribe(["depth"], show);
  store.subscribe(["loops"], () => { slider.max = String(deepest()); });
  return {
    show() {
      slider.max = String(deepest());
      drawBars();
      show();
    },

    /** @param {number} by */
    step(by) {
      const { depth } = store.state;
      store.set({ depth: depth ? Math.min(Math.max(1, depth + by), context.tree.deepest) : depths.best });
    },

    /** @returns {DepthContent | undefined} what the depth that is shown shows; undefined: colours are by procedure */
    content: () => depths.depths[(store.state.depth ?? 0) - 1],

    /**
     * Of another database, or a newer revision of it.
     * @param {DepthsAnswer} answer
     */
    renew(answer) {
      depths = answer;
      this.show();
    },
  };
}

/**
 * The procedures of a depth, in words.
 * @param {DepthContent} content
 */
export function describeDepth({ procedures, shown }) {
  const more = procedures - shown.length;
  return shown.map(([name, share]) => `${name} ${formatPercent(share)}`).join(", ") + (more > 0 ? `, ${formatCount(more)} more` : "");
}
