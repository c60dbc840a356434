/* model - a decoder: its named parameters, and where their values are. What computes with them is a pass
 * (model/pass/pass.h). */
#ifndef ASH_MODEL_MODEL_H
#define ASH_MODEL_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ashlar/err.h"
#include "compute/ops.h"
#include "model/config.h"
#include "model/slice.h"

struct ash_model;
struct ash_str;

/* One named tensor, in the order, with the name and shape that its Hugging Face file has. */
struct ash_param {
    char name[96];
    int dim_count;
    size_t dims[2];
    size_t count;       /* elements */
    size_t offset;      /* of its first element in the flat buffers of an owned model, in elements */
    int layer;          /* -1: embedding, final norm, head */
    bool before_layers; /* embedding and positions, where the slice starts with them */
    bool is_matrix;     /* 2-D: gets weight decay by default; norms and biases do not */
    bool is_expert;     /* of one expert of a layer; see struct ash_pass_grads */
    bool is_adapter;    /* a factor of an adapter (model/lora.h): stored [out, in] in every family */
    bool is_transposed; /* stored [in, out] */
    size_t part, parts; /* of a tensor in files that has parts' values one after the other; parts 0: it is one */
    bool has_one;       /* a norm's weight, stored less 1 */
    bool is_conv;       /* [channels, taps], stored as [channels, 1, taps] */
    bool is_trained;    /* false: a constant that travels with the weights (a router's choice bias) */
    const void *data;   /* the values the forward pass reads */
    enum ash_dtype dtype;
    const void *mapped; /* the same in the file, where data is a copy of it on a device (ash_model_place); or NULL */
    const void *packed; /* the same for products of inference, laid out by ash_model_pack; or NULL */
    /* where the process holds a slice: */
    size_t full[2];           /* dims of the whole tensor */
    int cut;                  /* the dimension of which this is a part; -1: it is whole */
    size_t run_count;         /* the part's runs along that dimension, one after the other */
    struct ash_range runs[3]; /* in the whole tensor */
    bool is_counted;          /* false: a copy; another process counts it in sums over the job */
    bool is_tied_copy;        /* of the embedding, as the output matrix of another pipeline stage: not trained here, but
                                 sent by the stage that trains it */
    size_t expert_offset;     /* of its first element in a buffer of experts' gradients */
    size_t grad_offset;       /* the same in a buffer of gradients: offset, unless ash_model_place_grads moved it */
};

/* Neighbours of a parameter that are neighbours in the whole tensor too: elements local ... local + count - 1 are full
 * ... there. */
struct ash_piece {
    size_t local, full, count;
};
/* How many pieces a parameter has; one of them, index < count, in the order of its elements here. */
size_t ash_param_piece_count(const struct ash_param *param);
/* Piece index (< count), in the order of the elements here. */
struct ash_piece ash_param_piece(const struct ash_param *param, size_t index);
/* Elements of the whole tensor. */
size_t ash_param_full_count(const struct ash_param *param);

/* Free all of it; accepts NULL. No pass on it may be open. */
void ash_model_close(struct ash_model *model);
/* Start to read mapped weights into memory, in the background, in the order in which a pass on exec reads them: weights
 * that are not in memory are packed as they are read from the disk (see ash_model_pack), in the current precision.
 * Worth it if a pass follows at once; on an owned model a no-op. Remote weights come by ranges, and passes wait for
 * what they read; where exec packs nothing, all of them are there when this returns. Returns 0, or why it cannot begin.
 * */
int ash_model_prefetch(struct ash_model *model, const struct ash_exec *exec, struct ash_err *err);

/* Turn mapped weights into one owned float32 buffer (for training). A no-op on an owned model. Returns 0, -ENOTSUP (a
 * GGUF file) or -ENOMEM. */
int ash_model_own(struct ash_model *model, struct ash_err *err);
/* The owned buffer: ash_model_size elements, parameter p at params[p.offset]. NULL while mapped. */
float *ash_model_values(struct ash_model *model);

/* The weights of an owned model are at values from now on (same offsets; borrowed): its own memory is freed. A
 * forward pass that reads float32 weights reads these, once ash_model_refresh has been called. */
void ash_model_move(struct ash_model *model, float *values);

/* Two owned models of equal slices give each other the memory of their weights. Returns false, and nothing is done,
 * if the slices differ or the weights of one are borrowed. ash_model_refresh follows. */
bool ash_model_trade_values(struct ash_model *model, struct ash_model *other);

/* The flat buffer that the forward pass reads: parameter p at p.offset, of its dtype. Not after ash_model_bind. */
const void *ash_model_weights(const struct ash_model *model);

/* From now on the forward pass reads bf16 weights at values (ash_model_size elements, same offsets; borrowed) and
 * rounds matrix operands to bf16; sums stay float32. NULL: back to float32. */
void ash_model_use_bf16(struct ash_model *model, const uint16_t *values);
/* Round matrix operands (and every weight that is not bf16 already) to bf16 when they are read: the arithmetic of a
 * model trained in bf16, on weights as they are mapped. */
void ash_model_round_bf16(struct ash_model *model, bool on);
/* From now on (or no longer) layers multiply by their weights in e4m3 as well, in both passes of training
 * (ash_gemm_args.fp8); the head, embeddings, routers and adapters do not. With ash_model_round_bf16. */
