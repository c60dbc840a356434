/* pass - one pass over rows of tokens: a forward pass that can use a cache, and a backward pass. The same layer code
 * runs in training, evaluation and serving, so their logits agree to the bit. README.md says how the inside is
 * built. */
#ifndef ASH_MODEL_PASS_PASS_H
#define ASH_MODEL_PASS_PASS_H

#include "model/axis.h"
#include "model/model.h"

struct ash_batch;

/* ---- a batch ----------------------------------------------------------------------------------------------------- */

/* The rows of one document in a batch: count rows from row on, the first at position pos of the document. With a cache,
 * pages is its block table (model/pass/cache.h), borrowed; without one pos is 0. */
struct ash_doc {
    size_t row, count, pos;
    size_t
        second; /* of an encoder's pair of texts: rows of the document from here on are the second; 0: there is one */
    const int32_t *pages; /* [page_count]: page i has tokens from i * ASH_CACHE_PAGE_TOKENS on */
    size_t page_count;
    /* Inference on one rank: adapters that its rows go through, a model that ash_lora_attach made for the pass's model;
     * borrowed. NULL: none. Documents of one batch may have different ones. */
    const struct ash_model *adapters;
};

/* The place of a batch among those whose gradients are added up. */
enum ash_batch_flags {
    /* The first of them: products write what they would else add to zeros, so only ash_model_clear_grads has to come
     * before it. Not with an ep axis, nor with a cp axis whose ranks share no gradients. */
    ASH_BATCH_OVERWRITES = 1,
    /* Not the last. Read only with a cp axis whose ranks share no gradients: the sums are on its last rank after the
     * last batch, and are carried back to the first after any other. */
    ASH_BATCH_MORE_FOLLOW = 2,
};

/* Which inputs of adapters a training batch leaves out: a pure function of the seed, the sequence's number, the row in
 * it, the matrix and the column; the share is the adapters' (struct ash_lora). */
struct ash_dropout {
    uint64_t seed;
    const uint64_t *numbers; /* [rows / seq_rows] of the sequences; NULL: nothing is left out */
};

/* The ids that a row's distribution is over: a sampler's filters left them. */
struct ash_kept {
    const int32_t *ids; /* [count], ascending; the row's target is among them; borrowed */
    size_t count;       /* 0: all ids */
};
/* kept.c: of one row, in host memory, the logits of the ids [first, first + count): all but the kept ones become
 * -infinity. */
void ash_kept_mask_row(const struct ash_kept *kept, size_t first, size_t count, float *logits);

/* Whose distributions the rows of a batch learn, instead of their targets. Caller's; host memory. */
struct ash_teacher {
    float sharpness, beta, target_weight; /* as in struct ash_distill_args */
    size_t most_rows;                     /* of one call of ask, at least 1 */
    float *logits;                        /* [most_rows, vocab]: what ask fills; both in the exec's memory */
    float *gathered;                      /* [2, most_rows, vocab]: scratch */
    /* Run the batch, of which ask wants rows next. Returns 0 or a negative errno. */
    int (*run)(void *ctx, struct ash_exec *exec, const struct ash_batch *batch, struct ash_err *err);
    /* Its logits of some rows (ascending) of that batch. */
    int (*ask)(void *ctx, const size_t *rows, size_t count, struct ash_err *err);
    void *ctx;
};

/* All ranks of tp and cp get the whole batch; each computes some of it. Along cp it is one sequence. */
struct ash_batch {
    size_t rows;
    const int32_t *ids;  /* [rows], each in [0, vocab) */
    bool follows_choice; /* instead of ids: row for row what ash_pass_choose chose last, which the host may not know */
    const int32_t *targets; /* [rows], the id that should follow, or -1 for none; training and evaluation only */
    const float *states;    /* [rows, hidden], host memory: of a head for drafts, the state (after the final norm) of
                                   the token before each row's; else NULL */
    const struct ash_doc *docs; /* they cover all rows, in order */
    size_t doc_count;
    size_t seq_rows; /* rows of one sequence: the batch is whole ones, one after the other; 0: it is one sequence.
                        Weight gradients sum sequence by sequence, so this (and nothing else of the batch's shape) is
                        part of their order. */
    unsigned flags;  /* of enum ash_batch_flags; training only */
    float sharpness; /* 1 / temperature of losses and entropies; 0 means 1 */
    const struct ash_kept *kept; /* [rows], host memory: losses and entropies are over these; NULL: over all ids */
    /* What an objective makes of a batch's losses; read by the backward pass, so it may be written after the forward
     * pass. Host memory. */
    const float *scales;         /* [rows]: of each row's loss, instead of the backward pass's scale; NULL: that */
    const float *entropy_scales; /* [rows]: of each row's entropy, with scales only; NULL: none */
    struct ash_dropout dropout;  /* training with adapters only */
    /* The losses of the backward pass are divergences from this teacher, which has run the batch; without scales, kept
     * sets and devices. NULL: cross-entropies. */
    const struct ash_teacher *teacher;
};

