/* The inside of a model: its parameters by role, and the matrix products that read and train them. */
#ifndef ASH_MODEL_MODEL_PRIV_H
#define ASH_MODEL_MODEL_PRIV_H

#include "base/prefetcher.h"
#include "model/family.h"
#include "model/files/load.h"
#include "model/model.h"
#include "model/shards.h"
#include "storage/gguf.h"
#include "storage/safetensors.h"

#define ASH_PARAM_ALIGN 16 /* elements; each parameter starts on a cache line of the flat buffers */
#define ASH_NO_PARAM (-1)

/* Index of a parameter by role, or ASH_NO_PARAM. Expert roles give expert 0's; see ash_layer_expert. */
struct ash_layer {
    int32_t param[ASH_ROLE_COUNT];
};

struct ash_model {
    struct ash_model_config config; /* of the slice: what passes compute with */
    struct ash_model_config whole;  /* shares config's json */
    struct ash_slice slice;
    struct ash_shards shards;
    uint32_t layer_ids[ASH_MODEL_LAYERS_MAX]; /* of the slice's layers, in the whole model */
    struct ash_range vocab, experts;          /* rows of the output matrix, experts of each sparse layer */
    struct ash_param *params;
    size_t param_count, param_capacity;
    size_t size, weight_count, dense_size, expert_size;
    size_t tied_grad_offset;       /* of a tied output matrix's own sum in a buffer of gradients */
    struct ash_layer top;          /* roles that exist once */
    struct ash_layer *layers;      /* [config.layers] */
    struct ash_safetensors *files; /* what the weights are mapped from; NULL once owned */
    json_t *generation;            /* generation_config.json, or NULL */
    struct ash_buffer values;      /* owned float32 weights; empty while mapped */
    struct ash_buffer vectors;     /* float32 copies of 1-D parameters whose values are narrower */
    size_t *vector_offset;         /* [param_count] element offset in vectors */
    bool round_bf16;
    struct ash_buffer packed;                /* see pack.c */
    const struct ash_matrix_ops *packed_for; /* whose pack() wrote it; NULL: nobody's */
    bool packed_bf16;                        /* round_bf16 when that was */
    struct ash_prefetcher *prefetcher;       /* brings mapped weights in, or NULL */
    struct ash_load *load;                   /* packs them from the disk, or NULL */
    struct ash_gguf *gguf; /* the file, where the model came from one: it can compute, but not train or be saved */
};

/* pack.c: bytes that a parameter takes packed; 0 where it stays as it is. */
size_t ash_model_packed_bytes(const struct ash_model *model, const struct ash_exec *exec, int32_t index);
/* Memory for all that can be packed, and each parameter's place in it, still to be written. Returns 0 or -ENOMEM. */
int ash_model_place_packed(struct ash_model *model, const struct ash_exec *exec, struct ash_err *err);
/* Forget the packed weights. */
void ash_model_unpack(struct ash_model *model);

/* model.c: is a parameter's gradient a product over tokens alone, which can write its first terms? */
bool ash_param_starts(const struct ash_param *param);

/* params.c: fill model's parameter list from its config. */
int ash_model_list_params(struct ash_model *model, struct ash_err *err);

static inline bool ash_layer_has(const struct ash_layer *layer, enum ash_role role)
{
    return layer->param[role] != ASH_NO_PARAM;
}

/* Index of an expert's matrix: the three matrices of an expert follow each other. */
static inline int32_t ash_layer_expert(const struct ash_layer *layer, enum ash_role role, size_t expert)
{
    return layer->param[role] + 3 * (int32_t)expert;
}

/* rope.c: what llama3's scaling divides the frequency of pair i by. */
float ash_rope_llama3_factor(const struct ash_rope_config *rope, size_t dims, size_t i);

/* A 1-D parameter as float32, or NULL for ASH_NO_PARAM. */
const float *ash_model_vector(const struct ash_model *model, int32_t param);

