// @ts-check
// A canvas that fills its element at the screen's resolution.

import { pixelOfColour } from "../core/colour.js";

/**
 * @param {HTMLElement} element
 * @param {string} label for those who do not see it
 * @param {() => void} draw called when its size has changed; who draws before calls fit
 */
export function fittedCanvas(element, label, draw) {
  const canvas = document.createElement("canvas");
  canvas.tabIndex = 0;
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", label);
  element.append(canvas);
  // Whether the element's size is another than the canvas had, which has it now.
  function fit() {
    const ratio = devicePixelRatio || 1;
    const width = Math.max(1, Math.round(element.clientWidth * ratio));
    const height = Math.max(1, Math.round(element.clientHeight * ratio));
    if (canvas.width === width && canvas.height === height) return false;
    canvas.width = width;
    canvas.height = height;
    return true;
  }

  const observer = new ResizeObserver(() => { if (fit()) draw(); });
  observer.observe(element);
  return { canvas, fit, dispose: () => { observer.disconnect(); canvas.remove(); } };
}

/**
 * Where an event is on its canvas, from 0 to 1 both ways.
 * @param {HTMLElement} element
 * @param {MouseEvent} event
 */
export function relativePosition(element, event) {
  const box = element.getBoundingClientRect();
  return {
    x: Math.min(Math.max((event.clientX - box.left) / box.width, 0), 1),
    y: Math.min(Math.max((event.clientY - box.top) / box.height, 0), 1),
  };
}

/** @param {string} name */
export function cssVariable(name) { return getComputedStyle(document.documentElement).getPropertyValue(name).trim(); }

// The theme's pixels behind pictures of trace lines.
export function themeGrounds() {
  const [blank, asleep, waiting] = ["--blank", "--asleep", "--waiting"].map((name) => pixelOfColour(cssVariable(name)));
  return { blank, asleep, waiting };
}

/**
 * Resolves when the frame being made has been shown.
 * @returns {Promise<void>}
 */
export function afterNextFrame() {
  return new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));
}

const IDLE_MS = 100; // what waits for the page to be idle waits no longer

/**
 * Resolves when the frame being made has been shown and nothing more urgent is to be done.
 * @returns {Promise<void>}
 */
export async function whenIdle() {
  await afterNextFrame();
  if ("requestIdleCallback" in window) await new Promise((resolve) => requestIdleCallback(resolve, { timeout: IDLE_MS }));
}