/* Where a backward pass adds gradients. */
struct ash_pass_grads {
    float *sums; /* ash_model_grad_size elements, same offsets as the parameters; not read for a batch without rows */
    /* Along ep the experts here compute for every rank's batch, and each rank's batch belongs to its own sum (another
     * grain). [ep.size]: expert_sums[r] has ash_model_expert_size elements, and gets, at every param's
     * expert_offset, the gradients of the experts here over rank r's batch. That of this rank may be NULL: then they go
     * to sums. Without an ep axis: NULL. */
    float *const *expert_sums;
};

/* ---- opening a pass ---------------------------------------------------------------------------------------------- */

enum ash_recompute { ASH_RECOMPUTE_NONE, ASH_RECOMPUTE_SELECTIVE, ASH_RECOMPUTE_FULL };

struct ash_pass; /* the activations of one pass, sized for max_rows; one owner thread */

/* For a caller that keeps weights elsewhere. need is called before the first use of a unit of them (ASH_UNIT_*), done
 * after the last use of the direction; after done of the backward pass the gradients of the current batch are
 * complete. A failure ends the pass. Ranks without rows call them like all others. */
struct ash_pass_hooks {
    int (*need)(void *ctx, int unit, bool backward, struct ash_err *err);
    int (*done)(void *ctx, int unit, bool backward, struct ash_err *err);
    void *ctx;
};

struct ash_pass_opts {
    size_t max_rows; /* of a batch */
    bool backward;   /* will ash_pass_train be called? */
    enum ash_recompute recompute;
    bool bf16_acts; /* store what only products of bf16 read rounded to bf16. Changes no bit; needs ops that take it
                         (ash_ops.takes_bf16), and needs a pass on one rank and a model without adapters */
    /* Rows whose gradients of logits exist at once, at most, and, where those are apart from logits (bf16_acts), rows
     * of logits. Both are rounded up to a multiple of 32. 0: as seems best. They change no bit. */
    size_t head_rows, logit_rows;
    /* The ranks that share the pass; all zero: one rank. Their contexts are borrowed until close. The ranks of ep have
     * different batches and share the experts alone: expert rank (see slice.h) ep.rank * tp.size + tp.rank of
     * ep.size * tp.size. */
    struct ash_axis tp, cp, ep;
    /* Inference alone, instead of those: the ranks of a slice that gathers, on one node. All make the same calls with
     * the same batches; only the first gets logits. */
    struct ash_axis outs;
    struct ash_axis node; /* where all ranks of tp and cp can share memory: those, neighbours along tp first.
                                   Read where both axes are longer than 1; all zero: they cannot. */
    bool shared_grads; /* where all ranks of cp (and tp) can share memory: are gradient buffers, and the experts', the
                          same memory on the ranks of cp? Then a batch's are complete when its backward pass returns. */
    struct ash_pass_hooks hooks; /* NULLs: none */
    /* Inference alone: layers before which the stream is kept, for ash_pass_infer_captured. */
    size_t captures[ASH_MODEL_CAPTURES], capture_count;
};

/* Borrows model and exec until close, which accepts NULL. Returns 0, -EINVAL (axes that do not fit the model's slice),
 * -ENOTSUP or -ENOMEM. All ranks of its axes open passes together. */
int ash_pass_open(struct ash_model *model, struct ash_exec *exec, const struct ash_pass_opts *opts,
                  struct ash_pass **pass_out, struct ash_err *err);
/* Free the activations; NULL is a no-op. All ranks of its axes close together. */
void ash_pass_close(struct ash_pass *pass);
/* Bytes of activations that a pass holds. */
size_t ash_pass_bytes(const struct ash_pass *pass);
/* Rows whose logits (or their gradients) exist at once, and the bytes of both. */
size_t ash_pass_head_rows(const struct ash_pass *pass, size_t *bytes_out);
/* Bytes that it would hold with these opts, into *bytes_out. Returns 0 or -ENOMEM. */
int ash_pass_measure(const struct ash_model *model, const struct ash_pass_opts *opts, size_t *bytes_out,
                     struct ash_err *err);

/* ---- training and evaluation ------------------------------------------------------------------------------------- */

/* Forward and loss, no gradients: losses[r] is the cross-entropy of row r (0 where its target is -1). */
int ash_pass_eval(struct ash_pass *pass, const struct ash_batch *batch, float *losses, struct ash_err *err);
/* Forward, loss and backward. Adds the gradient of scale * sum(losses) to grads, sequence by sequence, tokens
 * ascending: calling it for some of a batch's sequences and then for the others gives the bits of one call. The
 * ranks of an axis call this (and eval) equally often. Along ep a rank that has no batch left serves the others with
 * an empty one (rows 0; its other fields and losses are not read). */
int ash_pass_train(struct ash_pass *pass, const struct ash_batch *batch, float scale,
                   const struct ash_pass_grads *grads, float *losses, struct ash_err *err);

/* ---- stages: some of a model's layers, the two directions apart, so that other passes run between them ----------- */

