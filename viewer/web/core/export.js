// @ts-check
// Any view as a file. PNG and SVG: the trace view as hpcd render draws it, with axis, names and legend;
// of other views PNG is what the canvases show, under one another, SVG flame graphs as boxes with their
// names, tables as text, pictures as the pictures they are. CSV: the numbers.

import { cssVariable } from "../widgets/canvas.js";
import { context2d } from "./paint.js";

const ROW = 18;
const MARGIN = 12;
const TOP = 24 + MARGIN; // below the title
const TABLE_WIDTH = 1600;
const MOST_ROWS = 2000; // of a table as a picture

/** @type {Record<string, (pane: Pane, title: string) => Blob | Promise<Blob>>} */
const WRITERS = { png, svg, csv };

/**
 * Saves what a pane shows.
 * @param {string} kind png, svg or csv
 * @param {Pane} pane
 * @param {string} title
 */
export async function exportView(kind, pane, title) {
  const drawn = kind === "csv" ? undefined : pane.rendered?.(kind === "svg" ? "svg" : "png");
  const blob = await (drawn ?? WRITERS[kind](pane, title));
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = `${title.replace(/[^\w.-]+/g, "-")}.${kind}`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

/**
 * A pane that has no canvas is a table: its numbers are its picture.
 * @param {Pane} pane
 */
function drawn(pane) {
  if (pane.canvases) return pane.canvases();
  const rows = pane.csv().slice(0, MOST_ROWS);
  const canvas = document.createElement("canvas");
  canvas.width = TABLE_WIDTH;
  canvas.height = ROW * rows.length + MARGIN;
  const pen = context2d(canvas);
  pen.font = "12px system-ui, sans-serif";
  pen.fillStyle = cssVariable("--text");
  rows.forEach((row, i) => cells(row, i, pane.tree).forEach(({ x, words }) => pen.fillText(words, x, ROW * (i + 1))));
  return [canvas];
}

/**
 * Where the cells of a row are, and what they say.
 * @param {Cell[]} row of a tree the first cell is how deep it is
 * @param {number} i
 * @param {boolean} [tree]
 */
function cells([level, name, ...values], i, tree) {
  const number = (/** @type {Cell} */ value) => (typeof value === "number" ? value.toPrecision(5) : value);
  return [
    tree ? { x: i ? 14 * Number(level) : MARGIN, words: String(name).slice(0, 70) } : { x: MARGIN, words: `${String(level).padEnd(8)}${name}`.slice(0, 80) },
    ...values.map((value, k) => ({ x: 560 + 125 * k, words: String(number(value)).replaceAll("_", " ").slice(0, 20) })),
  ];
}

/**
 * @param {Pane} pane
 * @param {string} title
 * @returns {Promise<Blob>}
 */
function png(pane, title) {
  const parts = drawn(pane);
  const canvas = document.createElement("canvas");
  canvas.width = Math.max(...parts.map(({ width }) => width)) + 2 * MARGIN;
  canvas.height = parts.reduce((sum, { height }) => sum + height + MARGIN, TOP);
  const pen = context2d(canvas);
  pen.fillStyle = cssVariable("--ground");
  pen.fillRect(0, 0, canvas.width, canvas.height);
  pen.fillStyle = cssVariable("--text");
  pen.font = "13px system-ui, sans-serif";
  pen.fillText(title, MARGIN, 20);
  let y = TOP;
  for (const part of parts) {
    pen.drawImage(part, MARGIN, y);
    y += part.height + MARGIN;
  }
  return new Promise((resolve, reject) => {
    canvas.toBlob((blob) => { if (blob) resolve(blob); else reject(new Error("the picture is too large for a PNG file")); }, "image/png");
  });
}

/**
 * Control characters, which XML cannot hold and terminals obey, and characters that change the
 * direction of writing, as escapes.
 * @param {string} text
 */
function harmless(text) {
  return text.replace(/[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu, (character) => `\\u{${character.codePointAt(0)?.toString(16)}}`);
}

/**
 * @param {Pane} pane
 * @param {string} title
 */
function svg(pane, title) {
  const { parts, width, bottom } = pane.boxes ? svgBoxes(pane) : pane.canvases ? svgImages(pane.canvases()) : svgTable(pane);
  const whole = `<svg xmlns="http://www.w3.org/2000/svg" width="${width + 2 * MARGIN}" height="${bottom + MARGIN}" font-family="system-ui, sans-serif" font-size="12">`
    + `<rect width="100%" height="100%" fill="${cssVariable("--ground")}"/>${svgText(MARGIN, 20, title, cssVariable("--text"))}${parts.join("")}</svg>`;
  return new Blob([whole], { type: "image/svg+xml" });
}

/** @param {Pane} pane a flame graph */
function svgBoxes(pane) {
  const [canvas] = pane.canvases?.() ?? [];
  const parts = (pane.boxes?.() ?? []).map((box) => {
    const room = Math.floor((box.width - 8) / 6.5);
    const label = room > 3 ? svgText(Number((MARGIN + box.x + 4).toFixed(1)), TOP + box.y + box.height * 0.7, box.text.slice(0, room), box.dark ? "#fff" : "#000") : "";
    return `<g><title>${escaped(box.text)}</title><rect x="${(MARGIN + box.x).toFixed(1)}" y="${TOP + box.y}" width="${Math.max(0.5, box.width - 1).toFixed(1)}" height="${box.height - 1}" fill="${box.fill}"/>${label}</g>`;
  });
  return { parts, width: canvas?.width ?? 0, bottom: TOP + (canvas?.height ?? 0) };
}

/** @param {HTMLCanvasElement[]} canvases */
function svgImages(canvases) {
  let bottom = TOP;
  const parts = canvases.map((canvas) => {
    const image = `<image x="${MARGIN}" y="${bottom}" width="${canvas.width}" height="${canvas.height}" href="${canvas.toDataURL()}"/>`;
    bottom += canvas.height + MARGIN;
    return image;
  });
  return { parts, width: Math.max(...canvases.map(({ width }) => width)), bottom };
}

/** @param {Pane} pane */
function svgTable(pane) {
  const rows = pane.csv();
  const parts = rows.flatMap((row, i) => cells(row, i, pane.tree)
    .map(({ x, words }) => svgText(MARGIN + x, TOP + ROW * (i + 1), words, cssVariable("--text"))));
  return { parts, width: TABLE_WIDTH, bottom: TOP + ROW * (rows.length + 1) };
}

/**
 * @param {number} x
 * @param {number} y
 * @param {string} words
 * @param {string} fill
 */
function svgText(x, y, words, fill) { return `<text x="${x}" y="${y}" fill="${fill}">${escaped(words)}</text>`; }

/** @param {string} text */
function escaped(text) { return harmless(text).replace(/[&<>"]/g, (character) => `&#${character.charCodeAt(0)};`); }

/** @param {Pane} pane */
function csv(pane) {
  // A name that begins like a formula must not become one in a spreadsheet.
  const cell = (/** @type {Cell} */ value) => {
    if (typeof value === "number") return String(value);
    const words = harmless(/^\s*[=+\-@]/.test(value) ? "'" + value : value);
    return /[",]/.test(words) ? `"${words.replaceAll('"', '""')}"` : words;
  };
  return new Blob([pane.csv().map((row) => row.map(cell).join(",")).join("\n") + "\n"], { type: "text/csv" });
}
