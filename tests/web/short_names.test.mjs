// Short names of a tree: for procedures by number and by whole name, and for the search.

import assert from "node:assert/strict";
import test from "node:test";

import { CallingContextTree } from "../../viewer/web/core/cct.js";

const columns = { parent: Uint32Array.of(0, 0, 1, 2), procedure: Uint32Array.of(0, 1, 2, 3), owner: Uint32Array.of(0, 1, 2, 3) };
const names = ["", "main", "ns::Field::~Field() [inlined]", "ns::Field::~Field()"];
const short = ["", "main", "Field::~Field [inlined]", "Field::~Field"];
const tree = new CallingContextTree(columns, { procedures: names, short, colours: [0, 0, 0, 0], marks: [0, 0, 0, 0] }, [0, 0, 1, 0]);

test("a procedure has its short name, an inlined call says so", () => {
  assert.deepEqual([1, 2, 3].map((node) => tree.shortOf(node)), ["main", "Field::~Field [inlined]", "Field::~Field"]);
  assert.equal(tree.shortened("ns::Field::~Field()"), "Field::~Field");
  assert.equal(tree.shortened("unknown"), "unknown");
  assert.deepEqual([tree.both(1), tree.both(3)], ["main", "Field::~Field\nns::Field::~Field()"]);
});

test("whole and short names are found", () => {
  assert.deepEqual([...tree.matching("ns::field")], [0, 0, 1, 1]);
  assert.deepEqual([...tree.matching("Field::~Field")], [0, 0, 1, 1]);
  assert.deepEqual([...tree.matching("~field [inlined]")], [0, 0, 1, 0]);
});
