/* staging: one block of host memory for each call, with its parts first and its result after them. Blocks are used
 * again, for memory that a device reads fast takes long to allocate. */
#include "collective/core/staging.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/math.h"

void ash_staging_init(struct ash_staging *staging)
{
    *staging = (struct ash_staging){0};
    pthread_mutex_init(&staging->lock, NULL);
}

void ash_staging_fini(struct ash_staging *staging)
{
    for (size_t i = 0; i < ASH_STAGING_BLOCKS; i++)
        ash_buffer_fini(&staging->blocks[i]);
    staging->memory = NULL;
}

bool ash_staging_holds(const struct ash_staging *staging, const void *data)
{
    return staging->memory != NULL && data != NULL && staging->memory->holds(data);
}

int ash_staging_copy(const struct ash_staging *staging, void *dst, const void *src, size_t size_bytes,
                     struct ash_err *err)
{
    if (size_bytes == 0) return 0;
    if (!ash_staging_holds(staging, dst) && !ash_staging_holds(staging, src)) {
        memcpy(dst, src, size_bytes);
        return 0;
    }
    if (staging->memory->ops->copy(dst, src, size_bytes) == 0) return 0;
    return ash_err_set(err, -EIO, "cannot copy %zu bytes between ranks: the memory of '%s' has failed", size_bytes,
                       staging->memory->ops->name);
}

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

/* The smallest block that is large enough, or a new one. */
static int take_block(struct ash_staging *staging, size_t size_bytes, struct ash_buffer *block_out, struct ash_err *err)
{
    struct ash_buffer *best = NULL;

    pthread_mutex_lock(&staging->lock);
    for (size_t i = 0; i < ASH_STAGING_BLOCKS; i++) {
        struct ash_buffer *block = &staging->blocks[i];

        if (block->size_bytes >= size_bytes && (best == NULL || block->size_bytes < best->size_bytes)) best = block;
    }
    if (best != NULL) {
        *block_out = *best;
        *best = (struct ash_buffer){0};
    }
    pthread_mutex_unlock(&staging->lock);
    if (best != NULL) return 0;
    return ash_buffer_init(block_out, staging->memory->host_side, size_bytes, "values between ranks", err);
}

/* Keep it in place of the smallest. */
static void give_block(struct ash_staging *staging, struct ash_buffer *block)
{
    struct ash_buffer *least = staging->blocks, dropped = *block;

    pthread_mutex_lock(&staging->lock);
    for (size_t i = 1; i < ASH_STAGING_BLOCKS; i++)
        if (staging->blocks[i].size_bytes < least->size_bytes) least = &staging->blocks[i];
    if (least->size_bytes < block->size_bytes) {
        dropped = *least;
        *least = *block;
    }
    pthread_mutex_unlock(&staging->lock);
    *block = (struct ash_buffer){0};
    ash_buffer_fini(&dropped);
}

/* ---- calls ------------------------------------------------------------------------------------------------------- */

static void drop(struct ash_staging *staging, struct ash_staged *staged)
{
    if (staged->block.data != NULL) give_block(staging, &staged->block);
    free(staged->copies);
    staged->copies = NULL;
}

/* Copy the parts to the beginning of the block, on borders of lines. */
static int copy_parts(const struct ash_staging *staging, const struct ash_staging_io *io, struct ash_staged *staged,
                      struct ash_err *err)
{
    char *at = staged->block.data;
    int rc = 0;

    staged->copies = calloc(io->part_count, sizeof(*staged->copies));
    if (staged->copies == NULL) return ash_err_set(err, -ENOMEM, "out of memory for a call");
    staged->parts = staged->copies;
    for (size_t i = 0; rc == 0 && i < io->part_count; i++, at += ash_round_up(io->part_bytes, ASH_MEMORY_ALIGN)) {
        staged->copies[i] = at;
        rc = ash_staging_copy(staging, at, io->parts[i], io->part_bytes, err);
    }
    return rc;
}

int ash_staging_begin(struct ash_staging *staging, const struct ash_staging_io *io, struct ash_staged *staged_out,
                      struct ash_err *err)
{
    struct ash_staged staged = {.parts = io->parts, .out = io->out, .out_bytes = io->out_bytes};
    size_t part_bytes = 0;
    int rc = 0;

    if (io->part_count > 0 && io->part_bytes > 0 && ash_staging_holds(staging, io->parts[0]))
        part_bytes = io->part_count * ash_round_up(io->part_bytes, ASH_MEMORY_ALIGN);
    if (io->out_bytes > 0 && ash_staging_holds(staging, io->out)) staged.target = io->out;
    if (part_bytes > 0 || staged.target != NULL)
        rc = take_block(staging, part_bytes + (staged.target != NULL ? io->out_bytes : 0), &staged.block, err);
    if (rc == 0 && part_bytes > 0) rc = copy_parts(staging, io, &staged, err);
    if (rc == 0 && staged.target != NULL) staged.out = (char *)staged.block.data + part_bytes;
    *staged_out = staged;
    return rc;
}

int ash_staging_end(struct ash_staging *staging, struct ash_staged *staged, int rc, struct ash_err *err)
{
    if (rc == 0 && staged->target != NULL)
        rc = ash_staging_copy(staging, staged->target, staged->out, staged->out_bytes, err);
    drop(staging, staged);
    return rc;
}
