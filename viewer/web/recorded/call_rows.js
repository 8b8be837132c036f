// @ts-check
// Rows and columns of recorded calls: totals of groups of them, and the memory of processes by call path.

import { formatBytes, formatCount, formatFixed, formatPercent, formatTime } from "../core/format.js";

/**
 * @typedef {object} CallRow
 * @property {string} name
 * @property {string} title
 * @property {number} node of the calling context tree, -1: none
 * @property {{ line: number, time: number } | null} spot where the crosshair goes
 * @property {string} [phase] that the row is of
 * @property {Record<string, number>} figures
 * @property {() => CallRow[]} children
 *
 * @typedef {{ rows: CallRow[], columns: import("../widgets/table.js").Column<CallRow>[] }} Content
 */

/** @type {[MemorySum, string][]} */
const MEMORY = [["at_peak", "at peak"], ["at_end", "at the end"], ["touched", "touched"], ["huge", "huge pages"], ["remote", "on another NUMA node"], ["mapped", "mapped"], ["released", "given back"]];
/** @type {[Exclude<keyof MemoryStretches, "name">, string][]} */
const MEMORY_OVER_TIME = [["held", "at the end"], ["peak", "peak"], ["touched", "touched"], ["mapped", "mapped"], ["released", "given back"]];
// Columns of what most processes have none of.
const FEW = new Set(["huge", "remote"]);
const SPEEDS = /** @type {const} */ (["overall", "min", "mean", "max", "stddev"]);
const speed = (/** @type {number} */ value) => `${formatBytes(value)}/s`;
const time = (/** @type {number} */ seconds) => formatTime(seconds * 1e9);

/** @type {(title: string, key: string, text: (value: number) => string, total?: number) => import("../widgets/table.js").Column<CallRow>} */
const column = (title, key, text, total = 0) => ({
  title, value: ({ figures }) => figures[key],
  text: ({ figures }) => (figures[key] ? text(figures[key]) + (total ? `  ${formatPercent(figures[key] / total)}` : "") : ""),
  share: ({ figures }) => (total ? figures[key] / total : 0),
});

/**
 * @param {CallTotalsAnswer} answer
 * @param {(node: number, whole: boolean) => string} path with whole names, a line each
 * @returns {Content}
 */
export function totalRows({ groups }, path) {
  const rows = groups.map(({ name, node, bandwidth: speeds, ...sums }) => {
    const figures = { ...sums, bytes: sums.read + sums.written, ...Object.fromEntries(SPEEDS.map((key) => [key, speeds[key] ?? 0])) };
    const [short, title] = node < 0 ? [name, name] : [path(node, false), path(node, true)];
    return { name: short, title: describeCalls(title, figures), node, spot: null, figures, children: () => [] };
  });
  const sum = (/** @type {"read" | "written" | "seconds"} */ key) => groups.reduce((total, group) => total + group[key], 0);
  return { rows, columns: [
    column("bytes", "bytes", formatBytes, sum("read") + sum("written")), column("time", "seconds", time, sum("seconds")),
    column("read", "read", formatBytes), column("written", "written", formatBytes),
    column("calls", "calls", formatCount), column("failed", "errors", formatCount), column("bandwidth", "overall", speed),
  ].filter(({ value }) => rows.some((row) => value(row))) };
}

/**
 * Phases, those that lasted longest first.
 * @param {PhasesAnswer} answer
 * @param {Metric[]} metrics
 * @returns {Content}
 */
export function phaseRows({ name, phase, calls, threads, seconds, costs }, metrics) {
  const rows = name.map((text, i) => ({
    name: text, title: `${text}\nclick: costs, calls and source lines of this phase alone`, node: -1, spot: null, phase: phase[i], children: () => [],
    figures: { seconds: seconds[i], calls: calls[i], threads: threads[i], ...Object.fromEntries(metrics.map((metric) => [metric.name, costs[metric.name][i]])) },
  }));
  const sum = (/** @type {number[]} */ values) => values.reduce((total, value) => total + value, 0);
  return { rows, columns: [
    column("time", "seconds", time, sum(seconds)),
    ...metrics.map((metric) => column(metric.name.replaceAll("_", " "), metric.name, metric.unit === "s" ? time : formatCount, sum(costs[metric.name]))),
    column("calls", "calls", formatCount), column("threads", "threads", formatCount),
  ] };
}

/**
 * All figures of a group of calls, a line each.
 * @param {string} name
 * @param {Record<string, number>} figures
 */
export function describeCalls(name, { calls, shortest, longest, overall, min, mean, max, stddev }) {
  return [name, `${formatCount(calls)} calls, of ${time(shortest)} to ${time(longest)}`,
    ...(overall ? [`bandwidth ${speed(overall)}; of one call ${speed(min)} to ${speed(max)}, mean ${speed(mean)}, standard deviation ${speed(stddev)}`] : [])].join("\n");
}

/**
 * Processes, below each its call paths, those that held most at the peak first.
 * @param {MemoryAnswer} answer
 * @param {(node: number, whole: boolean) => string} path with whole names, a line each
 * @returns {Content}
 */
export function memoryRows({ processes }, path) {
  const rows = processes.map((one) => {
    const { paths } = one;
    const below = paths.map(({ node, ...figures }) => ({ name: path(node, false), title: path(node, true), node, spot: null, figures, children: () => [] }));
    const name = `${one.rank === null ? "" : `rank ${one.rank}, `}${one.name} (${one.pid}): peak ${formatBytes(one.peak)} at ${formatFixed(one.peak_ns / 1e9, 3)} s`;
    return {
      name, title: name + (below.length < one.of ? `\nthe first ${below.length} of ${formatCount(one.of)} call paths` : ""), node: -1,
      spot: { line: one.line, time: one.peak_ns }, children: () => below,
      figures: { at_peak: one.peak, at_end: one.at_end, touched: one.touched, huge: one.huge, remote: one.remote, mapped: one.mapped, released: one.released },
    };
  });
  const peak = rows.reduce((total, { figures }) => Math.max(total, figures.at_peak), 0);
  const used = MEMORY.filter(([key]) => !FEW.has(key) || rows.some(({ figures }) => figures[key]));
  return { rows, columns: used.map(([key, title]) => ({ ...column(title, key, formatBytes), share: ({ figures }) => figures[key] / (peak || 1) })) };
}

/**
 * The memory of all processes in stretches of time.
 * @param {MemoryStretches} answer
 * @returns {Content}
 */
export function memoryStretchRows(answer) {
  const most = Math.max(0, ...answer.peak);
  return {
    rows: answer.name.map((name, i) => ({
      name, title: name, node: -1, spot: null, figures: Object.fromEntries(MEMORY_OVER_TIME.map(([key]) => [key, answer[key][i]])), children: () => [],
    })),
    columns: MEMORY_OVER_TIME.map(([key, title]) => ({ ...column(title, key, formatBytes), share: ({ figures }) => figures[key] / (most || 1) })),
  };
}
