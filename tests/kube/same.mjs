// Are the objects of two files the same, in any order?   usage: same.mjs A.yaml B.yaml      exit code 1 where they are not, with a line each
import { readFileSync } from "node:fs";
import { parseAllDocuments } from "yaml";

const sorted = (value) => Array.isArray(value) ? value.map(sorted)
    : value && typeof value === "object" ? Object.fromEntries(Object.keys(value).sort().map((key) => [key, sorted(value[key])])) : value;
const objectsOf = (file) => parseAllDocuments(readFileSync(file, "utf8")).map((document) => {
    if (document.errors.length) throw document.errors[0];
    return document.toJS();
}).filter(Boolean).map((object) => JSON.stringify(sorted(object)));
const [left, right] = process.argv.slice(2, 4).map(objectsOf);
const differing = [...left.filter((object) => !right.includes(object)).map((object) => `< ${object}`),
    ...right.filter((object) => !left.includes(object)).map((object) => `> ${object}`)];
if (left.length === 0) differing.push("no object at all");
console.log(differing.join("\n") || `${left.length} objects are the same`);
process.exit(differing.length > 0 || left.length !== right.length ? 1 : 0);
