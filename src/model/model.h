/* model - a decoder: named parameters, a forward pass that can use a cache, and a backward pass.
 * The same layer code runs in training, evaluation and serving, so their logits agree to the bit. */
#ifndef ASH_MODEL_MODEL_H
#define ASH_MODEL_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ashlar/err.h"
#include "compute/ops.h"
#include "model/axis.h"
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
    bool matrix;        /* 2-D: gets weight decay by default; norms and biases do not */
    bool expert;        /* of one expert of a layer; see ash_pass_set_expert_grads */
    bool trained;       /* false: a constant that travels with the weights (a router's choice bias) */
    const void *data;   /* the values the forward pass reads */
    enum ash_dtype dtype;
    const void *packed; /* the same for products of inference, laid out by ash_model_pack; or NULL */
    /* where the process holds a slice: */
    size_t full[2];           /* dims of the whole tensor */
    int cut;                  /* the dimension of which this is a part; -1: it is whole */
    size_t run_count;         /* the part's runs along that dimension, one behind the other */
    struct ash_range runs[3]; /* in the whole tensor */
    bool counts;              /* false: a copy; another process stands for it in sums over the job */
    bool follows;         /* a copy that is not trained here: its values are sent by who trains it (a tied output matrix
                             on another pipeline stage) */
    size_t expert_offset; /* of its first element in a buffer of experts' gradients */
    size_t grad_offset;   /* the same in a buffer of gradients: offset, unless ash_model_place_grads moved it */
};

/* Neighbours of a parameter that are neighbours in the whole tensor too: elements local ... local + count - 1 are full
 * ... there. */
struct ash_piece {
    size_t local, full, count;
};
size_t ash_param_piece_count(const struct ash_param *param);
struct ash_piece ash_param_piece(const struct ash_param *param, size_t index);
size_t ash_param_full_count(const struct ash_param *param);

/* Open a Hugging Face folder, or a GGUF file (its name ends in .gguf; architectures llama, qwen2 and qwen3; F32, F16,
 * BF16, Q8_0 and Q4_0, and Q8_0 with wide groups, which opens as ASH_Q8_W); weights stay mapped and are read in place,
 * in the file's dtype. A model from a GGUF file computes; it cannot be owned (trained) or saved. */
int ash_model_open(const char *path, struct ash_model **model_out, struct ash_err *err);
/* A new model with weights drawn from (seed, parameter, element): owned float32. Takes over config's reference on
 * success. */
int ash_model_create(const struct ash_model_config *config, uint64_t seed, struct ash_model **model_out,
                     struct ash_err *err);
/* The same for a part of the model (NULL: all of it); the first owns what it reads, the second draws with so many
 * workers (NULL: by itself). */
int ash_model_open_slice(const char *path, const struct ash_slice *slice, struct ash_model **model_out,
                         struct ash_err *err);
int ash_model_create_slice(const struct ash_model_config *config, const struct ash_slice *slice, uint64_t seed,
                           struct ash_workers *workers, struct ash_model **model_out, struct ash_err *err);
void ash_model_close(struct ash_model *model);
/* The folder of path's tokenizer, chat template and defaults, into buf: path itself, or the folder that a GGUF file
 * lies in. Returns 0 or -ENAMETOOLONG. */
int ash_model_home(const char *path, char *buf, size_t buf_bytes);

/* Begin to bring mapped weights into memory, in the background, in the order in which a pass on exec reads them: what
 * is not in memory is packed as it comes from the disk (see ash_model_pack), in the precision of now. Worth it where a
 * pass follows at once; on an owned model a no-op. */
void ash_model_prefetch(struct ash_model *model, const struct ash_exec *exec);

/* Turn mapped weights into one owned float32 buffer (for training). A no-op on an owned model. */
int ash_model_own(struct ash_model *model, struct ash_err *err);
/* The owned buffer: ash_model_size elements, parameter p at params[p.offset]. NULL while mapped. */
float *ash_model_values(struct ash_model *model);

/* The weights of an owned model are at values from now on (same offsets; borrowed): memory of its own is let go. A
 * forward pass that reads float32 weights reads these, once ash_model_refresh has been called. */
void ash_model_move(struct ash_model *model, float *values);

/* The flat buffer that the forward pass reads: parameter p at p.offset, of its dtype. Not after ash_model_bind. */
const void *ash_model_weights(const struct ash_model *model);

