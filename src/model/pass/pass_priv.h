/* The inside of a pass: which activations a layer makes, which of them are kept for backward, and the blocks of a
 * layer. Every activation is [rows, width] float32 unless said otherwise; C is hidden, F the feed-forward width, H
 * heads, D a head. */
#ifndef ASH_MODEL_PASS_PRIV_H
#define ASH_MODEL_PASS_PRIV_H

#include "model/model_priv.h"

/* How long an activation must live when a backward pass follows. */
enum ash_keep {
    ASH_KEEP_INPUT,  /* the layer's input: kept in every mode, the layer can be recomputed from it */
    ASH_KEEP_COSTLY, /* kept unless the whole layer is recomputed */
    ASH_KEEP_CHEAP,  /* element-wise: kept only when nothing is recomputed */
};

struct ash_norm_acts {
    float *out;         /* [own rows, C] */
    float *all;         /* [rows, C], out among them, where ranks along tp share memory; where those along cp have one
                           sum of gradients, [rows of the batch, C] */
    float *rstd, *mean; /* [own rows]; mean for layer norm only */
};

struct ash_attn_acts {
    struct ash_norm_acts norm;
    float *q, *k, *v; /* what attention reads: rows of q_stride, k_stride, v_stride */
    float *out;       /* [rows, H * v_dim] */
    float *lse;       /* [rows, H]; not along cp */
    /* along cp: all rows of the batch. Where ranks share memory, those of all heads, and the above are this rank's rows
     * of them; else of this rank's share of heads, q, k and v columns of one row. lse is of the share. */
    struct {
        float *q, *k, *v, *out, *lse;
    } spread;
    /* grouped: q, k, v are columns of one row; with per-head norms, q and k before them */
    float *qk_raw;          /* [rows, (H + kv heads) * D] */
    float *q_rstd, *k_rstd; /* [rows * heads] */
    /* latent */
    float *q_low, *q_low_norm, *q_low_rstd;    /* [rows, q_rank] */
    float *kv_low, *kv_low_norm, *kv_low_rstd; /* [rows, kv_rank + rope_dim], [rows, kv_rank] */
    float *kv_up;                              /* [rows, H * (nope_dim + v_dim)] */
};

struct ash_ffn_acts {
    float *gate, *up, *hidden; /* [rows, F]; gate NULL for a gelu feed-forward */
    float *hidden_all; /* [rows of the batch, F], hidden among them, where ranks along cp have one sum of gradients */
};

/* What the experts here got from the batches of all ranks of ep: pairs sorted by (rank, expert, token). How many come
 * is known when they do, so the memory grows. */
struct ash_inbox {
    struct ash_buffer memory;
    size_t capacity;            /* pairs */
    float *x;                   /* [pairs, C] */
    struct ash_ffn_acts expert; /* [pairs, expert ffn] */
};

/* Pairs are (token, chosen expert), rows * choices of them, sorted by expert. Where ep has several ranks, x is what
 * goes out, and the experts compute in the inbox. */
struct ash_moe_acts {
    float *logits;                 /* [rows, experts] */
    int32_t *index;                /* [rows, choices] */
    float *weight;                 /* [rows, choices] */
    int32_t *order, *flat, *where; /* see route->group */
    size_t *offsets;               /* [experts + 1], host */
    size_t *starts;                /* [ep size * experts here + 1], host: of the pairs in the inbox */
    uint32_t *relayed;             /* [ep size, 1 + ranks here], host: see moe_nodes.c */
    struct ash_inbox inbox;        /* where backward needs it */
    float *x, *y;                  /* [pairs, C] */
    struct ash_ffn_acts expert;    /* [pairs, expert ffn] */
    struct ash_ffn_acts shared;    /* [rows, shared ffn] */
};

struct ash_layer_acts {
    float *in;  /* [own rows, C]: residual stream before the layer */
    float *mid; /* likewise, between attention and feed-forward */
    struct ash_attn_acts attn;
    struct ash_norm_acts ffn_norm;
    struct ash_ffn_acts ffn;
    struct ash_moe_acts moe;
};

/* Values of q and k before their norms, and gradients behind them, of all ranks' heads: for the norms' weights. */
struct ash_head_rows {
    float *out, *in;   /* what this rank brings, what it gets: a row of both, rank by rank */
    float *raw, *grad; /* [own rows, (H + kv heads) * D] of the whole model */
    float *rstd;       /* [own rows * H] */
};

/* Places for the stream's gradient: before a block, behind it, and that of the block before, which others may be
 * reading. */
#define ASH_DX_TURNS 3

