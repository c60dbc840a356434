"""grpo_step.py FOLDER PROMPTS SAMPLES STEPS THREADS: steps of GRPO in plain PyTorch on sums of up to two digits: the peer of `ashlar rl`.

FOLDER is a Llama with the arithmetic tokenizer. Written for speed on few cores: a prompt is computed once for all its samples, answers are
sampled in one batch with a cache, old log-probabilities are those of the one forward pass. Prints the median seconds of a step.
"""
import json
import random
import statistics
import struct
import sys
import time

import torch
import torch.nn.functional as F

folder, prompts, samples, steps, threads = sys.argv[1], *map(int, sys.argv[2:6])
SYMBOLS = "0123456789+-*="
PAD, END, ANSWER_TOKENS, HIDDEN = 0, 1, 5, -1e9
DTYPES = {"F32": torch.float32, "BF16": torch.bfloat16}


def read_weights(path):
    with open(path, "rb") as file:
        (size,) = struct.unpack("<Q", file.read(8))
        header, rest = json.loads(file.read(size)), file.read()
    weights = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        first, end = entry["data_offsets"]
        values = torch.frombuffer(bytearray(rest[first:end]), dtype=DTYPES[entry["dtype"]])
        weights[name] = values.float().reshape(entry["shape"]).requires_grad_()
    return weights


class Policy:
    def __init__(self):
        self.config = json.load(open(folder + "/config.json"))
        self.weights = read_weights(folder + "/model.safetensors")
        self.heads = self.config["num_attention_heads"]
        self.dim = self.config.get("head_dim") or self.config["hidden_size"] // self.heads
        theta = self.config.get("rope_theta") or self.config["rope_parameters"]["rope_theta"]
        angles = torch.arange(64.0)[:, None] * theta ** (-torch.arange(0, self.dim, 2) / self.dim)[None]
        self.cos, self.sin = (torch.cat((f(angles), f(angles)), -1) for f in (torch.cos, torch.sin))

    def norm(self, x, name):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.config["rms_norm_eps"]) * self.weights[name]

    def turn(self, x, places):
        half = self.dim // 2
        return x * self.cos[places][:, None] + torch.cat((-x[..., half:], x[..., :half]), -1) * self.sin[places][:, None]

    def logits(self, ids, places, mask, cache=None):
        weights, (batch, tokens) = self.weights, ids.shape
        x = F.embedding(ids, weights["model.embed_tokens.weight"])
        for layer in range(self.config["num_hidden_layers"]):
            at = "model.layers.%d." % layer
            h = self.norm(x, at + "input_layernorm.weight")
            q, k, v = (F.linear(h, weights[at + "self_attn.%s_proj.weight" % n]).view(batch, tokens, -1, self.dim).transpose(1, 2)
                       for n in "qkv")
            q, k = self.turn(q, places), self.turn(k, places)
            if cache is not None:
                if cache[layer] is not None:
                    k, v = torch.cat((cache[layer][0], k), 2), torch.cat((cache[layer][1], v), 2)
                cache[layer] = (k, v)
            out = ((q @ k.transpose(2, 3)) * self.dim ** -0.5 + mask).softmax(-1) @ v
            x = x + F.linear(out.transpose(1, 2).reshape(batch, tokens, -1), weights[at + "self_attn.o_proj.weight"])
            h = self.norm(x, at + "post_attention_layernorm.weight")
            gate, up = (F.linear(h, weights[at + "mlp.%s_proj.weight" % n]) for n in ("gate", "up"))
            x = x + F.linear(F.silu(gate) * up, weights[at + "mlp.down_proj.weight"])
        head = "model.embed_tokens.weight" if self.config.get("tie_word_embeddings") else "lm_head.weight"
        return F.linear(self.norm(x, "model.norm.weight"), weights[head])


def draw_number():
    return random.randrange(10) if random.random() < 0.5 else random.randrange(10, 100)


