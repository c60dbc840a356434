// serve_same.mjs ASHLAR MODEL SCRATCH TOTAL SEED: TOTAL requests to servers of drawn shape, each compared with the answer that it gets
// alone. Prints what the drawn cases met: without preemptions, shared prefixes and accepted drafts they would show nothing.
import { spawn, spawnSync } from "node:child_process";
import fs from "node:fs";
import path from "node:path";
import assert from "node:assert/strict";
import { fileURLToPath } from "node:url";
import { writeMoe } from "./lib/moe_folder.mjs";

const [ashlar, model, scratch, totalText, seedText] = process.argv.slice(2);
const total = +totalText, shapes = Math.max(8, Math.min(60, Math.round(total / 100))), each = Math.ceil(total / shapes);

// ---- drawing

let state = BigInt(seedText) * 0x9e3779b97f4a7c15n;
function next() { // splitmix64
    state = (state + 0x9e3779b97f4a7c15n) & 0xffffffffffffffffn;
    let z = state;
    z = ((z ^ (z >> 30n)) * 0xbf58476d1ce4e5b9n) & 0xffffffffffffffffn;
    z = ((z ^ (z >> 27n)) * 0x94d049bb133111ebn) & 0xffffffffffffffffn;
    return Number((z ^ (z >> 31n)) >> 11n) / 2 ** 53;
}
const below = (n) => Math.floor(next() * n);
const pick = (list) => list[below(list.length)];
const chance = (p) => next() < p;

const schemas = [
    { type: "object", properties: { name: { type: "string", maxLength: 12 }, age: { type: "integer", minimum: 0, maximum: 120 } }, required: ["name", "age"] },
    { type: "array", items: { enum: ["red", "green", 7, null] }, minItems: 1, maxItems: 4 },
    { anyOf: [{ type: "boolean" }, { type: "number" }] },
];
const texts = Array.from({ length: 4 }, () => Array.from({ length: 320 }, () => 3 + below(500)));
const words = ["Once upon a time", "Lily and Tom went to the park.", "The dog said", "One day, a big red ball", "1, 2, 3, 1, 2, 3, 1, 2"];