/* Gradients and temporaries of one layer at a time. Own rows are those of the stream that this rank keeps. */
struct ash_scratch {
    float *residual;               /* [own rows, C]: a block's output before it joins the stream */
    float *dx;                     /* [own rows, C]: gradient of the stream, layer by layer; */
    float *dnorm;                  /* [own rows, C] */
    float *dx_rows, *dnorm_rows;   /* [rows, C]: where these lie if ranks along tp share memory */
    float *dx_turns[ASH_DX_TURNS]; /* [rows of the batch, C]: where dx lies in turn if those along cp have one sum */
    size_t dx_turn;
    float *x_all, *dy_all; /* [rows, C]: rows of the stream of all ranks along tp */
    float *tile;           /* sums that go from rank to rank */
    struct ash_head_rows heads;
    float *dattn;                 /* [rows, H * v_dim] */
    float *dq, *dk, *dv;          /* like q, k, v; grouped: columns of one row */
    float *dqk_raw, *dqk_raw_all; /* as hidden_all */
    struct {
        float *q, *k, *v, *out;
    } dspread;     /* gradients of attn.spread's */
    float *packed; /* [rows, (H + kv heads) * D + kv heads * v_dim]: on their way along cp */
    float *dq_low, *dq_low_norm, *dkv_low, *dkv_low_norm, *dkv_up; /* norms: own rows */
    float *dkey;              /* [own rows, rope_dim]: of the key that heads share */
    struct ash_ffn_acts dffn; /* wide enough for dense and shared; where ranks along cp have one sum of gradients, gate
                                 and up of all rows of the batch: see ash_ffn_gradients */
    struct ash_ffn_acts dexpert;
    float *dpair;             /* [pairs, C] */
    float *pair_weight;       /* [pairs] */
    float *dweight, *dlogits; /* [rows, choices], [rows, experts] */
    float *logits;            /* [head_rows, own part of the vocabulary] */
    float *logits_all;        /* [rows of the batch, the same], logits among them; NULL: those are of this rank alone */
    float *top, *lanes;       /* [rows, 2], [rows, ASH_LANES]: see ash_loss_part */
};

/* Which tokens of the batch this rank looks up where the vocabulary is dealt out, and where their rows go. */
struct ash_lookup {
    size_t held;         /* tokens whose rows of the table are here */
    int32_t *ids, *rows; /* [held]: their places in this part of the table, in the batch */
    int32_t *index;      /* [own rows]: of each row that this rank keeps, in what it gets */
    size_t *send, *recv; /* [tp ranks], floats */
    int32_t *host;       /* [3, max_rows]: what the lists are made in */
};

/* A batch that the experts here compute for. */
struct ash_served {
    float *sums;  /* of the experts' gradients; NULL: they go to the pass's grads */
    bool filled;  /* has it rows? */
    bool goes_on; /* as in struct ash_batch */
};

/* Memory that grows. */
struct ash_floats {
    struct ash_buffer memory;
    size_t capacity;
};

/* How the ranks of ep lie on nodes, and what goes from node to node (moe_nodes.c). */
struct ash_moe_nodes {
    size_t count;                           /* of nodes */
    uint32_t *node, *place, *ranks, *first; /* [ep size]: of each rank; the ranks, node by node, where each begins */
    size_t *unique;                         /* [nodes]: tokens that go to each */
    size_t *send, *recv;                    /* [ranks here] floats, inside this node */
    int32_t *order, *index, *chosen, *mark; /* host: [pairs] tokens, rows among those of their node; [pairs] tokens that
                                               go to each node; [rows] */
    struct ash_buffer rows;                 /* chosen, device */
    struct ash_floats out, in;              /* on their way across, then inside */
};

/* The exchange of pairs along ep, one layer at a time. */
struct ash_exchange {
    struct ash_served *served; /* [ep size] */
    size_t *send, *recv;       /* [ep size] floats */
    size_t *parts;             /* [tp size] floats */
    uint32_t *told, *heard;    /* pairs per expert, and what else a rank says of its batch */
    struct ash_inbox inbox;    /* of layers whose own is not kept */
    struct ash_buffer memory;  /* of the rest: */
    size_t capacity;           /* pairs */
    float *y;                  /* [pairs, C]; its gradient, and that of x */
    struct ash_ffn_acts d;     /* [pairs, expert ffn]: gradients */
    float *hidden;             /* likewise, where the inbox has none */
    struct ash_moe_nodes nodes;
};

/* Terms of a sum that a rank of tp has, in one round. */
struct ash_terms {
    size_t rank;
    const float *x; /* of the sum's first row; NULL where the terms are not there */
    size_t x_stride;
    struct ash_gemm_args product; /* where they are one: all but M, where a lies, c and accumulate */
};

