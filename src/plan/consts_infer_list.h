/* X(name, value, meaning, source): the calibrated numbers of serving. Part of consts_list.h. "inference set" is the
 * table of published measurements in tests/plan/inference.csv, over which these few were chosen together, rounded. */
X(infer_gemm_bf16, 0.70, "share of the bf16 peak that matrix products of a prefill reach",
  "inference set; 0.73 to 0.87 alone (matmul tables of the catalog)")
X(infer_gemm_fp8, 0.55, "the same of the fp8 and of the fp4 peak", "inference set")
X(infer_fp4_tflops_w, 3.2, "TFLOP/s that a watt of board power pays for in fp4",
  "inference set: 3240 on B200 at 1000 W; cards with a lower peak (RTX PRO 6000) do not meet it")
X(infer_weights, 0.85, "share of the memory bandwidth at which weights are read",
  "inference set; 0.69 to 0.92 for single sequences (gpt-fast, calm)")
X(infer_cache, 0.85, "share of the memory bandwidth at which a decoding pass reads keys and values", "inference set")
X(infer_attention, 0.60, "share of the peak, at the cache's precision, of attention in a prefill",
  "FlashAttention-3: 0.75 of bf16, 0.6 of fp8 on H100 (arXiv 2407.08608)")
X(infer_latent, 0.70, "share of the bf16 peak of latent attention while decoding", "FlashMLA: 660 TFLOP/s on H800")
X(infer_experts, 0.70, "speed of matrix products grouped by expert compared with one plain product", "inference set")
X(infer_expert_pad, 80, "rows by which an expert's rows are filled up at most", "inference set; tiles have 64 or 128")
X(infer_expert_pad_ratio, 10, "the same at most, as a multiple of the rows",
  "inference set: few rows take kernels without tiles")
X(infer_expert_bytes, 40,
  "bytes of memory traffic per routed token and element of its width (sorting, activation, sum)", "inference set")
X(infer_dequant, 0.50, "speed of expert products where 4-bit weights are widened first",
  "inference set: GPT-OSS on Hopper")
X(infer_act_bytes, 2,
  "bytes of memory traffic per token, layer and element of its width that kernels do not keep on chip", "inference set")
X(infer_layer_us, 50,
  "microseconds per layer that do not shrink with the work (tails of kernels, launches inside a graph)",
  "inference set, most of it inter-token latencies")
X(infer_sparse_us, 15, "the same more where the layer has experts", "inference set")
X(infer_launch_us, 80, "microseconds per layer below which a prefill cannot go: its kernels are launched one by one",
  "first-token latencies of the inference set")
X(infer_pass_us, 1200, "microseconds of the host between passes", "inference set")
X(infer_sequence_us, 1.0, "microseconds of the host per decoding sequence and pass", "inference set")
X(infer_reduce_us, 28,
  "microseconds of an all-reduce between GPUs, in addition to its bytes; three times that without NVLink",
  "inference set; 13.7 alone for 8 bytes on one H100 node")
X(infer_reduce, 0.65, "share of the link's bandwidth that collectives reach", "inference set")
X(infer_reserve, 0.90, "share of the memory that weights leave and that becomes cache",
  "default of the engines in the inference set")
X(infer_workspace_gb, 4, "GB of a GPU for buffers and graphs", "inference set")
X(infer_workspace_sparse_gb, 12, "the same for models with experts", "inference set")
X(infer_cache_min, 0.3, "share of the memory that weights leave and that caches get however tight it is",
  "engines shrink their buffers; assumption")
X(infer_logit_passes, 3, "times that logits go through memory as float32", "softmax, sampling")
X(infer_batch, 2048, "sequences that one engine decodes together at most",
  "default of the engines in the inference set")
X(infer_chunk, 8192, "prompt tokens of one pass", "default of the engines in the inference set")
X(infer_host_gb_s, 25, "GB/s between GPUs without NVLink where the catalog does not say", "PCIe 4 x16, usable share")
