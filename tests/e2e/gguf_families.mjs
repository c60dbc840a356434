// Writes a small model of each family, which has reference logits of its own library, as a GGUF file, and has llama.cpp compute the
// logits of the reference's tokens from it. So is the file that Ashlar reads what llama.cpp takes it for.
// usage: gguf_families.mjs ASHLAR SOURCE LLAMA_LIBRARY LIBRARIES [FAMILY…]
import { execFileSync } from "node:child_process";
import fs from "node:fs";

const [ashlar, source, llamaLibrary, libraries, ...chosen] = process.argv.slice(2);
const NEAR = 0.01; // of the largest logit: llama.cpp's cache is f16, and it rounds activations in places
const TIES = 0.1; // of the tokens of a mixture of experts: two experts may be so nearly equal that rounding chooses the other one

// Not among them, as llama.cpp has other norms for phimoe, no window for mixtral, and refuses the sizes of olmoe's and gpt_neox's.
const SAME = { "families/llama4": 16 }; // tokens of a text that are in its first chunk: llama.cpp's chunks are of 8,192 in any file
const MODELS = ["llama-gqa", "llama3-rope", "llama-yarn-rope", "qwen3-tied-sharded", "gpt2-default", "deepseek_v3-groups",
    ...["gemma2", "gemma3", "gpt_oss", "phi3", "phi3-longrope", "olmo2", "olmo3", "glm4", "glm4_moe", "granite", "granitemoe", "cohere", "cohere2",
        "starcoder2", "seed_oss", "smollm3", "ernie4_5", "ernie4_5_moe", "hunyuan_dense", "hunyuan_moe", "minimax_m2",
        "llama4", "deepseek_v2", "mamba2"].map((name) => `families/${name}`)];

function tensor(file, name) {
    const bytes = fs.readFileSync(file), size = Number(bytes.readBigUInt64LE(0)), header = JSON.parse(bytes.subarray(8, 8 + size));
    const { dtype, shape, data_offsets: [from, to] } = header[name], data = bytes.subarray(8 + size + from, 8 + size + to), aligned = Uint8Array.from(data).buffer;
    return { shape, values: dtype === "F32" ? new Float32Array(aligned) : dtype === "I64" ? Array.from(new BigInt64Array(aligned), Number) : new Int32Array(aligned) };
}

let failures = 0;

function compare(name) {
    const folder = `${source}/tests/golden/${name}`, out = "converted", reference = `${folder}/reference.safetensors`;
    fs.rmSync(out, { recursive: true, force: true });
    execFileSync(ashlar, ["model", "convert", folder, out, "--dtype", "f32", "--gguf"], { stdio: ["ignore", "ignore", "pipe"] });
    const ids = tensor(reference, "input_ids"), wanted = tensor(reference, "logits"), length = ids.shape.at(-1), vocab = wanted.shape.at(-1);
    const hasExperts = /expert|moe/.test(fs.readFileSync(`${folder}/config.json`, "utf8")), apart = [], largest = wanted.values.reduce((a, b) => Math.max(a, Math.abs(b)), 0);
    for (let row = 0; row < ids.values.length / length; row++) {
        fs.writeFileSync("ids", Buffer.from(Int32Array.from(ids.values.slice(row * length, (row + 1) * length)).buffer));
        execFileSync(llamaLibrary, [libraries, "logits", `${out}/model.gguf`, "ids", "logits"], { stdio: ["ignore", "ignore", "pipe"] });
        const bytes = fs.readFileSync("logits"), theirs = new Float32Array(bytes.buffer, bytes.byteOffset, bytes.byteLength / 4);
        for (let i = 0; i < Math.min(length, SAME[name] ?? length); i++) {
            let worst = 0;
            for (let v = 0; v < vocab; v++) worst = Math.max(worst, Math.abs(theirs[i * vocab + v] - wanted.values[(row * length + i) * vocab + v]));
            apart.push(Number.isNaN(worst) ? Infinity : worst / largest);
        }
    }
    const far = apart.filter((x) => !(x <= NEAR)).length, near = Math.max(...apart.filter((x) => x <= NEAR));
    console.log(`${name}: ${apart.length - far} of ${apart.length} tokens' logits are within ${near.toExponential(1)} of the largest`);
    if (apart.length === 0 || far > (hasExperts ? TIES * apart.length : 0)) throw new Error(`${far} tokens' logits are further apart`);
}

for (const name of chosen.length > 0 ? chosen : MODELS)
    try {
        compare(name);
    } catch (error) {
        console.log(`FAIL: ${name}: ${String(error.stderr ?? error.message).split("\n").filter((line) => /error|FAIL|apart|ASSERT/.test(line)).slice(0, 3).join("; ") || error.message}`);
        failures++;
    }
process.exit(failures > 0 ? 1 : 0);
