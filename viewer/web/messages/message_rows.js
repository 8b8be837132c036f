// @ts-check
// Rows of the tables of messages: wait states, message sizes, communicators.

import { formatBytes, formatCount, formatFixed, formatTime } from "../core/format.js";

/**
 * @typedef {object} WaitRow waits at one call path, or below it one of them
 * @property {string} name
 * @property {number | null} node null: of one wait
 * @property {number} seconds
 * @property {number} count
 * @property {number} rank that was late
 * @property {string} other who was late, and where
 * @property {WaitingCall} worst
 * @property {() => WaitRow[]} children
 *
 * @typedef {object} MessageRow
 * @property {string} name
 * @property {string} title
 * @property {number} order of rows that are not sorted by their figures
 * @property {number} messages or calls
 * @property {number} bytes
 * @property {number} seconds
 * @property {() => MessageRow[]} children
 *
 * @typedef {import("../widgets/table.js").Column<MessageRow>} Column
 */

const NOBODY = () => [];

/**
 * A call path in short names, innermost procedure first.
 * @param {CallingContextTree} tree
 * @param {number} node
 */
export function pathText(tree, node) { return pathNames(tree, node, tree.short).join(" ‹ "); }

/**
 * A call path with whole names, a line each.
 * @param {CallingContextTree} tree
 * @param {number} node
 */
export function wholePath(tree, node) { return pathNames(tree, node, tree.names).join("\n"); }

/**
 * @param {CallingContextTree} tree
 * @param {number} node
 * @param {string[]} names of procedures
 */
function pathNames(tree, node, names) {
  return tree.has(node) ? tree.path(node).map((frame) => names[tree.procedure[frame]]).reverse() : ["unknown"];
}

/**
 * @param {MessagesAnswer} answer
 * @param {(node: number) => string} path
 * @returns {WaitRow[]}
 */
export function waitRows({ waits }, path) {
  return waits.map(({ kind, node, delaying_rank: rank, delaying_node, count, seconds, worst }) => {
    const below = worst.map((call) => ({
      name: `rank ${call.rank} at ${formatFixed(call.begin / 1e9, 6)} s`, node: null, seconds: call.seconds, count: 0, rank,
      other: `rank ${rank} at ${formatFixed(call.late / 1e9, 6)} s`, worst: call, children: () => [],
    }));
    return { name: `${kind}: ${path(node)}`, node, seconds, count, rank, other: `${rank}: ${path(delaying_node)}`, worst: worst[0], children: () => below };
  });
}

/** @type {(title: string, key: "messages" | "bytes" | "seconds", text: (value: number) => string, most: number) => Column} */
const column = (title, key, text, most) => ({
  title, value: (row) => row[key], text: (row) => (row[key] > 0 ? text(row[key]) : ""), share: (row) => Math.max(0, row[key]) / (most || 1), width: 106,
});

/**
 * @param {MessagesAnswer} answer
 * @returns {{ rows: MessageRow[], columns: Column[] }}
 */
export function sizeRows({ sizes, messages, bytes }) {
  const rows = sizes.map(({ least, most, ...size }, i) => {
    const name = least === most ? `${formatCount(least)} B` : `${formatCount(least)} to ${formatCount(most)} B`;
    return { name, title: name, order: i, ...size, seconds: 0, children: NOBODY };
  });
  return { rows, columns: [
    column("messages", "messages", formatCount, messages), column("bytes", "bytes", formatBytes, bytes),
    { title: "mean size", value: (row) => row.order, text: (row) => formatBytes(row.bytes / (row.messages || 1)), share: () => 0, width: 90 },
  ] };
}

/**
 * Communicators, below each its collective operations by function.
 * @param {MessagesAnswer} answer
 * @returns {{ rows: MessageRow[], columns: Column[] }}
 */
export function communicatorRows({ communicators }) {
  const rows = communicators.map((one) => {
    const other = one.remote === null ? "" : ` with ${one.remote.join(", ") || "unknown processes"}`;
    const shown = one.members.length + (one.remote?.length ?? 0);
    const members = one.members.join(", ") + other + (shown < one.ranks ? ", …" : "");
    const shape = one.dims.length ? `, ${one.dims.join(" × ")}` : "";
    const below = one.collectives.map((row) => ({
      name: `${row.function}, ${formatCount(row.operations)} operation${row.operations === 1 ? "" : "s"}`, title: row.function, order: 0,
      messages: row.calls, bytes: row.bytes ?? 0, seconds: row.seconds, children: NOBODY,
    }));
    return {
      name: `${one.name}${shape}: ${members}`, order: one.number, messages: one.messages, bytes: one.bytes, seconds: one.seconds,
      title: `number ${one.number}${one.parent === null ? "" : `, made of number ${one.parent}`}, ${one.ranks} ranks: ${members}`, children: () => below,
    };
  });
  const most = (/** @type {"messages" | "bytes" | "seconds"} */ key) => rows.reduce((sum, row) => sum + row[key], 0);
  return { rows, columns: [
    column("time", "seconds", (seconds) => formatTime(seconds * 1e9), most("seconds")),
    column("messages", "messages", formatCount, most("messages")), column("bytes", "bytes", formatBytes, most("bytes")),
  ] };
}
