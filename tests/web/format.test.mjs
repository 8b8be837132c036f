import assert from "node:assert/strict";
import { test } from "node:test";

import { nameMatcher } from "../../viewer/web/core/format.js";
import { differences } from "./numbers.mjs";
import { vectors } from "./vectors.mjs";

test("numbers in words are the shared vectors'", () => { assert.deepEqual(differences(vectors("numbers").cases), []); });

test("a search in small letters fits any case, one with capitals only itself", () => {
  assert.ok(nameMatcher("mpi_send")("MPI_Send"));
  assert.ok(nameMatcher("MPI")("MPI_Send"));
  assert.ok(!nameMatcher("MPI")("mpi_send_"));
});