function drawPrompt() {
    if (chance(0.4)) return pick(words);
    const whole = 1 + below(chance(0.3) ? 300 : 90), same = Math.min(whole, below(330)), text = pick(texts);
    return [1, ...text.slice(0, same), ...Array.from({ length: whole - same }, (_, i) => (chance(0.5) ? 3 + below(500) : 300 + (i % 3)))].slice(0, 310);
}
function drawRequest() {
    const body = { prompt: drawPrompt(), max_tokens: 1 + below(chance(0.2) ? 120 : 40), return_token_ids: true, seed: below(1000) };
    body.temperature = chance(0.4) ? 0 : 0.2 + next();
    if (chance(0.3)) body.top_k = 1 + below(60);
    if (chance(0.3)) body.top_p = 0.3 + 0.7 * next();
    if (chance(0.2)) body.min_p = 0.2 * next();
    if (chance(0.15)) body.typical_p = 0.5 + 0.5 * next();
    if (chance(0.2)) body.repetition_penalty = 1 + 0.3 * next();
    if (chance(0.2)) body.frequency_penalty = next();
    if (chance(0.2)) body.repeat_last_n = 1 + below(30);
    if (chance(0.3)) body.n = 1 + below(3);
    if (chance(0.5)) body.logprobs = below(4);
    if (chance(0.15)) body.prompt_logprobs = below(3);
    if (chance(0.2)) body.stop = [pick([".", " the", "Lily", "x"])];
    if (chance(0.2)) body.logit_bias = { [3 + below(500)]: 5 * (next() - 0.5) };
    if (chance(0.2)) body.priority = below(3) - 1;
    if (chance(0.2)) body.model = pick(["one", "two"]);
    if (chance(0.1)) body.cache_salt = pick(["a", "b"]);
    if (chance(0.25)) Object.assign(body, pick([{ guided_json: pick(schemas) }, { guided_regex: "(ab|c[0-9]{2}){1,5}!" }, { guided_choice: ["yes", "no", "perhaps"] },
        { guided_grammar: 'root ::= "(" root ")" | [a-c]+' }]));
    return body;
}
const pageBytes = 64 * 1280, folder = `${scratch}/kv`; // of this model
// Tiers: host memory, and a folder that later servers read after this one was killed; some may write no file of a page's size.
function drawTiers(isLast) {
    const flags = isLast ? ["--kv-dir", folder, "--kv-dir-size", 400 * pageBytes] : [];
    if (isLast) return flags;
    if (chance(0.4)) flags.push("--kv-host-memory", (1 + below(12)) * pageBytes);
    if (chance(0.9)) flags.push("--kv-dir", folder, "--kv-dir-size", (chance(0.3) ? 2 + below(6) : 100 + below(200)) * (pageBytes + 4096));
    return flags;
}
// What a crash or a disk does to files: cuts and changed bytes.
function damage() {
    if (!fs.existsSync(folder)) return;
    for (const name of fs.readdirSync(folder)) {
        const file = `${folder}/${name}`, bytes = fs.statSync(file).size;
        assert.equal(fs.statSync(file).mode & 0o777, 0o600, file);
        if (bytes === 0 || !chance(0.1)) continue;
        if (chance(0.5)) { fs.truncateSync(file, below(bytes)); continue; }
        const handle = fs.openSync(file, "r+");
        fs.writeSync(handle, Buffer.from([below(256)]), 0, 1, below(bytes));
        fs.closeSync(handle);
    }
}
// Sequences, rows of a step, bytes of the cache and threads of a server.
function drawServer() {
    const seqs = 1 + below(24);
    return ["--max-num-seqs", seqs, "--max-num-batched-tokens", seqs + below(chance(0.5) ? 20 : 300), "--kv-cache-memory", (8 + below(chance(0.5) ? 6 : 60)) * pageBytes,
        "--threads", 1 + below(2), "--step-ms", pick([0, 1, 200]), "--tp", pick([1, 1, 2])];
}
// Roles: one or two prefill servers, of which one may be killed; their memory for pages may be too small for one prompt.
function drawApart() {
    return {
        isApart: true, prefills: 1 + below(2), prefillFlags: [...drawServer(), "--prefill-memory", (chance(0.3) ? 1 + below(6) : 50 + below(200)) * (pageBytes + 4096)],
        flags: [...drawServer(), "--num-speculative-tokens", chance(0.5) ? 1 + below(8) : 0], apartBlocks: 1 + below(2), clients: 1 + below(32), killAfter: chance(0.5) ? below(each) : each,
    };
}
// A model with experts, whole ones on each rank.
function drawExperts() {
    const ranks = pick([1, 2, 2, 3]);
    return { world: "experts", flags: [...drawServer().slice(0, -2), "--ep", ranks, "--pp", pick([1, 1, 2]), "--num-speculative-tokens", chance(0.5) ? 1 + below(8) : 0], clients: 1 + below(32) };
}
// Replicas behind their router, of which one may be killed in the middle.
function drawReplicas() {
    return { replicas: 2 + below(2), flags: [...drawServer(), ...(chance(0.5) ? drawTiers(false) : [])], clients: 1 + below(32), killAfter: chance(0.7) ? below(each) : each };
}
// Other weights in place of the first ones, in the middle.
function drawSwap() {
    return { world: "bare", swapAfter: 1 + below(each - 1), flags: ["--admin-key", "boss", ...drawServer(), ...(chance(0.5) ? drawTiers(false) : [])], clients: 1 + below(32) };
}
function drawShape(s) {
    const isLast = s + 2 >= shapes; // the last one finds pages of the one before
    if (s === 1) return { ...drawApart(), prefillFlags: drawServer(), apartBlocks: 1, killAfter: each };
    if (s === 2) return drawExperts();
    if (s === 3) return drawReplicas();
    if (s === 4) return drawSwap();
    if (!isLast && chance(0.5)) return pick([drawApart, drawApart, drawExperts, drawReplicas, drawSwap])();
    const seqs = 1 + below(24), caches = chance(0.75) || isLast, ranks = pick([1, 1, 2, 3]), stages = pick([1, 1, 1, 2, 3]);
    return {
        fileBlocks: chance(0.3) && !isLast && ranks * stages === 1 ? 60 : 0, // of 1,024 bytes: no page fits (shared memory is files, too)

        flags: ["--max-num-seqs", seqs, "--max-num-batched-tokens", seqs + below(chance(0.5) ? 20 : 300), "--kv-cache-memory", (8 + below(chance(0.5) ? 6 : 60)) * pageBytes,
            ...(caches ? drawTiers(isLast) : ["--no-enable-prefix-caching"]), "--num-speculative-tokens", chance(0.6) ? 1 + below(8) : 0,
            ...(chance(0.3) ? ["--draft-model", model] : []), "--threads", 1 + below(3), "--step-ms", pick([0, 1, 200]), "--tp", ranks, "--pp", stages],
        clients: 1 + below(32),
    };
}

// ---- servers

