"""gpu_loss.py prepare DIR: a text, and a Llama folder of 162 million weights (GPT-2's small shape, an output matrix of its own).
gpu_loss.py train DIR STEPS: PyTorch trains that folder on DIR/data/train, the token shard that `ashlar data tokenize` made of the
text, in the order that `ashlar train` reads it (train.seed 1), and prints the mean loss of the last hundred steps.

AdamW as in the settings that scripts/gpu_check.sh gives both: a constant rate, no decay, no clipping; bf16 under autocast.
"""
import json
import os
import random
import struct
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

LAYERS, HIDDEN, HEADS, FFN, VOCAB, TOKENS, BATCH = 12, 768, 12, 2048, 50304, 1024, 8
MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15


# ---- the order of windows: ash_rng_permute
def mix(x):
    x ^= x >> 30
    x = x * 0xBF58476D1CE4E5B9 & MASK
    x ^= x >> 27
    x = x * 0x94D049BB133111EB & MASK
    return x ^ x >> 31


def permute(seed, stream, index, count):
    key = mix(mix(seed + GOLDEN & MASK) ^ (stream * 0xD1342543DE82EF95 + 2 & MASK))
    key = mix(key ^ mix(count + GOLDEN * (key | 1) & MASK))
    half = 1
    while half < 32 and 1 << 2 * half < count:
        half += 1
    low = (1 << half) - 1
    while True:
        left, right = index >> half, index & low
        for turn in range(8):
            left, right = right, left ^ (mix(key + turn * GOLDEN + (right << 3 | turn) & MASK) & low)
        index = left << half | right
        if index < count:
            return index


# ---- files
def read_tensors(path):
    with open(path, "rb") as file:
        size = struct.unpack("<Q", file.read(8))[0]
        header, data = json.loads(file.read(size)), bytearray(file.read())
    return header, memoryview(data)


def write_tensors(path, tensors):
    header, at = {}, 0
    for name, tensor in tensors.items():
        size = tensor.numel() * 4
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for tensor in tensors.values():
            file.write(tensor.contiguous().numpy().tobytes())


def names():
    yield "model.embed_tokens.weight", (VOCAB, HIDDEN)
    for layer in range(LAYERS):
        start = "model.layers.%d." % layer
        yield start + "input_layernorm.weight", (HIDDEN,)
        for which in "qkvo":
            yield start + "self_attn.%s_proj.weight" % which, (HIDDEN, HIDDEN)
        yield start + "post_attention_layernorm.weight", (HIDDEN,)
        yield start + "mlp.gate_proj.weight", (FFN, HIDDEN)
        yield start + "mlp.up_proj.weight", (FFN, HIDDEN)
        yield start + "mlp.down_proj.weight", (HIDDEN, FFN)
    yield "model.norm.weight", (HIDDEN,)
    yield "lm_head.weight", (VOCAB, HIDDEN)


def prepare(folder):
    words = random.Random(1)
    vocabulary = ["".join(words.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(words.randint(1, 7))) for _ in range(800)]
    follow = [[words.randrange(800) for _ in range(6)] for _ in range(800)]
    text, at = [], 0
    for _ in range(900000):  # a chain of words: most of the next one is known, and not all
        at = words.choice(follow[at]) if words.random() < 0.9 else words.randrange(800)
        text.append(vocabulary[at])
    os.makedirs(folder + "/model", exist_ok=True)
    with open(folder + "/text.txt", "w") as file:
        file.write(" ".join(text))
    config = dict(model_type="llama", architectures=["LlamaForCausalLM"], vocab_size=VOCAB, hidden_size=HIDDEN, num_hidden_layers=LAYERS,
                  num_attention_heads=HEADS, num_key_value_heads=HEADS, intermediate_size=FFN, max_position_embeddings=TOKENS,
                  rms_norm_eps=1e-5, rope_theta=10000.0, hidden_act="silu", tie_word_embeddings=False)
    with open(folder + "/model/config.json", "w") as file:
        json.dump(config, file)
    torch.manual_seed(1)
    write_tensors(folder + "/model/model.safetensors",
                  {name: torch.ones(shape) if len(shape) == 1 else torch.randn(shape) * 0.02 for name, shape in names()})


