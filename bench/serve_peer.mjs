// serve_peer.mjs PACKAGES MODEL.gguf THREADS SEQUENCES CONTEXT: llama.cpp from npm's node-llama-cpp, with as many sequences as a
// server has clients, in one process: no HTTP. Prints one line about itself when it is ready; then, for each line on standard input:
//   batch PROMPT ANSWER   all sequences at once, each with a prompt of its own: prints the seconds until the last has its answer
//   after TOKENS ANSWER   one sequence continues after TOKENS tokens (read once): prints the seconds of a token of its answer
import { pathToFileURL } from "node:url";
import { createInterface } from "node:readline";
import fs from "node:fs";

const [packages, file, threads, sequences, context] = process.argv.slice(2);
const home = `${packages}/node_modules/node-llama-cpp`;
const { getLlama } = await import(pathToFileURL(`${home}/dist/index.js`));
const version = JSON.parse(fs.readFileSync(`${home}/package.json`, "utf8")).version;

const ids = (count, salt) => Array.from({ length: count }, (_, i) => 259 + (((i + 1) * 7919 + salt * 104729) % 30000));
// Which of its CPU libraries it chose for this machine.
function variant() {
    const match = /libggml-cpu[-.]?([\w.]*?)\.so/.exec(fs.readFileSync("/proc/self/maps", "utf8"));
    return match && match[1] ? match[1] : "built in";
}

const llama = await getLlama({ build: "never", gpu: false, skipDownload: true, logLevel: "error", maxThreads: +threads });
const model = await llama.loadModel({ modelPath: file, gpuLayers: 0 });
const shared = await model.createContext({ contextSize: +context, batchSize: 512, threads: +threads, sequences: +sequences });
const all = Array.from({ length: +sequences }, () => shared.getSequence());

async function answer(sequence, prompt, count) {
    let done = 0;
    for await (const _ of sequence.evaluate(prompt, { temperature: 0, yieldEogToken: true })) if (++done >= count) break;
}

let salt = 0, read = 0;
async function batch(prompt, count) {
    for (const sequence of all) await sequence.clearHistory();
    read = 0;
    const since = performance.now();
    await Promise.all(all.map((sequence) => answer(sequence, ids(prompt, salt++), count)));
    return (performance.now() - since) / 1e3;
}
async function after(tokens, count) {
    const [sequence] = all;
    if (read !== tokens) {
        await sequence.clearHistory();
        await sequence.evaluateWithoutGeneratingNewTokens(ids(tokens, salt++));
        read = tokens;
    }
    const since = performance.now();
    await answer(sequence, ids(1, salt++), count);
    const seconds = (performance.now() - since) / 1e3 / count;
    await sequence.eraseContextTokenRanges([{ start: tokens, end: sequence.nextTokenIndex }]);
    return seconds;
}

console.log(`llama.cpp (npm node-llama-cpp ${version}, ${variant()})`);
for await (const line of createInterface({ input: process.stdin })) {
    const [what, first, second] = line.split(" ");
    console.log((await (what === "after" ? after : batch)(+first, +second)).toFixed(6));
}
process.exit(0);