/* The same from a later row on. */
static inline struct ash_terms ash_terms_from(struct ash_terms terms, size_t row)
{
    if (terms.x != NULL) terms.x += row * terms.x_stride;
    return terms;
}

/* Terms as the rank tells the others. Addresses mean something to one process only, so x and the product's weight are
 * given as distances in bytes, from the start of the common memory and from that of the rank's weights. */
#define ASH_POSTED_NONE SIZE_MAX /* the distance of NULL */
struct ash_posted {
    struct ash_terms terms;
    size_t x, weight;
};

/* What ranks along tp (see by_rows.c) and cp (see attn_share.c) have in memory that all see, where they can. */
struct ash_pass_common {
    struct ash_common memory;
    struct ash_posted *posted[2];                /* [tp size, ASH_PROJECT_OUTS_MAX]: of a sum and the one before it */
    float *losses;                               /* [rows] */
    uint64_t batches, posts, sums, heads, turns; /* so far: what the counters below say */
    uint64_t turns_begun;
};

/* A product whose weight gradient waits to be made, over all rows of the batch (see grads_parts.c). */
struct ash_part {
    int32_t sum, weight, bias;
    bool starts; /* the sum begins with it */
    struct ash_linear_io io;
};
#define ASH_PARTS_MAX 12 /* products of a layer and the head */
struct ash_parts {
    struct ash_part waiting[ASH_PARTS_MAX];
    size_t count;
    uint64_t given, taken; /* so far */
};

/* Along cp, where rows are exchanged, attention goes over its heads in so many parts at most: the rows of one are on
 * their way while another is at work. */
#define ASH_ATTN_PARTS 2

struct ash_pass {
    struct ash_model *model;
    struct ash_exec *exec;
    struct ash_pass_opts opts;
    struct ash_axis tp, cp, ep; /* as in opts, never of size 0 */
    struct ash_axis together;   /* those that share memory: along tp, cp or both; size 1: nobody */
    bool shares_sums;           /* ranks along cp share memory and have one sum of gradients */
    int failed;                 /* 0, or the error of the first exchange that failed */
    struct ash_err failure;
    struct ash_buffer memory;
    size_t size_bytes; /* of it, and this rank's share of what lies in common */
    struct ash_pass_common common;
    struct ash_parts parts;
    struct ash_layer_acts *layers; /* [config.layers] */
    float *final_in;               /* [own rows, C]: the stream behind the last layer */
    struct ash_norm_acts final_norm;
    struct ash_scratch scratch;
    struct ash_attn_seq *seqs;          /* [max_rows], host */
    int32_t *ids, *targets, *positions; /* of this rank's rows, device copies */
    float *all_losses, *losses;         /* [max_rows], device; and those of this rank's rows */
    size_t *cp_there, *cp_back;         /* [ASH_ATTN_PARTS, cp size] floats of exchanges, host */
    void *cp_started[ASH_ATTN_PARTS];   /* those under way */
    size_t *tp_counts, *tp_more_counts; /* [tp size] likewise */
    int32_t *late;                      /* [late_count, at most all]: parameters for ash_grad_settle, host */
    size_t late_count;
    size_t *vocab_ends;                         /* [tp size]: where the parts of the vocabulary end, host */
    int32_t *host_positions;                    /* [max_rows] */
    size_t head_rows;                           /* rows of logits at a time, at most; whole groups of k */
    size_t q_stride, k_stride, v_stride, v_dim; /* of attention */
    struct ash_buffer rope;                     /* cos, then sin: [rope_positions, dims / 2] each */
    size_t rope_positions, rope_dims;
    struct ash_exchange exchange; /* of experts' rows */
    /* the batch at hand */
    const struct ash_batch *batch;
    const struct ash_served *serving; /* whose batch the experts' gradients are of at the moment; NULL: this one */
    float *grads;                     /* where gradients add up; NULL: none are wanted */
    bool *begun;                      /* [parameters, and a tied head's sum]: its first terms are there, host */
    size_t first_row;                 /* of the batch, of this rank's along cp */
    size_t rows, seq_rows;            /* this rank's rows, all of them unless tokens are dealt out along cp; of one
                                         sequence */
    struct ash_range own;             /* those of the stream that it keeps between blocks: all, or its part along tp */
    struct ash_cache *cache;          /* NULL: keys and values of the batch alone */
    struct ash_lookup lookup;
};

/* ---- layout.c ---------------------------------------------------------------------------------------------------- */

/* Does an activation of this kind live until the backward pass? */
bool ash_pass_keeps(const struct ash_pass *pass, enum ash_keep keep);
/* Rows that this rank computes, at most. */
size_t ash_pass_most_rows(const struct ash_pass *pass);
/* Bytes that the activations of a pass take of which only model, opts and layers are set. */
size_t ash_pass_layout_bytes(struct ash_pass *pass);
/* Size and place every activation in pass->memory. */
int ash_pass_layout(struct ash_pass *pass, struct ash_err *err);

