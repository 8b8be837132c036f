import assert from "node:assert/strict";
import { test } from "node:test";

import { formatBytes } from "../../viewer/web/core/format.js";
import { describeCell, ranksInside } from "../../viewer/web/messages/matrix_view.js";
import { communicatorRows, sizeRows, waitRows } from "../../viewer/web/messages/message_rows.js";
import { memoryRows, phaseRows, totalRows } from "../../viewer/web/recorded/call_rows.js";
import { describeMarks } from "../../viewer/web/trace/call_marks.js";

test("bytes have three digits", () => {
  assert.deepEqual([0, 999, 1000, 1234567, 999600, 12.4e9].map(formatBytes), ["0 B", "999 B", "1.00 kB", "1.23 MB", "1.00 MB", "12.4 GB"]);
});

// 10 ranks from 100 on as senders, 5 from 0 on as receivers, three to a cell.
const answer = { rows: 4, columns: 2, step: 3, counts: Float64Array.from({ length: 8 }, (_, i) => i), amounts: Float64Array.from({ length: 8 }, (_, i) => 1000 * i) };
const shown = { answer, ranks: [100, 110, 0, 5], kind: "messages", counted: false };

test("a rectangle of the matrix has the ranks of all cells it touches", () => {
  assert.deepEqual(ranksInside(shown, { x: 0.1, y: 0.1 }, { x: 0.9, y: 0.3 }), [100, 106, 0, 5]);
  assert.deepEqual(ranksInside(shown, { x: 0.9, y: 0.99 }, { x: 0.6, y: 0.8 }), [109, 110, 3, 5]);
});

test("a cell is described with its ranks", () => {
  assert.equal(describeCell(shown, { x: 0.6, y: 0.99 }), "from rank 109 to ranks 3-4\n7 messages, 7.00 kB");
  const waits = { ...shown, kind: "waiting", answer: { ...answer, step: 1, amounts: answer.amounts.map((one) => one / 1e6) } };
  assert.equal(describeCell(waits, { x: 0, y: 0.3 }), "rank 0 waited for rank 101\n2 times, 2.000 ms");
});

test("what is not drawn is counted", () => {
  const marks = { calls: { memory: 2000, io: 1 }, drawn: ["io"], call: [], messages: 1200, message: Array(400).fill({}), collectives: 0, collective: [] };
  assert.deepEqual(describeMarks(marks), ["400 of 1,200 messages drawn: zoom in", "2,000 memory calls: zoom in", "1 I/O call"]);
  const entries = (operations) => Array.from({ length: 2 * operations }, (_, i) => ({ operation: i >> 1 }));
  const some = { ...marks, messages: 13, message: Array(13).fill({}), calls: {} };
  assert.deepEqual(describeMarks({ ...some, collectives: 150, collective: entries(50) }), ["13 messages: zoom in", "50 of 150 collectives drawn: zoom in"]);
  assert.deepEqual(describeMarks({ ...some, collectives: 12, collective: entries(12) }), ["13 messages: zoom in", "12 collectives"]);
  assert.deepEqual(describeMarks({ ...marks, messages: null, message: null, calls: {} }), []);
  assert.deepEqual(describeMarks({ ...marks, messages: null, message: null, calls: {}, phases: 2001, phase: null }), ["2,001 phases: zoom in"]);
});

test("wait states have their longest waits below them", () => {
  const call = { rank: 2, line: 5, begin: 1e9, end: 2e9, seconds: 0.5, late: 15e8 };
  const [row] = waitRows({ waits: [{ kind: "late sender", node: 7, delaying_rank: 3, delaying_node: 8, count: 9, seconds: 2, worst: [call] }] }, (node) => `path ${node}`);
  assert.deepEqual([row.name, row.other, row.worst], ["late sender: path 7", "3: path 8", call]);
  assert.deepEqual(row.children().map(({ name, other }) => [name, other]), [["rank 2 at 1.000000 s", "rank 3 at 1.500000 s"]]);
});

test("sizes and communicators", () => {
  const sizes = sizeRows({ sizes: [{ least: 0, most: 0, messages: 1, bytes: 0 }, { least: 4, most: 7, messages: 3, bytes: 15 }], messages: 4, bytes: 15 });
  assert.deepEqual(sizes.rows.map(({ name }) => name), ["0 B", "4 to 7 B"]);
  assert.equal(sizes.columns[0].share(sizes.rows[1]), 0.75);
  const one = { number: 2, name: "split", parent: 0, ranks: 9, members: [0, 3], remote: null, dims: [3, 3], messages: 5, bytes: 0, seconds: 1e-3 };
  const { rows } = communicatorRows({ communicators: [{ ...one, collectives: [{ function: "MPI_Bcast", operations: 1, calls: 9, seconds: 1e-3, bytes: null }] }] });
  assert.equal(rows[0].name, "split, 3 × 3: 0, 3, …");
  assert.equal(rows[0].title, "number 2, made of number 0, 9 ranks: 0, 3, …");
  assert.deepEqual(rows[0].children().map(({ name }) => name), ["MPI_Bcast, 1 operation"]);
  const two = { ...one, name: "between groups", dims: [], ranks: 4, collectives: [] };
  const named = communicatorRows({ communicators: [{ ...two, remote: [1, 2] }, { ...two, ranks: 2, remote: [] }] }).rows.map(({ name }) => name);
  assert.deepEqual(named, ["between groups: 0, 3 with 1, 2", "between groups: 0, 3 with unknown processes"]);
});

test("calls and memory", () => {
  const bandwidth = { overall: 20, min: null, mean: null, max: null, stddev: null };
  const group = { name: "/a", node: -1, calls: 2, errors: 0, read: 10, written: 30, size: 0, seconds: 2, shortest: 0, longest: 1, bandwidth };
  const totals = totalRows({ by: "file", of: 1, calls_of: 2, exact: true, groups: [group] }, () => "");
  assert.deepEqual(totals.columns.map(({ text }) => text(totals.rows[0])), ["40 B  100.0 %", "2.000 s  100.0 %", "10 B", "30 B", "2", "20 B/s"]); // none failed: no column
  const paths = [{ node: 4, at_peak: 7, at_end: 1, touched: 9, huge: 0, remote: 0, mapped: 0, released: 0 }];
  const process = { name: "app", pid: 9, rank: 1, line: 3, touched: 9, peak: 7, peak_ns: 5e8, at_end: 1, huge: 0, remote: 0, mapped: 5, released: 0, of: 1, paths };
  const { rows } = memoryRows({ of: 1, processes: [process] }, () => "grow ‹ main");
  assert.deepEqual([rows[0].name, rows[0].spot], ["rank 1, app (9): peak 7 B at 0.500 s", { line: 3, time: 5e8 }]);
  assert.equal(rows[0].children()[0].name, "grow ‹ main");
});

test("phases have their metrics, and what marks each alone", () => {
  const answer = { of: 1, name: ["solve n=3"], phase: ["solve(n=3)"], calls: [10], threads: [2], seconds: [2], costs: { records: [9], cpu_time: [1.5] }, notes: [] };
  const { rows, columns } = phaseRows(answer, [{ name: "records", unit: "" }, { name: "cpu_time", unit: "s" }]);
  assert.equal(rows[0].phase, "solve(n=3)");
  assert.deepEqual(columns.map(({ title, text }) => [title, text(rows[0])]), [
    ["time", "2.000 s  100.0 %"], ["records", "9  100.0 %"], ["cpu time", "1.500 s  100.0 %"], ["calls", "10"], ["threads", "2"]]);
});
