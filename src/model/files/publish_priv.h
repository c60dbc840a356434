/* The inside of published folders: which weights are quantised, and what config.json says about them. */
#ifndef ASH_MODEL_FILES_PUBLISH_PRIV_H
#define ASH_MODEL_FILES_PUBLISH_PRIV_H

#include <stdbool.h>
#include "base/workers.h"
#include "model/files/publish.h"

/* publish_choose.c: can the model be written in encoding? Returns 0 or -ENOTSUP. */
int ash_publish_check(const struct ash_model *model, const struct ash_encoding *encoding, struct ash_err *err);
/* Is parameter index the matrix of a linear layer, the output matrix among them? */
bool ash_publish_is_linear(const struct ash_model *model, size_t index);
/* Do experts share a tensor? */
bool ash_publish_has_stacked(const struct ash_model *model);
/* Is parameter index written as codes? */
bool ash_publish_is_quantised(const struct ash_model *model, const struct ash_encoding *encoding, size_t index);

/* Are the layers of these names parts of one product elsewhere, which has one factor: q, k and v; gate and up? */
bool ash_publish_are_fused(const char *a, const char *b);

/* Factors of parameters, for each by its index; NULLs: all are 1. */
struct ash_publish_factors {
    float **ins;  /* [inputs]: columns are multiplied by them */
    float **outs; /* [rows], or of a vector [elements]: they are divided by them */
    size_t count;
};
/* publish_awq.c: find those that encoding loses least with. inputs NULL: there are none. Returns 0 or -ENOMEM; fini is
 * due either way. */
int ash_publish_find_factors(const struct ash_model *model, const struct ash_encoding *encoding,
                             const struct ash_inputs *inputs, struct ash_workers *workers,
                             struct ash_publish_factors *factors, struct ash_err *err);
/* Free them; zeroed ones too. */
void ash_publish_factors_fini(struct ash_publish_factors *factors);
/* Elements [first, first + count) of parameter index, with its factors. */
void ash_publish_read(const struct ash_model *model, const struct ash_publish_factors *factors, size_t index,
                      size_t first, size_t count, float *out);

/* A matrix as codes: rows are outputs. */
struct ash_publish_matrix {
    size_t param, rows, cols; /* param SIZE_MAX: none yet */
    uint8_t *codes, *scales, *zeros;
    double *errors; /* [rows]: squared */
};

/* What encodes matrices. */
struct ash_publish_encoder {
    const struct ash_model *model;
    const struct ash_encoding *encoding;
    struct ash_workers *workers;
    struct ash_publish_factors factors;
    float *scratch; /* of each worker: a row, and what a reader makes of it */
    size_t scratch_cols;
    float *globals; /* [parameters]: what scales are multiplied by */
    double *errors; /* [parameters]: squared */
    struct ash_publish_matrix matrix;
};

/* publish_matrix.c: open; inputs as in ash_publish_opts. Returns 0, -ERANGE for a weight that is not finite, or
 * -ENOMEM; close is due either way. */
int ash_publish_encoder_open(struct ash_publish_encoder *encoder, const struct ash_inputs *inputs, struct ash_err *err);
/* Free its memory; zeroed ones too. */
void ash_publish_encoder_close(struct ash_publish_encoder *encoder);
/* Encode parameter index, unless it is the one that is there. Returns 0 or -ENOMEM. */
int ash_publish_encode(struct ash_publish_encoder *encoder, size_t index);
/* Outputs and inputs of a parameter. */
void ash_publish_shape(const struct ash_param *param, size_t *rows_out, size_t *cols_out);

/* publish_config.c: add a quantization_config to dir's config.json. Returns 0, -ENOMEM or an error of the file. */
int ash_publish_write_config(const struct ash_model *model, const struct ash_encoding *encoding, const char *dir,
                             struct ash_err *err);

#endif
