// Renders the chart as Helm would, with the few actions and functions of Go templates that it uses; everything else is an error. Helm's own
// functions have given the same objects: `helm template` takes this program's place where it is installed (tests/e2e/helm.sh).
// usage: helm.mjs CHART NAMESPACE [VALUES.yaml...]
import { readFileSync, readdirSync, statSync } from "node:fs";
import { basename, join } from "node:path";
import Ajv from "ajv";
import { parse, stringify } from "yaml";

const [chart, namespace, ...more] = process.argv.slice(2);
const filesBelow = (folder, at = "") => readdirSync(join(folder, at)).flatMap((name) => {
    const path = join(at, name);
    return statSync(join(folder, path)).isDirectory() ? filesBelow(folder, path) : [path]; // links are followed, as Helm does
});
const ignored = readFileSync(join(chart, ".helmignore"), "utf8").split("\n").filter((line) => line && !line.startsWith("#"));
const paths = filesBelow(chart).filter((path) => !ignored.includes(basename(path))).sort();
const read = (path) => readFileSync(join(chart, path), "utf8");

// ---- values ----------------------------------------------------------------------------------------------------------
const isMap = (value) => value !== null && typeof value === "object" && !Array.isArray(value);
const overlay = (into, from) => {
    for (const [key, value] of Object.entries(from ?? {})) isMap(into[key]) && isMap(value) ? overlay(into[key], value) : into[key] = value;
    return into;
};
const values = more.reduce((all, file) => overlay(all, parse(readFileSync(file, "utf8"))), parse(read("values.yaml")));
const judge = new Ajv({ allErrors: true }).compile(JSON.parse(read("values.schema.json")));
const die = (text) => {
    console.error(`helm: ${text}`);
    process.exit(1);
};
if (!judge(values)) die(judge.errors.map((e) => `${e.instancePath} ${e.message} ${e.params.additionalProperty ?? ""}`).join("; "));

// ---- functions -------------------------------------------------------------------------------------------------------
const isEmpty = (v) => v === undefined || v === null || v === false || v === 0 || v === "" || (Array.isArray(v) ? v.length === 0 : typeof v === "object" && Object.keys(v).length === 0);
const pattern = (glob) => new RegExp(`^${glob.replace(/[.+^${}()|[\]\\]/g, "\\$&").replace(/\*/g, "[^/]*")}$`);
const files = { Get: (path) => read(path), Glob: (glob) => Object.fromEntries(paths.filter((path) => pattern(glob).test(path)).map((path) => [path, ""])) };
const functions = {
    append: (all, one) => [...all, one], base: (path) => basename(path), concat: (...all) => all.flat(), default: (otherwise, v) => isEmpty(v) ? otherwise : v,
    dict: (...all) => Object.fromEntries(Array.from({ length: all.length / 2 }, (_, i) => [all[2 * i], all[2 * i + 1]])),
    eq: (a, b) => a === b, first: (all) => all[0], fromYaml: (text) => parse(text), get: (map, key) => map?.[key] ?? "", hasKey: (map, key) => key in map,
    hasPrefix: (start, text) => text.startsWith(start), list: (...all) => all, mergeOverwrite: (into, ...all) => all.reduce(overlay, into), not: (v) => isEmpty(v),
    and: (...all) => all.find(isEmpty) ?? all.at(-1), or: (...all) => all.find((v) => !isEmpty(v)) ?? all.at(-1),
    printf: (form, ...all) => form.replace(/%s/g, () => all.shift()), set: (map, key, value) => Object.assign(map, { [key]: value }),
    splitList: (by, text) => text.split(by), ternary: (yes, no, which) => which ? yes : no, toJson: (v) => JSON.stringify(v), toYaml: (v) => stringify(v, { aliasDuplicateObjects: false }).trimEnd(),
    trimSuffix: (end, text) => text.endsWith(end) ? text.slice(0, -end.length) : text,
    include: (name, dot) => run(definitions[name] ?? die(`no template ${name}`), { dot, variables: [{ $: dot }] }),
};

