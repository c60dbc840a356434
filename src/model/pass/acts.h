/* acts - where the activations and gradients of a pass lie: one block of memory, laid out once for the largest
 * batch.
 *
 * Shapes: C hidden, F feed-forward width, H heads, D a head. "rows" are those of the batch that this rank computes
 * (all, unless cp splits them), "own rows" those of the stream that it keeps between blocks (all, unless tp splits
 * them), "batch rows" those of all ranks. Every activation is [rows, width] of float32 unless said otherwise.
 *
 * Some lie among the rows of other ranks, in memory that ranks share. Those have two pointers: *_all is the first
 * row of the batch (set once), the other this rank's first row (set for each batch by ash_acts_bind). */
#ifndef ASH_MODEL_PASS_ACTS_H
#define ASH_MODEL_PASS_ACTS_H

#include "model/model_priv.h"
#include "model/pass/axes.h"

/* How long an activation must live when a backward pass follows. */
enum ash_keep {
    ASH_KEEP_INPUT,  /* the layer's input: kept in every mode, the layer can be recomputed from it */
    ASH_KEEP_COSTLY, /* kept unless the whole layer is recomputed */
    ASH_KEEP_CHEAP,  /* element-wise: kept only when nothing is recomputed */
};

struct ash_norm_acts {
    float *out;         /* [own rows, C] */
    uint16_t *out_bf16; /* instead of out, or NULL: see ash_acts.is_bf16. Of one layer at a time */
    float *out_all; /* [rows, C] where ranks of tp share memory; [batch rows, C] where those of cp share gradients */
    float *rstd, *mean; /* [own rows]; mean for layer norm only */
};

/* q, k, v and out of attention. */
struct ash_attn_rows {
    float *q, *k, *v; /* rows of q_stride, k_stride, v_stride */
    float *out;       /* [.., H * v_dim] */
};

struct ash_attn_acts {
    struct ash_norm_acts norm;
    struct ash_attn_rows rows; /* of this rank's rows, all heads here */
    uint16_t *qkv_bf16;        /* q, k and v as attention reads them: then those of rows live until then; or NULL */
    uint16_t *out_bf16;        /* instead of rows.out, rounded; or NULL */
    /* Along cp: all rows of the batch. Where ranks share memory, of all heads, with `rows` among them; else of this
     * rank's part of the heads, q, k and v as columns of one row. */
    struct ash_attn_rows all;
    float *lse; /* [rows, H]; along cp of all rows and this rank's part of the heads */
    /* grouped: q, k, v are columns of one row; with per-head norms, q and k before them */
    float *qk_raw;          /* [rows, (H + kv heads) * D] */
    float *q_rstd, *k_rstd; /* [rows * heads] */
    /* latent */
    float *q_low, *q_low_norm, *q_low_rstd;    /* [rows, q_rank] */
    float *kv_low, *kv_low_norm, *kv_low_rstd; /* [rows, kv_rank + rope_dim], [rows, kv_rank] */
    float *q_gate, *gated; /* [rows, H * 2 * D], [rows, H * D]: where outputs have gates (out_gate.h) */
    float *kv_up;          /* [rows, H * (nope_dim + v_dim)] */
};

struct ash_ffn_acts {
    float *gate, *up, *hidden;     /* [rows, F]; gate NULL for a gelu feed-forward */
    uint16_t *gate_bf16, *up_bf16; /* instead of gate and up, rounded by their product; or NULL */
    size_t stride;         /* between rows of gate and of up: 2 F where they are columns of one matrix; else F */
    uint16_t *hidden_bf16; /* instead of hidden, or NULL. Of one layer at a time */
    float *hidden_all;     /* [batch rows, F] where ranks of cp share gradients */
};

/* Pairs are (token, chosen expert), rows * choices of them, sorted by expert. Where ep has several ranks, x is sent,
 * and the experts compute on the received rows (moe_exchange.h). */
struct ash_moe_acts {
    int32_t *starts; /* [experts + 1]: of the pairs, by expert, where experts are grouped (moe_grouped.h) */
    float *logits;   /* [rows, experts] */
    int32_t *index;  /* [rows, choices] */
    float *weight;   /* [rows, choices] */
    int32_t *order, *flat, *where; /* [pairs]: see route->group */
    float *x, *y;                  /* [pairs, C] */
    struct ash_ffn_acts expert;    /* [pairs, expert ffn] */
    struct ash_ffn_acts shared;    /* [rows, shared ffn] */
    float *shared_gate, *shared_y; /* [rows], [rows, C]: where their sum has a factor (out_gate.h) */
};

