/* moe_pairs - pairs of tokens and experts: which ranks they go to, and the state of their exchange. Experts are
 * split in order, so the pairs of a rank, sorted by expert, are neighbours. */
#ifndef ASH_MODEL_PASS_MOE_PAIRS_H
#define ASH_MODEL_PASS_MOE_PAIRS_H

#include "model/pass/step.h"

/* Memory that grows; growing loses the content. */
struct ash_growing {
    struct ash_buffer memory;
    size_t capacity; /* in the units of ash_moe_reserve */
};

/* What the experts here received from the batches of all ranks of ep: pairs sorted by (rank, expert, token). How many
 * come is known when they do, so the memory grows. */
struct ash_moe_inbox {
    struct ash_growing pairs;
    float *x;                   /* [pairs, C] */
    struct ash_ffn_acts expert; /* [pairs, expert ffn] */
};

/* Where the pairs of a layer are, from the forward pass to the backward pass. Host. */
struct ash_moe_route {
    size_t *offsets;            /* [experts + 1]: of this batch's pairs, by expert */
    size_t *starts;             /* [ep size * experts here + 1]: of the pairs in the inbox, by rank and expert */
    uint32_t *forwarded;        /* [ep size, 1 + ranks on this node]: see moe_nodes.c */
    struct ash_moe_inbox inbox; /* where backward needs it */
};

/* What a rank of ep has said of its batch, which the experts here compute for. */
struct ash_moe_source {
    bool has_rows;
    bool more_follow; /* as ASH_BATCH_MORE_FOLLOW of struct ash_batch */
};

/* How the ranks of ep lie on nodes, and what goes from node to node (moe_nodes.c). */
struct ash_moe_nodes {
    size_t count;               /* of nodes */
    uint32_t *node, *place;     /* [ep size]: of each rank, its node and its place there */
    uint32_t *ranks;            /* [ep size]: node by node */
    uint32_t *first;            /* [nodes + 1]: where each node begins in ranks */
    size_t *unique;             /* [nodes]: tokens that go to each */
    size_t *send, *recv;        /* [ranks here] floats, inside this node */
    int32_t *order, *index;     /* [pairs], host: tokens; their rows among those of their node */
    int32_t *chosen, *mark;     /* [pairs], [rows], host: tokens that go to each node; where a token is among them */
    struct ash_buffer rows;     /* chosen, device */
    struct ash_growing out, in; /* floats between nodes, then inside one */
};

/* The exchange of pairs along ep, one layer at a time. Open with ash_moe_open; close with ash_moe_close. */
struct ash_moe_exchange {
    size_t layer_count;
    struct ash_moe_route *routes;   /* [layers] */
    struct ash_moe_source *sources; /* [ep size] */
    struct ash_weight *weights;     /* [experts]: of a grouped product */
    size_t *send, *recv;            /* [ep size] floats */
    size_t *tp_counts;              /* [tp size] floats */
    uint32_t *sent, *received;      /* pairs per expert, and what else a rank says of its batch */
    struct ash_moe_inbox inbox;     /* of layers whose own is not kept */
    struct ash_growing pairs;       /* memory of the rest: */
    float *y;                       /* [pairs, C]; its gradient, and that of x */
    struct ash_ffn_acts d;          /* [pairs, expert ffn]: gradients */
    float *hidden;                  /* likewise, where the inbox has none */
    struct ash_moe_nodes nodes;
};

/* Pairs of the batch whose experts rank (ep, tp) has. */
struct ash_range ash_moe_pairs_of(const struct ash_pass_step *step, size_t layer, size_t ep_rank, size_t tp_rank);
/* Pairs that a batch of max_rows has, at most. */
size_t ash_moe_max_pairs(const struct ash_model *model, const struct ash_pass_opts *opts, const struct ash_axes *axes);
/* out [pairs, C]: the rows of x that pairs are of; weighted: times the pairs' weights, the gradient of a pair's y. */
void ash_moe_gather_rows(const struct ash_pass_step *step, size_t layer, const float *x, struct ash_range pairs,
                         bool weighted, float *out);
/* Make growing hold count units of width floats. Returns 0 or -ENOMEM. */
int ash_moe_reserve(struct ash_growing *growing, const struct ash_exec *exec, size_t count, size_t width,
                    struct ash_err *err);

#endif