/* ---- share.c: exchanges with those who share the pass; no-ops along an axis of size 1 and after a failure -----------
 */

void ash_share_gather(struct ash_pass *pass, const struct ash_axis *axis, float *data, const size_t *counts);
void ash_share_exchange(struct ash_pass *pass, const struct ash_axis *axis, const float *in, const size_t *send,
                        float *out, const size_t *recv);
/* An exchange that goes on until it is waited for, which a failure does not change; NULL: none was started. */
void ash_share_exchange_start(struct ash_pass *pass, const struct ash_axis *axis, const float *in, const size_t *send,
                              float *out, const size_t *recv, void **started_out);
void ash_share_exchange_wait(struct ash_pass *pass, const struct ash_axis *axis, void *started);
void ash_share_broadcast(struct ash_pass *pass, const struct ash_axis *axis, size_t root, float *data, size_t count);
void ash_share_send(struct ash_pass *pass, const struct ash_axis *axis, size_t to, const float *data, size_t count);
void ash_share_recv(struct ash_pass *pass, const struct ash_axis *axis, size_t from, float *data, size_t count);
/* How far a rank is with what lies in common: batches begun; meetings after which all may read what each has written;
 * sums whose terms are there. And along cp: meetings; turns at gradients; products whose rows are there; products that
 * are made. */
enum ash_share_counter {
    ASH_SHARE_BATCHES,
    ASH_SHARE_POSTS,
    ASH_SHARE_SUMS,
    ASH_SHARE_HEADS,
    ASH_SHARE_TURNS,
    ASH_SHARE_GIVEN,
    ASH_SHARE_TAKEN
};
void ash_share_say(struct ash_pass *pass, enum ash_share_counter counter, uint64_t value);
/* For another rank along tp (or this one, which does not wait). */
void ash_share_wait(struct ash_pass *pass, size_t rank, enum ash_share_counter counter, uint64_t value);
/* Say it, and wait until all have, along tp. */
void ash_share_meet(struct ash_pass *pass, enum ash_share_counter counter, uint64_t value);
/* For another rank along cp, likewise. */
void ash_share_wait_tokens(struct ash_pass *pass, size_t rank, enum ash_share_counter counter, uint64_t value);
/* All ranks along cp meet. Where weight gradients wait to be made, all of them but some are made between saying so and
 * waiting for the others. */
void ash_share_meet_heads(struct ash_pass *pass);
void ash_share_meet_beside(struct ash_pass *pass, size_t but);
/* 0, or the first failure. */
int ash_share_result(struct ash_pass *pass, struct ash_err *err);

/* ---- grads.c ----------------------------------------------------------------------------------------------------- */

#define ASH_TIED_HEAD (-2) /* the sum of a tied output matrix, apart from the embedding's */

/* Over which rows is a gradient summed: all that the pass computes, or those of the stream that this rank keeps? */
enum ash_grad_rows { ASH_GRAD_ALL, ASH_GRAD_STREAM };

/* Where a parameter's gradient adds up, and no turn at it; NULL as below. */
float *ash_grad_sum(struct ash_pass *pass, int32_t param);
/* Does the batch at hand start the sum, which has no terms of it yet? From then on it has some. Of ranks that take
 * turns at it, does the turn at hand bring the first ones? */
bool ash_grad_is_first(struct ash_pass *pass, int32_t param);
bool ash_grad_starts(struct ash_pass *pass, int32_t param);
/* Zeros for sums of a layer (-1: of what stands behind the layers) that have got no terms though the batch starts them.
 */
void ash_grad_complete(struct ash_pass *pass, int layer);
/* The sum of a parameter's gradient, this rank's turn at it, and the end of that turn. NULL where none is wanted (no
 * parameter, no backward pass). */
float *ash_grad_begin(struct ash_pass *pass, int32_t param, enum ash_grad_rows rows);
void ash_grad_end(struct ash_pass *pass, int32_t param, enum ash_grad_rows rows);
/* The end of two turns that began together: a rank that waits for one must not hold up the other. */
void ash_grad_end_both(struct ash_pass *pass, int32_t one, int32_t other, enum ash_grad_rows rows);
/* Sums over rows of the stream, which the last rank of tp has so far, to all: before anyone reads them. */
void ash_grad_settle(struct ash_pass *pass);
/* After a batch: where another of the same sums follows, the first rank of cp goes on with what the last one has. Where
 * ranks along cp have one sum, it is complete. */
