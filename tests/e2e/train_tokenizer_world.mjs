// Trains a tokenizer of every pattern on mixed text with `ashlar data train-tokenizer` and with the Hugging Face library's own trainer,
// compares the merges, and then the ids that our program, that library and its JavaScript port give with our files.
// usage: train_tokenizer_world.mjs ASHLAR TOKENIZE_FILE SOURCE      (BENCH_ROWS: a file for the rows of a benchmark)
import { execFileSync } from "node:child_process";
import { createRequire } from "node:module";
import fs from "node:fs";
import { Tokenizer as Port } from "@huggingface/tokenizers";
import { mixedDocuments } from "./mixed_text.mjs";

const native = createRequire(import.meta.url)("tokenizers-linux-x64-gnu");
const [ashlar, program, source] = process.argv.slice(2);
const BYTES = 40_000;
const TIMED_BYTES = 8_000_000;
const DEFAULT_VOCAB = 30_000; // of the library's trainer, which has no other settings from Node.js: min_frequency is 0
let failures = 0;

const fail = (text) => { console.log(`FAILED: ${text}`); failures++; };
const read = (file) => JSON.parse(fs.readFileSync(file, "utf8"));
const words = (merge) => (Array.isArray(merge) ? merge.join(" ") : merge);

function train(out, pattern, file) {
    const start = performance.now();
    execFileSync(ashlar, ["data", "train-tokenizer", "--out", out, "--overwrite", "--pattern", pattern, "--vocab", String(DEFAULT_VOCAB),
        "--min-frequency", "1", file], { stdio: ["ignore", "ignore", "pipe"] });
    return (performance.now() - start) / 1000;
}

// The library's trainer on the same way to cut: our file without tokens.
function trainNative(out, file, text) {
    const empty = read(out);
    Object.assign(empty, { added_tokens: [] });
    Object.assign(empty.model, { vocab: {}, merges: [] });
    const tokenizer = native.Tokenizer.fromString(JSON.stringify(empty));
    const start = performance.now();
    tokenizer.train([text]);
    const seconds = (performance.now() - start) / 1000;
    tokenizer.save(file, false);
    return seconds;
}

// The library's vocabulary lacks bytes that the text lacks, so that its list may be longer.
function compareMerges(pattern, ours, theirs) {
    const short = Math.min(ours.length, theirs.length);
    let i = 0;
    while (i < short && words(ours[i]) === words(theirs[i])) i++;
    if (i < short) fail(`${pattern}: merge ${i}: ours '${words(ours[i])}', theirs '${words(theirs[i])}'`);
    if (ours.length < 500 || theirs.length < ours.length) fail(`${pattern}: ${ours.length} merges, theirs ${theirs.length}`);
}

function ourIds(file, documents) {
    fs.writeFileSync("corpus", Buffer.concat(documents.flatMap((text) => {
        const bytes = Buffer.from(text, "utf8");
        return [Buffer.from(`${bytes.length}\n`), bytes];
    })));
    execFileSync(program, [file, "corpus", "ids", "0"]);
    const buffer = fs.readFileSync("ids");
    const all = new Int32Array(buffer.buffer, buffer.byteOffset, buffer.byteLength / 4);
    let at = 0;
    return documents.map(() => { const list = Array.from(all.subarray(at + 1, at + 1 + all[at])); at += 1 + all[at]; return list; });
}

async function compareIds(pattern, out, documents) {
    const library = native.Tokenizer.fromString(fs.readFileSync(`${out}/tokenizer.json`, "utf8"));
    const port = new Port(read(`${out}/tokenizer.json`), read(`${out}/tokenizer_config.json`));
    const ours = ourIds(`${out}/tokenizer.json`, documents);
    for (let d = 0; d < documents.length; d++) {
        const theirs = (await library.encode(documents[d], null, { addSpecialTokens: false })).getIds();
        if (String(theirs) !== String(ours[d])) fail(`${pattern}: document ${d}: other ids than the library's`);
        if (pattern !== "gpt2" && String(port.encode(documents[d]).ids) !== String(ours[d])) // its \s is JavaScript's there
            fail(`${pattern}: document ${d}: other ids than the JavaScript library's`);
        const text = await library.decode(ours[d], false);
        if (text !== (pattern === "qwen2" ? documents[d].normalize("NFC") : documents[d])) fail(`${pattern}: document ${d}: another text`);
    }
}

const known = execFileSync(program, ["--assigned"], { encoding: "utf8" });
const documents = mixedDocuments(BYTES, known, source);
fs.writeFileSync("mixed.txt", documents.join("\n"));
for (const pattern of ["gpt2", "llama3", "qwen2", "tekken"]) {
    train(pattern, pattern, "mixed.txt");
    trainNative(`${pattern}/tokenizer.json`, "theirs.json", "mixed.txt");
    compareMerges(pattern, read(`${pattern}/tokenizer.json`).model.merges, read("theirs.json").model.merges);
    await compareIds(pattern, pattern, documents.slice(0, 40));
}

// `make bench` collects the speeds: the project's own text, the two taking turns.
if (process.env.BENCH_ROWS) {
    const list = execFileSync("find", [source, "-name", "build", "-prune", "-o", "(", "-name", "*.[ch]", "-o", "-name", "*.md", ")", "-print"],
        { encoding: "utf8" }).trim().split("\n").sort();
    let text = "";
    for (const file of list) if (text.length < TIMED_BYTES) text += fs.readFileSync(file, "utf8");
    fs.writeFileSync("timed.txt", text);
    const ours = [], theirs = [], size = Buffer.byteLength(text) / 1e6, middle = (times) => times.sort((a, b) => a - b)[1];
    for (let round = 0; round < 3; round++) {
        ours.push(train("timed", "llama3", "timed.txt"));
        theirs.push(trainNative("timed/tokenizer.json", "theirs.json", "timed.txt"));
    }
    fs.appendFileSync(process.env.BENCH_ROWS, JSON.stringify({ name: "train-tokenizer/llama3", unit: "MB/s", ours: size / middle(ours),
        peer: "Hugging Face tokenizers (native)", peer_value: size / middle(theirs), ratio: middle(theirs) / middle(ours), goal: 2 }) + "\n");
}
console.log(failures > 0 ? `${failures} failures` : "train_tokenizer_world: passed");
process.exit(failures > 0 ? 1 : 0);
