// @ts-check
// Types of the panes, which app.js mounts, and of what modules of several folders use. Nothing here runs, and
// nothing is exported: every module has these types by their names.

/**
 * @typedef {object} PageParts what a pane is given
 * @property {Store} store
 * @property {Api} api
 * @property {PageContext} context
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

/**
 * @typedef {import("../compare/aligned_tree.js").AlignedTree} AlignedTree
 * @typedef {import("./api.js").Api} Api
 * @typedef {import("./cct.js").CallingContextTree} CallingContextTree
 * @typedef {import("../widgets/segmented_control.js").Choice} Choice
 * @typedef {import("../compare/compare.js").MountView} MountView
 * @typedef {import("./open_database.js").OpenDatabase} OpenDatabase
 * @typedef {import("./context.js").PageContext} PageContext
 * @typedef {import("../trace/call_marks.js").Places} Places
 * @typedef {import("./context.js").Position} Position
 * @typedef {import("../profile/profile.js").Row} Row
 * @typedef {import("../trace/row_layout.js").RowLayout} RowLayout
 * @typedef {import("../profile/selected_profile.js").SelectedProfile} SelectedProfile
 * @typedef {import("../trace/trace.js").Shared} Shared
 * @typedef {import("./store.js").State} State
 * @typedef {import("./store.js").Store} Store
 * @typedef {import("../compare/compare.js").ViewParts} ViewParts
 * @typedef {import("./open_database.js").ViewTree} ViewTree
 */
