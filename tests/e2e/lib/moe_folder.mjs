// moe_folder.mjs: a folder of a tiny model with experts (qwen3_moe) of drawn weights, with the tokenizer of another folder of 512 ids.
import fs from "node:fs";

const hidden = 64, heads = 8, kvHeads = 4, headDim = 8, layers = 5, experts = 6, inner = 24, vocab = 512;

// A tensor of drawn values, of either sign, around `middle`.
function draw(dims, spread, middle, next) {
    return { dims, values: Float32Array.from({ length: dims.reduce((a, b) => a * b) }, () => middle + spread * (2 * next() - 1)) };
}
function tensors(next) {
    const made = { "model.embed_tokens.weight": draw([vocab, hidden], 1, 0, next), "model.norm.weight": draw([hidden], 0.2, 1, next), "lm_head.weight": draw([vocab, hidden], 0.5, 0, next) };
    for (let layer = 0; layer < layers; layer++) {
        const at = `model.layers.${layer}.`, put = (name, dims, spread, middle = 0) => { made[`${at}${name}.weight`] = draw(dims, spread, middle, next); };
        for (const norm of ["input_layernorm", "post_attention_layernorm"]) put(norm, [hidden], 0.2, 1);
        for (const norm of ["q_norm", "k_norm"]) put(`self_attn.${norm}`, [headDim], 0.2, 1);
        put("self_attn.q_proj", [heads * headDim, hidden], 0.3);
        for (const part of ["k", "v"]) put(`self_attn.${part}_proj`, [kvHeads * headDim, hidden], 0.3);
        put("self_attn.o_proj", [hidden, heads * headDim], 0.3);
        put("mlp.gate", [experts, hidden], 0.5);
        for (let e = 0; e < experts; e++) {
            for (const part of ["gate", "up"]) put(`mlp.experts.${e}.${part}_proj`, [inner, hidden], 0.3);
            put(`mlp.experts.${e}.down_proj`, [hidden, inner], 0.3);
        }
    }
    return made;
}
// next: a number in [0, 1) each time.
export function writeMoe(folder, tokenizer, next) {
    const made = tensors(next), header = {}, pieces = [];
    let size = 0;
    for (const [name, { dims, values }] of Object.entries(made)) {
        header[name] = { dtype: "F32", shape: dims, data_offsets: [size, size += values.byteLength] };
        pieces.push(Buffer.from(values.buffer));
    }
    const text = Buffer.from(JSON.stringify(header)), pad = Buffer.alloc((8 - (text.length % 8)) % 8, " "), length = Buffer.alloc(8);
    length.writeBigUInt64LE(BigInt(text.length + pad.length));
    fs.mkdirSync(folder, { recursive: true });
    fs.writeFileSync(`${folder}/model.safetensors`, Buffer.concat([length, text, pad, ...pieces]));
    fs.copyFileSync(`${tokenizer}/tokenizer.json`, `${folder}/tokenizer.json`);
    fs.writeFileSync(`${folder}/config.json`, JSON.stringify({
        architectures: ["Qwen3MoeForCausalLM"], model_type: "qwen3_moe", bos_token_id: 1, eos_token_id: 2, hidden_size: hidden, head_dim: headDim, intermediate_size: inner,
        moe_intermediate_size: inner, num_hidden_layers: layers, num_attention_heads: heads, num_key_value_heads: kvHeads, num_experts: experts, num_experts_per_tok: 2,
        norm_topk_prob: true, decoder_sparse_step: 1, mlp_only_layers: [], vocab_size: vocab, max_position_embeddings: 512, rms_norm_eps: 1e-6, rope_theta: 10000,
        hidden_act: "silu", tie_word_embeddings: false, attention_bias: false, torch_dtype: "float32",
    }));
}