void ash_model_use_fp8(struct ash_model *model, bool on);
/* Does it? */
bool ash_model_rounds_bf16(const struct ash_model *model);
/* What keys and values are rounded to before attention reads them, in a cache or not: ASH_F32 or ASH_BF16. */
void ash_model_use_kv_dtype(struct ash_model *model, enum ash_dtype dtype);
/* That dtype: ASH_BF16 where operands are rounded to bf16 or matrices are quantised, else ASH_F32, unless
 * ash_model_use_kv_dtype said otherwise. */
enum ash_dtype ash_model_kv_dtype(const struct ash_model *model);
/* Lay the mapped matrices out as exec's products read them fastest, where those ask for it, in memory that the model
 * owns; the mapped copy's memory is released piece by piece as it goes. Changes no bit of any result. Only passes on an
 * exec with the same backend, in the current precision, read the new layout; others read the file again. A no-op on an
 * owned model and the second time. Not while a pass runs. Returns 0, -ENOMEM, or what reading the files gave where
 * ash_model_prefetch was at it. */
int ash_model_pack(struct ash_model *model, struct ash_exec *exec, struct ash_err *err);
/* Have all that passes read in the memory of exec: where the host cannot touch that, owned values move there and mapped
 * ones are copied. Borrows exec until the model is closed. A no-op in host memory and the second time. Returns 0,
 * -ENOMEM, -EINVAL (it is in another device's memory) or the error of a copy. */
int ash_model_place(struct ash_model *model, struct ash_exec *exec, struct ash_err *err);
/* Small tensors (norms, biases) are kept as float32 copies; call after values changed under an owned model. */
void ash_model_refresh(struct ash_model *model);

/* The sizes of the whole model. */
const struct ash_model_config *ash_model_get_config(const struct ash_model *model);
/* What of it is here, and which part of that is this rank's shard. */
const struct ash_slice *ash_model_slice(const struct ash_model *model);
struct ash_shards;
/* Which part of the slice is this rank's shard. */
const struct ash_shards *ash_model_shards(const struct ash_model *model);
/* Have the forward pass read parameter index at data, of the dtype that it reads now; a vector is copied at once. */
void ash_model_bind(struct ash_model *model, size_t index, const void *data);
/* How many tensors there are; one of them, index < count; one by its name, or NULL. */
size_t ash_model_param_count(const struct ash_model *model);
/* Tensor index (< count). */
const struct ash_param *ash_model_param(const struct ash_model *model, size_t index);
/* The tensor of this name, or NULL. */
const struct ash_param *ash_model_find(const struct ash_model *model, const char *name);
/* Elements over all parameters, with padding between them. */
size_t ash_model_size(const struct ash_model *model);
/* Elements without padding: "the size of the model". */
size_t ash_model_weight_count(const struct ash_model *model);
/* Elements of parameters that are no expert's, which come first, and of those of experts; with padding. */
size_t ash_model_dense_size(const struct ash_model *model);
/* Elements of the parameters of experts, with padding. */
size_t ash_model_expert_size(const struct ash_model *model);

/* The list of a model's parameters, without weights: what files of it would hold. Shares config's json. Returns 0 or
 * -ENOMEM. */
int ash_model_outline(const struct ash_model_config *config, struct ash_model **model_out, struct ash_err *err);
/* The same of a slice, with its shards. */
int ash_model_outline_slice(const struct ash_model_config *config, const struct ash_slice *slice,
                            struct ash_model **model_out, struct ash_err *err);

/* Parts of a model that passes need one after the other: a layer by its number, what comes before the layers, what
 * comes after them. */
#define ASH_UNIT_EMBED (-1)
#define ASH_UNIT_HEAD ASH_MODEL_LAYERS_MAX

/* ---- gradients --------------------------------------------------------------------------------------------------- */

/* Have backward passes add a parameter's gradients elsewhere in the buffer that they are given: several parameters may
 * have one place in turn. The second is for a tied output matrix's second sum (below). */
void ash_model_place_grads(struct ash_model *model, size_t index, size_t offset);
/* The same for the second sum of a tied output matrix (below). */
void ash_model_place_tied_grads(struct ash_model *model, size_t offset);
/* Elements that a gradient buffer needs: ash_model_size, plus a second sum for a tied output matrix (kept apart so that
 * micro-batches do not change the order of its additions). */
size_t ash_model_grad_size(const struct ash_model *model);
/* Zero what a batch with ASH_BATCH_OVERWRITES (model/pass/pass.h) still adds to, in elements run of a gradient
 * buffer. */
void ash_model_clear_grads(const struct ash_model *model, struct ash_exec *exec, float *grads, struct ash_range run);
/* Add that second sum to the embedding's gradient; once per grain, after its last micro-batch. */
void ash_model_grad_fold(const struct ash_model *model, struct ash_exec *exec, float *grads);
/* The same by several who share the buffer: part `part` of `parts` of it. */
void ash_model_grad_fold_part(const struct ash_model *model, struct ash_exec *exec, float *grads, size_t part,
                              size_t parts);

#endif
