/* What the table of families is made of: names of tensors, and readers of what config.json files say. */
#ifndef ASH_MODEL_FAMILY_PRIV_H
#define ASH_MODEL_FAMILY_PRIV_H

#include "model/family.h"

extern const char *const ash_names_llama[ASH_ROLE_COUNT];
extern const char *const ash_names_mixtral[ASH_ROLE_COUNT];
extern const char *const ash_names_gpt2[ASH_ROLE_COUNT];
extern const char *const ash_names_gemma[ASH_ROLE_COUNT];
extern const char *const ash_names_olmo2[ASH_ROLE_COUNT];
extern const char *const ash_names_cohere[ASH_ROLE_COUNT];
extern const char *const ash_names_starcoder2[ASH_ROLE_COUNT];
extern const char *const ash_names_phi3[ASH_ROLE_COUNT];
extern const char *const ash_names_glm4[ASH_ROLE_COUNT];
extern const char *const ash_names_ernie_moe[ASH_ROLE_COUNT];
extern const char *const ash_names_hunyuan[ASH_ROLE_COUNT];
extern const char *const ash_names_granitemoe[ASH_ROLE_COUNT];
extern const char *const ash_names_gpt_oss[ASH_ROLE_COUNT];
extern const char *const ash_names_gpt_neox[ASH_ROLE_COUNT];
extern const char *const ash_names_phimoe[ASH_ROLE_COUNT];
extern const char *const ash_names_llama4[ASH_ROLE_COUNT];
extern const char *const ash_names_mamba2[ASH_ROLE_COUNT];
extern const char *const ash_names_bert[ASH_ROLE_COUNT];
extern const char *const ash_names_roberta[ASH_ROLE_COUNT];
extern const char *const ash_names_modernbert[ASH_ROLE_COUNT];
extern const char *const ash_names_granite_hybrid[ASH_ROLE_COUNT];
extern const char *const ash_names_falcon_h1[ASH_ROLE_COUNT];
extern const char *const ash_names_qwen3_next[ASH_ROLE_COUNT];

/* Readers: each takes what some families' files have, and keeps what the family's form says where they are silent.
 * family_read.c: */
ash_family_read_fn ash_read_biases;      /* attention_bias, mlp_bias, use_bias */
ash_family_read_fn ash_read_factors;     /* multipliers, caps, the scale of attention */
ash_family_read_fn ash_read_norm_eps;    /* under the names that layer norms have */
ash_family_read_fn ash_read_qwen_window; /* where use_sliding_window says so */
ash_family_read_fn ash_read_window;      /* one for all layers */
ash_family_read_fn ash_read_layer_types; /* sliding and full layers */
ash_family_read_fn ash_read_no_rope;     /* layers without positions */
ash_family_read_fn ash_read_local_rope;  /* layers under a window have the local positions */
ash_family_read_fn ash_read_nope_full;   /* layers without a window have no positions */
ash_family_read_fn ash_read_chunks;      /* llama4: layers that rotate attend within chunks; queries of others grow */
/* family_experts.c: */
ash_family_read_fn ash_read_experts;      /* all layers */
ash_family_read_fn ash_read_sparse_step;  /* which layers have them, as qwen3_moe says it */
ash_family_read_fn ash_read_first_sparse; /* as deepseek and ernie say it */
ash_family_read_fn ash_read_moe_layers;   /* as llama4 says it, and the width of the others */
ash_family_read_fn ash_read_mixer;        /* sparsemixer */
/* family_state.c: */
ash_family_read_fn ash_read_mamba2;         /* recurrent states in all layers */
ash_family_read_fn ash_read_granite_hybrid; /* in some, which attention has not; and experts */
ash_family_read_fn ash_read_qwen3_next;     /* of the delta rule in some, and a gate of attention in the others */
ash_family_read_fn ash_read_falcon_h1;      /* in all, where attention is as well; and factors */
/* family_encoder.c: */
ash_family_read_fn ash_read_bert;       /* learned positions from 0 on, segments */
ash_family_read_fn ash_read_roberta;    /* the same, with positions after that of padding */
ash_family_read_fn ash_read_modernbert; /* which layers see all, and how far the others do */
/* family_experts.c: */
ash_family_read_fn ash_read_latent; /* latent attention */

#endif