const adapters = ["one", "two"].map((name, i) => {
    const made = spawnSync("python3", [`${path.dirname(fileURLToPath(import.meta.url))}/lib/make_adapter.py`, model, `${scratch}/${name}`, i + 1, 3 + i, i ? "all" : ""].map(String));
    assert.equal(made.status, 0, String(made.stderr));
    return `${name}=${scratch}/${name}`;
}).join(",");

// A program that says its port, and then (ready) that it can be used.
async function start(words, ready, limit = "") {
    const child = spawn("bash", ["-c", `${limit}exec "$0" "$@"`, ashlar, ...words.map(String), "--port", "0", "--no-access-log"], { stdio: ["ignore", "ignore", "pipe"] });
    let log = "";
    const port = await new Promise((resolve, reject) => {
        child.stderr.on("data", (data) => { log += data; if (ready.test(log)) resolve(/port (\d+)/.exec(log)[1]); });
        child.on("exit", () => reject(new Error(`it ended: ${words.join(" ")}: ${log}`)));
    });
    child.removeAllListeners("exit");
    return { url: `http://127.0.0.1:${port}`, pid: child.pid, kill: () => child.kill("SIGKILL") };
}
const moe = `${scratch}/experts`, other = `${scratch}/other`; // a model with experts; other weights of the same shape as the first
const withAdapters = ["serve", "--model", model, "--lora-modules", adapters];
// Where requests go: the first model with its adapters, the model alone (its weights can be replaced), one with experts.
const worlds = { adapters: withAdapters, bare: ["serve", "--model", model], swapped: ["serve", "--model", other], experts: ["serve", "--model", moe] };
async function serve(flags, use, fileBlocks = 0, world = "adapters") {
    const server = await start([...worlds[world], ...flags], /ready after/, fileBlocks > 0 ? `ulimit -f ${fileBlocks} && ` : "");
    try { return await use(server.url); } finally { server.kill(); }
}
// Replicas of this machine behind a router: use(its address, the same, the end of one of them). The parent has seen all of them before one
// is killed: until then an end is a mistake, and ends them all.
async function serveReplicas(shape, use) {
    const server = await start([...withAdapters, "--replicas", shape.replicas, "--probe-seconds", 0.05, "--silence-seconds", 300, ...shape.flags], /ready after .* replicas/);
    const list = () => spawnSync("pgrep", ["-P", server.pid], { encoding: "utf8" }).stdout.split("\n").filter(Boolean).map(Number);
    const own = list();
    try {
        assert.equal(own.length, shape.replicas);
        return await use(server.url, server.url, () => process.kill(own[0], "SIGKILL"));
    } finally {
        process.kill(server.pid, "SIGTERM"); // which ends its replicas, also those that were started again
        while (server.pid && own.some((pid) => fs.existsSync(`/proc/${pid}/stat`) && !/\) Z/.test(fs.readFileSync(`/proc/${pid}/stat`, "utf8")))) await new Promise((go) => setTimeout(go, 50));
        server.kill();
    }
}
// Servers with roles behind a router: use(its address, the decode server's, the end of a prefill server).
async function serveApart(shape, use) {
    const started = [];
    try {
        for (let p = 0; p < shape.prefills; p++) started.push(await start([...withAdapters, "--role", "prefill", ...shape.prefillFlags], /ready after/));
        const decode = await start([...withAdapters, "--role", "decode", ...shape.flags], /ready after/);
        started.push(decode);
        const route = await start(["route", "--to", started.map((server) => server.url).join(","), "--apart-blocks", shape.apartBlocks, "--probe-seconds", 0.05, "--silence-seconds", 300], /port \d+/);
        started.push(route);
        for (let seen; seen !== started.length - 1;) { // the router knows all roles, and pages have names
            const list = (await (await fetch(`${route.url}/replicas`)).json()).replicas;
            seen = list.filter((one) => one.state === "up" && one.role !== "both").length;
        }
        return await use(route.url, decode.url, () => started[0].kill());
    } finally { for (const server of started) server.kill(); }
}
async function ask(url, body) {
    const response = await fetch(`${url}/v1/completions`, { method: "POST", body: JSON.stringify(body) });
    const json = await response.json();
    assert.equal(response.status, 200, JSON.stringify([json, body]) + (await (await fetch(`${url}/replicas`)).text()));
    return { choices: json.choices, prompt: json.prompt_logprobs, prompt_ids: json.prompt_token_ids, tokens: json.usage.completion_tokens, fingerprint: json.system_fingerprint };
}
const plain = ({ fingerprint, ...answer }) => JSON.stringify(answer);
// While weights are swapped a choice may be of the first ones, and the next one, which waited, of the others: each is whole.
const isOfEither = (answer, one, other) => answer.choices.length === one.choices.length &&
    answer.choices.every((choice, c) => [one, other].some((whole) => JSON.stringify(choice) === JSON.stringify(whole.choices[c])));