/* From now on the forward pass reads bf16 weights at values (ash_model_size elements, same offsets; borrowed) and
 * rounds matrix operands to bf16; sums stay float32. NULL: back to float32. */
void ash_model_use_bf16(struct ash_model *model, const uint16_t *values);
/* Round matrix operands (and every weight that is not bf16 already) to bf16 when they are read: the arithmetic of a
 * model trained in bf16, on weights as they are mapped. */
void ash_model_round_bf16(struct ash_model *model, bool on);
/* Lay the mapped matrices out as exec's products read them fastest, where those ask for it, in memory that the model
 * owns; the mapped copy's memory is let go piece by piece behind it. Changes no bit of any result. Only passes on an
 * exec with the same backend, in the precision of now, read the new layout; others read the file again. A no-op on an
 * owned model and the second time. Not while a pass runs. Returns 0, -ENOMEM, or what reading the files gave where
 * ash_model_prefetch was at it. */
int ash_model_pack(struct ash_model *model, struct ash_exec *exec, struct ash_err *err);
/* Small tensors (norms, biases) are kept as float32 copies; call after values changed under an owned model. */
void ash_model_refresh(struct ash_model *model);

/* Of the whole model, and what of it is here. */
const struct ash_model_config *ash_model_get_config(const struct ash_model *model);
const struct ash_slice *ash_model_slice(const struct ash_model *model);
struct ash_shards;
const struct ash_shards *ash_model_shards(const struct ash_model *model);
/* Have the forward pass read parameter index at data, of the dtype that it reads now; a vector is copied at once. */
void ash_model_bind(struct ash_model *model, size_t index, const void *data);
size_t ash_model_param_count(const struct ash_model *model); /* tensors */
const struct ash_param *ash_model_param(const struct ash_model *model, size_t index);
const struct ash_param *ash_model_find(const struct ash_model *model, const char *name);
size_t ash_model_size(const struct ash_model *model); /* elements over all parameters, with padding between them */
size_t ash_model_weight_count(const struct ash_model *model); /* elements without padding: "the size of the model" */
size_t
ash_model_dense_size(const struct ash_model *model); /* of those, elements that are no expert's: they come first */
size_t ash_model_expert_size(const struct ash_model *model); /* elements over the experts' parameters, with padding */

/* The list of a model's parameters, without weights: what files of it would hold. Shares config's json. */
int ash_model_outline(const struct ash_model_config *config, struct ash_model **model_out, struct ash_err *err);

/* Hears how many of all weights are through while a model is saved, on the thread that called. */
struct ash_save_watch {
    void (*saved)(void *ctx, size_t count, size_t total);
    void *ctx;
};

/* Write config.json, generation_config.json and the weights as dtype (F32, BF16, F16) into dir; a tokenizer is copied
 * by the caller. max_shard_bytes as in ash_safetensors_write_folder; watch may be NULL. */
int ash_model_save(const struct ash_model *model, const char *dir, enum ash_dtype dtype, size_t max_shard_bytes,
                   const struct ash_save_watch *watch, struct ash_err *err);

/* The same of a model whose float32 values are elsewhere: read gives count values of parameter index from element first
 * on; parameters are asked for in ascending order, elements of one too. */
typedef int (*ash_model_read)(void *ctx, size_t index, size_t first, size_t count, float *out);
int ash_model_save_from(const struct ash_model *outline, ash_model_read read, void *ctx, const char *dir,
                        enum ash_dtype dtype, size_t max_shard_bytes, struct ash_err *err);

/* Write a llama, mistral, qwen2 or qwen3 model as a new GGUF file: matrices as dtype (F32, BF16, F16, Q8_0, Q4_0, Q8_W;
 * F32 where rows are not whole blocks), the rest F32. home: the folder of its tokenizer and chat template, which go
 * into the file; NULL or without a tokenizer.json: the file has no vocabulary. notes (may be NULL) gets what llama.cpp
 * will do otherwise, a sentence a line. watch may be NULL. -ENOTSUP for what such a file cannot say. */
int ash_model_save_gguf(const struct ash_model *model, const char *home, const char *path, enum ash_dtype dtype,
                        struct ash_str *notes, const struct ash_save_watch *watch, struct ash_err *err);

/* ---- one pass over rows of tokens -------------------------------------------------------------------------------- */

/* The rows of one document in a batch: count rows from row on, the first at position pos of the document. slot is its
 * place in the cache (ignored without one); without a cache pos is 0. */
