import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { fileURLToPath } from "node:url";

const RULES = fileURLToPath(new URL("../../setup/page_rules.mjs", import.meta.url));
const folder = mkdtempSync(join(tmpdir(), "page-rules-"));
after(() => rmSync(folder, { recursive: true }));

// What the rules say of a folder with one module.
function complaints(name, text) {
  const modules = join(folder, name);
  mkdirSync(modules);
  writeFileSync(join(modules, "module.js"), text);
  const { status, stderr } = spawnSync(process.execPath, [RULES, modules], { encoding: "utf8" });
  assert.equal(status, stderr ? 1 : 0, stderr);
  return stderr.replaceAll(join(modules, "module.js"), "").trim().split("\n").filter(Boolean);
}

const lines = (count) => "  act();\n".repeat(count);

test("a checked module of short functions", () => {
  assert.deepEqual(complaints("good", `// @ts-check\nfunction short() {\n${lines(78)}}\n`), []);
});

test("a module that is not checked, or partly", () => {
  assert.equal(complaints("unchecked", "function short() {}\n").length, 1);
  assert.equal(complaints("nocheck", "// @ts-nocheck - later\n").length, 2);
  assert.equal(complaints("ignore", "// @ts-check\n// @ts-ignore\nact();\n").length, 1);
});

test("a line of a template that looks like a comment", () => {
  assert.equal(complaints("template", "// @ts-check\nconst TEXT = `\n  // kept\n`;\n").length, 1);
  assert.deepEqual(complaints("url", "// @ts-check\nconst TEXT = `\n  http://kept\n`;\n"), []);
});

test("a function that is too long, of every kind", () => {
  for (const [name, text] of Object.entries({
    declaration: `function long() {\n${lines(79)}}\n`, arrow: `const long = () => {\n${lines(79)}};\n`, method: `class C {\nlong() {\n${lines(79)}}\n}\n`,
  })) assert.deepEqual(complaints(name, `// @ts-check\n${text}`), [`:${name === "method" ? 3 : 2}: long has 81 lines, more than 80`]);
});

test("a function with too many branches; those inside it are counted by themselves", () => {
  const branches = "if (a && b) act();\n".repeat(8);
  assert.deepEqual(complaints("branches", `// @ts-check\nfunction tangled() {\n${branches}}\n`), [":2: tangled has McCabe's number 17, more than 15"]);
  assert.deepEqual(complaints("nested", `// @ts-check\nfunction outer() {\nconst one = () => { ${branches.slice(0, 100)} };\nconst two = () => { ${branches.slice(0, 100)} };\n}\n`), []);
});

test("names that say nothing", () => {
  const text = "// @ts-check\nconst found = list.map((each) => act(each));\nconst { known } = found;\n";
  assert.deepEqual(complaints("names", text).map((line) => line.split(" ")[1]), ["found", "each", "known"]);
});

test("a folder without modules is a mistake", () => {
  const empty = join(folder, "empty");
  mkdirSync(empty);
  assert.equal(spawnSync(process.execPath, [RULES, empty]).status, 1);
});
