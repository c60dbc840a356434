// llama_peer.mjs PACKAGES MODEL.gguf THREADS [first]: llama.cpp, from npm's node-llama-cpp in the folder PACKAGES, as infer.c's peer.
// Prints one line about itself when it is ready; then, for each line on standard input, "prefill N" or "decode N" from an empty
// context, prints the seconds. With `first` it prints the seconds from loading the model to the first token of a 16-token prompt,
// not counting the start of Node.js: llama.cpp needs none.
import { pathToFileURL } from "node:url";
import { createInterface } from "node:readline";
import fs from "node:fs";

const [packages, file, threads, first] = process.argv.slice(2);
const home = `${packages}/node_modules/node-llama-cpp`;
const { getLlama } = await import(pathToFileURL(`${home}/dist/index.js`));
const version = JSON.parse(fs.readFileSync(`${home}/package.json`, "utf8")).version;

const seconds = (since) => ((performance.now() - since) / 1e3).toFixed(6);
const ids = (count) => Array.from({ length: count }, (_, i) => 259 + ((i * 7919) % 30000));

// Which of its CPU libraries it chose for this machine.
function variant() {
    const match = /libggml-cpu[-.]?([\w.]*?)\.so/.exec(fs.readFileSync("/proc/self/maps", "utf8"));
    return match && match[1] ? match[1] : "built in";
}

async function decode(sequence, prompt, count) {
    let done = 0;
    for await (const _ of sequence.evaluate(prompt, { temperature: 0, yieldEogToken: true })) if (++done >= count) break;
}

const start = performance.now();
const llama = await getLlama({ build: "never", gpu: false, skipDownload: true, logLevel: "error", maxThreads: +threads });
const model = await llama.loadModel({ modelPath: file, gpuLayers: 0 });
const context = await model.createContext({ contextSize: 1024, batchSize: 512, threads: +threads, sequences: 1 });
const sequence = context.getSequence();

if (first) {
    await decode(sequence, ids(16), 1);
    console.log(seconds(start));
    process.exit(0);
}
console.log(`llama.cpp (npm node-llama-cpp ${version}, ${variant()})`);
for await (const line of createInterface({ input: process.stdin })) {
    const [what, count] = line.split(" ");
    await sequence.clearHistory();
    const since = performance.now();
    if (what === "decode") await decode(sequence, ids(1), +count);
    else await sequence.evaluateWithoutGeneratingNewTokens(ids(+count));
    console.log(seconds(since));
}
process.exit(0);