void ash_grad_hand_over(struct ash_pass *pass);
/* dx from dy, and the gradients of weight and bias (or ASH_NO_PARAM) over all rows. dx is neither x nor dy. */
void ash_pass_linear_backward(struct ash_pass *pass, int32_t weight, int32_t bias, const struct ash_linear_io *io);

/* The weight's gradient alone, into sum (the weight itself, or ASH_TIED_HEAD). */
void ash_pass_weight_backward(struct ash_pass *pass, int32_t sum, int32_t weight, const struct ash_linear_io *io);
/* The turns at a weight of a rank that has no rows for it. */
void ash_pass_linear_skip(struct ash_pass *pass, int32_t weight);

/* ---- grads_parts.c: gradients of ranks along cp that have one sum --------------------------------------------------
 */

/* This rank's rows of a product, which lie among those of all, are there; they stay as they are until ash_parts_await
 * or the end of the way back. io: of this rank's rows. */
void ash_parts_give(struct ash_pass *pass, int32_t sum, int32_t weight, int32_t bias, const struct ash_linear_io *io);
/* Make this rank's part of all products that wait, but for the last ones. */
void ash_parts_take(struct ash_pass *pass, size_t but);
/* Wait until all ranks have made what this one has: where its rows of that lie it may write again. */
void ash_parts_await(struct ash_pass *pass);

/* ---- chain.c: what tensor-parallel ranks have parts of. Between the blocks of a layer each keeps some rows of the
 * stream (own rows); inside of a block each has all rows, of its own heads or columns. ----------------------------- */

/* Which rows of the stream a rank keeps. */
struct ash_range ash_stream_rows(const struct ash_pass *pass, size_t rank);
/* data [rows of the batch, width]: get those of rows that other ranks keep. */
void ash_rows_gather(struct ash_pass *pass, struct ash_range rows, float *data, size_t width);
/* All rows of the stream from everyone's own ones, which are a norm's out or scratch.dx: where they lie, or in all;
 * alone: own. They stay until own ones are written again. */
const float *ash_stream_gather(struct ash_pass *pass, const float *own, float *all);
/* The same of a norm's rows on the way back: where they lie, ranks need not meet again for what the way there has left.
 */
const float *ash_stream_again(struct ash_pass *pass, const float *own, float *all);
/* Point norms and scratch.dx at this rank's rows of the batch at hand, where they lie among those of all. */
void ash_stream_place(struct ash_pass *pass);
/* Before scratch.dx is added to: it goes on in another place where others may still read it as it is. */
void ash_stream_turn(struct ash_pass *pass);

/* A sum per row and column whose terms are dealt out. It goes over the terms of a round from rank to rank, then on to
 * the next round. */
struct ash_chain {
    struct ash_range rows;
    size_t cols, rounds;
    struct ash_terms terms[ASH_PROJECT_OUTS_MAX]; /* [rounds], this rank's */
    /* Go on with the sums of rows over terms, whose x is that of the first of them; start: there are none yet. */
    void (*step)(struct ash_pass *pass, void *ctx, const struct ash_terms *terms, struct ash_range rows, bool start,
                 float *sums);
    const float *bias; /* [cols], added behind the last; or NULL */
    /* Work beside the sums: done once by each rank, when it would wait for others; or NULL. */
    void (*meanwhile)(struct ash_pass *pass, void *ctx);
    void *ctx;
    float *out; /* [own rows, cols]; of rows that are not among the chain's, nothing is written. Where ranks share
                   memory and the chain has not all rows, those of all ranks lie there, and a meeting has to follow. */
    float *all; /* or, between nodes: [rows of the batch, cols], of all ranks' rows among the chain's */
};
/* Not for a pass alone. */
void ash_chain_run(struct ash_pass *pass, const struct ash_chain *chain);
/* Floats of a tile at most, where a rank keeps up to own rows and sums have up to cols columns. */
size_t ash_chain_tile_most(size_t own, size_t cols);
/* The end of a sum: its bias, for so many rows. */
void ash_chain_end(struct ash_pass *pass, const struct ash_chain *chain, size_t rows, float *sums);

/* A step over terms that are a product; the terms of one. */
void ash_product_step(struct ash_pass *pass, const struct ash_terms *terms, size_t rows, bool start, float *sums);
struct ash_terms ash_product_terms(const struct ash_pass *pass, const struct ash_linear_term *term);

/* out [own rows, C] = x W^T + bias, W's inputs dealt out. Not for a pass alone. */
void ash_rows_forward(struct ash_pass *pass, int32_t weight, int32_t bias, const float *x, size_t x_stride, float *out);

