// @ts-check
// Types of the panes, which app.js mounts. Nothing here runs.

/**
 * @typedef {object} PageParts what a pane is given
 * @property {import("./store.js").Store} store
 * @property {import("./api.js").Api} api
 * @property {import("./context.js").PageContext} context
 * @property {import("./find.js").FindBox} [find] the box that finds
 *
 * @typedef {string | number} Cell
 *
 * @typedef {object} DrawnBox of a flame graph, in canvas pixels
 * @property {number} x
 * @property {number} y
 * @property {number} width
 * @property {number} height
 * @property {string} fill
 * @property {boolean} dark whether text on it must be light
 * @property {string} text
 *
 * @typedef {object} Pane
 * @property {() => void} dispose
 * @property {() => Cell[][]} csv its numbers, a heading first
 * @property {Promise<void>} [begun] until it first shows something
 * @property {() => HTMLCanvasElement[]} [canvases] none: a table
 * @property {(format: "png" | "svg") => Promise<Blob>} [rendered] the whole of it as the server draws it for files
 * @property {() => DrawnBox[]} [boxes] of a flame graph, whose canvas is the only one
 * @property {boolean} [tree] whether the first cell of a row of csv is how deep it is
 * @property {() => void} [hotPath] opens it
 * @property {() => number} [reach] where its time ends, ns
 * @property {() => void} [zoomToSelected] the range, or what the crosshair is at
 * @property {(step: number) => void} [moveRow] the crosshair's row, up (-1) or down (1)
 * @property {() => void} [selectRows] those of the crosshair's process
 * @property {() => void} [detailed] where most is spent is known now
 * @property {() => void} [matched] other matches of the search are there
 * @property {(step: number) => { at: number, count: number } | null} [goToMatch] to the next of its own (1) or the one before (-1): which of how many; null: there is none
 */

export {};
