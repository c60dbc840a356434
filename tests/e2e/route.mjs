// route.mjs ASHLAR MODEL SCRATCH TOTAL SEED: drawn requests go through a router to three replicas, which are killed, stopped, drained
// and added meanwhile. Every answer is that of one server without a router, byte by byte but for times and counts of the cache.
import { spawn } from "node:child_process";
import fs from "node:fs";
import http from "node:http";
import assert from "node:assert/strict";

const [ashlar, model, scratch, totalText, seedText] = process.argv.slice(2);
const total = +totalText;
const template = `${scratch}/chat.jinja`;
fs.writeFileSync(template, "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:");
const keys = ["--api-key", "k", "--admin-key", "admin"];

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
const words = ["Once upon a time", "Lily and Tom went to the park.", "The dog said", "One day, a big red ball"];

function drawRequest() {
    const most = 40 + below(240), stream = chance(0.8), text = pick(words), seed = below(1000);
    const plain = { temperature: chance(0.3) ? 0 : 0.5 + next(), stream, seed };
    const form = pick(["completions", "completions", "chat", "messages", "responses", "llama"]);
    if (form === "llama") return { path: "/completion", body: { ...plain, prompt: text, n_predict: most, n_probs: below(3) } };
    if (form === "messages") return { path: "/v1/messages", body: { ...plain, model: "stories260K", max_tokens: most, messages: [{ role: "user", content: text }] } };
    if (form === "responses") return { path: "/v1/responses", body: { ...plain, input: text, max_output_tokens: most } };
    const more = { n: 1 + below(chance(0.3) ? 3 : 1), ...(stream && chance(0.5) && { stream_options: { include_usage: true } }), ...(chance(0.2) && { stop: [pick([".", " the"])] }) };
    if (form === "chat") return { path: "/v1/chat/completions", body: { ...plain, ...more, max_tokens: most, logprobs: chance(0.5), messages: [{ role: "user", content: text }] } };
    return { path: "/v1/completions", body: { ...plain, ...more, max_tokens: most, ignore_eos: chance(0.5), ...(chance(0.3) && { logprobs: 2 }),
        prompt: chance(0.3) ? [1, ...Array.from({ length: 1 + below(200) }, (_, i) => 3 + ((i * 7) % 400))] : text } };
}

// ---- programs

const all = [];
// The program once its log has both the address it listens on and the pattern: they come in either order.
async function start(args, pattern) {
    const child = spawn(ashlar, args.map(String), { stdio: ["ignore", "ignore", "pipe"] });
    all.push(child);
    child.log = "";
    await new Promise((resolve, reject) => {
        child.stderr.on("data", (data) => {
            child.log += data;
            const port = /listening on .* port (\d+).*\n/.exec(child.log)?.[1];
            if (port === undefined || !pattern.test(child.log)) return;
            child.url = `http://127.0.0.1:${port}`;
            resolve();
        });
        child.on("exit", () => reject(new Error(`it ended: ${child.log.slice(-500)}`)));
    });
    return child;
}
const replica = () => start(["serve", "--model", model, "--port", 0, "--no-access-log", "--threads", 1, "--chat-template", template, "--max-num-seqs", 64, ...keys, "--pages", ""], /ready after/);
process.on("exit", () => all.forEach((child) => child.kill("SIGKILL")));