// ---- actions ---------------------------------------------------------------------------------------------------------
// A template is a list of texts, expressions and blocks: [{text}], [{words}], [{kind, words, body, other}].
const definitions = {};
const partsOf = (text) => {
    const parts = [];
    let cutNext = false;
    for (const piece of text.split(/(\{\{.*?\}\})/s)) {
        const action = /^\{\{(- )?(.*?)( -)?\}\}$/s.exec(piece);
        if (!action) parts.push({ text: cutNext ? piece.replace(/^\s+/, "") : piece });
        else {
            if (action[1] && parts.length) parts.at(-1).text = parts.at(-1).text?.replace(/\s+$/, "");
            if (!action[2].trim().startsWith("/*")) parts.push({ action: action[2].trim() });
        }
        cutNext = action?.[3] !== undefined;
    }
    return parts;
};
const wordsOf = (action) => action.match(/"(?:[^"\\]|\\.)*"|[()|,]|:=|[^\s()|,]+/g);
const parseBody = (parts, ends) => {
    const body = [];
    for (;;) {
        const part = parts.shift();
        if (!part) return ends.length ? die(`no ${ends.join(" or ")}`) : { body };
        if (part.text !== undefined) { body.push(part); continue; }
        if (!part.action) continue;
        const words = wordsOf(part.action);
        if (ends.includes(words[0])) return { body, end: words };
        if (!["if", "range", "define"].includes(words[0])) { body.push({ words }); continue; }
        const block = { kind: words[0], words: words.slice(1), ...parseBody(parts, ["end", "else"]) };
        if (block.end[0] === "else") block.other = parseBody(parts, ["end"]).body;
        if (block.kind === "define") definitions[JSON.parse(words[1])] = block.body;
        else body.push(block);
    }
};
const lookUp = (scope, name) => scope.variables.find((names) => name in names) ?? die(`no variable ${name}`);
const field = (value, path) => path.split(".").filter(Boolean).reduce((at, key) => at?.[key], value);
const term = (words, scope) => {
    const word = words.shift();
    if (word === "(") {
        const value = pipeline(words, scope);
        if (words.shift() !== ")") die("a parenthesis is open");
        return value;
    }
    if (word[0] === '"') return JSON.parse(word);
    if (word === "true" || word === "false") return word === "true";
    if (/^\d+$/.test(word)) return Number(word);
    if (word[0] === "$") {
        const [name, ...path] = word.split(".");
        return field(lookUp(scope, name)[name], path.join("."));
    }
    if (word[0] === ".") return field(scope.dot, word);
    return functions[word] ?? die(`no function ${word}`);
};
const pipeline = (words, scope) => {
    let value;
    for (let isFirst = true; isFirst || words[0] === "|"; isFirst = false) {
        if (!isFirst) words.shift();
        const all = [];
        while (words.length && !["|", ")"].includes(words[0])) all.push(term(words, scope));
        if (!isFirst) all.push(value);
        value = typeof all[0] === "function" ? all[0](...all.slice(1)) : all.length === 1 ? all[0] : die("several values in a row");
    }
    return value;
};
const evaluate = (words, scope) => {
    if (words[1] !== ":=" && words[1] !== "=") return pipeline([...words], scope);
    const value = pipeline(words.slice(2), scope);
    (words[1] === ":=" ? scope.variables[0] : lookUp(scope, words[0]))[words[0]] = value;
    return "";
};
const range = (block, scope) => {
    const at = block.words.indexOf(":="), names = block.words.slice(0, Math.max(at, 0)).filter((word) => word !== ",");
    const over = pipeline(block.words.slice(at + 1), scope) ?? [];
    return Object.entries(over).map(([key, value]) => {
        const own = names.length === 2 ? { [names[0]]: key, [names[1]]: value } : { [names[0]]: value };
        return run(block.body, { dot: value, variables: [own, ...scope.variables] });
    }).join("");
};
const run = (body, scope) => body.map((part) => {
    if (part.text !== undefined) return part.text;
    if (part.kind === "range") return range(part, scope);
    if (part.kind === "if") {
        const branch = isEmpty(pipeline([...part.words], scope)) ? part.other ?? [] : part.body;
        return run(branch, { dot: scope.dot, variables: [{}, ...scope.variables] });
    }
    return String(evaluate(part.words, scope) ?? "");
}).join("");

const top = { Values: values, Files: files, Release: { Name: "ashlar", Namespace: namespace } };
const templates = paths.filter((path) => path.startsWith("templates/")).map((path) => [path, parseBody(partsOf(read(path)), []).body]);
for (const [path, body] of templates)
    if (!basename(path).startsWith("_")) console.log(run(body, { dot: top, variables: [{ $: top }] }));