/* Linear layers that share their input x, whose outputs are dealt out (or all here). */
struct ash_column {
    int32_t weight, bias;
    const float *dy;
    size_t dy_stride;
};
struct ash_columns {
    size_t first;              /* the row of the batch that x and dy start with */
    size_t rows, in, seq_rows; /* as in ash_linear_io */
    const float *x;            /* [rows, in] */
    float *dx;                 /* [own rows, in], as out of a chain; [rows, in] where the outputs are all here */
    bool among_all;            /* as in ash_linear_io */
    size_t count;
    struct ash_column columns[ASH_PROJECT_OUTS_MAX];
};
/* Gradients of weights and biases, and dx: a sum over the layers in their order. */
void ash_columns_backward(struct ash_pass *pass, const struct ash_columns *columns);
/* The same, where weight_grads does the part of weights and biases. Not for a pass alone. */
void ash_columns_backward_rows(struct ash_pass *pass, const struct ash_columns *columns,
                               void (*weight_grads)(struct ash_pass *pass, const struct ash_columns *columns));

/* ---- by_rows.c: sums of ranks along tp that share memory ------------------------------------------------------------
 */

/* ash_chain_run for them. */
void ash_chain_by_rows(struct ash_pass *pass, const struct ash_chain *chain);
/* Of rows, those that this rank sums up; of all rows, its own. */
struct ash_range ash_rows_share(const struct ash_pass *pass, struct ash_range rows);
/* Tell the others of this rank's terms of count rounds; wait for theirs; and read what rank told of a round. They must
 * stay as they are until all have met once more. */
void ash_terms_post(struct ash_pass *pass, const struct ash_terms *terms, size_t count);
void ash_terms_await(struct ash_pass *pass);
struct ash_terms ash_terms_of(const struct ash_pass *pass, size_t rank, size_t round);

/* ---- embed.c ----------------------------------------------------------------------------------------------------- */

/* Find out who looks up which of this rank's tokens. */
int ash_embed_begin(struct ash_pass *pass, const int32_t *ids, struct ash_err *err);
/* x [own rows, C]: where the stream starts. */
void ash_embed_forward(struct ash_pass *pass, float *x);
/* The tables' gradients from scratch.dx. */
void ash_embed_backward(struct ash_pass *pass);

/* ---- rope.c ------------------------------------------------------------------------------------------------------ */

/* Make sure that the tables reach position count - 1. */
int ash_pass_rope_reserve(struct ash_pass *pass, size_t count, struct ash_err *err);
/* Rotate heads of x in place (or back, with inverse). */
void ash_pass_rope(struct ash_pass *pass, float *x, size_t heads, size_t head_stride, size_t row_stride, bool inverse);

/* ---- blocks: each adds its output to the stream; backward turns scratch.dx from behind the block to before it ------
 */

void ash_norm_block_forward(struct ash_pass *pass, int32_t weight, int32_t bias, const float *x,
                            struct ash_norm_acts *acts);
/* dx += (add) or = the gradient of x, from dnorm. */
void ash_norm_block_backward(struct ash_pass *pass, int32_t weight, int32_t bias, const float *x,
                             const struct ash_norm_acts *acts, const float *dnorm, bool add, float *dx);

/* Does the product behind a norm do the norm too? Then the normed rows exist nowhere. */
bool ash_pass_fuses_norm(const struct ash_pass *pass);
/* behind = before + the group's one product (its place is set here). Training keeps both, so the sum goes a longer way;
 * without a backward pass they are the same rows. */
void ash_stream_add(struct ash_pass *pass, struct ash_linear_group *group, const float *before, float *behind);

void ash_attn_block_forward(struct ash_pass *pass, size_t layer, const float *in, float *mid);
void ash_attn_block_backward(struct ash_pass *pass, size_t layer);
/* The two kinds of attention: from the normed stream to q, k, v and back. */
void ash_attn_grouped_forward(struct ash_pass *pass, size_t layer, const float *x,
                              int32_t norm); /* norm: as in a group */
/* Backward: scratch.dnorm becomes the gradient of the normed stream. */
void ash_attn_grouped_backward(struct ash_pass *pass, size_t layer, const float *x);
void ash_attn_latent_forward(struct ash_pass *pass, size_t layer, const float *x);
void ash_attn_latent_backward(struct ash_pass *pass, size_t layer, const float *x);
/* Norms over each head of q and k: from qk_raw to q and k, from their gradients to dqk_raw. */
void ash_head_norm_forward(struct ash_pass *pass, size_t layer);
void ash_head_norm_backward(struct ash_pass *pass, size_t layer);

/* ---- attn_share.c: tokens dealt out along cp ------------------------------------------------------------------------
 */

