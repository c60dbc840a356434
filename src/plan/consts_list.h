/* X(name, value, meaning, source): the calibrated numbers of the cost model, all doubles. Included several times. */
#include "plan/consts_infer_list.h"
#include "plan/consts_dispatch_list.h"
X(gemm_ampere, 0.79, "share of the bf16 peak that a large matrix product reaches in a step, Ampere",
  "catalog: 0.87 alone; calibrated on mosaic-llm-foundry")
X(gemm_hopper, 0.70, "the same, Hopper and Ada (board power lowers the clock)",
  "catalog: 0.80 alone; calibrated on mosaic-llm-foundry, dgxc-benchmarking")
X(gemm_blackwell, 0.64, "the same, Blackwell", "catalog: 0.78 alone; calibrated on megatron-bridge, dgxc-benchmarking")
X(gemm_ultra, 0.79, "the same, Blackwell Ultra (more board power)",
  "catalog: 0.79 alone; calibrated on megatron-bridge")
X(gemm_measured, 0.88, "share of the best measured matrix product that a step sustains, GPUs of other makes",
  "Hopper: 0.70 of the peak in steps, 0.80 alone")
X(gemm_fp8, 0.93, "share of the bf16 efficiency that remains at twice the rate in fp8",
  "catalog: 0.71 of the fp8 peak alone on H100; calibrated on dgxc-benchmarking")
X(gemm_fp4, 0.80, "the same at fp4's rate", "calibrated on megatron-bridge")
X(gemm_depth, 210, "inner length at which a product reaches half of its rate, bf16", "pipeline fill of a tile")
X(gemm_wave, 0.5, "how much of an unfilled last wave of tiles is lost (exponent)",
  "stream-K scheduling fills part of it")
X(attn_ampere, 0.58, "share of the bf16 peak of flash attention forward, Ampere", "FlashAttention-2 paper: 0.5 to 0.73")
X(attn_ampere_old, 0.42, "the same with first-generation kernels (Triton, biases)", "calibrated on mosaic-llm-foundry")
X(attn_hopper, 0.60, "the same on Hopper with kernels made for it", "FlashAttention-3 paper: 0.5 to 0.75")
X(attn_hopper_old, 0.22, "the same on Hopper with first-generation kernels",
  "FlashAttention-3 paper, FA2 on H100: 0.35; calibrated on mosaic-llm-foundry")
X(attn_blackwell, 0.45, "the same on Blackwell", "calibrated on megatron-bridge")
X(attn_backward, 0.75, "rate of the backward pass of attention relative to forward", "FlashAttention-2 and 3 papers")
X(scan_share, 0.045, "share of the bf16 peak that the scan of a state-space layer reaches, forward",
  "Triton kernels over chunks; calibrated on Nemotron-H, holds for Nemotron-3-Nano")
X(memory_share, 0.80, "share of HBM bandwidth that element-wise kernels reach", "STREAM-like kernels: 0.8 to 0.9")
X(elem_fused, 1.0, "traffic of element-wise ops compared with the minimum of passes, fused stacks",
  "calibrated on dgxc-benchmarking")
X(elem_eager, 1.5, "the same, one kernel per op", "calibrated on mosaic-llm-foundry")
X(host_layer_fused, 1.5e-4, "seconds that launching one layer's forward takes the host, fused stacks",
  "about 25 launches of 6 us")
X(host_layer_eager, 2.5e-4, "the same, one kernel per op", "calibrated on the smallest models of mosaic-llm-foundry")
X(host_layer_moe, 3.75e-3, "the same for the router, dispatch and products of single experts of a sparse layer",
  "calibrated on megatron-bridge before 26.06")
X(host_moe_tp, 0.73, "and that much more of it where tensor-parallel ranks must agree on every dispatch",
  "calibrated on aws-awsome-distributed-ai")
X(elem_moe, 2.8, "traffic of permutation, activation and combination of expert rows compared with six and three passes",
  "calibrated on megatron-bridge before 26.06")
X(elem_moe_fused, 0.34, "the same where permutation is part of dispatch and of the products: two of six passes",
  "calibrated on megatron-bridge from 26.06")
X(nvlink_share, 0.80, "share of NVLink's one-way rate that a gather reaches", "catalog: 361 of 450 GB/s on H200")
X(nvlink_latency, 1.5e-5, "seconds before the first byte of a collective inside a domain",
  "catalog: 13.7 us, 8 B on DGX-H100")
X(net_share, 0.78, "share of the network's one-way rate that a gather reaches", "catalog: 365 of 400 GB/s on p5en")
X(tp_exposed, 0.35, "share of tensor-parallel traffic that is not hidden where the stack overlaps it",
  "calibrated on dgxc-benchmarking")
X(dispatch_exposed, 0.75, "share of expert traffic that stays visible when overlapped", "calibrated on megatron-bridge")
X(interference, 0.20, "slow-down of compute while a collective overlaps with it", "calibrated on mosaic-llm-foundry")
X(moe_imbalance, 1.0, "rows of the fullest rank over the mean", "token routing without drops")
X(jitter, 0.004, "waiting for the slowest: share of the step per doubling of machines",
  "calibrated on dgxc-benchmarking")
X(step_overhead, 0.018, "seconds per step for input, clipping and bookkeeping", "calibrated on the shortest steps")
X(memory_usable, 0.94, "share of the GPU's memory that a plan may fill", "allocator fragmentation")
X(memory_buffers, 3.5e9, "bytes for CUDA context, NCCL and library workspaces", "typical of PyTorch jobs")
