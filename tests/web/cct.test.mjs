import assert from "node:assert/strict";
import { test } from "node:test";

import { ASLEEP, BLOCKED, CallingContextTree, INTERRUPT, isOnCpu, LOOP, RUNNABLE, RUNNING, WAITING } from "../../viewer/web/core/cct.js";

// root > main > (solve > kernel, MPI_Send > schedule, solve)
const NAMES = ["<root>", "main", "solve", "kernel", "MPI_Send", "schedule"];
const summary = { procedures: NAMES, colours: NAMES.map((_, i) => i), marks: [0, 0, 0, 0, 0, BLOCKED] };
const cct = {
  parent: Uint32Array.from([0, 0, 1, 1, 1, 2, 3]),
  procedure: Uint32Array.from([0, 1, 2, 4, 2, 3, 5]),
};
const tree = new CallingContextTree(cct, summary);

test("children follow one another", () => {
  assert.deepEqual([0, 1, 2, 3, 4, 5, 6].map((node) => tree.children(node)), [[1], [2, 3, 4], [5], [6], [], [], []]);
});

test("depths and paths", () => {
  assert.deepEqual([...tree.depth], [0, 1, 2, 2, 2, 3, 3]);
  assert.equal(tree.deepest, 3);
  assert.deepEqual(tree.path(6), [1, 3, 6]);
  assert.deepEqual(tree.path(0), []);
});

test("at a depth a node shows its ancestor, or itself where its path is shorter", () => {
  assert.deepEqual([...tree.at(1)], [0, 1, 1, 1, 1, 1, 1]);
  assert.deepEqual([...tree.at(2)], [0, 1, 2, 4, 2, 2, 4]);
  assert.deepEqual([...tree.at(9)], [...cct.procedure]);
});

test("a preempted thread shows what it was doing, an interrupt that runs shows itself", () => {
  // root > main > work > interrupt [k] > (schedule [k] > switch [k], handler [k])
  const names = ["<root>", "main", "work", "interrupt [k]", "schedule [k]", "switch [k]", "handler [k]"];
  const nodes = { parent: Uint32Array.from([0, 0, 1, 2, 3, 3, 4]), procedure: Uint32Array.from([0, 1, 2, 3, 4, 6, 5]) };
  const preempted = new CallingContextTree(nodes, { procedures: names, colours: names.map(() => 0), marks: [0, 0, 0, INTERRUPT, BLOCKED, 0, 0] });
  assert.deepEqual([...preempted.at(3)], [0, 1, 2, 3, 2, 3, 2]);
  assert.deepEqual([...preempted.at(1)], [0, 1, 1, 1, 1, 1, 1]);
  // Frames of the interrupt and of the scheduler are not on its path.
  assert.deepEqual(preempted.path(4), [1, 2]);
  assert.deepEqual(preempted.path(5), [1, 2, 3, 5]);
});

test("inclusive costs are sums over subtrees", () => {
  assert.deepEqual([...tree.inclusive([0, 1, 2, 4, 8, 16, 32])], [63, 63, 18, 36, 8, 16, 32]);
});

test("a node's subtree is an interval of a depth-first walk", () => {
  const { begin, end } = tree.walk;
  for (let node = 1; node < cct.parent.length; node++) {
    const above = cct.parent[node];
    assert.ok(begin[above] < begin[node] && end[node] <= end[above]);
  }
  assert.deepEqual(Array.from(end, (last, node) => last - begin[node]), [7, 6, 2, 2, 1, 1, 1]);
});

test("procedures of one name are one, loops of one name are not", () => {
  const twice = { procedures: ["a", "a", "a"], colours: [0, 0, 0], marks: [0, 0, 0] };
  const nodes = { parent: Uint32Array.from([0, 0, 1]), procedure: Uint32Array.from([0, 1, 2]) };
  assert.deepEqual([...new CallingContextTree(nodes, twice).procedure], [0, 0, 0]);
  assert.deepEqual([...new CallingContextTree(nodes, twice, [0, 0, LOOP]).procedure], [0, 0, 2]);
});

test("loops are frames on request, and inlined procedures are one with those of their name", () => {
  // root > main > loop > force [inlined] > exp; main > force
  const names = ["<root>", "main", "force", "exp", "force [inlined]", "loop at x.c:3"];
  const nodes = { parent: Uint32Array.from([0, 0, 1, 1, 2, 4]), procedure: Uint32Array.from([0, 1, 5, 2, 4, 3]), owner: Uint32Array.from([0, 1, 1, 2, 2, 2]) };
  const scoped = new CallingContextTree(nodes, { procedures: names, colours: names.map(() => 0), marks: names.map(() => 0) }, [0, 0, 0, 0, 1, LOOP]);
  assert.deepEqual([...scoped.depth], [0, 1, 1, 2, 2, 3]);
  assert.deepEqual([...scoped.at(2)], [0, 1, 1, 2, 2, 2]);
  assert.deepEqual(scoped.path(5).map((node) => scoped.shortOf(node)), ["main", "force [inlined]", "exp"]);
  scoped.showLoops(true);
  assert.deepEqual([...scoped.depth], [0, 1, 2, 2, 3, 4]);
  assert.deepEqual([...scoped.at(2)], [0, 1, 5, 2, 5, 5]);
  assert.equal(scoped.deepest, 4);
});

test("a pixel beyond the tree shows no node", () => {
  assert.ok(tree.has(6) && !tree.has(7) && !tree.has(0xffff));
});

test("a call path has the same children whatever states threads are in there", () => {
  // main calls work and wait; node 4 is wait again, in another state.
  const columns = { parent: Uint32Array.from([0, 0, 1, 1, 1]), procedure: Uint32Array.from([0, 1, 2, 3, 3]), paths: 4 };
  const tree = new CallingContextTree(columns, { procedures: ["", "main", "work", "wait"], colours: [0, 0, 0, 0], marks: [0, 0, 0, 0] });
  assert.deepEqual(tree.children(1), [2, 3]);
  assert.deepEqual(tree.children(3), []);
  assert.deepEqual(tree.path(4), [1, 4]);
  assert.deepEqual([...tree.inclusive([0, 0, 1, 2, 4])], [7, 7, 1, 2, 4]);
});

test("a thread has a CPU where it runs, and where it waits on one", () => {
  const causes = ["", "for a lock", "", "for a lock, on a CPU"];
  assert.deepEqual([RUNNING, RUNNABLE, ASLEEP, WAITING | 1 << 2, WAITING | 3 << 2].map((state) => isOnCpu(state, causes)), [true, false, false, false, true]);
});
