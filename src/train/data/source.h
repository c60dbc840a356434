/* source - the sequences of a step, and the objective on them.
 * A source gives sequence (step, slot) as a pure function of its data: earlier reads do not change it. An
 * objective, a pure function too, turns the losses of a sequence's rows into a scale for each row's gradient. A trainer
 * is put together from both: windows of a stream, or whole examples, pairs, answers. */
#ifndef ASH_TRAIN_SOURCE_H
#define ASH_TRAIN_SOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ashlar/err.h"
#include "train/data/dataset.h"

struct ash_source_ops {
    /* Fill sample for slot (< slots_per_step) of step (from 0). sample->doc_count 0: the slot is empty, and so are all
     * later ones of its grain. Returns 0 or -EBADMSG for damaged data. */
    int (*read)(const void *ctx, uint64_t step, uint64_t slot, uint64_t slots_per_step, struct ash_sample *sample,
                struct ash_err *err);
    /* Rows of it with a target. */
    uint64_t (*count)(const void *ctx, uint64_t step, uint64_t slot, uint64_t slots_per_step);
    /* Prefetch hint: it will be read. NULL: all data are local. */
    void (*want)(const void *ctx, uint64_t step, uint64_t slot, uint64_t slots_per_step);
};

struct ash_train_source {
    const struct ash_source_ops *ops;
    const void *ctx;
    size_t tokens, windows;        /* windows: samples per epoch */
    size_t vocab_size;             /* one more than the largest id */
    uint64_t hash, tokenizer_hash; /* of the data's identity; of the tokenizer that made it */
    int32_t eos_id;                /* what ends each document, or -1 */
    bool has_kept;                 /* do rows keep some ids alone (model/pass/pass.h)? read fills sample->kept then */
};

/* The windows of a dataset, which is borrowed. */
struct ash_train_source ash_dataset_source(const struct ash_dataset *dataset);

/* A sequence of a step after its forward pass. Rows count from the sequence's first. */
struct ash_objective_rows {
    uint64_t step, slot;
    size_t rows;
    const int32_t *targets; /* [rows]: -1 has no loss */
    const float *losses;    /* [rows]: minus log-probabilities; NULL: not known yet (see needs_losses) */
    const float *entropies; /* [rows]; NULL: not wanted */
    float *scales;          /* [rows]: out; zeroed by the caller */
    float *entropy_scales;  /* [rows]: out, zeroed; NULL without has_entropy */
};

struct ash_objective {
    /* Write the scales of the gradient of this sequence's rows, and add the sequence's part of the step's loss to
     * *loss_out: both with the step's own denominators. Returns 0 or a negative errno that ends the run. */
    int (*weigh)(void *ctx, const struct ash_objective_rows *rows, double *loss_out, struct ash_err *err);
    /* The losses of a sequence whose scales did not need them, after the backward pass. Optional. Returns as weigh. */
    int (*look)(void *ctx, const struct ash_objective_rows *rows, struct ash_err *err);
    void *ctx;
    bool needs_losses; /* does weigh read losses? They cost a product with the output matrix more */
    bool has_entropy;  /* does the loss have entropies in it? */
    float sharpness;   /* 1 / temperature of the losses; 0 means 1 */
};

#endif
