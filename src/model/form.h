/* form - what a layer of a family is made of: the part of a config that its table entry says (families.c). Its reader
 * changes what a config.json may say otherwise. Zeros: the form of llama. */
#ifndef ASH_MODEL_FORM_H
#define ASH_MODEL_FORM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum ash_norm_kind { ASH_NORM_RMS, ASH_NORM_LAYER };
enum ash_mlp_kind {
    ASH_MLP_GATED,
    ASH_MLP_GELU_TANH,
    ASH_MLP_GELU_ERF,
    ASH_MLP_GATED_TANH,
    ASH_MLP_GATED_CLAMPED,
    ASH_MLP_GATED_ERF
};
/* Norms of queries and keys: none, one for each head, one over all heads. */
enum ash_qk_norm {
    ASH_QK_NORM_NONE,
    ASH_QK_NORM_HEAD,
    ASH_QK_NORM_ALL,
    ASH_QK_NORM_BARE /* one for each head, without weights, in layers that rotate */
};

/* The norm of what recurrent states give: of what the gate let through, none, before the gate. */
enum ash_state_norm { ASH_STATE_NORM_GATED, ASH_STATE_NORM_NONE, ASH_STATE_NORM_BEFORE_GATE };

enum ash_block { ASH_BLOCK_ATTN, ASH_BLOCK_FFN, ASH_BLOCK_STATE, ASH_BLOCKS };

/* Experts, where the config does not say: how many, how many of them a token visits, their width and its key. */
struct ash_expert_form {
    uint16_t experts, choices;
    uint16_t ffn; /* 0: that of a dense layer */
    const char *ffn_key;
    uint16_t shared; /* how many of that width every token visits */
    uint16_t groups, top_groups, first_sparse;
    bool sigmoid, normalize, choice_bias;
    bool normalize_is_fixed; /* norm_topk_prob is not looked at */
    bool is_transposed;      /* matrices are stored [in, out] */
    bool alternates;         /* gate and up, fused, are every other output */
    bool bias_is_row;        /* choice_bias is stored as [1, experts] */
    bool scales_input;       /* a token's weight is a factor on what its expert reads, not on what it gives (llama4) */
    double scale;
    double tolerance; /* of sparsemixer (phimoe), whose config doubles it; 0: another router */
};

/* Where norms are, which matrices are fused, and whether an expert or a norm is there at all say the names of the
 * family's tensors (family.h): a tensor without a name is not there. */
struct ash_model_form {
    enum ash_norm_kind norm;
    bool bare_norm; /* layer norms have no bias */
    bool unit_norm; /* norms multiply by 1 + weight */
    enum ash_qk_norm qk_norm;
    bool qk_norm_last; /* after the rotation */
    enum ash_mlp_kind mlp;
    bool qkv_bias, out_bias, mlp_bias, head_bias;
    bool out_bias_apart; /* attention_bias says nothing of the output's */
    bool transposed;     /* matrices are stored [in, out] (gpt2) */
    bool qkv_by_head;    /* q, k and v, in one matrix, follow each other head by head */
    bool tied;           /* unless the config says otherwise */
    bool interleaved;    /* rotated pairs are neighbours */
    double theta, local_theta,
        rotary_share;   /* of rotary positions, where the config gives none; 0: 10000, the same, 1 */
    bool both_ways;     /* attention sees later tokens, too: an encoder. It writes no text */
    bool one_layer;     /* whose names have no number */
    bool bare_first;    /* the first layer has no norm before attention */
    bool parallel;      /* attention and feed-forward both read the stream before the layer */
    bool out_gate;      /* q has a gate of each output of attention, head by head after its query */
    bool mixes_both;    /* layers have attention and recurrent states, after one norm */
    bool chunked;       /* a window is the chunk of positions that a query is in */
    uint8_t full_every; /* layers under a sliding window: all but every n-th; 0: the config says which */
    uint32_t window;    /* of those, where the config gives none */
    struct ash_expert_form expert;
    /* Factors, and limits that x becomes limit * tanh(x / limit) under; 0: none. */
    bool embeds_by_width; /* embed_scale is the root of the hidden size */
    double embed_scale, residual_scale, logit_scale;
    double block_scale[ASH_BLOCKS]; /* of blocks' outputs; with residual_scale, both */
    double gate_scale;              /* of a feed-forward's gate, before its activation */
    double score_cap, logit_cap;
};

static inline bool ash_mlp_is_gated(enum ash_mlp_kind kind)
{
    return kind != ASH_MLP_GELU_TANH && kind != ASH_MLP_GELU_ERF;
}

#endif
