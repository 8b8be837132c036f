import { readFileSync } from "node:fs";
import { differences } from "./numbers.mjs";

console.log(JSON.stringify(differences(JSON.parse(readFileSync(0, "utf8")))));
