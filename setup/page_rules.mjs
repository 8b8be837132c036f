// page_rules.mjs FOLDER: rules for the modules of the viewer's page that tsc does not have. Every module
// is checked by tsc, no function is too long or has too many branches to be read at once, and names say
// what a thing is.

import { execFileSync } from "node:child_process";
import { readFileSync, readdirSync, realpathSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";

// The compiler that tsc on PATH is part of: Debian's stands where import does not look.
const tsc = realpathSync(execFileSync("sh", ["-c", "command -v tsc"], { encoding: "utf8" }).trim());
const ts = createRequire(tsc)("../lib/typescript.js");

const MOST_LINES = 80;
const MOST_BRANCHES = 15; // McCabe's number

const NO_NAMES = ["each", "found", "known", "made"];

const { SyntaxKind } = ts;
const BRANCHES = new Set([
  SyntaxKind.IfStatement, SyntaxKind.ConditionalExpression, SyntaxKind.ForStatement, SyntaxKind.ForInStatement,
  SyntaxKind.ForOfStatement, SyntaxKind.WhileStatement, SyntaxKind.DoStatement, SyntaxKind.CaseClause, SyntaxKind.CatchClause,
]);
const SHORT_CIRCUITS = new Set([SyntaxKind.AmpersandAmpersandToken, SyntaxKind.BarBarToken, SyntaxKind.QuestionQuestionToken]);

// Paths through a function's own code: functions inside it are counted by themselves.
function branches(node) {
  let count = 0;
  ts.forEachChild(node, (child) => {
    if (ts.isFunctionLike(child)) return;
    if (BRANCHES.has(child.kind) || (ts.isBinaryExpression(child) && SHORT_CIRCUITS.has(child.operatorToken.kind))) count++;
    count += branches(child);
  });
  return count;
}

function complaints(path, text) {
  const lines = [];
  if (!text.startsWith("// @ts-check\n")) lines.push(`${path}:1: does not begin with // @ts-check`);
  if (/@ts-(nocheck|ignore|expect-error)/.test(text)) lines.push(`${path}: takes code out of tsc's check`);
  const source = ts.createSourceFile(path, text, ts.ScriptTarget.ES2022, true, ts.ScriptKind.JS);
  const visit = (node) => {
    if (ts.isFunctionLike(node) && "body" in node && node.body) {
      const first = source.getLineAndCharacterOfPosition(node.getStart()).line;
      const length = source.getLineAndCharacterOfPosition(node.end).line - first + 1;
      const paths = 1 + branches(node);
      const name = node.name?.getText() ?? node.parent.name?.getText() ?? "a function";
      if (length > MOST_LINES) lines.push(`${path}:${first + 1}: ${name} has ${length} lines, more than ${MOST_LINES}`);
      if (paths > MOST_BRANCHES) lines.push(`${path}:${first + 1}: ${name} has McCabe's number ${paths}, more than ${MOST_BRANCHES}`);
    }
    if ((ts.isVariableDeclaration(node) || ts.isParameter(node) || ts.isBindingElement(node)) && NO_NAMES.includes(node.name.getText())) {
      const { line } = source.getLineAndCharacterOfPosition(node.getStart());
      lines.push(`${path}:${line + 1}: ${node.name.getText()} does not say what the thing is`);
    }
    // viewer/server/page_files.py leaves lines of comments out.
    if (ts.isTemplateLiteralToken(node) && /^[ \t]*(\/\/|\/\*\*)/m.test(node.text)) lines.push(`${path}: a line of a template looks like a comment`);
    ts.forEachChild(node, visit);
  };
  visit(source);
  return lines;
}

function modules(folder) {
  return readdirSync(folder, { withFileTypes: true }).flatMap((entry) => {
    const path = join(folder, entry.name);
    return entry.isDirectory() ? modules(path) : path.endsWith(".js") ? [path] : [];
  });
}

const paths = modules(process.argv[2]);
const wrong = paths.flatMap((path) => complaints(path, readFileSync(path, "utf8")));
for (const line of wrong) console.error(line);
if (!paths.length) console.error(`${process.argv[2]} has no modules`);
process.exit(wrong.length || !paths.length ? 1 : 0);
