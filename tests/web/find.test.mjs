import assert from "node:assert/strict";
import { test } from "node:test";

import { findText, parseFind } from "../../viewer/web/core/find.js";

const CASES = [
  ["", { search: "", filter: "" }],
  ["solve", { search: "solve", filter: "" }],
  ["line:rank [2-4]$", { search: "", filter: "rank [2-4]$" }],
  ["MPI_ line:rank 2", { search: "MPI_", filter: "rank 2" }],
  ["operator new host:node1", { search: "operator new", filter: "host:node1" }],
  // Scopes of C++ are no fields of lines.
  ["host::run line::go", { search: "host::run line::go", filter: "" }],
];

test("names come first, then what lines must match", () => {
  for (const [text, meant] of CASES) assert.deepEqual(parseFind(text), meant, text);
});

test("a choice is written as it is read", () => {
  for (const [text, meant] of CASES) assert.equal(findText(meant), text);
  assert.equal(findText({}), "");
});