struct ash_doc {
    size_t row, count, pos, slot;
};

struct ash_batch {
    size_t rows;
    const int32_t *ids;         /* [rows], each in [0, vocab) */
    const int32_t *targets;     /* [rows], the id that should follow, or -1 for none; training and evaluation only */
    const struct ash_doc *docs; /* they cover all rows, in order */
    size_t doc_count;
    size_t seq_rows; /* rows of one sequence: the batch is whole ones, one behind the other; 0: it is one sequence.
                        Weight gradients sum sequence by sequence, so this (and nothing else of the batch's shape) is
                        part of their order. */
    bool starts; /* are these the first terms of their gradient sums? Then only ash_model_clear_grads has to come before
                    them: products write what they would else add to zeros. Not where the pass has an ep axis, nor a
                    cp axis whose ranks have sums of their own. */
    bool goes_on; /* does another batch of the same gradient sums follow? Only asked where the pass has a cp axis: all
                     its ranks get the whole batch (one sequence) and the losses of all rows, and each computes some
                     of the rows. The sums go from rank to rank; after the last batch the last rank has them. Or the
                     ranks have one (ash_pass_opts): then it is complete when a batch's pass has come back. */
};

enum ash_recompute { ASH_RECOMPUTE_NONE, ASH_RECOMPUTE_SELECTIVE, ASH_RECOMPUTE_FULL };

struct ash_pass; /* the activations of one pass, sized for max_rows; one owner thread */

/* Whoever keeps weights elsewhere is told when a pass needs some of them: a layer, what stands before the layers or
 * behind them. need comes before the first use, done behind the last one of the direction; behind done of the way back
 * the gradients of the batch at hand are complete. A failure ends the pass. Ranks without rows call them like all
 * others. */
#define ASH_UNIT_EMBED (-1)
#define ASH_UNIT_HEAD ASH_MODEL_LAYERS_MAX
struct ash_pass_hooks {
    int (*need)(void *ctx, int unit, bool backward, struct ash_err *err);
    int (*done)(void *ctx, int unit, bool backward, struct ash_err *err);
    void *ctx;
};

struct ash_pass_opts {
    size_t max_rows; /* of a batch */
    bool backward;   /* will ash_pass_train be called? */
    enum ash_recompute recompute;
    size_t head_rows; /* rows whose logits exist at once, at most (rounded up to a multiple of 32); 0: as seems best */
    struct ash_axis tp, cp, ep; /* who shares the pass; all zero: nobody. Their contexts are borrowed until close.
                                   The ranks of ep have batches of their own and share the experts alone: expert rank
                                   (see slice.h) ep.rank * tp.size + tp.rank of ep.size * tp.size. */
    struct ash_axis together;   /* where all ranks along tp and cp can share memory: those, neighbours along tp first.
                                   Asked for where both axes are longer than 1; all zero: they cannot. */
    bool one_sum; /* where all ranks along cp (and tp) can share memory: are grads, and the experts' sums, the same
                     memory on the ranks along cp? */
    struct ash_pass_hooks hooks; /* NULLs: nobody is told */
};

/* Borrows model and exec until close. */
int ash_pass_open(struct ash_model *model, struct ash_exec *exec, const struct ash_pass_opts *opts,
                  struct ash_pass **pass_out, struct ash_err *err);
void ash_pass_close(struct ash_pass *pass);
/* Bytes of activations that a pass holds, or with these opts would hold. Returns 0 or -ENOMEM. */
size_t ash_pass_bytes(const struct ash_pass *pass);
int ash_pass_measure(const struct ash_model *model, const struct ash_pass_opts *opts, size_t *bytes_out,
                     struct ash_err *err);

/* Forward and loss, no gradients: losses[r] is the cross-entropy of row r (0 where its target is -1). */
int ash_pass_eval(struct ash_pass *pass, const struct ash_batch *batch, float *losses, struct ash_err *err);
/* Forward, loss and backward. Adds the gradient of scale * sum(losses) to grads (ash_model_grad_size elements, same
 * offsets as the parameters), sequence by sequence, tokens ascending: calling it for some of a batch's sequences and
 * then for the others gives the bits of one call.
 * The ranks of an axis call this (and eval) equally often. Along ep a rank that has no batch left serves the others
 * with an empty one (rows 0; its other fields, grads and losses are not looked at). */
