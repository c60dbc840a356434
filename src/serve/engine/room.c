/* What a core takes of a GPU's memory, foreseen: nothing is allocated there that does not fit. */
#include <errno.h>

#include "base/math.h"
#include "compute/backends/backends.h"
#include "model/pass/pass.h"
#include "model/place.h"
#include "serve/engine/core_priv.h"

#define SHARE 0.9                     /* of the free memory, for a cache that may be as large as it likes */
#define OPS_BYTES ((size_t)256 << 20) /* that ops take for products which are no outputs yet, at most */
#define RESERVED_BYTES                                                                                                 \
    ((size_t)64 << 20) /* for the driver: blocks in whole pages, kernels that it loads at first use */

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

static int no_room(double weights, double rest, double cache, double have, struct ash_err *err)
{
    return ash_err_set(err, -ENOMEM,
                       "this model needs %.2f GB of GPU memory (weights %.2f GB, activations and scratch %.2f GB, "
                       "key-value cache %.2f GB), and %.2f GB are free: %s",
                       (weights + rest + cache) * 1e-9, weights * 1e-9, rest * 1e-9, cache * 1e-9, have * 1e-9,
                       weights + rest < have ? "take a shorter context, fewer sequences, a smaller "
                                               "--kv-cache-memory or --kv-dtype bf16"
                                             : "quantise it (ashlar model convert), or compute with --backend cpu");
}

int ash_core_foresee(const struct ash_core *core, const struct ash_pass_opts *opts, size_t *pages, struct ash_err *err)
{
    double page = (double)(ash_cache_token_bytes(core->model) * ASH_CACHE_PAGE_TOKENS), have, left, weights, rest;
    double wanted = (double)core->opts.max_seqs * (double)ash_cache_pages_for(core->opts.max_tokens);
    size_t pass_bytes = 0;
    int rc;

    if (core->exec->cuda == NULL) return 0;
    rc = ash_pass_measure(core->model, opts, &pass_bytes, err);
    if (rc < 0) return rc;
    have = (double)ash_backend_free_bytes(core->exec);
    weights = (double)ash_model_unplaced_bytes(core->model, core->exec);
    rest = (double)(pass_bytes + scratch_bytes(core->model, opts->max_rows) + RESERVED_BYTES);
    left = have - weights - rest;
    if (core->opts.kv_bytes == 0 && left > page) *pages = (size_t)ash_min(wanted, SHARE * left / page);
    if (left >= (double)*pages * page) return 0;
    return no_room(weights, rest, (double)*pages * page, have, err);
}