def draw_problems():
    problems = []
    for _ in range(prompts):
        a, b, op = draw_number(), draw_number(), random.choice("+-")
        problems.append(("%d%s%d=" % (a, op, b), str(a + b if op == "+" else a - b)))
    return problems


def pad_left(texts):
    width = max(map(len, texts))
    ids, places = torch.zeros(len(texts), width, dtype=torch.long), torch.zeros(len(texts), width, dtype=torch.long)
    for row, text in enumerate(texts):
        ids[row, width - len(text):] = torch.tensor([2 + SYMBOLS.index(c) for c in text])
        places[row, width - len(text):] = torch.arange(len(text))
    return ids, places


@torch.no_grad()
def sample(policy, ids, places):
    width = ids.shape[1]
    keys = torch.where(ids != PAD, 0.0, HIDDEN)[:, None, None]
    cache = [None] * policy.config["num_hidden_layers"]
    logits = policy.logits(ids, places, keys + torch.full((width, width), HIDDEN).triu(1), cache)[:, -1]
    logits, keys, place = (x.repeat_interleave(samples, 0) for x in (logits, keys, places[:, -1]))
    cache = [tuple(x.repeat_interleave(samples, 0) for x in pair) for pair in cache]
    over, answers = torch.zeros(len(place), dtype=torch.bool), []
    for _ in range(ANSWER_TOKENS):
        token = torch.multinomial(logits.softmax(-1), 1)[:, 0].masked_fill(over, PAD)
        answers.append(token)
        over = over | (token == END)
        if len(answers) == ANSWER_TOKENS or bool(over.all()):
            break
        place, keys = place + 1, F.pad(keys, (0, 1))
        logits = policy.logits(token[:, None], place[:, None], keys, cache)[:, 0]
    return torch.stack(answers, 1)


def text_of(row):
    text = "".join(SYMBOLS[t - 2] if t > 1 else "." for t in row)
    return text.split(".")[0] if "." in text else None


def step(policy, optimizer):
    problems = draw_problems()
    ids, places = pad_left([prompt for prompt, _ in problems])
    answers = sample(policy, ids, places)
    rewards = torch.tensor([float(text_of(row) == problems[i // samples][1]) for i, row in enumerate(answers.tolist())])
    gains = (rewards.view(prompts, samples) - rewards.view(prompts, samples).mean(1, keepdim=True)).view(-1, 1)
    ids, places = ids.repeat_interleave(samples, 0), places.repeat_interleave(samples, 0)
    whole, width = torch.cat((ids, answers), 1), ids.shape[1]
    places = torch.cat((places, places[:, -1:] + 1 + torch.arange(answers.shape[1])), 1)
    ends = (answers == END).cumsum(1)
    learned = (ends - (answers == END).long() == 0).float()
    mask = torch.where(torch.cat((ids != PAD, learned > 0), 1), 0.0, HIDDEN)[:, None, None]
    mask = mask + torch.full((whole.shape[1], whole.shape[1]), HIDDEN).triu(1)
    logps = policy.logits(whole, places, mask)[:, width - 1:-1].log_softmax(-1).gather(2, answers[..., None])[..., 0]
    ratios = (logps - logps.detach()).exp()
    optimizer.zero_grad(set_to_none=True)
    (-(ratios * gains * learned).sum() / (len(answers) * ANSWER_TOKENS)).backward()
    torch.nn.utils.clip_grad_norm_(list(policy.weights.values()), 1.0)
    optimizer.step()


def main():
    torch.manual_seed(1)
    random.seed(1)
    torch.set_num_threads(threads)
    policy = Policy()
    optimizer = torch.optim.AdamW(list(policy.weights.values()), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.0)
    seconds = []
    for _ in range(steps + 2):
        start = time.perf_counter()
        step(policy, optimizer)
        seconds.append(time.perf_counter() - start)
    print("%.6f" % statistics.median(seconds[2:]))


main()