/* The batch's rows that a rank of cp computes; the key-value heads (of those here) that it runs attention for. */
struct ash_range ash_pass_rows_of(const struct ash_pass *pass, size_t cp_rank);
struct ash_range ash_attn_heads_of(const struct ash_pass *pass, size_t cp_rank);

/* Copy cols columns of some rows between places whose rows lie src_row and dst_row floats apart. */
void ash_pass_copy_columns(struct ash_pass *pass, size_t rows, size_t cols, const float *src, size_t src_row,
                           float *dst, size_t dst_row);

/* Where ranks along cp share memory: point q, k, v, out and their gradients at this rank's rows of the batch at hand.
 */
void ash_attn_place(struct ash_pass *pass);
/* What attention runs on: the rows and heads of the pass; along cp all rows of the batch, of this rank's heads. */
struct ash_attn_view {
    size_t rows, heads, kv_heads;
    bool one_row; /* q, k and v are columns of one row */
    size_t q_stride, k_stride, v_stride, out_stride;
    float *q, *k, *v, *out, *lse;
    float *dout, *dq, *dk, *dv;
};
/* part: of ash_attn_parts. */
struct ash_attn_view ash_attn_view(struct ash_pass *pass, size_t layer, size_t part);
size_t ash_attn_parts(const struct ash_pass *pass);
/* Make the sums of all views' gradients, dq, dk and dv, zero: before ash_attn_spread_back. */
void ash_attn_clear_sums(struct ash_pass *pass, size_t layer);
/* Rows that attention needs set out to the views: q, k, v; on the way back the gradient of out. */
void ash_attn_spread(struct ash_pass *pass, size_t layer);
void ash_attn_spread_back(struct ash_pass *pass);
/* Those of a part's view are here. */
void ash_attn_await(struct ash_pass *pass, size_t part);
/* What attention gave of a part sets out to the rows: out; on the way back the gradients of q, k and v. */
void ash_attn_return(struct ash_pass *pass, size_t layer, size_t part);
void ash_attn_return_back(struct ash_pass *pass, size_t part);
/* All of it is here. */
void ash_attn_collect(struct ash_pass *pass, size_t layer);
void ash_attn_collect_back(struct ash_pass *pass);

/* Point what feed-forwards have among the rows of all ranks along cp at this rank's. */
void ash_ffn_place(struct ash_pass *pass);
void ash_ffn_block_forward(struct ash_pass *pass, size_t layer, const float *mid, float *out);
void ash_ffn_block_backward(struct ash_pass *pass, size_t layer);

/* One feed-forward of given matrices over rows of x: forward writes y, backward reads dy and gives dx. Unless it is an
 * expert's, its columns are dealt out along tp, and y and dx are of own rows. */
struct ash_ffn_params {
    int32_t gate, gate_bias, up, up_bias, down, down_bias;
    bool expert; /* rows are the tokens that chose it: they end anywhere */
};
void ash_ffn_forward(struct ash_pass *pass, const struct ash_ffn_params *params, size_t rows, const float *x,
                     const struct ash_ffn_acts *acts, size_t width, float *y);
void ash_ffn_backward(struct ash_pass *pass, const struct ash_ffn_params *params, size_t rows, const float *x,
                      const struct ash_ffn_acts *acts, const struct ash_ffn_acts *dacts, size_t width, const float *dy,
                      float *dx);
/* Where the gradients of a feed-forward so wide are: gate and up, where others see them, at rows of that width. */
struct ash_ffn_acts ash_ffn_gradients(const struct ash_pass *pass, size_t width);
/* hidden from gate and up, as forward does. */
void ash_ffn_activate(struct ash_pass *pass, const struct ash_ffn_acts *acts, size_t count);

/* x and dy have all rows, y and dx own ones. With an empty batch these serve the other ranks of ep; nothing is read of
 * x and dy, nothing written to y and dx. */
void ash_moe_forward(struct ash_pass *pass, size_t layer, const float *x, float *y);
void ash_moe_backward(struct ash_pass *pass, size_t layer, const float *x, const float *dy, float *dx);

/* ---- moe_exchange.c: pairs on their way to the ranks that have their experts, and back -----------------------------
 */

/* What the experts here compute on. Expert e (of those here) has, of the batch of source s, the rows starts[s * experts
 * + e] to the next start. */
struct ash_expert_work {
    size_t sources, experts;
    const size_t *starts;
    float *x, *y;                    /* [.., C] */
    float *dy;                       /* becomes dx */
    struct ash_ffn_acts acts, dacts; /* [.., expert ffn] */
};

