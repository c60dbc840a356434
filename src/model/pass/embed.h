/* embed - from tokens to the stream, and the tables' gradients. Where tp splits the vocabulary, each rank looks up the
 * tokens that it holds and sends the rows to the ranks that keep them: rows move, nothing is added. */
#ifndef ASH_MODEL_PASS_EMBED_H
#define ASH_MODEL_PASS_EMBED_H

#include "model/pass/grads.h"
#include "model/pass/step.h"

/* Which tokens of the batch this rank looks up where tp splits the vocabulary, and where their rows go. The device's
 * copies of the lists are in acts->block. Open with ash_embed_open; close with ash_embed_close, which accepts a zeroed
 * struct. */
struct ash_embed_plan {
    size_t held_count;                         /* tokens whose rows of the table are here */
    int32_t *held_ids, *held_rows, *own_index; /* [max_rows], host: as in struct ash_batch_block */
    size_t *send, *recv;                       /* [tp size], floats */
    size_t *vocab_ends;                        /* [tp size]: where the parts of the vocabulary end */
};

/* Returns 0 or -ENOMEM. Without a tp axis nothing is allocated. */
int ash_embed_open(struct ash_embed_plan *plan, const struct ash_model *model, const struct ash_axes *axes,
                   size_t max_rows, struct ash_err *err);
/* Free; accepts a zeroed struct. */
void ash_embed_close(struct ash_embed_plan *plan);
/* Find out who looks up which of this rank's tokens: ids [rows], host. Returns 0 or what copying gave. */
int ash_embed_begin(const struct ash_pass_step *step, const int32_t *ids, struct ash_err *err);

/* x [own rows, C]: where the stream starts. */
void ash_embed_forward(const struct ash_pass_step *step, float *x);
/* The tables' gradients from scratch.dx to sink. */
void ash_embed_backward(const struct ash_pass_step *step, struct ash_grad_sink *sink);

#endif