/* A block's output before its own norm: where it has one. */
struct ash_join_acts {
    float *y; /* [own rows, C] */
    struct ash_norm_acts norm;
};

/* Of a layer with recurrent states (state_block.h); of the gradients rstd is [rows, 2, heads], kept is the scan's
 * work. */
struct ash_state_acts {
    float *all;            /* [rows, widths.all]: the projection */
    float *product;        /* [rows, inner + channels]: of the delta rule, as the products have it; or NULL */
    float *xbc;            /* [rows, widths.channels]: after the convolution */
    float *gate, *y;       /* [rows, widths.inner]: y is the scan's output */
    float *gated, *normed; /* [rows, widths.inner] */
    float *rstd;           /* [rows * norm_groups] */
    float *kept;           /* states, see ash_scan_args; or NULL */
};

struct ash_layer_acts {
    float *in;  /* [own rows, C]: residual stream before the layer */
    float *mid; /* likewise, between attention and feed-forward */
    struct ash_attn_acts attn;
    struct ash_norm_acts ffn_norm;
    struct ash_join_acts attn_join, ffn_join;
    struct ash_ffn_acts ffn;
    struct ash_moe_acts moe;
    struct ash_state_acts state;
};

/* Values of q and k before their norms, and gradients after them, of all ranks' heads: for the norms' weights. */
struct ash_qk_rows {
    float *send, *recv; /* a row of both, rank by rank */
    float *raw, *grad;  /* [own rows, (H + kv heads) * D] of the whole model */
    float *rstd;        /* [own rows * H] */
};

/* Buffers that the stream's gradient rotates through where ranks of cp share gradients: before a block, after it, and
 * that of the block before, which others may still be reading. */
#define ASH_DX_BUFFERS 3

/* Gradients and temporaries of one layer at a time. */
struct ash_scratch {
    float *residual;                   /* [own rows, C]: a block's output before it joins the stream */
    float *dx;                         /* [own rows, C]: gradient of the stream, layer by layer; */
    uint16_t *dx_bf16;                 /* [own rows, C]: dx, rounded; or NULL */
    float *dx_all;                     /* [rows, C]: where ranks of tp share memory; */
    float *dx_buffers[ASH_DX_BUFFERS]; /* [batch rows, C]: where ranks of cp share gradients, dx in one of them: */
    size_t dx_buffer;                  /* which */
    float *dnorm, *dnorm_all;          /* [own rows, C]; [rows, C] where ranks of tp share memory */
    float *djoin, *djoin_all;          /* likewise, of a block's output; where it does not join the stream as it is */
    float *dparallel;                  /* [own rows, C]: dnorm of the feed-forward, or of states, where attention's
                                          norm is next */
    bool dnorm_is_bf16;                /* dnorm holds bf16 values, until a norm has read them */
    float *x_gathered, *dy_gathered;   /* [rows, C]: rows of the stream of all ranks of tp */
    float *fused;                      /* [rows, 2 C]: of a head for drafts */
    float *captured;                   /* [rows, captured]: of one as EAGLE-3 has it */
    float *tile;                       /* partial sums that go from rank to rank */
    struct ash_qk_rows qk;
    struct ash_attn_rows dattn;     /* gradients of attn.rows; */
    struct ash_attn_rows dattn_all; /* and of attn.all */
    uint16_t *dattn_out_bf16;       /* instead of dattn.out, rounded; or NULL */
    uint16_t *dqkv_bf16;            /* gradients of q, k and v before their positions, rounded; or NULL */
    struct ash_state_acts dstate;
    float *dq_gate, *dshared, *dshared_gate; /* of q_gate, shared_y, shared_gate */
    float *by_head;               /* [rows, q_stride]: q, k and v as the product has them, or their gradients, where
                                       their outputs follow each other head by head; or NULL */
    bool has_dqkv;                /* attention has written them, until the projections have read them */
    float *dqk_raw, *dqk_raw_all; /* [rows, (H + kv heads) * D]; _all as hidden_all */
    float *packed;                /* [rows, (H + kv heads) * D + kv heads * v_dim]: sent along cp */
    float *dq_low, *dq_low_norm, *dkv_low, *dkv_low_norm, *dkv_up; /* norms: own rows */
    float *dkey;              /* [own rows, rope_dim]: of the key that heads share */
    struct ash_ffn_acts dffn; /* wide enough for dense and shared; gate and up of batch rows where ranks of cp
                                           share gradients: see ash_acts_dffn */
    struct ash_ffn_acts dexpert;
    float *dpair;             /* [pairs, C] */
    float *pair_weight;       /* [pairs] */
    float *dweight, *dlogits; /* [rows, choices], [rows, experts] */
    float *logits;            /* [logit_rows, own part of the vocabulary; of ranks that gather, all] */
    float *capped;            /* [logit_rows, the same]: logits that a cap made, or NULL */
    uint16_t *dlogits_bf16;   /* [head_rows, dlogits_stride]: their gradients, rounded; NULL: in place of logits */
    size_t dlogits_stride;
    float *logits_all;      /* [batch rows, the same] where ranks of cp share gradients, or NULL */
    float *factors;         /* [rows]: of the gradients of logits, where they are apart (see ash_loss_part); or NULL */
    float *scaled;          /* [head_rows, C]: then, rows of the normed stream times these; */
    float *scaled_all;      /* [batch rows, C] where logits_all is; */
    uint16_t *scaled_bf16;  /* instead of scaled, rounded; or NULL */
    float *top;             /* [rows, 2]: see ash_loss_part */
    float *lanes, *moments; /* [rows, ASH_LANES]: likewise */
};

