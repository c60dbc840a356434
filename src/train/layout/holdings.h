/* holdings - which rank holds which part of a job's state: a pure function of a model's config, the sizes of a mesh and
 * a rank. No group, no memory and no message is needed for it, so any rank can compute it for any other, and for a mesh
 * that does not run yet. Saving, loading, recovery and resizing use it.
 *
 *     tensor   the whole model's parameter (its index in ash_model_outline), one of three kinds: the float32 weights,
 *              the moments m and v
 *     holding  neighbouring elements of a tensor that are neighbours in one rank's memory, too
 *     replica  ranks that hold the same elements in the same holdings: dp and cp, and ep for all but experts
 *
 * Effect of each axis: pp and interleaved chunks split the layers; tp shards matrices by rows or columns and copies the
 * rest; ep shards experts; fsdp shards the remainder, layer by layer, weights too under any mesh.zero, since float32
 * weights are up to date only on the rank that updates them. One thread at a time. */
#ifndef ASH_TRAIN_HOLDINGS_H
#define ASH_TRAIN_HOLDINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ashlar/err.h"
#include "base/range.h"
#include "model/model.h"
#include "train/job/job.h"
#include "train/layout/stages.h"

enum ash_holding_kind { ASH_HOLDING_WEIGHTS, ASH_HOLDING_M, ASH_HOLDING_V, ASH_HOLDING_KINDS };

/* Elements of a tensor in a rank's memory. */
struct ash_holding {
    enum ash_holding_kind kind;
    size_t tensor;             /* index in the whole model's outline */
    struct ash_range elements; /* of the whole tensor */
    size_t rank, chunk;        /* whose memory, and which of its chunks of layers (struct ash_stages) */
    size_t at;                 /* of the first element: in ash_model_values (weights) or in the shard (moments) */
    /* The rank's number among the ranks with exactly the same elements, and their count. */
    size_t replica, replicas;
    /* false: others, whose holdings are cut elsewhere, hold the same values and are counted for them. These are right
     * too (tp copies norms), but only one may be written. */
    bool is_counted;
    /* A tied embedding's copy on another pipeline stage: only the part that passes read is up to date. It must be
     * filled when a rank starts, and is no source for others. Never counted; kind is always weights. */
    bool is_copy;
};

struct ash_holdings;

/* Of a model and a mesh whose sizes are resolved (ash_mesh_resolve), which are copied. The caller owns
 * *holdings_out. Returns 0 or -ENOMEM. */
int ash_holdings_open(const struct ash_model_config *config, const struct ash_job_mesh *mesh,
                      struct ash_holdings **holdings_out, struct ash_err *err);
/* Free; NULL is a no-op. */
void ash_holdings_close(struct ash_holdings *holdings);

/* The whole model's list of tensors. Borrowed until close. */
const struct ash_model *ash_holdings_outline(const struct ash_holdings *holdings);
/* How many ranks the mesh has. */
size_t ash_holdings_ranks(const struct ash_holdings *holdings);
/* Has the tensor values of this kind? Constants have no moments. */
bool ash_holdings_has(const struct ash_holdings *holdings, enum ash_holding_kind kind, size_t tensor);

/* Receives a holding, valid until it returns. A value other than 0 ends the walk and is returned by it. */
typedef int (*ash_holding_fn)(void *ctx, const struct ash_holding *holding);

/* All that a rank holds: chunk by chunk, tensors in the order of its memory, weights, m and v of each, elements
 * ascending. Returns 0, -ENOMEM or what each returned. */
int ash_holdings_each(struct ash_holdings *holdings, size_t rank, ash_holding_fn each, void *ctx, struct ash_err *err);

/* Does this holder write elements of block `block`? Of counted replicas just one does. Callers choose the numbering of
 * blocks, the same on all ranks: by pieces of a file, for example. */
bool ash_holding_is_writer(const struct ash_holding *holding, uint64_t block);

#endif
