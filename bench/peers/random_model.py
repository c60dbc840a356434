"""random_model.py DIR: a Hugging Face folder of a Llama of 8 billion random bf16 weights. What weights say does not matter to speed."""
import json
import os
import struct
import sys

import torch

LAYERS, HIDDEN, KV, FFN, VOCAB = 32, 4096, 1024, 14336, 128256


def shapes():
    yield "model.embed_tokens.weight", (VOCAB, HIDDEN)
    for layer in range(LAYERS):
        start = "model.layers.%d." % layer
        for name in ("input_layernorm", "post_attention_layernorm"):
            yield start + name + ".weight", (HIDDEN,)
        for name, rows in (("q", HIDDEN), ("k", KV), ("v", KV), ("o", HIDDEN)):
            yield start + "self_attn.%s_proj.weight" % name, (rows, HIDDEN)
        for name in ("gate", "up"):
            yield start + "mlp.%s_proj.weight" % name, (FFN, HIDDEN)
        yield start + "mlp.down_proj.weight", (HIDDEN, FFN)
    yield "model.norm.weight", (HIDDEN,)
    yield "lm_head.weight", (VOCAB, HIDDEN)


def main(folder):
    header, at = {}, 0
    for name, shape in shapes():
        size = 2 * shape[0] * (shape[1] if len(shape) > 1 else 1)
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    os.makedirs(folder, exist_ok=True)
    config = dict(model_type="llama", architectures=["LlamaForCausalLM"], vocab_size=VOCAB, hidden_size=HIDDEN, num_hidden_layers=LAYERS,
                  num_attention_heads=32, num_key_value_heads=8, intermediate_size=FFN, max_position_embeddings=16384, rms_norm_eps=1e-5,
                  rope_theta=500000.0, hidden_act="silu", tie_word_embeddings=False, torch_dtype="bfloat16")
    with open(folder + "/config.json", "w") as file:
        json.dump(config, file)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    torch.manual_seed(1)
    with open(folder + "/model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name, shape in shapes():
            weight = torch.ones(shape) if len(shape) == 1 else torch.randn(shape, device="cuda") * 0.02
            file.write(weight.to(torch.bfloat16).cpu().view(torch.uint8).numpy().tobytes())


main(sys.argv[1])
