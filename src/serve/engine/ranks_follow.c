/* ranks: those after the first, which do what its messages say. */
#include <errno.h>
#include <stdlib.h>

#include "base/assert.h"
#include "model/pass/cache.h"
#include "serve/engine/ranks_priv.h"

struct follower {
    struct ash_ranks *ranks;
    struct ash_model *model;
    struct ash_exec *exec;
    struct ash_pass *pass;
    struct ash_cache *cache;
    struct ash_doc *docs; /* [max_rows] */
    size_t *rows;         /* [max_rows] */
    size_t max_rows;
    struct ash_batch batch; /* the pass has it until the next */
};

static void close_pass(struct follower *f)
{
    ash_ranks_close_page(f->ranks);
    ash_cache_close(f->cache);
    ash_pass_close(f->pass);
    free(f->docs);
    free(f->rows);
    f->cache = NULL;
    f->pass = NULL;
    f->docs = NULL;
    f->rows = NULL;
}

/* All pages are taken: which of them are in use is for the first rank to know. */
static int open_pass(struct follower *f, const int32_t *words, struct ash_err *err)
{
    struct ash_pass_opts opts = {.max_rows = (size_t)words[0], .outs = ash_ranks_axis(f->ranks)};
    int rc;

    ash_assert(f->pass == NULL);
    f->max_rows = opts.max_rows;
    f->docs = calloc(opts.max_rows, sizeof(*f->docs));
    f->rows = calloc(opts.max_rows, sizeof(*f->rows));
    if (f->docs == NULL || f->rows == NULL) return ash_err_set(err, -ENOMEM, "out of memory for a pass");
    rc = ash_pass_open(f->model, f->exec, &opts, &f->pass, err);
    if (rc == 0) rc = ash_cache_open(f->model, (size_t)words[1], &f->cache, err);
    while (rc == 0 && ash_cache_free_count(f->cache) > 0)
        (void)ash_cache_take(f->cache);
    return rc;
}

static int run_layers(struct follower *f, const int32_t *words, struct ash_err *err)
{
    struct ash_batch *batch = &f->batch;
    const int32_t *at = words + 2 + words[0];

    *batch =
        (struct ash_batch){.rows = (size_t)words[0], .doc_count = (size_t)words[1], .ids = words + 2, .docs = f->docs};
    ash_assert(f->pass != NULL && batch->doc_count <= batch->rows && batch->rows <= f->max_rows);
    for (size_t i = 0; i < batch->doc_count; i++) {
        f->docs[i] = (struct ash_doc){.row = (size_t)at[0],
                                      .count = (size_t)at[1],
                                      .pos = (size_t)at[2],
                                      .page_count = (size_t)at[3],
                                      .pages = at + ASH_RANKS_DOC_WORDS};
        at += ASH_RANKS_DOC_WORDS + f->docs[i].page_count;
    }
    return ash_pass_infer_layers(f->pass, batch, f->cache, err);
}

static int run_logits(struct follower *f, const int32_t *words, size_t count, struct ash_err *err)
{
    ash_assert(f->pass != NULL && count <= f->max_rows);
    for (size_t i = 0; i < count; i++)
        f->rows[i] = (size_t)words[i];
    return ash_pass_infer_logits(f->pass, f->rows, count, NULL, err);
}

static int obey(struct follower *f, struct ash_err *err)
{
    const int32_t *words = f->ranks->words + 2;

    switch ((enum ash_ranks_message)f->ranks->words[0]) {
    case ASH_RANKS_OPEN:
        return open_pass(f, words, err);
    case ASH_RANKS_CLOSE:
        close_pass(f);
        return 0;
    case ASH_RANKS_PACK:
        return ash_model_pack(f->model, f->exec, err);
    case ASH_RANKS_COPY:
        ash_cache_copy_page(f->cache, words[0], words[1]);
        return 0;
    case ASH_RANKS_SHARE_PAGES:
        return ash_ranks_open_page(f->ranks, f->cache, err);
    case ASH_RANKS_READ_PAGE:
        return ash_ranks_put_part(f->ranks, f->cache, words[0], err);
    case ASH_RANKS_WRITE_PAGE:
        return ash_ranks_take_part(f->ranks, f->cache, words[0], err);
    case ASH_RANKS_LAYERS:
        return run_layers(f, words, err);
    case ASH_RANKS_LOGITS:
        return run_logits(f, words, (size_t)f->ranks->words[1] - 2, err);
    default:
        return ash_err_set(err, -EPROTO, "message %d is unknown", f->ranks->words[0]);
    }
}

int ash_ranks_follow(struct ash_ranks *ranks, struct ash_model *model, struct ash_exec *exec, bool *is_own_out,
                     struct ash_err *err)
{
    struct follower follower = {.ranks = ranks, .model = model, .exec = exec};
    struct ash_err ignored = {0};
    int rc;

    *is_own_out = false;
    while ((rc = ash_ranks_broadcast(ranks, err)) == 0 && ranks->words[0] != ASH_RANKS_END) {
        rc = obey(&follower, err);
        if (rc < 0) break;
    }
    *is_own_out = rc < 0 && ash_group_check(ranks->group, &ignored) == 0;
    if (*is_own_out) ash_ranks_fail(ranks, err);
    close_pass(&follower);
    return rc;
}