// A client that leaves in the middle.
async function leave(url, body) {
    const client = new AbortController();
    const asked = fetch(`${url}/v1/completions`, { method: "POST", body: JSON.stringify({ ...body, stream: chance(0.5) }), signal: client.signal }).then((response) => response.text());
    setTimeout(() => client.abort(), below(30));
    await asked.catch(() => {});
}
// Returns when answers are those of the other weights.
async function swap(url) {
    for (let status = 0; status !== 200;) {
        const response = await fetch(`${url}/update_weights_from_disk`, { method: "POST", headers: { authorization: "Bearer boss" }, body: JSON.stringify({ model_path: other }) });
        status = response.status;
        assert.ok(status === 200 || status === 503, await response.text()); // 503: the fingerprint is not known yet, or answers are written
    }
}

// ---- the comparison

writeMoe(moe, model, next);
const converted = spawnSync(ashlar, ["model", "convert", model, other, "--dtype", "bf16"], { encoding: "utf8" });
assert.equal(converted.status, 0, converted.stderr);
for (const name of ["tokenizer.json"]) if (!fs.existsSync(`${other}/${name}`)) fs.copyFileSync(`${model}/${name}`, `${other}/${name}`);

const requests = Array.from({ length: each }, drawRequest);
const bare = requests.map(({ model: adapter, ...body }) => body); // without adapters
const alone = ["--max-num-seqs", 1, "--no-enable-prefix-caching", "--threads", 1];
const answersOf = (world, list) => serve(alone, async (url) => {
    const answers = [];
    for (const body of list) answers.push(await ask(url, body));
    return answers;
}, 0, world);
const wanted = await answersOf("adapters", requests), swapped = await answersOf("swapped", bare);
const right = { adapters: wanted, bare: await answersOf("bare", bare), experts: await answersOf("experts", bare) };
assert.ok(right.bare.some((answer, i) => plain(answer) !== plain(swapped[i])));
const met = { preemptions: 0, hits: 0, accepted: 0, host: 0, dir: 0, damaged: 0, failures: 0, declined: 0, prefilled: 0, peer: 0, peerLost: 0, cancels: 0, swaps: 0, killed: 0, experts: 0 };
for (let s = 0; s < shapes; s++) {
    const shape = drawShape(s), order = requests.map((_, i) => i).sort(() => next() - 0.5);
    const world = shape.world ?? "adapters", list = world === "adapters" ? requests : bare;
    let hasSwapped = false;
    const use = async (url, metricsUrl = url, kill = () => {}) => {
        const work = async () => {
            for (let i; (i = order.pop()) !== undefined;) {
                const wasSwapped = hasSwapped, isAmid = shape.swapAfter !== undefined && !wasSwapped;
                if (shape.killAfter === order.length) { kill(); met.killed++; }
                if (shape.swapAfter === order.length) { await swap(url); hasSwapped = true; met.swaps++; }
                if (chance(0.1)) { await leave(url, list[i]); met.cancels++; }
                const answer = await ask(url, list[i]), what = `shape ${JSON.stringify(shape)}: ${JSON.stringify(list[i])}`;
                if (isAmid) assert.ok(isOfEither(answer, right[world][i], swapped[i]), `${what}: ${plain(answer)}`);
                else assert.equal(plain(answer), plain((wasSwapped ? swapped : right[world])[i]), what);
                met.experts += world === "experts";
            }
        };
        await Promise.all(Array.from({ length: shape.clients }, work));
        const metrics = await (await fetch(`${metricsUrl}/metrics`)).text();
        const routed = shape.isApart ? await (await fetch(`${url}/metrics`)).text() : "";
        met.prefilled += Number(/^ashlar_route_prefilled_total (\S+)$/m.exec(routed)?.[1] ?? 0);
        const count = (name) => Number(new RegExp(`^vllm:${name}\\{[^}]*\\} (\\S+)$`, "m").exec(metrics)?.[1] ?? 0);
        met.preemptions += count("num_preemptions_total");
        met.hits += count("prefix_cache_hits_total");
        met.accepted += count("spec_decode_num_accepted_tokens_total");
        const tier = (name, of) => Number(new RegExp(`^ashlar_kv_tier_${name}\\{[^}]*tier="${of}"[^}]*\\} (\\S+)$`, "m").exec(metrics)?.[1] ?? 0);
        met.host += tier("hit_tokens_total", "host");
        met.dir += tier("hit_tokens_total", "dir");
        met.damaged += tier("damaged_total", "dir");
        met.declined += tier("declined_total", "dir");
        met.failures += tier("failures_total", "dir");
        met.peer += tier("hit_tokens_total", "peer");
        met.peerLost += tier("failures_total", "peer") + tier("damaged_total", "peer") + tier("declined_total", "peer");
    };
    if (shape.isApart) await serveApart(shape, use);
    else if (shape.replicas) await serveReplicas(shape, use);
    else await serve(shape.flags, use, shape.fileBlocks, world);
    damage();
}
console.log(`${shapes * each} answers in ${shapes} shapes: ${met.preemptions} preemptions, ${met.hits} tokens from the prefix cache, ${met.accepted} drafts accepted; ` +
    `${met.host} tokens from host memory, ${met.dir} from the folder (${met.declined} times computing was faster), ${met.damaged} damaged pages, ${met.failures} not written; ` +
    `${met.prefilled} prompts from prefill servers, ${met.peer} tokens of them read, ${met.peerLost} pages or prompts not; ` +
    `${met.cancels} clients that left, ${met.swaps} swaps of weights, ${met.killed} servers killed, ${met.experts} answers of a model with experts`);