/* Memory for all of it; the axes must fit the model's slice. close takes what a failed open left. */
int ash_moe_open(struct ash_pass *pass, struct ash_err *err);
void ash_moe_close(struct ash_pass *pass);
/* Do all batches that experts here serve have sums for their gradients? Returns 0 or -EINVAL. */
int ash_moe_check_sums(const struct ash_pass *pass, struct ash_err *err);
/* Do the rows of pairs lie in memory that ranks along tp see together, each writing those of its experts? */
bool ash_moe_pairs_common(const struct ash_pass *pass);
/* Bytes of the inboxes and what goes with them when each rank gets as many pairs as it has itself. */
size_t ash_moe_inbox_bytes(const struct ash_pass *pass);

/* Bring the rows of x to the experts that they chose (moe.order, moe.offsets); work is ready then. */
void ash_moe_dispatch(struct ash_pass *pass, size_t layer, const float *x);
struct ash_expert_work ash_moe_work(struct ash_pass *pass, size_t layer);
/* moe.y of all pairs, from work's y. */
void ash_moe_collect(struct ash_pass *pass, size_t layer);
/* The same on the way back: from dy, the gradient of the layer's output, to work's dy; and from there to scratch.dpair,
 * the gradient of all pairs' x. */
void ash_moe_dispatch_back(struct ash_pass *pass, size_t layer, const float *dy);
void ash_moe_collect_back(struct ash_pass *pass, size_t layer);

/* For moe_nodes.c. Pairs of the batch whose experts rank (ep, tp) has. */
struct ash_range ash_moe_pairs_of(const struct ash_pass *pass, size_t layer, size_t ep_rank, size_t tp_rank);
/* The rows of x that pairs are of; weighed: times the pairs' weights, the gradient of a pair's y. */
void ash_moe_lay_rows(struct ash_pass *pass, size_t layer, const float *x, struct ash_range pairs, bool weighed,
                      float *out);
/* Make buffer hold pairs of width floats; what it held is gone when it grows. */
int ash_moe_reserve(struct ash_pass *pass, struct ash_buffer *buffer, size_t *capacity, size_t pairs, size_t width,
                    struct ash_err *err);

/* ---- moe_nodes.c: rows that go to other nodes, each once -----------------------------------------------------------
 */

/* Are the ranks of ep on several nodes? The rest, but open, close and bytes, is for where they are. */
bool ash_moe_crosses(const struct ash_pass *pass);
int ash_moe_nodes_open(struct ash_pass *pass, struct ash_err *err);
void ash_moe_nodes_close(struct ash_pass *pass);
/* As ash_moe_inbox_bytes. */
size_t ash_moe_nodes_bytes(const struct ash_pass *pass);
/* Which tokens go to which nodes: before counts are told, and before gradients go the same way. */
void ash_moe_nodes_choose(struct ash_pass *pass, size_t layer);
/* Words that rank `from` of ep tells rank `to` beside the counts of its experts, and those that this rank tells: how
 * many rows it sends there for all of the node, and pairs for each of its ranks. 0 where ep is on one node. */
size_t ash_moe_nodes_words(const struct ash_pass *pass, size_t from, size_t to);
void ash_moe_nodes_tell(const struct ash_pass *pass, size_t layer, size_t to, uint32_t *told);
/* Such words that this rank hears from anyone, at most: so many moe.relayed has for each. */
size_t ash_moe_nodes_relayed(const struct ash_pass *pass);
/* Bring the rows of x to the inboxes: to this rank's pairs at `to`, by source. weighed: as in ash_moe_lay_rows. */
void ash_moe_nodes_dispatch(struct ash_pass *pass, size_t layer, const float *x, bool weighed, float *to);

/* ---- head.c: the output matrix, a few rows at a time: tokens x vocabulary never exists ------------------------------
 */

/* Losses of all rows; where gradients are wanted, that of scale * sum goes to scratch.dnorm and the head's weights. */
void ash_head_loss(struct ash_pass *pass, float scale);
/* logits_out [count, vocab] of rows x, which are normed already or go through norm first (as in a group). */
void ash_head_logits(struct ash_pass *pass, const float *x, int32_t norm, size_t count, float *logits_out);
/* Point scratch.logits at this rank's rows, where they lie among those of all ranks along cp. */
void ash_head_place(struct ash_pass *pass);

/* ---- cache.c ----------------------------------------------------------------------------------------------------- */

/* Does the batch fit? Takes the pages that it needs. */
int ash_cache_begin(struct ash_cache *cache, const struct ash_pass *pass, const struct ash_batch *batch,
                    struct ash_err *err);
/* Put the batch's k and v of a layer into the cache, and point pass->seqs and args at it. Of grouped attention these,
 * and q, are rotated and rounded on the way. */
void ash_cache_write(struct ash_pass *pass, size_t layer, struct ash_attn_args *args);

#endif
