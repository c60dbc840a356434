#!/usr/bin/env python3
"""make.py BASE OUT SEED [eagle3]: a folder with a head for drafts (multi-token prediction), and what the head gives.

Plain Python in double precision, from the definition (DeepSeek-V3 report, section 2.2; tensors as in the published
folders of DeepSeek-V3 and GLM-4.5). BASE is a golden folder, whose logits by the transformers library the model below
must give before anything is written. The head is drawn; its layer is near the identity, so that drafts sometimes hold.

OUT gets config.json, model.safetensors, and reference.safetensors:
  input_ids [1, T]
  head.logits [T - 1, V]  row i: the state of token i and token i + 1; logits of token i + 2
  chain.ids [1, 5], chain.logits [5, V]  from tokens 0..19 on: greedy drafts, each from the head's own state

With eagle3 the folder has a head of EAGLE-3 alone (tensors as SafeAILab's folders have them), which reads the streams
before three layers of BASE and has two outputs for every three tokens; logits are those of its outputs, and chain.ids the
tokens of the best ones.
"""
import json
import math
import os
import random
import struct
import sys

CHAIN_FROM, CHAIN = 20, 5


def load(path):
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        data = file.read()
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        kind = {"F32": "f", "I32": "i"}[entry["dtype"]]
        tensors[name] = (entry["shape"], list(struct.unpack("<%d%s" % ((end - begin) // 4, kind), data[begin:end])))
    return tensors


def save(path, tensors):
    header, data = {}, b""
    for name, (shape, values) in tensors.items():
        kind = {"d2t": "q", "t2d": "?"}.get(name, "i" if all(isinstance(v, int) for v in values) else "f")
        blob = struct.pack("<%d%s" % (len(values), kind), *values)
        header[name] = {"dtype": {"q": "I64", "?": "BOOL", "i": "I32", "f": "F32"}[kind], "shape": shape,
                        "data_offsets": [len(data), len(data) + len(blob)]}
        data += blob
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def single(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


def dot(a, b):
    return math.fsum(x * y for x, y in zip(a, b))


def add(a, b):
    return [x + y for x, y in zip(a, b)]


def silu(x):
    return x / (1 + math.exp(-x))


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


def softmax(scores):
    top = max(scores)
    weights = [math.exp(s - top) for s in scores]
    total = math.fsum(weights)
    return [w / total for w in weights]


class Model:
    def __init__(self, config, tensors):
        self.c, self.t = config, tensors

    def vector(self, name):
        return self.t[name][1]

    def mul(self, name, x):
        (rows, cols), values = self.t[name]
        assert cols == len(x), (name, cols, len(x))
        y = [dot(values[r * cols:(r + 1) * cols], x) for r in range(rows)]
        bias = name.replace(".weight", ".bias")
        return add(y, self.vector(bias)) if bias in self.t else y

    def norm(self, name, x):
        scale = 1 / math.sqrt(math.fsum(v * v for v in x) / len(x) + self.c["rms_norm_eps"])
        return [v * scale * w for v, w in zip(x, self.vector(name))]

    def embed(self, token):
        hidden = self.c["hidden_size"]
        return self.vector("model.embed_tokens.weight")[token * hidden:(token + 1) * hidden]

    def rotate(self, x, position, pairs_are_neighbours):
        half, out = len(x) // 2, list(x)
        for i in range(half):
            angle = position / self.c["rope_parameters"]["rope_theta"] ** (2 * i / len(x))
            a, b = (2 * i, 2 * i + 1) if pairs_are_neighbours else (i, i + half)
            out[a] = x[a] * math.cos(angle) - x[b] * math.sin(angle)
            out[b] = x[b] * math.cos(angle) + x[a] * math.sin(angle)
        return out

    def latent(self, p, x, position):
        c, heads = self.c, self.c["num_attention_heads"]
        nope, rope, value = c["qk_nope_head_dim"], c["qk_rope_head_dim"], c["v_head_dim"]
        q = self.mul(p + "q_b_proj.weight", self.norm(p + "q_a_layernorm.weight", self.mul(p + "q_a_proj.weight", x)))
        low = self.mul(p + "kv_a_proj_with_mqa.weight", x)
        shared = self.rotate(low[c["kv_lora_rank"]:], position, True)
        up = self.mul(p + "kv_b_proj.weight", self.norm(p + "kv_a_layernorm.weight", low[:c["kv_lora_rank"]]))
        queries, keys, values = [], [], []
        for h in range(heads):
            part = q[h * (nope + rope):(h + 1) * (nope + rope)]
            queries.append(part[:nope] + self.rotate(part[nope:], position, True))
            keys.append(up[h * (nope + value):h * (nope + value) + nope] + shared)
            values.append(up[h * (nope + value) + nope:(h + 1) * (nope + value)])
        return queries, keys, values

    def grouped(self, p, x, position):
        c, dim = self.c, self.c["head_dim"]
        turned = int(dim * c["partial_rotary_factor"])

        def split(name, rotates):
            flat = self.mul(p + name, x)
            parts = [flat[i:i + dim] for i in range(0, len(flat), dim)]
            return [self.rotate(part[:turned], position, False) + part[turned:] if rotates else part for part in parts]

        repeat = c["num_attention_heads"] // c["num_key_value_heads"]
        keys, values = split("k_proj.weight", True), split("v_proj.weight", False)
        return (split("q_proj.weight", True), [keys[h // repeat] for h in range(c["num_attention_heads"])],
                [values[h // repeat] for h in range(c["num_attention_heads"])])

    def attend(self, p, x, position, cache):
        queries, keys, values = (self.latent if "kv_lora_rank" in self.c else self.grouped)(p, x, position)
        cache.append((keys, values))
        out = []
        for h, query in enumerate(queries):
            weights = softmax([dot(query, row[0][h]) / math.sqrt(len(query)) for row in cache])
            out += [math.fsum(w * row[1][h][i] for w, row in zip(weights, cache)) for i in range(len(values[h]))]
        return self.mul(p + "o_proj.weight", out)

    def gated(self, p, x):
        gate, up = self.mul(p + "gate_proj.weight", x), self.mul(p + "up_proj.weight", x)
        return self.mul(p + "down_proj.weight", [silu(g) * u for g, u in zip(gate, up)])

    def experts(self, p, x):
        c = self.c
        scores = [sigmoid(s) for s in self.mul(p + "gate.weight", x)]
        chosen = add(scores, self.vector(p + "gate.e_score_correction_bias"))
        size = len(scores) // c["n_group"]
        groups = sorted(range(c["n_group"]), key=lambda g: -sum(sorted(chosen[g * size:(g + 1) * size])[-2:]))
        open_groups = groups[:c["topk_group"]]
        order = sorted((e for e in range(len(scores)) if e // size in open_groups), key=lambda e: -chosen[e])
        order = order[:c["num_experts_per_tok"]]
        total = sum(scores[e] for e in order) + 1e-20 if c["norm_topk_prob"] else 1
        out = self.gated(p + "shared_experts.", x)
        for e in order:
            factor = scores[e] / total * c["routed_scaling_factor"]
            out = add(out, [factor * v for v in self.gated("%sexperts.%d." % (p, e), x)])
        return out

    def layer(self, number, x, position, cache):
        p = "model.layers.%d." % number
        x = add(x, self.attend(p + "self_attn.", self.norm(p + "input_layernorm.weight", x), position, cache))
        y = self.norm(p + "post_attention_layernorm.weight", x)
        sparse = number >= self.c["first_k_dense_replace"]
        return add(x, self.experts(p + "mlp.", y) if sparse else self.gated(p + "mlp.", y))

    def states(self, tokens):
        """After the last layer and the final norm. self.streams: before each layer."""
        count = self.c["num_hidden_layers"]
        caches, out = [[] for _ in range(count)], []
        self.streams = []
        for position, token in enumerate(tokens):
            x, before = self.embed(token), []
            for number in range(count):
                before.append(x)
                x = self.layer(number, x, position, caches[number])
            self.streams.append(before)
            out.append(self.norm("model.norm.weight", x))
        return out

    def head(self, state, token, position, cache):
        """The head's state and logits: of the token after `token`, whose predecessor has `state`."""
        number = self.c["num_hidden_layers"]
        p = "model.layers.%d." % number
        both = self.norm(p + "enorm.weight", self.embed(token)) + self.norm(p + "hnorm.weight", state)
        x = self.layer(number, self.mul(p + "eh_proj.weight", both), position, cache)
        own = self.norm(p + "shared_head.norm.weight", x)
        return own, self.logits(own)

    def token(self, output):
        return output

    def logits(self, state):
        return self.mul("lm_head.weight", state)


class Eagle(Model):
    """Its tensors have no number, and its embedding is its model's."""

    def fuse(self, streams):
        return self.mul("fc.weight", sum(streams, []))

    def head(self, state, token, position, cache):
        p = "midlayer."
        both = self.norm(p + "input_layernorm.weight", self.embed(token)) + self.norm(p + "hidden_norm.weight", state)
        x = add(state, self.attend(p + "self_attn.", both, position, cache))
        x = add(x, self.gated(p + "mlp.", self.norm(p + "post_attention_layernorm.weight", x)))
        return x, self.logits(self.norm("norm.weight", x))

    def token(self, output):
        return output + self.vector("d2t")[output]


EAGLE = {"architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama", "hidden_act": "silu", "rms_norm_eps": 1e-5,
         "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 12,
         "intermediate_size": 80, "max_position_embeddings": 128, "tie_word_embeddings": False, "bos_token_id": 1,
         "eos_token_id": 2, "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"}, "torch_dtype": "float32",
         "eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 2, 0], "use_aux_hidden_state": True}}


def draw_eagle(base, tensors, seed):
    rng, hidden, vocab = random.Random(seed), base["hidden_size"], base["vocab_size"]
    config = dict(EAGLE, hidden_size=hidden, vocab_size=vocab, draft_vocab_size=vocab * 2 // 3)
    kept = [t for t in range(vocab) if t % 3 != 2][:config["draft_vocab_size"]]
    heads, groups, dim, ffn = (config[key] for key in
                               ("num_attention_heads", "num_key_value_heads", "head_dim", "intermediate_size"))
    head = {"d2t": ([len(kept)], [t - i for i, t in enumerate(kept)]),
            "t2d": ([vocab], [t in kept for t in range(vocab)])}
    for name, shape, spread in (("fc", [hidden, 3 * hidden], 0.02), ("midlayer.self_attn.q_proj", [heads * dim, 2 * hidden], 0.1),
                                ("midlayer.self_attn.k_proj", [groups * dim, 2 * hidden], 0.1),
                                ("midlayer.self_attn.v_proj", [groups * dim, 2 * hidden], 0.05),
                                ("midlayer.self_attn.o_proj", [hidden, heads * dim], 0.05),
                                ("midlayer.mlp.gate_proj", [ffn, hidden], 0.1), ("midlayer.mlp.up_proj", [ffn, hidden], 0.1),
                                ("midlayer.mlp.down_proj", [hidden, ffn], 0.02)):
        head[name + ".weight"] = (shape, [single(rng.gauss(0, spread)) for _ in range(shape[0] * shape[1])])
    for i in range(hidden):  # the stream before the second of the three layers, nearly
        head["fc.weight"][1][i * 3 * hidden + hidden + i] = 1.0
    for name in ("midlayer.input_layernorm", "midlayer.hidden_norm", "midlayer.post_attention_layernorm", "norm"):
        head[name + ".weight"] = ([hidden], [single(1 + rng.gauss(0, 0.05)) for _ in range(hidden)])
    output = tensors["lm_head.weight"][1]
    head["lm_head.weight"] = ([len(kept), hidden], sum((output[t * hidden:(t + 1) * hidden] for t in kept), []))
    shared = dict(head, **{"model.embed_tokens.weight": tensors["model.embed_tokens.weight"]})
    return Eagle(dict(config, partial_rotary_factor=1), shared), config, head


def draw_head(config, tensors, seed):
    rng, number, hidden = random.Random(seed), config["num_hidden_layers"], config["hidden_size"]
    last, own = "model.layers.%d." % (number - 1), "model.layers.%d." % number
    more = {}

    def near(center, spread, count):
        return [single(center + rng.gauss(0, spread)) for _ in range(count)]

    for name, (shape, values) in tensors.items():
        if not name.startswith(last):
            continue
        spread = math.sqrt(sum(v * v for v in values) / len(values))
        is_norm = name.endswith("norm.weight")
        scale = 0.3 if name.endswith(("o_proj.weight", "down_proj.weight")) else 1
        more[own + name[len(last):]] = (shape, near(1, 0.1, len(values)) if is_norm else
                                        near(0, scale * spread, len(values)))
    for name in ("enorm", "hnorm", "shared_head.norm"):
        more["%s%s.weight" % (own, name)] = ([hidden], near(1, 0.05, hidden))
    fuse = near(0, 0.02, 2 * hidden * hidden)
    for i in range(hidden):
        fuse[i * 2 * hidden + i] = single(fuse[i * 2 * hidden + i] + 1)
    more[own + "eh_proj.weight"] = ([hidden, 2 * hidden], fuse)
    more[own + "embed_tokens.weight"] = tensors["model.embed_tokens.weight"]
    more[own + "shared_head.head.weight"] = tensors["lm_head.weight"]
    return more


def chain(model, tokens, states):
    """Drafts: rows of the text with the model's states, then rows of drafts with the head's own."""
    cache, ids, rows = [], [], []
    for i in range(CHAIN_FROM - 1):
        state, logits = model.head(states[i], tokens[i + 1], i, cache)
    for i in range(CHAIN):
        rows.append(logits)
        ids.append(model.token(logits.index(max(logits))))
        state, logits = model.head(state, ids[-1], CHAIN_FROM - 1 + i, cache)
    return ids, rows


def main():
    base, out, seed = sys.argv[1], sys.argv[2], int(sys.argv[3])
    config = json.load(open(os.path.join(base, "config.json")))
    tensors, reference = load(os.path.join(base, "model.safetensors")), load(os.path.join(base, "reference.safetensors"))
    (_, length), ids = reference["input_ids"]
    tokens = ids[:length]
    model = Model(config, tensors)
    states = model.states(tokens)
    vocab = config["vocab_size"]
    worst = max(abs(a - b) for i, state in enumerate(states)
                for a, b in zip(model.logits(state), reference["logits"][1][i * vocab:(i + 1) * vocab]))
    print("%s: largest difference from the transformers library's logits: %.2e" % (base, worst))
    if worst > 1e-4:
        sys.exit("this is not the model of the reference")
    os.makedirs(out, exist_ok=True)
    if "eagle3" in sys.argv[4:]:
        layers = EAGLE["eagle_config"]["eagle_aux_hidden_state_layer_ids"]
        streams = [[before[i] for i in layers] for before in model.streams]
        model, config, tensors = draw_eagle(config, tensors, seed)
        states = [model.fuse(three) for three in streams]
    else:
        tensors.update(draw_head(config, tensors, seed))
        config["num_nextn_predict_layers"] = 1
    cache, rows = [], []
    for i in range(length - 1):
        rows += model.head(states[i], tokens[i + 1], i, cache)[1]
    drafts, chained = chain(model, tokens, states)
    json.dump(config, open(os.path.join(out, "config.json"), "w"), indent=2)
    save(os.path.join(out, "model.safetensors"), tensors)
    save(os.path.join(out, "reference.safetensors"), {
        "input_ids": ([1, length], tokens), "head.logits": ([length - 1, len(rows) // (length - 1)], rows),
        "chain.ids": ([1, CHAIN], drafts), "chain.logits": ([CHAIN, len(chained[0])], sum(chained, []))})


main()
