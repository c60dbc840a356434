/* Weights in place: others of the same shape replace those of a server that runs. They are opened and hashed while it
 * still answers; then running answers end, the pages of the old weights go, and waiting requests get the new ones. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/serve_priv.h"
#include "model/files/open.h"
#include "serve/adapters.h"
#include "serve/engine/ranks.h"
#include "serve/fingerprint.h"

/* Open and hash the weights in path. */
static int open_next(struct ash_serve_model *model, const char *path, struct ash_model **next_out,
                     uint64_t *fingerprint_out, struct ash_err *err)
{
    struct ash_model *now = ash_engine_model(model->engine), *next = NULL;
    int rc = model->ranks != NULL ? ash_engine_check_ranks(path, ash_ranks_parts(model->ranks), err) : 0;

    if (rc == 0)
        rc = model->ranks != NULL ? ash_model_open_slice(path, ash_model_slice(now), &next, err)
                                  : ash_model_open_lazy(path, &next, err);
    if (rc < 0) return rc;
    ash_model_round_bf16(next, ash_model_rounds_bf16(now));
    ash_model_use_kv_dtype(next, ash_model_kv_dtype(now));
    rc = ash_engine_fingerprint_of(model->engine, path, fingerprint_out, err);
    if (rc < 0) {
        ash_model_close(next);
        return rc;
    }
    *next_out = next;
    return 0;
}

/* The new model, its path, and its head for drafts. */
struct next_weights {
    struct ash_model *next;
    struct ash_serve_head head;
    const char *path;
};

/* If the new head cannot be used nothing drafts. */
static int swap_weights(void *ctx, struct ash_core *core, struct ash_err *err)
{
    const struct next_weights *weights = ctx;
    const struct ash_serve_head *head = &weights->head;
    struct ash_err ignored = {0};
    int rc = ash_core_swap(core, weights->next, weights->path, err);

    if (rc == 0 && head->model != NULL) (void)ash_core_swap_head(core, head->model, NULL, &ignored);
    if (rc == 0 && head->eagle.model != NULL) (void)ash_core_swap_head(core, head->eagle.model, &head->eagle, &ignored);
    return rc;
}

/* Without a new head the one before stays. */
static void trade_heads(struct ash_serve_model *model, struct next_weights *weights)
{
    struct ash_serve_head before = model->head;

    if (weights->head.model == NULL && weights->head.eagle.model == NULL) return;
    model->head = weights->head;
    weights->head = before;
}

int ash_serve_model_update(struct ash_serve_model *model, const char *path, double timeout_s, uint64_t *fingerprint_out,
                           struct ash_err *err)
{
    bool was_paused = ash_runner_is_paused(model->runner);
    struct next_weights weights = {0};
    char *place;
    int rc;

    if (path == NULL) path = model->weights != NULL ? model->weights : ash_engine_dir(model->engine);
    place = strdup(path); /* path may be model->weights */
    if (place == NULL) return ash_err_set(err, -ENOMEM, "out of memory");
    if (!ash_adapters_rebase_begin(model->adapters)) {
        free(place);
        return ash_err_set(err, -EBUSY, "adapters are loaded over these weights: unload them first");
    }
    weights.path = place;
    rc = open_next(model, path, &weights.next, fingerprint_out, err);
    if (rc == 0) rc = ash_serve_head_open_next(model, weights.next, place, &weights.head, err);
    if (rc == 0) rc = ash_runner_pause(model->runner, ASH_PAUSE_WAIT, timeout_s);
    if (rc == 0) rc = ash_runner_call(model->runner, swap_weights, &weights, timeout_s, err);
    if (rc == 0) {
        weights.next = ash_engine_replace_model(model->engine, weights.next);
        trade_heads(model, &weights);
        free(model->weights);
        model->weights = place;
        place = NULL;
        model->set_fingerprint(model->set_ctx, *fingerprint_out);
        if (model->kv != NULL) ash_kv_arm(model->kv, *fingerprint_out);
    }
    ash_adapters_rebase_end(model->adapters, ash_engine_model(model->engine));
    ash_model_close(weights.next); /* those that are not used: the old ones, or the new ones after an error */
    ash_serve_head_close(&weights.head);
    free(place);
    if (!was_paused) (void)ash_runner_pause(model->runner, ASH_PAUSE_NONE, 0);
    return rc;
}
