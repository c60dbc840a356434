"""torch_step.py SHAPE THREADS: training steps of PyTorch, in float32 with AdamW: the peer of train_step.c, same shapes and batch.

Prints one line about itself when it is ready; then, for each line on standard input, runs a step and prints its seconds. For the line
"bf16" the forward pass runs under autocast to bfloat16.
Plain modules as people write them; the library's own attention where this version has it.
"""
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH, TOKENS = 4, 256
SHAPES = {
    "gpt2-124m": dict(vocab=50257, hidden=768, layers=12, heads=12, kv_heads=12, ffn=3072, gpt2=True),
    "llama-300m": dict(vocab=32000, hidden=1024, layers=20, heads=16, kv_heads=8, ffn=2816, gpt2=False),
}


class RMSNorm(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * self.weight


def causal_attention(q, k, v):
    if hasattr(F, "scaled_dot_product_attention"):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)
    scores = (q @ k.transpose(-2, -1)) * q.shape[-1] ** -0.5
    hidden = torch.ones(q.shape[-2], q.shape[-2], dtype=torch.bool).triu(1)
    return scores.masked_fill(hidden, float("-inf")).softmax(-1) @ v


def rotate(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


class Block(nn.Module):
    def __init__(self, shape):
        super().__init__()
        hidden, self.gpt2 = shape["hidden"], shape["gpt2"]
        self.heads, self.kv_heads = shape["heads"], shape["kv_heads"]
        self.dim = hidden // self.heads
        norm = nn.LayerNorm if self.gpt2 else RMSNorm
        self.norm1, self.norm2 = norm(hidden), norm(hidden)
        self.qkv = nn.Linear(hidden, (self.heads + 2 * self.kv_heads) * self.dim, bias=self.gpt2)
        self.out = nn.Linear(hidden, hidden, bias=self.gpt2)
        self.up = nn.Linear(hidden, shape["ffn"] * (1 if self.gpt2 else 2), bias=self.gpt2)
        self.down = nn.Linear(shape["ffn"], hidden, bias=self.gpt2)

    def attention(self, x, table):
        batch, tokens, hidden = x.shape
        sizes = [n * self.dim for n in (self.heads, self.kv_heads, self.kv_heads)]
        q, k, v = (y.view(batch, tokens, -1, self.dim).transpose(1, 2) for y in self.qkv(x).split(sizes, -1))
        if table is not None:
            q, k = rotate(q, *table), rotate(k, *table)
        if self.kv_heads != self.heads:
            k, v = (y.repeat_interleave(self.heads // self.kv_heads, 1) for y in (k, v))
        return self.out(causal_attention(q, k, v).transpose(1, 2).reshape(batch, tokens, hidden))

    def feed_forward(self, x):
        if self.gpt2:
            return self.down(F.gelu(self.up(x)))
        gate, up = self.up(x).chunk(2, -1)
        return self.down(F.silu(gate) * up)

    def forward(self, x, table):
        x = x + self.attention(self.norm1(x), table)
        return x + self.feed_forward(self.norm2(x))


class Model(nn.Module):
    def __init__(self, shape):
        super().__init__()
        hidden, dim = shape["hidden"], shape["hidden"] // shape["heads"]
        self.embed = nn.Embedding(shape["vocab"], hidden)
        self.positions = nn.Embedding(1024, hidden) if shape["gpt2"] else None
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape["layers"]))
        self.norm = (nn.LayerNorm if shape["gpt2"] else RMSNorm)(hidden)
        self.head = nn.Linear(hidden, shape["vocab"], bias=False)
        if shape["gpt2"]:
            self.head.weight = self.embed.weight
        angles = torch.arange(TOKENS)[:, None] * 10000.0 ** (-torch.arange(0, dim, 2) / dim)[None]
        self.table = None if shape["gpt2"] else (angles.cos(), angles.sin())
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, 0, 0.02)

    def forward(self, ids, targets):
        x = self.embed(ids)
        if self.positions is not None:
            x = x + self.positions(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x, self.table)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1), targets.flatten())


def main():
    shape, threads = SHAPES[sys.argv[1]], int(sys.argv[2])
    torch.manual_seed(1)
    torch.set_num_threads(threads)
    model = Model(shape)
    optimizer = torch.optim.AdamW(model.parameters(), 3e-4)
    text = torch.randint(0, shape["vocab"], (BATCH, TOKENS + 1))
    count = sum(p.numel() for p in model.parameters())
    print("PyTorch %s fp32 (%.0fM, %d threads)" % (torch.__version__, count / 1e6, threads), flush=True)
    for line in sys.stdin:
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=line.strip() == "bf16"):
            loss = model(text[:, :-1], text[:, 1:].contiguous())
        loss.backward()
        optimizer.step()
        print("%.6f" % (time.perf_counter() - start), flush=True)


main()
