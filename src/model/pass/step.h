/* step - what the blocks of a pass compute with: the parts of the pass, which stay, and the current batch. pass.c fills
 * it for each batch; blocks read it. Gradients are no part of it: backward functions take an ash_grad_sink. */
#ifndef ASH_MODEL_PASS_STEP_H
#define ASH_MODEL_PASS_STEP_H

#include "model/model_priv.h"
#include "model/pass/acts.h"
#include "model/pass/axes.h"

struct ash_cache;
struct ash_embed_plan;
struct ash_moe_exchange;
struct ash_rope;
struct ash_state_seq;
struct ash_ulysses;

struct ash_pass_step {
    /* borrowed from the pass, the same for all its batches: */
    const struct ash_model *model;
    struct ash_exec *exec;
    const struct ash_pass_opts *opts;
    struct ash_axes *axes;
    struct ash_acts *acts;
    struct ash_rope *rope;
    struct ash_ulysses *ulysses;
    struct ash_moe_exchange *moe;
    struct ash_embed_plan *embed;
    struct ash_attn_seq *seqs;        /* [max_rows], host: attention's view of the documents */
    struct ash_state_seq *state_seqs; /* [max_rows], host: parts of documents, for layers with states */
    struct ash_kept *few_kept;        /* [max_rows], host: of the rows that have targets */
    float *kept_row;                  /* [vocab], host: a row of logits, where the host cannot touch them; else NULL */
    /* the batch: */
    const struct ash_batch *batch; /* borrowed; all ranks of cp have the whole one */
    struct ash_cache *cache;       /* NULL: keys and values of the batch alone */
    bool has_adapters;             /* the model has, or some of the batch's documents have */
    enum ash_dtype kv_dtype;       /* which keys and values are rounded to, with a cache or without */
    size_t first_row;              /* of the batch: this rank's first along cp */
    const struct ash_kept *kept;   /* [rows], host: of these rows; NULL: they keep all ids */
    bool has_few;                  /* these rows are those of the batch that have targets, put together */
    size_t rows;                   /* this rank's; 0: it only serves the experts of others */
    size_t seq_rows;               /* of one sequence, among these */
    struct ash_range own;          /* of these rows: those of the stream that this rank keeps between blocks */
};

#endif
