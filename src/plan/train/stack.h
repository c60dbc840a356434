/* stack - what kind of training or serving software runs the plan. The same layout on the same machines differs by a
 * third between an eager framework and a fused one; these are the few properties that decide it. */
#ifndef ASH_PLAN_STACK_H
#define ASH_PLAN_STACK_H

#include <stdbool.h>
#include "infra/catalog.h"

struct ash_stack {
    const char *name;        /* "captured", "deepseek", "fused", "eager", "compiled", "early", "llama3" */
    const char *meaning;     /* one line */
    const char *const *like; /* substrings of framework names that belong here, NULL-terminated */
    bool flash;              /* attention never writes its scores; else they go through memory */
    bool new_attention;      /* attention kernels made for Hopper and later (cuDNN, FlashAttention 3) */
    bool overlap_dp;         /* gradient reduction and parameter gathers overlap with compute */
    bool overlap_tp;         /* tensor-parallel collectives are split and overlap with matrix products */
    bool wide_gradients;     /* gradients are kept and summed over ranks in float32, else in the weights' dtype */
    bool sequence_parallel;  /* norms and residuals are split over tensor-parallel ranks */
    bool overlap_dispatch;   /* expert traffic overlaps with another micro-batch's compute */
    bool fp8_dispatch;       /* in fp8: tokens are quantised before they travel to their experts */
    bool fused_routing;      /* permutation of tokens is part of dispatch and of the experts' products */
    bool fused_experts;      /* in fp8 and less: one kernel for all experts, activation and quantisation inside it */
    bool graphs;             /* launches are recorded once: the host does not hold the GPU up */
    bool fused;              /* element-wise ops are merged, weight gradients accumulate inside the product */
};

/* By the stack's own name or by what a framework calls itself ("NeMo 24.07", "Composer/FSDP (torch 2.1)"). Unknown or
 * empty text is the fused one. Never NULL. */
const struct ash_stack *ash_stack_find(const char *text);
/* The same for a run on such GPUs in such a precision: the releases that record their launches and fuse experts do so
 * for Blackwell's block formats, and run the rest as before. */
const struct ash_stack *ash_stack_find_on(const char *text, const struct ash_gpu *gpu,
                                          enum ash_gpu_precision precision);

#endif
