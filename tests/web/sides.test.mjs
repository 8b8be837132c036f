import assert from "node:assert/strict";
import { test } from "node:test";

import { sameProgram } from "../../viewer/web/compare/sides.js";

const programs = { "a.db": "/usr/bin/lmp", "b.db": "/opt/lammps/bin/lmp", "c.db": "/usr/bin/make", "live.db": "", "new.db": "" };

test("databases of one program, wherever it is installed", () => {
  assert.deepEqual(sameProgram(programs, "a.db"), ["b.db"]);
  assert.deepEqual(sameProgram(programs, "c.db"), []);
});

test("programs that are not known are not the same", () => {
  assert.deepEqual(sameProgram(programs, "live.db"), []);
  assert.deepEqual(sameProgram(programs, "not served.db"), []);
});