const agent = new http.Agent({ keepAlive: true });
// The body of the answer and its status; see is called with every piece.
function ask(url, path, body, { headers = {}, see = () => {}, key = "k" } = {}) {
    return new Promise((resolve, reject) => {
        const request = http.request(url + path, { agent, method: body === undefined ? "GET" : "POST",
            headers: { authorization: `Bearer ${key}`, "content-type": "application/json", ...headers } }, (response) => {
            let text = "";
            response.setEncoding("utf8");
            response.on("data", (data) => { text += data; see(request, text); });
            response.on("end", () => resolve({ status: response.statusCode, text }));
            response.on("error", reject);
        });
        request.on("error", reject);
        request.end(body === undefined ? undefined : JSON.stringify(body));
    });
}
// Without times and counts of the cache. Events of several answers come in any order: those of each are in theirs.
function plain({ status, text }) {
    const same = text.replace(/"(created|created_at)":\d+/g, "").replace(/"timings":\{[^}]*\}/g, "").replace(/"system_fingerprint":[^,]*,/g, "")
        .replace(/"(cached_tokens|cache_read_input_tokens|input_tokens|output_tokens|cache_creation_input_tokens)":\d+/g, "");
    const events = same.split("\n\n"), index = (event) => +(/"choices":\[\{"index":(\d+)/.exec(event)?.[1] ?? -1);
    return JSON.stringify([status, ...events.filter((event) => index(event) < 0), ...events.filter((event) => index(event) >= 0).sort((a, b) => index(a) - index(b))]);
}

// ---- what one server says

const requests = Array.from({ length: total }, drawRequest);
const header = (i) => ({ "x-request-id": `request-${i}` });
const one = await replica();
const wanted = [];
for (const [i, { path, body }] of requests.entries())
    wanted.push(plain(await ask(one.url, path, body, { headers: { ...header(i), "x-ashlar-resumable": "0 0" } })));
one.kill("SIGKILL");
assert.ok(wanted.every((text) => text.startsWith("[200,")), wanted.find((text) => !text.startsWith("[200,")));

// ---- the same through a router, while replicas come and go

const replicas = await Promise.all([replica(), replica(), replica()]);
const list = `${scratch}/replicas.txt`;
const save = () => fs.writeFileSync(list, replicas.map(({ url }) => url).join("\n"));
// Others in their places, at other ports.
async function replace(...places) {
    for (const i of places) replicas[i] = await replica();
    save();
    await up(3);
}
save();
const router = await start(["route", "--to-file", list, "--port", 0, "--no-access-log", "--silence-seconds", 1, "--probe-seconds", 0.1, "--refresh-seconds", 0.1, "--replica-admin-key", "admin", ...keys], /listening/);
const inner = router.url;
const url = inner;
const admin = async (body) => JSON.parse((await ask(url, "/replicas", body, { key: "admin" })).text).replicas;
const until = async (what, test) => {
    for (const end = Date.now() + 60000; !(await test());) {
        assert.ok(Date.now() < end, `waited a minute for ${what}: ${router.log.slice(-800)}`);
        await new Promise((resolve) => setTimeout(resolve, 20));
    }
};
const up = (count) => until(`${count} replicas`, async () => (await admin()).filter(({ state }) => state === "up").length === count);
const metric = async (name) => [...(await ask(url, "/metrics")).text.matchAll(new RegExp(`^ashlar_route_${name}(?:\\{.*\\})? (\\S+)$`, "gm"))].reduce((sum, match) => sum + +match[1], 0);

// All requests at once; `hurt` runs when a third of the streams' pieces have come.
async function round(name, hurt, url = inner) {
    let pieces = 0, hurting;
    const see = () => { if (++pieces === 3 * total) hurting = hurt(); };
    const answers = await Promise.all(requests.map(({ path, body }, i) => ask(url, path, body, { headers: header(i), see })));
    assert.ok(hurting, `${name}: only ${pieces} pieces came`);
    await hurting;
    answers.forEach((answer, i) => assert.equal(plain(answer), wanted[i], `${name}: request ${i}: ${JSON.stringify(requests[i])}\n${router.log.slice(-1500)}`));
}
await up(3);
await round("nothing happens", async () => {});
const continued = [];
const count = async () => { continued.push(await metric("continued_total")); };
await count();
await round("kill -9", async () => { replicas[0].kill("SIGKILL"); });
await count();
await replace(0);
await round("SIGSTOP", async () => { replicas[1].kill("SIGSTOP"); });
await count();
replicas[1].kill("SIGKILL");
await replace(1);
await round("two of three are killed", async () => { replicas[0].kill("SIGKILL"); replicas[2].kill("SIGKILL"); });
await count();
await replace(0, 2);
await round("SIGTERM", async () => { replicas[2].kill("SIGTERM"); });
await replace(2);
const added = await replica();
await round("drained and added", async () => { await admin({ drain: replicas[0].url }); await admin({ add: added.url }); });
await until("the drained one", async () => (await admin()).find((one) => one.url === replicas[0].url).state === "drained");
await until("the list", async () => { fs.writeFileSync(list, replicas.slice(1).map((one) => one.url).join("\n")); return !(await admin()).some((one) => one.url === replicas[0].url); });
// A router in front of the router: seed and time are the outer one's, and its streams outlive the inner one's replicas.
const outer = await start(["route", "--to", inner, "--port", 0, "--no-access-log", "--silence-seconds", 60, "--probe-seconds", 0.1, "--shutdown-timeout", 0.3, ...keys], /is up/);
await round("two routers", async () => { replicas[1].kill("SIGKILL"); }, outer.url);
let hung;
const cut = ask(outer.url, "/v1/completions", { prompt: "Once", max_tokens: 480, ignore_eos: true, stream: true, n: 8 }, { see: () => {
    if (hung) return;
    hung = true;
    router.kill("SIGSTOP");
    outer.kill("SIGTERM");
} });
assert.match((await cut).text, /"code":"shutting_down"|\[DONE\]/);
router.kill("SIGCONT");
console.log(`${total} answers in 7 rounds; streams continued after a kill, a stop, two kills: ${continued.slice(1).map((n, i) => n - continued[i])}`);
assert.ok(continued[1] > continued[0] && continued[2] > continued[1] && continued[3] > continued[2]);

// ---- clients that leave; prefixes; errors

await Promise.all(Array.from({ length: 20 }, () => ask(url, "/v1/completions", { prompt: "Once", max_tokens: 400, ignore_eos: true, stream: true }, { see: (request) => request.destroy() }).catch(() => {})));
await until("requests whose clients left", async () => (await admin()).every(({ in_flight }) => in_flight === 0));
const prefix = Array.from({ length: 300 }, (_, i) => 3 + ((i * 11) % 450));
let found = 0;
for (let i = 0; i < 9; i++) {
    const { text } = await ask(url, "/v1/completions", { prompt: [1, ...prefix, 5 + i], max_tokens: 4 });
    found += JSON.parse(text).usage.prompt_tokens_details.cached_tokens;
}
assert.ok(found >= 8 * 256, `${found} tokens of 8 known prompts were found`);
// What the router knows is what caches hold: after a restart of the router, and after they are emptied.
const known = async (at) => JSON.parse((await ask(at, "/replicas", undefined, { key: "admin" })).text).replicas.filter(({ state }) => state === "up").map((one) => one.kv_events ? one.known_blocks : -1).join();
await until("events of all caches", async () => !(await known(url)).includes("-1"));
const held = await known(url);
assert.ok(held.split(",").some((count) => +count >= 4), `no replica holds the prefix: ${held}`);
const live = (await admin()).filter(({ state }) => state === "up").map((one) => one.url);
const again = await start(["route", "--to", live.join(","), "--port", 0, "--no-access-log", "--replica-admin-key", "admin", ...keys], /listening/);
await until(`what the first router knows: ${held}`, async () => (await known(again.url)) === held);
again.kill("SIGKILL");
assert.equal((await ask(url, "/reset_prefix_cache", {}, { key: "admin" })).status, 200);
await until("empty caches", async () => /^0(,0)*$/.test(await known(url)));
assert.equal((await ask(replicas[2].url, "/kv_events")).status, 403);
assert.equal((await ask(url, "/kv_events")).status, 404);
const first = await new Promise((resolve, reject) => ask(replicas[2].url, "/kv_events?token_ids=1", undefined, { key: "admin", see: (request, text) => { if (/\n\n/.test(text)) { resolve(text); request.destroy(); } } }).catch(reject));
assert.equal(JSON.parse(/^data: (.*)\n\n/.exec(first)[1]).events[0].type, "AllBlocksCleared");
await admin({ add: inner });
await until("itself", async () => (await admin()).find((one) => one.url === inner).state === "up");
let looped;
await until("a request that comes back", async () => (looped = await Promise.all(Array.from({ length: 9 }, () => ask(url, "/v1/completions", { prompt: "a", max_tokens: 9 })))).some(({ status }) => status === 508));
assert.match(looped.find(({ status }) => status === 508).text, /among its own replicas/);
await admin({ drain: inner });
assert.equal((await ask(url, "/replicas", { add: "https://x" }, { key: "admin" })).status, 400);
assert.equal((await ask(url, "/replicas", { drain: "http://x" }, { key: "admin" })).status, 404);
assert.equal((await ask(url, "/replicas", { add: "http://127.0.0.1:1" })).status, 401);
assert.equal((await ask(url, "/v1/completions", { prompt: "a", temperature: "b" })).status, 400);
assert.equal((await ask(url, "/reset_prefix_cache", {}, { key: "admin" })).status, 200);
assert.equal(JSON.parse((await ask(url, "/v1/models")).text).data[0].id, "stories260K");
for (const { pid } of [added, ...replicas]) try { process.kill(pid, "SIGKILL"); } catch { /* it ended */ }
await up(0);
const none = await ask(url, "/v1/completions", { prompt: "a" });
assert.equal(none.status, 503);
assert.match(none.text, /no replica takes requests now/);
assert.equal((await ask(url, "/health")).status, 503);
const ended = new Promise((resolve) => router.on("exit", resolve));
router.kill("SIGTERM");
assert.equal(await ended, 0);
process.exit(0);
