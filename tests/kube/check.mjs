// Holds Kubernetes manifests against the schemas of this folder, which are those that the projects' own CRDs have: unknown fields, types,
// required fields, enums, patterns, and the CEL rules that need no earlier object. Kinds without a schema here are not judged, or, with
// --all, refused.
// usage: check.mjs [--all] SCHEMAS MANIFEST.yaml...      exit code 1 where one is refused, or with --all where there is none
import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";
import Ajv from "ajv";
import addFormats from "ajv-formats";
import { parseAllDocuments } from "yaml";
import { run } from "@bufbuild/cel";
import { strings } from "@bufbuild/cel/ext";

const wantsAll = process.argv[2] === "--all";
const [folder, ...files] = process.argv.slice(wantsAll ? 3 : 2);
const read = (name) => JSON.parse(readFileSync(join(folder, name), "utf8"));
const core = read("core.json");
const nameOf = (ref) => ref.split("#/").pop();

// The dialect of CRDs as plain JSON Schema: objects are closed unless they say otherwise.
const plain = (schema) => {
    if (Array.isArray(schema)) return schema.map(plain);
    if (schema === null || typeof schema !== "object") return schema;
    if (schema.$ref) return { $ref: `#/$defs/${nameOf(schema.$ref)}` };
    const out = {};
    for (const [key, value] of Object.entries(schema)) {
        if (key.startsWith("x-kubernetes")) continue;
        if (key === "properties") out[key] = Object.fromEntries(Object.entries(value).map(([name, inner]) => [name, plain(inner)]));
        else out[key] = key === "default" || key === "enum" ? value : plain(value);
    }
    if (schema["x-kubernetes-int-or-string"]) {
        delete out.anyOf;
        out.type = ["integer", "string"];
    }
    if (/^\^\(\?i\)[^[\\]*$/.test(out.pattern ?? "")) // Go's flag for either case, which JavaScript does not have
        out.pattern = out.pattern.replace("(?i)", "").replace(/[a-z]/gi, (letter) => `[${letter.toLowerCase()}${letter.toUpperCase()}]`);
    if (/^(u?int\d+|float|double)$/.test(out.format ?? "")) delete out.format;
    const open = schema["x-kubernetes-preserve-unknown-fields"] === true || out.additionalProperties !== undefined;
    if (out.properties && !open) out.additionalProperties = false;
    return out;
};
const kinds = new Map(readdirSync(folder).filter((name) => name.endsWith(".json") && name !== "core.json").map((name) => {
    const { group, version, kind, schema } = read(name);
    return [`${group ? `${group}/` : ""}${version} ${kind}`, { schema, judge: null }];
}));
// Compiled when the first object of a kind is seen.
const judgeOf = (known) => {
    if (known.judge) return known.judge;
    const ajv = new Ajv({ strict: false, allErrors: true });
    addFormats(ajv);
    const whole = plain(known.schema);
    whole.properties.metadata = { type: "object", required: ["name"] };
    whole.$defs = Object.fromEntries(Object.entries(core).map(([key, value]) => [key, plain(value)]));
    return known.judge = ajv.compile(whole);
};

let refused = 0, judged = 0, rules = 0;
// CEL has 64-bit integers.
const celValue = (value) => Array.isArray(value) ? value.map(celValue)
    : value && typeof value === "object" ? Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, celValue(inner)]))
    : Number.isInteger(value) ? BigInt(value) : value;
const broken = (schema, value, at) => {
    if (schema?.$ref) schema = core[nameOf(schema.$ref)];
    if (!schema || value === undefined || value === null) return [];
    const found = [];
    for (const { rule, message } of schema["x-kubernetes-validations"] ?? []) {
        if (rule.includes("oldSelf")) continue; // about changes
        rules++;
        let answer;
        try { answer = run(rule, { self: celValue(value) }, { funcs: strings }); } catch (error) { answer = error; }
        if (answer !== true) found.push(`${at}: ${message ?? rule}`);
    }
    if (Array.isArray(value)) value.forEach((inner, i) => found.push(...broken(schema.items, inner, `${at}/${i}`)));
    else if (typeof value === "object")
        for (const [key, inner] of Object.entries(value))
            found.push(...broken(schema.properties?.[key] ?? (typeof schema.additionalProperties === "object" ? schema.additionalProperties : null), inner, `${at}/${key}`));
    return found;
};

for (const file of files)
    for (const object of parseAllDocuments(readFileSync(file, "utf8")).map((document) => document.toJS()).filter(Boolean)) {
        const name = `${object.apiVersion} ${object.kind}`, known = kinds.get(name);
        if (!known) {
            if (wantsAll) refused++, console.log(`${file}: ${name}: no schema of this kind`);
            continue;
        }
        judged++;
        const judge = judgeOf(known);
        const errors = judge(object) ? [] : judge.errors.map((e) => `${e.instancePath} ${e.message} ${e.params.additionalProperty ?? ""}`);
        errors.push(...broken(known.schema, object, ""));
        if (errors.length === 0) continue;
        refused++;
        console.log(`${file}: ${name}`, ...errors.map((text) => `\n    ${text}`));
    }
console.log(`${judged} objects judged, ${rules} rules, ${refused} refused`);
process.exit(refused > 0 || (wantsAll && judged === 0) ? 1 : 0);
