// Any view as a file. PNG: what the canvases show, under one another. SVG: flame graphs as boxes
// with their names, tables as text, pictures as the pictures they are. CSV: the numbers.

import { ink } from "./canvas.js";

const ROW = 18;
const MARGIN = 12;

export async function save(kind, pane, title) {
  const made = { png, svg, csv }[kind];
  const blob = await made(pane, title);
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = `${title.replace(/[^\w.-]+/g, "-")}.${kind}`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

// A pane that has no canvas is a table: its numbers are its picture.
function drawn(pane) {
  if (pane.canvases) return pane.canvases();
  const rows = pane.csv().slice(0, 2000);
  const canvas = document.createElement("canvas");
  canvas.width = 1600;
  canvas.height = ROW * rows.length + MARGIN;
  const pen = canvas.getContext("2d");
  pen.font = "12px system-ui, sans-serif";
  pen.fillStyle = ink("--text");
  rows.forEach((row, i) => cells(row, i, pane.tree).forEach(({ x, words }) => pen.fillText(words, x, ROW * (i + 1))));
  return [canvas];
}

// Of a tree's rows the first cell is how deep a row is.
function cells([level, name, ...values], i, tree) {
  const number = (value) => (typeof value === "number" ? value.toPrecision(5) : value);
  return [
    tree ? { x: i ? 14 * level : MARGIN, words: String(name).slice(0, 70) } : { x: MARGIN, words: `${String(level).padEnd(8)}${name}`.slice(0, 80) },
    ...values.map((value, k) => ({ x: 560 + 125 * k, words: String(number(value)).replaceAll("_", " ").slice(0, 20) })),
  ];
}

function png(pane, title) {
  const parts = drawn(pane);
  const canvas = document.createElement("canvas");
  canvas.width = Math.max(...parts.map(({ width }) => width)) + 2 * MARGIN;
  canvas.height = parts.reduce((sum, { height }) => sum + height + MARGIN, 24 + MARGIN);
  const pen = canvas.getContext("2d");
  pen.fillStyle = ink("--ground");
  pen.fillRect(0, 0, canvas.width, canvas.height);
  pen.fillStyle = ink("--text");
  pen.font = "13px system-ui, sans-serif";
  pen.fillText(title, MARGIN, 20);
  let y = 24 + MARGIN;
  for (const part of parts) {
    pen.drawImage(part, MARGIN, y);
    y += part.height + MARGIN;
  }
  return new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
}

function svg(pane, title) {
  const escape = (text) => String(text).replace(/[&<>"]/g, (each) => `&#${each.charCodeAt(0)};`);
  const text = (x, y, words, fill) => `<text x="${x}" y="${y}" fill="${fill}">${escape(words)}</text>`;
  const out = [text(MARGIN, 20, title, ink("--text"))];
  let [width, y] = [0, 24 + MARGIN];
  if (pane.boxes) {
    const [canvas] = pane.canvases();
    width = canvas.width;
    for (const box of pane.boxes()) {
      out.push(`<g><title>${escape(box.text)}</title><rect x="${(MARGIN + box.x).toFixed(1)}" y="${y + box.y}" width="${Math.max(0.5, box.width - 1).toFixed(1)}" height="${box.height - 1}" fill="${box.fill}"/>`);
      const room = Math.floor((box.width - 8) / 6.5);
      if (room > 3) out.push(text((MARGIN + box.x + 4).toFixed(1), y + box.y + box.height * 0.7, box.text.slice(0, room), box.dark ? "#fff" : "#000"));
      out.push("</g>");
    }
    y += canvas.height;
  } else if (pane.canvases) {
    for (const canvas of pane.canvases()) {
      out.push(`<image x="${MARGIN}" y="${y}" width="${canvas.width}" height="${canvas.height}" href="${canvas.toDataURL()}"/>`);
      width = Math.max(width, canvas.width);
      y += canvas.height + MARGIN;
    }
  } else {
    pane.csv().forEach((row, i) => {
      for (const { x, words } of cells(row, i, pane.tree)) out.push(text(MARGIN + x, y + ROW * (i + 1), words, ink("--text")));
    });
    width = 1600;
    y += ROW * (pane.csv().length + 1);
  }
  const whole = `<svg xmlns="http://www.w3.org/2000/svg" width="${width + 2 * MARGIN}" height="${y + MARGIN}" font-family="system-ui, sans-serif" font-size="12">`
    + `<rect width="100%" height="100%" fill="${ink("--ground")}"/>${out.join("")}</svg>`;
  return new Blob([whole], { type: "image/svg+xml" });
}

function csv(pane) {
  // A name that begins like a formula must not become one in a spreadsheet.
  const cell = (value) => {
    if (typeof value === "number") return String(value);
    const words = /^[=+\-@\t\r]/.test(value) ? "'" + value : String(value);
    return /[",\n\r]/.test(words) ? `"${words.replaceAll('"', '""')}"` : words;
  };
  return new Blob([pane.csv().map((row) => row.map(cell).join(",")).join("\n") + "\n"], { type: "text/csv" });
}
