/* patches - runs of elements of a model's tensors that lie in this process's memory: ranges to send to others, or to
 * receive. A patch of a trained parameter has weights and both moments, of a constant only weights. */
#ifndef ASH_TRAIN_RECOVER_PATCHES_H
#define ASH_TRAIN_RECOVER_PATCHES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ashlar/err.h"
#include "base/range.h"
#include "model/model.h"
#include "train/layout/stages.h"

enum ash_patch_kind { ASH_PATCH_WEIGHTS, ASH_PATCH_M, ASH_PATCH_V, ASH_PATCH_KINDS };

/* The part of a patch that is sent to other ranks. Plain data. */
struct ash_patch_range {
    uint32_t param;       /* of the whole model: index in its outline */
    uint32_t has_moments; /* 1: moments, too */
    uint64_t first, count;
};

/* A patch and its memory. */
struct ash_patch {
    struct ash_patch_range range;
    float *values[ASH_PATCH_KINDS]; /* each [count]; moments NULL if there are none */
    size_t chunk, grad_at;          /* of this process's stages, and its first element in the gradients of that */
};

/* Zero-initialise; free with ash_patches_fini. */
struct ash_patches {
    struct ash_patch *items; /* [count], those of a parameter one after the other */
    size_t count, room;
};

/* Free the list, not the memory of its patches. A zeroed struct is a no-op. */
void ash_patches_fini(struct ash_patches *patches);
/* Append one. Returns 0 or -ENOMEM. */
int ash_patches_add(struct ash_patches *patches, const struct ash_patch *patch, struct ash_err *err);
/* Append this process's ranges of all chunks (reads: all that it can read, of node replicas everything; else only those
 * that it must write). outline lists the whole model. Returns 0 or -ENOMEM. */
int ash_patches_add_stages(struct ash_patches *patches, const struct ash_stages *stages,
                           const struct ash_model *outline, bool reads, struct ash_err *err);
/* Append a chunk's ranges, held or needed, of gradient sums [size of its model], without moments. Parameters are
 * counted from first_param on, so that one list can have several sums. Returns 0 or -ENOMEM. */
int ash_patches_add_sums(struct ash_patches *patches, const struct ash_stage *stage, const struct ash_model *outline,
                         float *sums, size_t first_param, struct ash_err *err);
/* Values of a patch for the host to read: themselves, or if it cannot read those, a copy in *room, which grows. Returns
 * NULL if there is no memory or the copy fails: err says why. */
const void *ash_patches_read(const struct ash_exec *exec, const void *values, size_t size_bytes,
                             struct ash_buffer *room, struct ash_err *err);
/* Bytes of elements of a range, with its moments. */
size_t ash_patch_bytes(const struct ash_patch_range *range);

#endif
