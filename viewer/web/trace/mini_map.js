// @ts-check
// The mini map: the whole recording, with the part in view outlined.

import { cssVariable, fittedCanvas, themeGrounds } from "../widgets/canvas.js";
import { context2d, drawScaled, nodeColours, paintGrid } from "../core/paint.js";
import { RowLayout } from "./row_layout.js";

/**
 * @param {HTMLElement} element
 * @param {import("./trace.js").Shared} shared
 */
export function miniMap(element, { store, api, context }) {
  const { canvas, fit, dispose } = fittedCanvas(element, "The whole recording; the part in view is outlined", load);
  /** @type {import("../core/api_types.js").Grid | null} */
  let grid = null;
  let disposed = false;
  fit();

  async function load() {
    const { duration_ns } = context.summary;
    const count = context.count();
    if (!count || !duration_ns) return;
    try {
      grid = await api.picture(store.db, { ...store.state, t0: 0, t1: duration_ns, l0: 0, l1: count }, canvas.height, canvas.width);
    } catch (error) { context.fail(error); return; }
    if (!disposed) draw();
  }

  function draw() {
    if (grid === null || grid.revision !== api.revision) return;
    const pen = context2d(canvas);
    const { width, height } = canvas;
    const colours = nodeColours(context.tree, context.picture(), themeGrounds(), context.lit());
    // Rows of folded lines are as low as in the picture.
    const layout = new RowLayout(grid.folded);
    drawScaled(pen, paintGrid(grid, new ImageData(grid.w, height), colours, layout.rowsOfPixels(height)), 0, 0, width, height);
    const { t0, t1, l0, l1 } = store.state;
    const { duration_ns } = context.summary;
    const lines = context.count();
    pen.strokeStyle = cssVariable("--cross");
    pen.lineWidth = 2;
    const [top, bottom] = [l0, l1].map((row) => layout.heightOf(row / lines) * height);
    pen.strokeRect((t0 / duration_ns) * width, top, ((t1 - t0) / duration_ns) * width, bottom - top);
  }

  return { load, draw, dispose() { disposed = true; dispose(); } };
}
