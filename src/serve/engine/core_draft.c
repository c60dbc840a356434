/* What drafts for the engine loop: a draft model or a head, and what its model's passes keep for it. */
#include <string.h>

#include "base/math.h"
#include "serve/engine/core_priv.h"
#include "serve/engine/ranks.h"

int ash_core_open_draft(struct ash_core *core, struct ash_err *err)
{
    struct ash_draft_opts opts = {.max_rows = ash_max(core->opts.max_batch_rows, ASH_DRAFT_TEXTS),
                                  .max_tokens = core->opts.max_tokens + ASH_DRAFT_MOST,
                                  .pages = ash_cache_page_count(core->cache),
                                  .vocab = core->opts.vocab,
                                  .hidden = core->hidden,
                                  .eagle = core->opts.eagle,
                                  .most = ash_min(core->opts.speculate, ASH_DRAFT_MOST)};

    if (core->opts.draft == NULL) return 0;
    return ash_draft_model_open(core->opts.draft, core->exec, &opts, &core->draft, err);
}

void ash_core_use_eagle(struct ash_core *core, const struct ash_eagle *eagle)
{
    core->eagle = eagle != NULL ? *eagle : (struct ash_eagle){0};
    core->opts.eagle = eagle != NULL ? &core->eagle : NULL;
}

struct ash_pass_opts ash_core_pass_opts(const struct ash_core *core)
{
    const struct ash_eagle *eagle = core->opts.eagle;
    struct ash_pass_opts opts = {.max_rows = core->opts.max_batch_rows, .outs = ash_ranks_axis(core->opts.ranks)};

    if (eagle == NULL) return opts;
    opts.capture_count = ASH_MODEL_CAPTURES;
    memcpy(opts.captures, eagle->layers, sizeof(opts.captures));
    return opts;
}