/* ---- linear.c: y = x W^T + b and its gradients ------------------------------------------------------------------- */

/* Where a matrix product reads and writes. Rows of x have x_stride elements between them, and so on. */
struct ash_linear_io {
    size_t rows;
    const float *x;
    size_t x_stride;
    float *y; /* forward: out; backward: not used */
    size_t y_stride;
    /* backward: */
    const float *dy;
    size_t dy_stride;
    float *dx; /* NULL: not wanted */
    size_t dx_stride;
    bool dx_add;
    size_t seq_rows; /* rows are whole sequences of this many, or one that starts at a multiple of ASH_K_GROUP of its
                        sequence and ends at one or at its end (then seq_rows = rows); 0: rows of many sequences, of
                        which other calls have more */
    bool among_all;  /* backward: x and dy lie among the rows of all ranks along cp, where these have one sum */
};

/* A weight as it lies in the file (or in the owned buffer). */
struct ash_weight ash_linear_file_weight(const struct ash_model *model, int32_t weight, size_t *in_out);
/* As the products of exec read it. */
struct ash_weight ash_linear_weight(const struct ash_model *model, const struct ash_exec *exec, int32_t weight,
                                    size_t *in_out);

/* weight and bias are parameter indices (bias may be ASH_NO_PARAM). */
void ash_linear_forward(const struct ash_model *model, struct ash_exec *exec, int32_t weight, int32_t bias,
                        const struct ash_linear_io *io);

/* One of several products that share their input. */
struct ash_linear_out {
    int32_t weight, bias;
    float *y;
    size_t y_stride;
};

/* The products of one step of a layer, as ash_project_args describes them, in as few calls as their weights allow. */
struct ash_linear_group {
    size_t rows;
    const float *x;
    size_t x_stride;
    int32_t norm; /* weight of the RMS norm that x goes through first, or ASH_NO_PARAM */
    bool residual, swiglu;
    size_t out_count;
    struct ash_linear_out outs[ASH_PROJECT_OUTS_MAX];
};

void ash_linear_project(const struct ash_model *model, struct ash_exec *exec, const struct ash_linear_group *group);
/* Can one call read both, as swiglu demands? */
bool ash_linear_alike(const struct ash_model *model, const struct ash_exec *exec, int32_t a, int32_t b);

/* dweight += (start: =) the gradient of the weight over io's rows. */
void ash_linear_weight_grad(const struct ash_model *model, struct ash_exec *exec, int32_t weight,
                            const struct ash_linear_io *io, bool start, float *dweight);
/* Only some rows of the weight as it is stored; dweight is all of it. */
void ash_linear_weight_grad_part(const struct ash_model *model, struct ash_exec *exec, int32_t weight,
                                 const struct ash_linear_io *io, struct ash_range part, bool start, float *dweight);
/* dbias += the same of its bias. */
void ash_linear_bias_grad(const struct ash_model *model, struct ash_exec *exec, int32_t weight,
                          const struct ash_linear_io *io, float *dbias);
/* A part of a sum that other ranks have parts of: x W^T over the inputs that are here, or (back) x W over outputs
 * outs.first ... of the part that is here. */
struct ash_linear_term {
    int32_t weight;
    bool back;
    struct ash_range outs;
    const float *x; /* [rows, ...], all columns */
    size_t x_stride;
};
/* The product that goes on over the term, but for M, c and accumulate. */
struct ash_gemm_args ash_linear_part(const struct ash_model *model, const struct ash_linear_term *term);
/* sums [rows, outputs or (back) inputs] go on over the term; start: they begin with it. */
void ash_linear_continue(const struct ash_model *model, struct ash_exec *exec, const struct ash_linear_term *term,
                         size_t rows, bool start, float *sums);

/* dx = (dx_add: +=) dy W. */
void ash_linear_input_grad(const struct ash_model *model, struct ash_exec *exec, int32_t weight,
                           const struct ash_linear_io *io);

#endif
