/* acts_layout - sizes and places of activations. What backward needs is placed per layer; whatever it can recompute,
 * and everything in a pass without backward, is placed once and reused by all layers. The layout runs twice: first only
 * to measure, then with memory.
 *
 * Memory is in four spaces, by who sees it:
 *
 *     private  this rank                                       sums over tp read it where tp ranks share memory
 *     tp       ranks of tp that share memory                   rows of the stream, side by side
 *     cp       ranks of cp that share memory, one per tp rank  rows of attention and feed-forward
 *     node     both                                            rows of the stream of the whole batch */
#ifndef ASH_MODEL_PASS_ACTS_LAYOUT_H
#define ASH_MODEL_PASS_ACTS_LAYOUT_H

#include "model/pass/acts.h"

#define ASH_ACTS_ALIGN ((size_t)64) /* bytes */

enum ash_space { ASH_SPACE_PRIVATE, ASH_SPACE_TP, ASH_SPACE_CP, ASH_SPACE_NODE, ASH_SPACES };

/* One space: the part per layer, then the part that layers reuse. With NULLs it only measures. */
struct ash_space_memory {
    char *kept, *reused; /* where each begins */
    size_t kept_bytes, reused_bytes, reused_peak_bytes;
};

/* Filled by ash_acts_layout_init; then bases may be set, and ash_acts_layout_run places everything. */
struct ash_acts_layout {
    const struct ash_model *model;
    const struct ash_pass_opts *opts;
    const struct ash_axes *axes;
    struct ash_acts *acts;
    struct ash_space_memory spaces[ASH_SPACES];
    size_t rows, own, batch_rows; /* of this rank; of the stream that it keeps; of the whole batch: at most */
};

/* A layout into acts, whose layers are allocated; nothing is placed yet. All are borrowed. */
struct ash_acts_layout ash_acts_layout_init(const struct ash_model *model, const struct ash_pass_opts *opts,
                                            const struct ash_axes *axes, struct ash_acts *acts);
/* Place everything: sets acts' strides, and its pointers where spaces have memory. */
void ash_acts_layout_run(struct ash_acts_layout *l);
/* acts_scratch.c, for ash_acts_layout_run: gradients and temporaries of the backward pass; what ranks of tp
 * exchange. */
void ash_acts_layout_gradients(struct ash_acts_layout *l);
/* acts_scratch.c: how many rows the head computes at a time. */
void ash_acts_layout_count_head_rows(struct ash_acts_layout *l);
/* acts_scratch.c, for ash_acts_layout_run: logits, their gradients, the final norm. */
void ash_acts_layout_head(struct ash_acts_layout *l);
/* What ranks of tp exchange; acts_scratch.c, for ash_acts_layout_run. */
void ash_acts_layout_exchanges(struct ash_acts_layout *l);
/* Bytes of a space after a run. */
size_t ash_acts_layout_space_bytes(const struct ash_acts_layout *l, enum ash_space space);

/* Place size_bytes for the life of the pass. Returns NULL where the layout only measures. */
void *ash_acts_layout_keep_bytes(struct ash_acts_layout *l, enum ash_space space, size_t size_bytes);
/* Place size_bytes of what only the head or only a layer's backward pass uses: for one of these at a time, where one
 * rank computes; else for the life of the pass. */
void *ash_acts_layout_shared_bytes(struct ash_acts_layout *l, enum ash_space space, size_t size_bytes);
/* What is placed next for one layer (or the head) lies where the one before it did. */
void ash_acts_layout_reset(struct ash_acts_layout *l);
/* Place size_bytes for one layer at a time. Returns NULL where the layout only measures. */
void *ash_acts_layout_reuse_bytes(struct ash_acts_layout *l, enum ash_space space, size_t size_bytes);
/* ash_acts_layout_shared_bytes of floats. */
float *ash_acts_layout_back_floats(struct ash_acts_layout *l, enum ash_space space, size_t count);
/* The same for the life of the pass, by type; integers are private. */
float *ash_acts_layout_keep_floats(struct ash_acts_layout *l, enum ash_space space, size_t count);
/* Private integers for the life of the pass. */
int32_t *ash_acts_layout_keep_ints(struct ash_acts_layout *l, size_t count);
/* A column further right in the same rows; of NULL, NULL. */
float *ash_acts_layout_columns(float *base, size_t columns);
/* Columns of q, k and v of some key-value heads. */
size_t ash_acts_layout_qkv_width(const struct ash_acts_layout *l, size_t kv_heads);

/* Floats between rows of an expert's gate, and of its up. */
static inline size_t ash_acts_expert_stride(const struct ash_model_config *config)
{
    return (config->family->names[ASH_ROLE_EXPERT_GATE_UP] != NULL ? 2 : 1) * config->expert.ffn;
}

/* acts_state.c: recurrent states, and gates where the family has them. Of a layer: */
void ash_acts_layout_state(struct ash_acts_layout *l, struct ash_state_acts *state);
/* Gates of attention's outputs. */
void ash_acts_layout_out_gate(struct ash_acts_layout *l, struct ash_attn_acts *attn);
/* The factor of shared experts. */
void ash_acts_layout_shared_gate(struct ash_acts_layout *l, struct ash_moe_acts *moe);
/* Their gradients. */
void ash_acts_layout_state_gradients(struct ash_acts_layout *l);
/* Those of both kinds of gates. */
void ash_acts_layout_gate_gradients(struct ash_acts_layout *l);

#endif
