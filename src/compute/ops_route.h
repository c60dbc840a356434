/* ops_route - the ops that choose experts: part of ops.h, whose contract holds here too. */
#ifndef ASH_COMPUTE_OPS_ROUTE_H
#define ASH_COMPUTE_OPS_ROUTE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ASH_ROUTE_EXPERTS_MAX 1024
#define ASH_ROUTE_CHOICES_MAX 64

struct ash_exec;
struct ash_weight;

struct ash_route_args {
    size_t rows, experts, choices; /* choices: experts per token */
    bool sigmoid;                  /* scores are sigmoids (deepseek); else a softmax over experts */
    bool normalize;                /* divide the chosen weights by their sum */
    size_t groups, top_groups;     /* groups > 1: choose among the top_groups with the largest sum of their best two */
    const float *choice_bias;      /* [experts], added for choosing only; may be NULL */
    float scale;                   /* factor on the chosen weights */
    float tolerance;               /* > 0: sparsemixer (phimoe), which uses none of sigmoid, normalize, groups and
                                      choice_bias. Each choice takes the largest logit m that is left; its weight is its
                                      share in a softmax over the logits x that are left within that tolerance:
                                      (m - x) / max(|x|, m) <= tolerance */
    const float *logits;           /* [rows, experts] */
    int32_t *index;                /* [rows, choices], by descending score; ties go to the lower expert */
    float *weight;                 /* [rows, choices] */
    /* backward: */
    const float *dweight; /* [rows, choices] */
    float *dlogits;       /* [rows, experts], written */
};

/* Pairs (token, slot) sorted by expert, tokens ascending within one. Pair p of the result is token order[p] with
 * flat[p] = token * choices + slot, and where[flat[p]] = p. Expert e has pairs offsets[e] ... offsets[e + 1] - 1. */
struct ash_route_group_args {
    size_t rows, choices, experts;
    const int32_t *index;          /* [rows, choices] */
    int32_t *order, *flat, *where; /* [rows * choices] */
    size_t *offsets; /* [experts + 1] in host memory, for a host that sizes products by it; NULL: it does not */
    int32_t *starts; /* [experts + 1]: the same where the pairs are, for grouped; NULL: not wanted */
};

/* Products of rows that are sorted by group with their group's matrix: y[r, :] = x[r, :] w[g]^T for rows starts[g] ...
 * starts[g + 1] - 1. To the bit what matrix->gemm gives, group by group. How many rows a group has is read where the
 * op runs, so that the host never waits for it. */
struct ash_grouped_args {
    size_t groups, rows, N, K;  /* rows: of all groups */
    const int32_t *starts;      /* [groups + 1] */
    const struct ash_weight *w; /* [groups] of N, in host memory; of one dtype (F32 or BF16) and layout, not packed */
    const float *x;
    size_t x_stride;
    float *y;
    size_t y_stride;
    bool accumulate, round_bf16; /* as in ash_gemm_args */
};

/* Gradients of the groups' matrices: dw[g][m, n] (+)= the sum of dy[r, m] x[r, n] over the group's rows, ascending: one
 * fma chain, whose operands round_bf16 rounds (as ash_gemm_args with cut_anywhere). A group without rows gets zeros, or
 * keeps what it has. */
struct ash_grouped_grad_args {
    size_t groups, rows, M, N; /* rows: of all groups */
    const int32_t *starts;     /* [groups + 1] */
    const float *dy, *x;
    size_t dy_stride, x_stride;
    float *const *dw; /* [groups], in host memory: [M, N] each */
    bool accumulate, round_bf16;
};

struct ash_route_ops {
    /* Choose experts for every row: index and weight from logits. */
    void (*forward)(struct ash_exec *exec, const struct ash_route_args *args);
    /* dlogits from logits, index and dweight; which experts are chosen counts as constant. */
    void (*backward)(struct ash_exec *exec, const struct ash_route_args *args);
    /* Sort the chosen pairs by expert: see ash_route_group_args. */
    void (*group)(struct ash_exec *exec, const struct ash_route_group_args *args);
    /* The chosen experts' products: see ash_grouped_args. NULL: this table has them one by one. */
    void (*grouped)(struct ash_exec *exec, const struct ash_grouped_args *args);
    /* The gradients of their matrices: see ash_grouped_grad_args. There where grouped is. */
    void (*grouped_grad)(struct ash_exec *exec, const struct ash_grouped_grad_args *args);
};

#endif
