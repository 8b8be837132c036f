import assert from "node:assert/strict";
import { test } from "node:test";

import { CallingContextTree } from "../../viewer/web/core/cct.js";
import { NameFilter } from "../../viewer/web/profile/name_filter.js";
import { Profile } from "../../viewer/web/profile/profile.js";

// root > main > (solve > kernel, MPI_Send)
const procedures = ["<root>", "main", "solve", "kernel", "MPI_Send"];
const summary = { procedures, colours: [0, 0, 0, 0, 0], marks: [0, 0, 0, 0, 0] };
const tree = new CallingContextTree({ parent: Uint32Array.from([0, 0, 1, 1, 2]), procedure: Uint32Array.from([0, 1, 2, 4, 3]) }, summary);
const profile = new Profile(tree, [Float64Array.of(0, 0, 1, 1, 1)]);

test("rows on the way to a name, and below it, are kept", () => {
  const filter = new NameFilter(tree, "solve");
  const [main] = profile.root().children();
  assert.ok(filter.isOnPath(main));
  const [solve, send] = main.children();
  assert.ok(filter.isOnPath(solve));
  assert.ok(!filter.isOnPath(send));
  assert.ok(filter.isOnPath(solve.children()[0]));
});

test("of a flat list rows of the name alone", () => {
  const filter = new NameFilter(tree, "k");
  assert.deepEqual(profile.procedures(false).filter((row) => filter.fits(row)).map(({ procedure }) => procedures[procedure]), ["kernel"]);
});
