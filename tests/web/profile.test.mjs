import assert from "node:assert/strict";
import { test } from "node:test";

import { CallingContextTree } from "../../viewer/web/core/cct.js";
import { Profile } from "../../viewer/web/profile/profile.js";

// root > main > (f > f > g, g); f is recursive.
const NAMES = ["<root>", "main", "f", "g"];
const tree = new CallingContextTree(
  { parent: Uint32Array.from([0, 0, 1, 1, 2, 4]), procedure: Uint32Array.from([0, 1, 2, 3, 2, 3]) },
  { procedures: NAMES, colours: [0, 0, 0, 0], marks: [0, 0, 0, 0] },
);
const exclusive = Float64Array.from([0, 1, 2, 4, 8, 16]);
const twice = { of: ([cost]) => 2 * cost };
const profile = new Profile(tree, [exclusive], [twice]);
const byName = (rows) => Object.fromEntries(rows.map((row) => [NAMES[row.procedure], row]));

test("the root has everything, and formulas of it", () => {
  assert.deepEqual(profile.total, [31, 62]);
  assert.deepEqual(profile.root().inclusive, [31, 62]);
});

test("callees have inclusive and exclusive costs", () => {
  const [main] = profile.root().children();
  const { f, g } = byName(main.children());
  assert.deepEqual([main.inclusive[0], main.exclusive[0]], [31, 1]);
  assert.deepEqual([f.inclusive[0], f.exclusive[0]], [26, 2]);
  assert.deepEqual([g.inclusive[0], g.exclusive[0]], [4, 4]);
});

test("of a flat list recursion counts once", () => {
  const { f, g } = byName(profile.procedures(false));
  assert.deepEqual([f.inclusive[0], f.exclusive[0]], [26, 10]);
  assert.deepEqual([g.inclusive[0], g.exclusive[0]], [20, 20]);
});

test("callers share out what they cause", () => {
  const { g } = byName(profile.procedures());
  const { main, f } = byName(g.children());
  assert.deepEqual([main.exclusive[0], f.exclusive[0]], [4, 16]);
  assert.deepEqual(f.children().map(({ procedure, exclusive: [cost] }) => [NAMES[procedure], cost]), [["f", 16]]);
});

test("what cost nothing has no row", () => {
  const idle = new Profile(tree, [Float64Array.from([0, 1, 0, 4, 0, 0])]);
  assert.deepEqual(Object.keys(byName(idle.procedures(false))).sort(), ["g", "main"]);
});
