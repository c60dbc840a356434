/* What a core takes of a GPU's memory, foreseen: nothing is allocated there that does not fit. Ranks that share a GPU
 * share its free memory, and all ranks have as many pages as fit on the fullest GPU. */
#include "serve/engine/room.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/math.h"
#include "compute/backends/backends.h"
#include "model/pass/cache.h"
#include "model/place.h"
#include "serve/engine/core_priv.h"
#include "serve/engine/ranks.h"

#define SHARE 0.9                     /* of the free memory, for a cache that may be as large as it likes */
#define OPS_BYTES ((size_t)256 << 20) /* that ops take for products which are no outputs yet, at most */
#define RESERVED_BYTES                                                                                                 \
    ((size_t)64 << 20)                  /* for the driver: blocks in whole pages, kernels that it loads at first use */
#define WINDOW_BYTES ((size_t)64 << 20) /* of what a rank shows the others */

/* What one op takes beyond its operands: rows of x (and a float32 matrix, in bf16) in another layout. */
static size_t scratch_bytes(const struct ash_model *model, size_t rows)
{
    size_t most = 0;

    for (size_t i = 0; i < ash_model_param_count(model); i++) {
        const struct ash_param *param = ash_model_param(model, i);
        size_t wide = ash_max(param->dims[0], param->dims[1]);

        if (!param->is_matrix) continue;
        most = ash_max(most, (rows * wide + (param->dtype == ASH_F32 ? param->count : 0)) * sizeof(uint16_t));
    }
    return most + OPS_BYTES;
}

int ash_gpu_room_measure(const struct ash_model *model, const struct ash_exec *exec, const struct ash_pass_opts *opts,
                         struct ash_gpu_room *room_out, struct ash_err *err)
{
    size_t pass_bytes = 0, windows = opts->outs.size > 1 ? WINDOW_BYTES : 0;
    struct ash_gpu_room room = {0};
    int rc = ash_pass_measure(model, opts, &pass_bytes, err);

    if (rc < 0) return rc;
    room.page = (double)(ash_cache_token_bytes(model) * ASH_CACHE_PAGE_TOKENS);
    room.have = (double)ash_backend_free_bytes(exec);
    room.weights = (double)ash_model_unplaced_bytes(model, exec);
    room.rest = (double)(pass_bytes + scratch_bytes(model, opts->max_rows) + RESERVED_BYTES + windows);
    ash_backend_gpu_id(exec, room.gpu);
    *room_out = room;
    return 0;
}

/* What all processes on the GPU of number `of` take together, and the least that one of them saw free: each has seen
 * the driver's part of those that came before. */
static struct ash_gpu_room sum_of(const struct ash_gpu_room *rooms, size_t count, size_t of)
{
    struct ash_gpu_room sum = {.have = rooms[of].have};

    ash_assert(of < count);
    for (size_t r = 0; r < count; r++) {
        if (memcmp(rooms[r].gpu, rooms[of].gpu, sizeof(rooms[r].gpu)) != 0) continue;
        sum.have = fmin(sum.have, rooms[r].have);
        sum.weights += rooms[r].weights;
        sum.rest += rooms[r].rest;
        sum.page += rooms[r].page;
    }
    return sum;
}

static int no_room(const struct ash_gpu_room *sum, double cache, struct ash_err *err)
{
    return ash_err_set(err, -ENOMEM,
                       "this model needs %.2f GB of GPU memory (weights %.2f GB, activations and scratch %.2f GB, "
                       "key-value cache %.2f GB), and %.2f GB are free: %s",
                       (sum->weights + sum->rest + cache) * 1e-9, sum->weights * 1e-9, sum->rest * 1e-9, cache * 1e-9,
                       sum->have * 1e-9,
                       sum->weights + sum->rest < sum->have
                           ? "take a shorter context, fewer sequences, a smaller "
                             "--kv-cache-memory or --kv-dtype bf16"
                           : "quantise it (ashlar model convert), or compute with --backend cpu");
}

int ash_gpu_room_fit(const struct ash_gpu_room *rooms, size_t count, bool has_wish, size_t *pages, struct ash_err *err)
{
    double fit = (double)*pages;

    for (size_t r = 0; r < count && !has_wish; r++) {
        struct ash_gpu_room sum = sum_of(rooms, count, r);
        double left = sum.have - sum.weights - sum.rest;

        fit = fmin(fit, SHARE * left / sum.page);
    }
    *pages = fit > 1 ? (size_t)fit : 1;
    for (size_t r = 0; r < count; r++) {
        struct ash_gpu_room sum = sum_of(rooms, count, r);

        if (sum.weights + sum.rest + (double)*pages * sum.page > sum.have)
            return no_room(&sum, (double)*pages * sum.page, err);
    }
    return 0;
}

int ash_core_foresee(const struct ash_core *core, const struct ash_pass_opts *opts, size_t *pages, struct ash_err *err)
{
    size_t ranks = ash_ranks_size(core->opts.ranks);
    struct ash_gpu_room *rooms;
    int rc;

    if (core->exec->cuda == NULL) return 0;
    rooms = calloc(ranks, sizeof(*rooms));
    if (rooms == NULL) return ash_err_set(err, -ENOMEM, "out of memory for %zu ranks", ranks);
    if (core->opts.kv_bytes == 0) /* the host's free memory is no limit here */
        *pages = ash_min(core->opts.max_seqs * ash_cache_pages_for(core->opts.max_tokens), (size_t)INT32_MAX);
    rc = ash_ranks_send_measure(core->opts.ranks, opts->max_rows, err);
    if (rc == 0) rc = ash_gpu_room_measure(core->model, core->exec, opts, rooms, err);
    if (rc == 0) rc = ash_ranks_gather_rooms(core->opts.ranks, rooms, err);
    if (rc == 0) rc = ash_gpu_room_fit(rooms, ranks, core->opts.kv_bytes > 0, pages, err);
    free(rooms);
    return rc;
}
