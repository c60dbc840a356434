/* rope - rotary positions of a pass: tables of cosines and sines that grow with the longest document. */
#ifndef ASH_MODEL_PASS_ROPE_H
#define ASH_MODEL_PASS_ROPE_H

#include "model/pass/step.h"

/* Zero-initialise; close with ash_rope_fini. */
struct ash_rope {
    struct ash_buffer
        tables; /* cos, then sin: [positions, dims / 2] each; of local ones; factors of queries, and zeros */
    size_t positions, dims;
};

/* Make sure that the tables reach position count - 1. Returns 0 or -ENOMEM; on error the tables are as before. */
int ash_rope_reserve(struct ash_rope *rope, const struct ash_model *model, const struct ash_exec *exec, size_t count,
                     struct ash_err *err);
/* Free the tables; accepts a zeroed struct. */
void ash_rope_fini(struct ash_rope *rope);
/* Cosines of a kind of layers, or NULL for a model without rotary positions. */
const float *ash_rope_cos(const struct ash_rope *rope, enum ash_rope_at at);
/* Sines of a kind of layers, or NULL for a model without rotary positions. */
const float *ash_rope_sin(const struct ash_rope *rope, enum ash_rope_at at);
/* Does this layer of the slice rotate? */
bool ash_rope_is_in(const struct ash_model *model, size_t layer);

/* How heads lie in rows: floats between heads and between rows. */
struct ash_rope_heads {
    size_t heads, head_stride, row_stride;
    uint16_t *rounded; /* [rows, row_stride]: gets the rows, rotated and rounded to bf16, and x stays; NULL: in place */
    size_t layer;      /* whose positions */
};
/* What rotates the heads of the step's rows of x; inverse: back. Only for a layer that rotates. */
struct ash_rope_args ash_rope_args_of(const struct ash_pass_step *step, float *x, struct ash_rope_heads heads,
                                      bool inverse);
/* Rotate the heads of the step's rows of x; inverse: back. Where the layer does not rotate, they are only rounded. */
void ash_rope_apply(const struct ash_pass_step *step, float *x, struct ash_rope_heads heads, bool inverse);
/* The same, forward and in place, of rows that a product rounded to bf16. */
void ash_rope_apply_bf16(const struct ash_pass_step *step, uint16_t *x, struct ash_rope_heads heads);
/* Multiply the queries in the step's rows of x, or (inverse) their gradients, by the factor that grows with the
 * position, where the layer has one. */
void ash_rope_temper(const struct ash_pass_step *step, float *x, struct ash_rope_heads heads, bool inverse);

#endif
