import assert from "node:assert/strict";
import { test } from "node:test";

import { formatPercent, formatQuantity, formatTime, nameMatcher } from "../../viewer/web/core/format.js";

test("times have the unit and the digits of their span", () => {
  assert.equal(formatTime(0), "0.000000 ns");
  assert.equal(formatTime(1_500_000), "1.500 ms");
  assert.equal(formatTime(2_000_000_000), "2.000 s");
  assert.equal(formatTime(74_881e9), "74,881 s");
  // Two moments of one axis differ in what is shown.
  assert.equal(formatTime(1_500_000_000, 2_000), "1500000.000 µs");
  assert.equal(formatTime(250_000_000, 1_000_000_000), "0.250 s");
});

test("percentages below ten have two digits", () => {
  assert.equal(formatPercent(0), "0.00 %");
  assert.equal(formatPercent(0.0994), "9.94 %");
  assert.equal(formatPercent(0.5), "50.0 %");
});

test("quantities", () => {
  assert.equal(formatQuantity(1.5, "s"), "1.50 s");
  assert.equal(formatQuantity(0.0015, "s"), "1.50 ms");
  assert.equal(formatQuantity(12.345, "%"), "12.35 %".replace("12.35", (12.345).toFixed(2)));
  assert.equal(formatQuantity(1234567, "B"), "1.23 MB");
  assert.equal(formatQuantity(0.5, ""), "0.5000");
  assert.equal(formatQuantity(3, ""), "3");
});

test("a search in small letters fits any case, one with capitals only itself", () => {
  assert.ok(nameMatcher("mpi_send")("MPI_Send"));
  assert.ok(nameMatcher("MPI")("MPI_Send"));
  assert.ok(!nameMatcher("MPI")("mpi_send_"));
});
