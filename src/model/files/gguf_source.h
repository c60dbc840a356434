/* gguf_source - the tensors of a GGUF file that a model is written as, and their rows, made of parameters. */
#ifndef ASH_MODEL_FILES_GGUF_SOURCE_H
#define ASH_MODEL_FILES_GGUF_SOURCE_H

#include "model/files/gguf_model_priv.h"

/* Which row of a parameter is row r of the file's tensor. */
enum ash_gguf_order {
    ASH_GGUF_ORDER_SAME,
    ASH_GGUF_ORDER_PERMUTED,    /* neighbours in the file are halves of a head */
    ASH_GGUF_ORDER_FIRST_HALF,  /* of gate and up, one after the other */
    ASH_GGUF_ORDER_SECOND_HALF, /* the same */
    ASH_GGUF_ORDER_EVEN,        /* of gate and up, row by row */
    ASH_GGUF_ORDER_ODD,         /* the same */
    ASH_GGUF_ORDER_BY_HEAD,     /* q, k and v follow each other head by head */
    ASH_GGUF_ORDER_K_UP,        /* of each head its rows for keys, the other way round */
    ASH_GGUF_ORDER_V_UP         /* of each head its rows for values */
};

struct ash_gguf_source {
    char name[96];
    size_t param, parts,
        step;          /* the first parameter; of experts, and heads: how many, and their distance in the list */
    size_t rows, cols; /* of one part; a vector has rows of one element */
    enum ash_gguf_order order;
    size_t shape[2];                        /* of a vector that files fold; zeros: it is one */
    bool is_rate;                           /* the decay of states, whose file has the rate */
    bool is_matrix, has_parts, stays_float; /* whether it may be quantised, or stored in 16 bits */
};

/* List the tensors, at most two for a parameter. *sources_out is the caller's to free. Returns 0, -ENOMEM or -ENOTSUP
 * for a parameter without a name. */
int ash_gguf_sources(const struct ash_model *model, const struct ash_gguf_arch *arch,
                     struct ash_gguf_source **sources_out, size_t *count_out, struct ash_err *err);
/* Row `row` of all parts' rows, as float32. */
void ash_gguf_source_row(const struct ash_model *model, const struct ash_gguf_source *source, size_t row, float *out);
/* Describe the tensor for a writer: matrices as dtype where their rows are whole blocks, the rest as float32. */
void ash_gguf_source_spec(const struct ash_gguf_source *source, enum ash_dtype dtype, struct ash_tensor_spec *spec_out);

#endif