/* The batch in the memory of exec: this rank's rows. */
struct ash_batch_block {
    int32_t *ids, *targets, *positions; /* [rows] */
    int32_t *segments;                  /* [rows]: 0 or 1 (struct ash_doc); where the model tells them apart */
    float *states;                      /* [rows, C]: of the tokens before; of a head for drafts (fuse.h) */
    uint64_t *sequences;                /* [sequences]: their numbers; with dropout of adapters only */
    float *scales, *entropy_scales;     /* [rows]: of an objective; read by the head's backward pass */
    /* where few rows have a target, those of the rows that the head computes: [rows] */
    int32_t *few_targets;
    float *few_losses, *few_entropies;
    /* where tp splits the vocabulary: see struct ash_embed_plan */
    int32_t *held_ids, *held_rows; /* [rows] */
    int32_t *own_index;            /* [own rows] */
};

/* Open with ash_acts_open; close with ash_acts_close. */
struct ash_acts {
    struct ash_buffer memory;
    bool is_bf16;      /* rows that only products read are stored rounded to bf16: ash_pass_opts.bf16_acts */
    size_t size_bytes; /* of it, and this rank's part of what lies in shared memory */
    size_t q_stride, k_stride, v_stride, v_dim; /* of attention's rows and heads, in floats */
    size_t head_rows;              /* rows whose gradients of logits exist at a time, at most; whole groups of k */
    size_t logit_rows;             /* rows of logits at a time: fewer where gradients are apart */
    struct ash_layer_acts *layers; /* [config.layers] */
    float *captured;               /* [rows, captures of opts, C], or NULL */
    float *final_in;               /* [own rows, C]: the stream after the last layer */
    struct ash_norm_acts final_norm;
    struct ash_scratch scratch;
    struct ash_batch_block block;
    float *losses, *entropies; /* [batch rows] */
    /* in memory that ranks of tp share: */
    struct ash_posted_operand *posted[2]; /* of the current reduction and of the one before it: see reduce_shm.c */
    float *shared_losses;                 /* [rows] */
    float *shared_entropies;              /* [rows] */
};

/* Does an activation of this kind live until the backward pass? */
bool ash_acts_keeps(const struct ash_pass_opts *opts, enum ash_keep keep);
/* Bytes that ash_acts_open would take of this rank, into *bytes_out. Returns 0 or -ENOMEM. */
int ash_acts_measure(const struct ash_model *model, const struct ash_pass_opts *opts, const struct ash_axes *axes,
                     size_t *bytes_out, struct ash_err *err);
/* Allocate and lay out everything; opens the memory that axes->node's ranks share, which axes own. Returns 0,
 * -ENOMEM or what the axis gave. */
int ash_acts_open(struct ash_acts *acts, const struct ash_model *model, const struct ash_exec *exec,
                  const struct ash_pass_opts *opts, struct ash_axes *axes, struct ash_err *err);
/* Free what open took. Accepts a zeroed or half-open struct. */
void ash_acts_close(struct ash_acts *acts);

/* Point what lies among the rows of other ranks at this rank's: first_row of the batch along cp, and of these own_first
 * of the stream along tp. */
void ash_acts_bind(struct ash_acts *acts, const struct ash_model *model, const struct ash_axes *axes, size_t first_row,
                   size_t own_first);
/* Where the gradients of a feed-forward of this width are: gate and up at this rank's rows, laid out like the
 * activations. */
struct ash_ffn_acts ash_acts_dffn(const struct ash_acts *acts, const struct ash_axes *axes, size_t first_row,
                                  size_t width);

#endif
