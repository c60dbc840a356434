/* slice - which part of a model a process holds when several share one. A slice cuts where the sums of a layer allow
 * it: whole layers (pipeline stages), heads, columns of the feed-forward and rows of the vocabulary (tensor
 * parallelism), whole experts. Everything else is copied to all who need it; one of them counts for it. */
#ifndef ASH_MODEL_SLICE_H
#define ASH_MODEL_SLICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ashlar/err.h"
#include "base/range.h"
#include "model/config.h"

struct ash_slice {
    size_t tp_rank, tp_size;              /* heads, feed-forward columns, rows of the vocabulary */
    bool gathers;                         /* every matrix is cut by its outputs, and ranks gather them: no sum is cut.
                                             For inference alone; the embedding is whole, and ranks map their rows */
    size_t expert_rank, expert_size;      /* experts */
    bool embed, head;                     /* the embedding; the final norm and the output matrix */
    uint8_t layers[ASH_MODEL_LAYERS_MAX]; /* 1: has this layer */
    size_t shard_rank, shard_size;        /* of those who hold this slice together (model/shards.h); size 0: alone */
    bool shard_weights;                   /* do they shard the weights too, or only the trained state? */
};

/* All of it. */
struct ash_slice ash_slice_whole(const struct ash_model_config *config);
/* Are they the same part of a model? */
bool ash_slice_same(const struct ash_slice *a, const struct ash_slice *b);
/* Can the model be cut like this? rounded: products are of bf16, whose sums may be cut at whole groups of k only.
 * Returns 0 or -EINVAL saying what the sizes of the model would allow. */
int ash_slice_check(const struct ash_model_config *config, const struct ash_slice *slice, bool rounded,
                    struct ash_err *err);

/* How ranks that gather share a model: stages of whole layers, each of tp ranks. Experts are cut as other matrices, or
 * whole ones are spread over the ranks of a stage. */
struct ash_slice_parts {
    size_t tp, stages;
    bool whole_experts;
};
/* Can the model be cut like this? Returns 0 or -EINVAL, naming the flags of commands. */
int ash_slice_check_gathers(const struct ash_model_config *config, const struct ash_slice_parts *parts,
                            struct ash_err *err);
/* The slice of rank `rank` of tp * stages: the ranks of the first stage come first. */
struct ash_slice ash_slice_gathered(const struct ash_model_config *config, const struct ash_slice_parts *parts,
                                    size_t rank);

/* What the slice has of each kind: here, key-value heads. */
struct ash_range ash_slice_kv_heads(const struct ash_model_config *config, const struct ash_slice *slice);
/* Columns of a feed-forward of width ffn, in whole groups of k if there are enough: those of the matrices of a
 * quantised base are longer. */
struct ash_range ash_slice_columns(const struct ash_model_config *config, size_t ffn, const struct ash_slice *slice);
/* With gathers: outputs of matrices that add to the stream, likewise in whole groups. */
struct ash_range ash_slice_hidden(const struct ash_model_config *config, const struct ash_slice *slice);
/* Rows of the vocabulary, likewise in whole groups. */
struct ash_range ash_slice_vocab(const struct ash_model_config *config, const struct ash_slice *slice);
/* Whole experts. */
struct ash_range ash_slice_experts(const struct ash_model_config *config, const struct ash_slice *slice);

/* The sizes of the part, as if it were a model: layers, heads, kv_heads, ffn and expert.shared_ffn are the slice's own;
 * hidden, vocab and the number of experts stay the model's. layer_ids_out[i] is layer i's number in the whole model. */
void ash_slice_config(const struct ash_model_config *whole, const struct ash_slice *slice,
                      struct ash_model_config *config_out, uint32_t *layer_ids_out);

#endif
