/* Other weights of the same shape in place of the ones that a core has. */
#include <errno.h>
#include <string.h>

#include "base/assert.h"
#include "serve/engine/core_priv.h"
#include "serve/engine/ranks.h"

/* Do both have the same tensors? Returns 0, or -EINVAL naming the first that differs. */
static int compare_shapes(const struct ash_model *now, const struct ash_model *next, struct ash_err *err)
{
    size_t count = ash_model_param_count(now);

    if (ash_model_param_count(next) != count || ash_model_kv_dtype(next) != ash_model_kv_dtype(now))
        return ash_err_set(err, -EINVAL, "the new weights are of another model: %zu tensors instead of %zu",
                           ash_model_param_count(next), count);
    for (size_t i = 0; i < count; i++) {
        const struct ash_param *a = ash_model_param(now, i), *b = ash_model_param(next, i);

        if (strcmp(a->name, b->name) != 0 || a->dims[0] != b->dims[0] || a->dims[1] != b->dims[1])
            return ash_err_set(err, -EINVAL,
                               "the new weights are of another model: %s [%zu, %zu] instead of %s [%zu, %zu]", b->name,
                               b->dims[0], b->dims[1], a->name, a->dims[0], a->dims[1]);
    }
    return 0;
}

static int check(const struct ash_core *core, const struct ash_model *model, struct ash_err *err)
{
    if (core->model == NULL || core->exec->cuda != NULL)
        return ash_err_set(err, -ENOTSUP, "weights are replaced on the CPU: restart this server");
    if (core->running_count > 0) return ash_err_set(err, -EBUSY, "answers are being written");
    return compare_shapes(core->model, model, err);
}

int ash_core_swap(struct ash_core *core, struct ash_model *model, const char *path, struct ash_err *err)
{
    struct ash_pass_opts opts = ash_core_pass_opts(core);
    struct ash_prefix *prefix = NULL;
    struct ash_cache *cache = NULL;
    struct ash_pass *pass = NULL;
    int rc = check(core, model, err);

    ash_assert(!core->is_in_step && (rc < 0 || core->ahead.count == 0));
    if (rc == 0) rc = ash_ranks_send_swap(core->opts.ranks, path, err);
    if (rc < 0) return rc;
    rc = ash_pass_open(model, core->exec, &opts, &pass, err);
    if (rc == 0) rc = ash_core_open_cache(model, ash_cache_page_count(core->cache), &cache, err);
    if (rc == 0 && core->prefix != NULL) rc = ash_prefix_open(cache, &prefix, err);
    if (rc < 0) {
        if (core->opts.ranks != NULL) ash_ranks_fail(core->opts.ranks, err); /* the others have them now */
        ash_cache_close(cache);
        ash_pass_close(pass);
        return rc;
    }
    ash_core_forget_tiers(core);
    ash_prefix_close(core->prefix);
    ash_cache_close(core->cache);
    ash_pass_close(core->pass);
    core->prefix = prefix;
    core->cache = cache;
    core->pass = pass;
    core->model = model;
    core->has_answered = false; /* the new weights are packed once a token is out, as the old ones were */
    ash_page_events_publish(core->events);
    if (prefix != NULL) ash_prefix_publish(prefix, core->events);
    if (core->kv != NULL) ash_kv_disarm(core->kv);
    ash_core_resume_tiers(core);
    return 0;
}

int ash_core_swap_head(struct ash_core *core, struct ash_model *head, const struct ash_eagle *eagle,
                       struct ash_err *err)
{
    int rc;

    ash_assert(!core->is_in_step && core->running_count == 0);
    ash_draft_model_close(core->draft);
    core->draft = NULL;
    core->opts.draft = head;
    ash_core_use_eagle(core, eagle);
    rc = ash_core_open_draft(core, err);
    if (rc < 0) core->opts.draft = NULL;
    return rc;
}
