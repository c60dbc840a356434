#!/usr/bin/env python3
"""What PyTorch takes for the products and attention of bench/gpu.c, on the same GPU: one line of JSON per measurement."""
import json
import statistics
import torch

PRODUCTS = [("162M qkv", 32768, 2304, 768), ("162M up", 32768, 3072, 768), ("162M down", 32768, 768, 3072),
            ("1.5B qkv", 16384, 6144, 2048), ("1.5B up", 16384, 16384, 2048), ("1.5B down", 16384, 2048, 8192),
            ("8B decode 1", 1, 4096, 4096), ("8B decode 64", 64, 4096, 4096), ("8B decode 256", 256, 28672, 4096),
            ("square", 4096, 4096, 4096)]
DOCUMENTS = [("162M", 32, 12, 1024), ("1.5B", 4, 16, 4096)]


def median_ms(run, warm_ups=3, rounds=9):
    times = []
    for i in range(warm_ups + rounds):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        run()
        end.record()
        end.synchronize()
        if i >= warm_ups:
            times.append(start.elapsed_time(end))
    return statistics.median(times)


def row(op, name, shape, ms, operations):
    print(json.dumps({"op": op, "name": name, "shape": shape, "ms": round(ms, 4),
                      "tflops": round(operations / ms / 1e9, 1), "peer": "torch " + torch.__version__}), flush=True)


def main():
    torch.backends.cuda.matmul.allow_tf32 = False
    for op, dtype in (("gemm_f32", torch.float32), ("gemm_bf16", torch.bfloat16)):
        for name, m, n, k in PRODUCTS:
            x, w = torch.randn(m, k, device="cuda", dtype=dtype), torch.randn(n, k, device="cuda", dtype=dtype)
            row(op, name, [m, n, k], median_ms(lambda: torch.nn.functional.linear(x, w)), 2.0 * m * n * k)
    for name, documents, heads, tokens in DOCUMENTS:
        q, k, v = (torch.randn(documents, heads, tokens, 64, device="cuda", requires_grad=True) for _ in range(3))
        attend = torch.nn.functional.scaled_dot_product_attention
        pairs = documents * heads * tokens * tokens * 64
        row("attn_forward_f32", name, [documents, heads, tokens],
            median_ms(lambda: attend(q, k, v, is_causal=True)), 2.0 * pairs)
        out = attend(q, k, v, is_causal=True)
        grad = torch.randn_like(out)
        row("attn_backward_f32", name, [documents, heads, tokens],
            median_ms(lambda: out.backward(grad, retain_graph=True)), 5.0 * pairs)


main()