# ---- the model
def rotate(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


class Model(nn.Module):
    def __init__(self, weights):
        super().__init__()
        self.weights = nn.ParameterDict({name.replace(".", "/"): nn.Parameter(value) for name, value in weights.items()})
        angles = torch.arange(TOKENS)[:, None] * 10000.0 ** (-torch.arange(0, HIDDEN // HEADS, 2) / (HIDDEN // HEADS))[None]
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def of(self, name):
        return self.weights[name.replace(".", "/")]

    def layer(self, x, start):
        batch, tokens, hidden = x.shape
        normed = F.rms_norm(x, (hidden,), self.of(start + "input_layernorm.weight"), 1e-5)
        q, k, v = (F.linear(normed, self.of(start + "self_attn.%s_proj.weight" % w)).view(batch, tokens, HEADS, -1).transpose(1, 2)
                   for w in "qkv")
        cos, sin = self.cos.to(q.dtype), self.sin.to(q.dtype)
        y = F.scaled_dot_product_attention(rotate(q, cos, sin), rotate(k, cos, sin), v, is_causal=True)
        x = x + F.linear(y.transpose(1, 2).reshape(batch, tokens, hidden), self.of(start + "self_attn.o_proj.weight"))
        normed = F.rms_norm(x, (hidden,), self.of(start + "post_attention_layernorm.weight"), 1e-5)
        gate, up = (F.linear(normed, self.of(start + "mlp.%s_proj.weight" % w)) for w in ("gate", "up"))
        return x + F.linear(F.silu(gate) * up, self.of(start + "mlp.down_proj.weight"))

    def forward(self, ids, targets):
        x = F.embedding(ids, self.of("model.embed_tokens.weight"))
        for layer in range(LAYERS):
            x = self.layer(x, "model.layers.%d." % layer)
        logits = F.linear(F.rms_norm(x, (HIDDEN,), self.of("model.norm.weight"), 1e-5), self.of("lm_head.weight"))
        return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten())


def train(folder, steps):
    torch.set_float32_matmul_precision("high")
    header, data = read_tensors(folder + "/model/model.safetensors")
    weights = {}
    for name, shape in names():
        begin, end = header[name]["data_offsets"]
        weights[name] = torch.frombuffer(data[begin:end], dtype=torch.float32).reshape(shape).cuda()
    model = Model(weights).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.0, fused=True)
    shard = next(name for name in sorted(os.listdir(folder + "/data/train")) if name.startswith("shard-"))
    header, data = read_tensors(folder + "/data/train/" + shard)
    begin, end = header["tokens"]["data_offsets"]
    dtype = torch.uint16 if header["tokens"]["dtype"] == "U16" else torch.int32
    tokens = torch.frombuffer(data[begin:end], dtype=dtype).to(torch.int64).cuda()
    windows = len(tokens) // TOKENS
    run, losses = torch.compile(model), []
    for step in range(steps):
        places = []
        for slot in range(BATCH):
            number = step * BATCH + slot
            places.append(permute(1, number // windows, number % windows, windows) * TOKENS)
        ids = torch.stack([tokens[at:at + TOKENS] for at in places])
        targets = torch.stack([F.pad(tokens[at + 1:at + TOKENS + 1], (0, max(0, at + TOKENS + 1 - len(tokens))), value=-100)
                               for at in places])
        with torch.autocast("cuda", torch.bfloat16):
            loss = run(ids, targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step >= steps - 100:
            losses.append(float(loss))
    print(json.dumps({"op": "train_loss", "steps": steps, "loss": sum(losses) / len(losses), "peak_gb": torch.cuda.max_memory_allocated() / 1e9}))


if __name__ == "__main__":
    if sys.argv[1] == "prepare":
        prepare(sys.argv[2])
    else:
        train(sys.argv[2], int(sys.argv[3]))