/* Does the stage look tokens up, and does it end with the loss? */
bool ash_pass_has_embed(const struct ash_pass *pass);
/* Does the stage end with the loss? */
bool ash_pass_has_head(const struct ash_pass *pass);
/* The stream: floats that a stage sends to the next for a batch. */
size_t ash_pass_stream_count(const struct ash_pass *pass, const struct ash_batch *batch);
/* Where they are put before ash_pass_forward, and where they are after it. */
float *ash_pass_input(struct ash_pass *pass);
/* Where the stream is after ash_pass_forward. */
const float *ash_pass_output(const struct ash_pass *pass);
/* Where gradients travel the other way: the next stage's into, this one's out of the same place. */
float *ash_pass_gradient(struct ash_pass *pass);
/* Forward through the stage. batch (with its docs) is borrowed until the backward pass of the same batch. */
int ash_pass_forward(struct ash_pass *pass, const struct ash_batch *batch, struct ash_err *err);
/* Losses of the current batch, on a stage that ends with them: minus the log-probability of each row's target at the
 * batch's temperature. entropies [rows] gets those of the rows' distributions (0 where the target is -1); NULL: not
 * wanted. */
int ash_pass_losses(struct ash_pass *pass, float *losses, float *entropies, struct ash_err *err);
/* Backward through the stage; losses is written where the stage ends with them; scale and grads are as in
 * ash_pass_train. With the batch's scales it is the gradient of the sum of scales[r] * loss[r] + entropy_scales[r] *
 * entropy[r]. */
int ash_pass_backward(struct ash_pass *pass, float scale, const struct ash_pass_grads *grads, float *losses,
                      struct ash_err *err);

/* ---- inference --------------------------------------------------------------------------------------------------- */

struct ash_cache; /* keys and values of earlier tokens: model/pass/cache.h */

/* Run batch's rows on top of what the cache holds (doc.pos tokens of each document) and add them to it. logits_out gets
 * [wanted_count, vocab] for the rows listed in wanted (ascending). cache NULL: each doc starts at 0 and nothing is
 * kept. -EOVERFLOW when a block table is too short, -EINVAL for an id outside the vocabulary. */
int ash_pass_infer(struct ash_pass *pass, const struct ash_batch *batch, struct ash_cache *cache, const size_t *wanted,
                   size_t wanted_count, float *logits_out, struct ash_err *err);

/* ash_pass_infer in parts: the layers first, then the outputs of chosen rows, in as many calls as needed. */
int ash_pass_infer_layers(struct ash_pass *pass, const struct ash_batch *batch, struct ash_cache *cache,
                          struct ash_err *err);
/* How tokens are chosen. */
struct ash_pass_choice {
    size_t vocab;                     /* ids that may be chosen; the model may have more */
    const struct ash_sample_row *row; /* of each wanted row */
};
/* Logits [count, vocab] of some rows (ascending) of the current batch. Of several ranks (opts.outs) the first one gets
 * them; the others pass NULL. */
int ash_pass_infer_logits(struct ash_pass *pass, const size_t *rows, size_t count, float *logits_out,
                          struct ash_err *err);
/* Choose tokens that follow some rows (ascending), where the logits are: as ash_sample_ops.choose over the first vocab
 * logits. For an exec whose table chooses; its memory need not be the host's. They are fetched as number `fetch`. Of
 * several ranks (opts.outs) the first one chooses; the others pass the same rows to ash_pass_infer_logits. */
int ash_pass_choose(struct ash_pass *pass, const size_t *rows, size_t count, const struct ash_pass_choice *choice,
                    unsigned fetch, struct ash_err *err);
/* Wait for the tokens of that number, ids_out [count]. Other batches may have been enqueued since. */
int ash_pass_chosen(struct ash_pass *pass, unsigned fetch, size_t count, int32_t *ids_out, struct ash_err *err);
/* Their states [count, hidden] after the last layer and the final norm. */
int ash_pass_infer_states(struct ash_pass *pass, const size_t *rows, size_t count, float *states_out,
                          struct ash_err *err);

/* Of a pass that captures: the stream before each of opts.captures, side by side, of count rows from first on: out
 * [count, capture_count, hidden], in the host's memory. */
int ash_pass_infer_captured(struct ash_pass *pass, size_t first, size_t count, float *out, struct ash_err *err);
/* Of a head as EAGLE-3 has it: states [count, hidden] of what its model's pass captured, both in the host's memory; at
 * most max_rows. No batch is current after it. */
int ash_pass_fuse_captured(struct ash_pass *pass, const float *captured, size_t count, float *states_out,
                           struct ash_err *err);
/* The stream [hidden] after the last layer, before the final norm, of a row of the current batch. */
int ash_pass_infer_stream(struct ash_pass *pass, size_t row, float *stream_out, struct ash_err *err);

/* Of a classifier with one label: its score of a state [hidden] in the host's memory, which becomes state[0]. Plain C:
 * a pair of texts has one state. Returns 0, -ENOMEM or -ENOTSUP (the weights are in a device's memory). */
int ash_pass_score(const struct ash_pass *pass, float *state, struct ash_err *err);

#endif
