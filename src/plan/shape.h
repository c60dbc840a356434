/* shape - what the planner needs of a model: sizes, and what follows from them (parameters, FLOPs, bytes). Made from a
 * Hugging Face folder, from the table of well-known models, or field by field. Plain values, no memory. */
#ifndef ASH_PLAN_SHAPE_H
#define ASH_PLAN_SHAPE_H

#include <stdbool.h>
#include <stddef.h>
#include "ashlar/err.h"

struct ash_shape {
    char name[64];
    double layers, hidden, heads, kv_heads, head_dim;
    double ffn; /* of a dense layer's MLP; 0 where every layer has experts */
    bool gated; /* three matrices per MLP instead of two */
    double vocab;
    bool tied;
    double positions; /* learned positions; 0: rotary */
    double context;   /* tokens of a sequence that the model was made for; 0: not known */
    /* how many layers have which part; a usual model has attention everywhere and dense or sparse MLPs */
    double attn_layers, dense_layers, sparse_layers, ssm_layers;
    double experts, choices, expert_ffn; /* of a sparse layer */
    double groups, group_choices;        /* a token's experts come from group_choices of the groups; 0: from anywhere */
    bool expert_bias;                    /* experts add biases and cut off their gates (GPT-OSS) */
    double shared_ffn;                   /* experts that every token visits, as one block; 0: none */
    /* latent attention (kv_rank > 0): the cache of a token has kv_rank + rope_dim */
    double q_rank, kv_rank, rope_dim, nope_dim, v_dim;
    double window, window_layers; /* layers whose attention sees only window tokens back */
    double ssm_inner, ssm_state;  /* state-space layers: inner width, and width of B and C over all groups */
};

/* By name, whatever the case, dashes and underscores ("llama-3.1-70b", "Llama3.1_70B"), or from DIR/config.json where
 * name is a folder. -ENOENT lists well-known names. */
int ash_shape_find(const char *name, struct ash_shape *shape_out, struct ash_err *err);
/* The well-known model of this name, as people write it ("meta-llama/Meta-Llama-3-70B-Instruct", "llama3 70b"), or
 * NULL. No file is read. */
const struct ash_shape *ash_shape_named(const char *name);
/* Tokens of a sequence that a well-known model (its name as in the table) was made for; 0: not known. */
double ash_shape_context(const char *name);
/* How many models are well known. */
size_t ash_shape_count(void);
/* One of them, in the order of the table, with context 0; NULL from ash_shape_count on. */
const struct ash_shape *ash_shape_at(size_t index);
/* Derive fields that are 0 from the rest (kv_heads, head_dim, layers by part, v_dim), then refuse sizes that cannot
 * be (zero, not finite, experts without choices). */
int ash_shape_complete(struct ash_shape *shape, struct ash_err *err);
/* A dense model of about so many parameters in the proportions of Llama 3: 128 times as wide as deep, grouped queries,
 * a gated MLP of 3.5 times the width; small ones share the embedding with the output. Returns 0, or -EINVAL where the
 * vocabulary alone is larger, or the model larger than any that the sizes here give. */
int ash_shape_sized(double params, double vocab, struct ash_shape *shape_out, struct ash_err *err);

/* All parameters. */
double ash_shape_params(const struct ash_shape *shape);
/* Those that one token uses: chosen experts only. */
double ash_shape_active_params(const struct ash_shape *shape);
/* Parameters of one layer's attention. */
double ash_shape_attn_params(const struct ash_shape *shape);
/* Of a dense MLP. */
double ash_shape_dense_params(const struct ash_shape *shape);
/* Of a sparse layer's shared experts and router. */
double ash_shape_shared_params(const struct ash_shape *shape);
/* Of one routed expert. */
double ash_shape_expert_params(const struct ash_shape *shape);
/* Of one state-space mixer. */
double ash_shape_ssm_params(const struct ash_shape *shape);
/* Of the embedding and learned positions. */
double ash_shape_embed_params(const struct ash_shape *shape);
/* Of the output matrix; 0 if it is tied to the embedding. */
double ash_shape_head_params(const struct ash_shape *shape);

/* Model FLOPs per token of forward and backward (3 x forward, no recomputation), causal attention counted by its
 * computed half, output matrix included. seq_tokens is the length of a sequence. */
double ash_shape_train_flops(const struct ash_shape *shape, double seq_tokens);
/* Bytes of key/value cache per token with this many bytes per element, over all layers (windows ignored). */
double ash_shape_cache_bytes(const struct ash_shape *shape, double element_bytes);

#endif
