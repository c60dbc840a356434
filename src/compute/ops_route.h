/* ops_route - the ops that choose experts: part of ops.h, whose contract holds here too. */
#ifndef ASH_COMPUTE_OPS_ROUTE_H
#define ASH_COMPUTE_OPS_ROUTE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ASH_ROUTE_EXPERTS_MAX 1024
#define ASH_ROUTE_CHOICES_MAX 64

struct ash_exec;

struct ash_route_args {
    size_t rows, experts, choices; /* choices: experts per token */
    bool sigmoid;                  /* scores are sigmoids (deepseek); else a softmax over experts */
    bool normalize;                /* divide the chosen weights by their sum */
    size_t groups, top_groups;     /* groups > 1: choose among the top_groups with the largest sum of their best two */
    const float *choice_bias;      /* [experts], added for choosing only; may be NULL */
    float scale;                   /* factor on the chosen weights */
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
    size_t *offsets;               /* [experts + 1] in host memory: the host sizes the products by it */
};

struct ash_route_ops {
    /* Choose experts for every row: index and weight from logits. */
    void (*forward)(struct ash_exec *exec, const struct ash_route_args *args);
    /* dlogits from logits, index and dweight; which experts are chosen counts as constant. */
    void (*backward)(struct ash_exec *exec, const struct ash_route_args *args);
    /* Sort the chosen pairs by expert: see ash_route_group_args. */
    void (*group)(struct ash_exec *exec, const struct ash_route_group_args *args);
};

#endif