int ash_pass_train(struct ash_pass *pass, const struct ash_batch *batch, float scale, float *grads, float *losses,
                   struct ash_err *err);
/* Along ep the experts here see tokens of every rank's batch, and each rank's batch belongs to a sum of its own
 * (another grain): sums[r], r < ep.size, has ash_model_expert_size elements, and the next calls of ash_pass_train add
 * to it, at every param's expert_offset, the gradients of the experts here over rank r's batch. The pointers are
 * copied. The one of this rank may be NULL: then its own batch's gradients go to grads, as those of all other
 * parameters do. Without an ep axis there is nothing to set. Returns 0 or -EINVAL. */
int ash_pass_set_expert_grads(struct ash_pass *pass, float *const *sums, struct ash_err *err);

/* ---- stages: a pass over some of a model's layers, its two directions apart, so that other passes can run between
 * them -- */

/* Does the stage look tokens up, and does it end with the loss? */
bool ash_pass_embeds(const struct ash_pass *pass);
bool ash_pass_ends(const struct ash_pass *pass);
/* The stream: floats that a stage hands to the next for this batch (after ash_pass_forward), where the next one puts
 * them (before it), and where gradients travel the other way: the next stage's into, this one's out of the same place.
 */
size_t ash_pass_stream_count(const struct ash_pass *pass, size_t rows);
float *ash_pass_input(struct ash_pass *pass);
const float *ash_pass_output(const struct ash_pass *pass);
float *ash_pass_gradient(struct ash_pass *pass);
/* Forward through the stage. batch (with its docs) is borrowed until the backward pass of the same batch. */
int ash_pass_forward(struct ash_pass *pass, const struct ash_batch *batch, struct ash_err *err);
/* Losses of the batch at hand, on a stage that ends with them. */
int ash_pass_losses(struct ash_pass *pass, float *losses, struct ash_err *err);
/* Backward through the stage; losses is written where the stage ends with them, and scale, grads are as in
 * ash_pass_train. */
int ash_pass_backward(struct ash_pass *pass, float scale, float *grads, float *losses, struct ash_err *err);

/* Have backward passes add a parameter's gradients, and the second sum of a tied output matrix (below), elsewhere in
 * the buffer that they are given: several parameters may have one place in turn. */
void ash_model_place_grads(struct ash_model *model, size_t index, size_t offset);
void ash_model_place_tied_grads(struct ash_model *model, size_t offset);
/* Elements that a gradient buffer needs: ash_model_size, plus a second sum for a tied output matrix (kept apart so that
 * micro-batches do not change the order of its additions). */
size_t ash_model_grad_size(const struct ash_model *model);
/* Zeros for what a batch that starts adds to, in elements run of a gradient buffer. */
void ash_model_clear_grads(const struct ash_model *model, struct ash_exec *exec, float *grads, struct ash_range run);
/* Add that second sum to the embedding's gradient; once per grain, after its last micro-batch. */
void ash_model_grad_fold(const struct ash_model *model, struct ash_exec *exec, float *grads);
/* The same by several who have the buffer together: part `part` of `parts` of it. */
void ash_model_grad_fold_part(const struct ash_model *model, struct ash_exec *exec, float *grads, size_t part,
                              size_t parts);

/* ---- inference --------------------------------------------------------------------------------------------------- */

struct ash_cache; /* keys and values of earlier tokens: slots sequences of up to max_tokens; memory grows with them */

int ash_cache_open(const struct ash_model *model, size_t slots, size_t max_tokens, struct ash_cache **cache_out,
                   struct ash_err *err);
void ash_cache_close(struct ash_cache *cache);
/* Forget what a slot holds; its memory serves other slots. */
void ash_cache_release(struct ash_cache *cache, size_t slot);
/* Bytes that a cache opened now takes for one token of one slot. */
size_t ash_cache_token_bytes(const struct ash_model *model);

/* Run batch's rows on top of what the cache holds (doc.pos tokens of each slot) and add them to it. logits_out gets
 * [wanted_count, vocab] for the rows listed in wanted (ascending). cache NULL: each doc starts at 0 and nothing is
 * kept. -EOVERFLOW when a slot is full, -EINVAL for an id outside the vocabulary. */
int ash_pass_infer(struct ash_pass *pass, const struct ash_batch *batch, struct ash_cache *cache, const size_t *wanted,
                   size_t wanted_count, float *logits_out, struct ash_err *err);

#endif