assert.ok(met.hits > 0 && met.prefilled > 0 && met.swaps > 0 && met.experts > 0 && met.cancels > 0);
if (total >= 1000) assert.ok(met.preemptions > 0 && met.accepted > 0 && met.dir + met.declined > 0 && met.peer > 0 && met.killed > 0); // few requests may not meet these

// ---- the evaluation: what was drawn token by token, read as a text; and a text, read by `ashlar eval`

function evaluate(text, name) {
    fs.writeFileSync(`${scratch}/${name}.txt`, text);
    const run = (...args) => spawnSync(ashlar, args, { encoding: "utf8" });
    fs.rmSync(`${scratch}/${name}`, { recursive: true, force: true });
    const made = run("data", "tokenize", "--tokenizer", model, "--out", `${scratch}/${name}`, `${scratch}/${name}.txt`);
    assert.equal(made.status, 0, made.stderr);
    const shard = fs.readFileSync(`${scratch}/${name}/shard-00000.safetensors`);
    const header = JSON.parse(shard.subarray(8, 8 + Number(shard.readBigUInt64LE(0))).toString());
    const first = 8 + Number(shard.readBigUInt64LE(0)) + header.tokens.data_offsets[0];
    const tokens = Array.from({ length: header.tokens.shape[0] }, (_, i) => shard.readUInt16LE(first + 2 * i));
    const result = run("eval", "--model", model, "--data", `${scratch}/${name}`, "--seq", String(tokens.length - 1), "--json");
    assert.equal(result.status, 0, result.stderr);
    return { tokens, loss: JSON.parse(result.stdout).loss };
}
const chosen = (entry, id) => Math.fround(entry[String(id)].logprob); // nine digits name one float32
await serve(["--max-num-seqs", 8], async (url) => {
    let compared = 0;
    for (let i = 0; i < requests.length; i++) {
        const [choice] = wanted[i].choices;
        if (requests[i].model || requests[i].logprobs === undefined || requests[i].logprobs === null || choice.token_ids.length === 0) continue;
        const ids = [...wanted[i].prompt_ids ?? choice.prompt_token_ids, ...choice.token_ids];
        const read = await ask(url, { prompt: ids, max_tokens: 1, prompt_logprobs: 0, temperature: 0, return_token_ids: true });
        const told = read.prompt ?? read.choices[0].prompt_logprobs;
        choice.logprobs.token_logprobs.forEach((logprob, t) => {
            const at = ids.length - choice.token_ids.length + t;
            if (t < choice.token_ids.length) assert.equal(Math.fround(logprob), chosen(told[at], ids[at]), `token ${t} of ${JSON.stringify(requests[i])}`);
            compared++;
        });
        if (compared > 3000) break;
    }
    assert.ok(compared > 50);
    for (const [name, text] of [["short", words.join(" ")], ["long", `${words.join(" ")} `.repeat(5)]]) {
        const { tokens, loss } = evaluate(text, name);
        const read = await ask(url, { prompt: tokens, max_tokens: 1, prompt_logprobs: 0, temperature: 0, return_token_ids: true });
        const told = read.prompt ?? read.choices[0].prompt_logprobs;
        const sum = tokens.slice(1).reduce((total, id, t) => total + -chosen(told[t + 1], id), 0);
        assert.equal(sum / (tokens.length - 1), loss, `${name}: the loss of ashlar eval`);
    }
    console.log(`${compared} log-probabilities of answers are those of the same text read as a prompt; two texts have the loss of ashlar eval`);
});
