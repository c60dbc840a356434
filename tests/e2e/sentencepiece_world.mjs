// Reads SentencePiece's own files, and compares ids with SentencePiece (npm's sentencepiece-js, its library in WebAssembly): a unigram
// and a BPE model that are written here, of pieces with scores drawn from texts, with and without bytes, prefix and trimmed spaces.
// usage: sentencepiece_world.mjs TOKENIZE_FILE SOURCE [MODEL…]
import { execFileSync } from "node:child_process";
import fs from "node:fs";
import { createRequire } from "node:module";
import { Random, mixedDocuments } from "./mixed_text.mjs";

const require = createRequire(`${process.cwd()}/`);
const { SentencePieceProcessor } = require("sentencepiece-js");
const [tokenizeFile, source, ...given] = process.argv.slice(2);
let failures = 0;

// ---- a file: fields of a protocol buffer

const varint = (value) => { const bytes = []; for (; value > 127; value = Math.floor(value / 128)) bytes.push((value % 128) | 128); return Buffer.from([...bytes, value]); };
const whole = (number, value) => Buffer.concat([varint(number * 8), varint(value)]);
const bytes = (number, data) => Buffer.concat([varint(number * 8 + 2), varint(data.length), data]);
const float = (number, value) => { const data = Buffer.alloc(4); data.writeFloatLE(value); return Buffer.concat([varint(number * 8 + 5), data]); };
const NORMAL = 1, UNKNOWN = 2, CONTROL = 3, USER = 4, BYTE = 6;

function writeModel(file, pieces, { type, byteFallback, prefix, trims, map }) {
    const piece = ([text, score, kind]) => bytes(1, Buffer.concat([bytes(1, Buffer.from(text)), float(2, score), whole(3, kind)]));
    const trainer = bytes(2, Buffer.concat([whole(3, type), whole(35, byteFallback ? 1 : 0), whole(40, 0), whole(41, 1), whole(42, 2)]));
    const normalizer = bytes(3, Buffer.concat([bytes(1, Buffer.from("drawn")), map ? bytes(2, map) : Buffer.alloc(0), whole(3, prefix ? 1 : 0), whole(4, trims ? 1 : 0), whole(5, 1)]));
    fs.writeFileSync(file, Buffer.concat([...pieces.map(piece), trainer, normalizer]));
}

// Pieces of texts: all characters but some, and drawn runs of up to six characters within a word. BPE's longer ones are made of others.
function drawPieces(texts, seed, { type, byteFallback }) {
    const random = new Random(seed), counts = new Map(), chars = new Map();
    const pieces = [["<unk>", 0, UNKNOWN], ["<s>", 0, CONTROL], ["</s>", 0, CONTROL], ["<sep>", 0, USER]];
    if (byteFallback) for (let i = 0; i < 256; i++) pieces.push([`<0x${i.toString(16).toUpperCase().padStart(2, "0")}>`, 0, BYTE]);
    for (const text of texts)
        for (const word of text.normalize("NFKC").split(/ +/)) {
            const letters = Array.from(`▁${word}`);
            letters.forEach((c) => chars.set(c, (chars.get(c) ?? 0) + 1));
            for (let at = 0; at + 1 < letters.length; at++)
                for (let size = 2; size <= 6 && at + size <= letters.length; size++) {
                    const run = letters.slice(at, at + size).join("");
                    counts.set(run, (counts.get(run) ?? 0) + 1);
                }
        }
    const runs = [...counts].filter(([run, count]) => count > 2 && !/[<>\0]/.test(run)).map(([run]) => run).sort((a, b) => (random.below(2) ? 1 : -1) || a.length - b.length).slice(0, 900);
    const letters = [...chars].filter(([c, count]) => count > 1 && c !== "\0").map(([c]) => c);
    [...letters, ...runs].forEach((run, i) => pieces.push([run, type === 2 ? -i : -(2 + random.below(100000) / 9000 + 1.5 * Array.from(run).length), NORMAL]));
    return pieces;
}

// ---- the two sides

function ourIds(tokenizer, documents) {
    const parts = documents.flatMap((text) => [Buffer.from(`${Buffer.byteLength(text)}\n`), Buffer.from(text)]);
    fs.writeFileSync("corpus", Buffer.concat(parts));
    execFileSync(tokenizeFile, [tokenizer, "corpus", "ids", "0"]);
    const data = fs.readFileSync("ids"), all = new Int32Array(data.buffer, data.byteOffset, data.byteLength / 4), lists = [];
    for (let at = 0; at < all.length; at += 1 + all[at]) lists.push(Array.from(all.subarray(at + 1, at + 1 + all[at])));
    return lists;
}

async function compare(what, file, documents) {
    const processor = new SentencePieceProcessor(), ours = ourIds(file, documents);
    await processor.load(file);
    let different = 0, count = 0;
    documents.forEach((text, i) => {
        const theirs = Array.from(processor.encodeIds(text));
        count += theirs.length;
        if (theirs.length === ours[i].length && theirs.every((id, at) => id === ours[i][at])) return;
        if (++different > 3) return;
        let at = 0;
        while (ours[i][at] === theirs[at]) at++;
        console.log(`FAIL: ${what}: ${JSON.stringify(text.slice(0, 60))} parts at id ${at}: ${ours[i].slice(at, at + 5)} and ${theirs.slice(at, at + 5)}`);
    });
    console.log(`${what}: ${documents.length} texts, ${count} ids, ${different} texts different`);
    if (different > 0) failures++;
}

const known = execFileSync(tokenizeFile, ["--assigned"], { encoding: "utf8" });
const documents = ["Hello, world!", "  two  spaces ", " ", "naïve café, 北京, привет, 🙂👍🏽", "It's 12345 o'clock.", "ﬁne ①②③ ｆｕｌｌ", ...mixedDocuments(8_000, known, source).flatMap((text) => Buffer.from(text).toString().match(/[^]{1,200}/gu) ?? [])]
    .map((text) => text.replaceAll("\0", "").replaceAll(/<\/?s>|<unk>|<sep>|<pad>/g, "")).filter((text) => text !== "");
let seed = 1;
for (const type of [1, 2])
    for (const byteFallback of [false, true])
        for (const [prefix, trims] of [[true, true], [true, false], [false, false]]) {
            const options = { type, byteFallback, prefix, trims };
            writeModel("drawn.model", drawPieces(documents, seed++, options), options);
            await compare(`${type === 1 ? "unigram" : "BPE"}${byteFallback ? " of bytes" : ""}${prefix ? ", prefix" : ""}${trims ? ", trimmed" : ""}`, "drawn.model", documents);
        }
for (const file of given) await compare(file, file, documents);
process.exit(failures > 0 ? 1 : 0);
