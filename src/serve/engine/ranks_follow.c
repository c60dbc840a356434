/* ranks: those after the first, which do what its messages say. */
#include <errno.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/assert.h"
#include "model/files/lora_folder.h"
#include "model/files/open.h"
#include "model/pass/cache.h"
#include "serve/engine/ranks_priv.h"

struct attached {
    size_t id;
    struct ash_lora_set set;
};

struct follower {
    struct ash_ranks *ranks;
    struct ash_model *model;
    struct ash_exec *exec;
    struct ash_pass *pass;
    struct ash_cache *cache;
    struct attached *adapters;
    size_t adapter_count, adapter_room;
    struct ash_doc *docs; /* [max_rows] */
    size_t *rows;         /* [max_rows] */
    size_t max_rows;
    struct ash_batch batch; /* the pass has it until the next */
};

/* ---- the pass ---------------------------------------------------------------------------------------------------- */

static void close_pass(struct follower *f)
{
    ash_ranks_close_page(f->ranks);
    ash_ranks_close_stages(f->ranks);
    ash_cache_close(f->cache);
    ash_pass_close(f->pass);
    free(f->docs);
    free(f->rows);
    f->cache = NULL;
    f->pass = NULL;
    f->docs = NULL;
    f->rows = NULL;
}

static int measure(const struct follower *f, size_t max_rows, struct ash_err *err)
{
    struct ash_pass_opts opts = {.max_rows = max_rows, .outs = ash_ranks_axis(f->ranks)};
    struct ash_gpu_room *rooms = calloc(ash_ranks_size(f->ranks), sizeof(*rooms));
    int rc = rooms != NULL ? ash_gpu_room_measure(f->model, f->exec, &opts, rooms, err)
                           : ash_err_set(err, -ENOMEM, "out of memory for what ranks take");

    if (rc == 0) rc = ash_ranks_gather_rooms(f->ranks, rooms, err);
    free(rooms);
    return rc;
}

/* A pass and a cache, whose pages are all taken: which of them are in use is for the first rank to know. */
static int open_parts(const struct follower *f, struct ash_model *model, size_t pages, struct ash_pass **pass_out,
                      struct ash_cache **cache_out, struct ash_err *err)
{
    struct ash_pass_opts opts = {.max_rows = f->max_rows, .outs = ash_ranks_axis(f->ranks)};
    int rc = ash_pass_open(model, f->exec, &opts, pass_out, err);

    if (rc == 0) rc = ash_cache_open(model, pages, cache_out, err);
    while (rc == 0 && ash_cache_free_count(*cache_out) > 0)
        (void)ash_cache_take(*cache_out);
    return rc;
}

static int open_pass(struct follower *f, const int32_t *words, struct ash_err *err)
{
    int rc;

    ash_assert(f->pass == NULL);
    f->max_rows = (size_t)words[0];
    f->docs = calloc(f->max_rows, sizeof(*f->docs));
    f->rows = calloc(f->max_rows, sizeof(*f->rows));
    if (f->docs == NULL || f->rows == NULL) return ash_err_set(err, -ENOMEM, "out of memory for a pass");
    rc = open_parts(f, f->model, (size_t)words[1], &f->pass, &f->cache, err);
    return rc < 0 ? rc : ash_ranks_open_stages(f->ranks, f->model, f->max_rows, err);
}

/* ---- adapters ---------------------------------------------------------------------------------------------------- */

static struct attached *find_adapter(const struct follower *f, size_t id)
{
    for (size_t i = 0; i < f->adapter_count; i++)
        if (f->adapters[i].id == id) return &f->adapters[i];
    return NULL;
}

static void drop_adapter(struct follower *f, size_t id)
{
    struct attached *gone = find_adapter(f, id);

    if (gone == NULL) return; /* one that some rank could not load */
    ash_lora_detach(&gone->set);
    *gone = f->adapters[--f->adapter_count];
}

static int load_adapter(struct follower *f, size_t id, const char *dir, struct ash_err *err)
{
    struct ash_lora_set set = {0};
    int rc = ash_lora_attach(dir, f->model, f->exec, f->max_rows, &set, err);

    if (rc == 0) rc = ash_array_reserve(&f->adapters, &f->adapter_room, f->adapter_count + 1, sizeof(*f->adapters));
    rc = ash_ranks_agree(f->ranks, rc, err);
    if (rc == 0)
        f->adapters[f->adapter_count++] = (struct attached){id, set};
    else
        ash_lora_detach(&set);
    return ash_group_check(f->ranks->group, err); /* a folder that is refused ends nothing */
}

/* ---- weights in place -------------------------------------------------------------------------------------------- */

static int open_next(const struct follower *f, const char *path, struct ash_model **next_out, struct ash_err *err)
{
    int rc = ash_model_open_slice(path, ash_model_slice(f->model), next_out, err);

    if (rc < 0) return rc;
    ash_model_round_bf16(*next_out, ash_model_rounds_bf16(f->model));
    ash_model_use_kv_dtype(*next_out, ash_model_kv_dtype(f->model));
    return 0;
}

static int swap_model(struct follower *f, const char *path, struct ash_err *err)
{
    struct ash_model *next = NULL;
    struct ash_cache *cache = NULL;
    struct ash_pass *pass = NULL;
    int rc = ash_ranks_agree(f->ranks, open_next(f, path, &next, err), err);

    if (rc < 0) {
        ash_model_close(next);
        return ash_group_check(f->ranks->group, err);
    }
    rc = open_parts(f, next, ash_cache_page_count(f->cache), &pass, &cache, err);
    if (rc < 0) {
        ash_cache_close(cache);
        ash_pass_close(pass);
        ash_model_close(next);
        return rc;
    }
    ash_cache_close(f->cache);
    ash_pass_close(f->pass);
    ash_model_close(f->model);
    f->cache = cache;
    f->pass = pass;
    f->model = next;
    return 0;
}

/* ---- messages ---------------------------------------------------------------------------------------------------- */

static int run_layers(struct follower *f, const int32_t *words, struct ash_err *err)
{
    struct ash_batch *batch = &f->batch;
    const int32_t *at = words + 2 + words[0];

    *batch =
        (struct ash_batch){.rows = (size_t)words[0], .doc_count = (size_t)words[1], .ids = words + 2, .docs = f->docs};
    ash_assert(f->pass != NULL && batch->doc_count <= batch->rows && batch->rows <= f->max_rows);
    for (size_t i = 0; i < batch->doc_count; i++) {
        const struct attached *adapter = at[3] > 0 ? find_adapter(f, (size_t)at[3]) : NULL;

        ash_assert(at[3] == 0 || adapter != NULL);
        f->docs[i] = (struct ash_doc){.row = (size_t)at[0],
                                      .count = (size_t)at[1],
                                      .pos = (size_t)at[2],
                                      .page_count = (size_t)at[4],
                                      .pages = at + ASH_RANKS_DOC_WORDS,
                                      .adapters = adapter != NULL ? adapter->set.adapters : NULL};
        at += ASH_RANKS_DOC_WORDS + f->docs[i].page_count;
    }
    return ash_ranks_run_layers(f->ranks, f->pass, batch, f->cache, err);
}

static int run_rows(struct follower *f, const int32_t *words, struct ash_err *err)
{
    struct ash_ranks_rows wanted = {(enum ash_ranks_message)f->ranks->words[0], f->rows, 0, NULL};
    size_t count = wanted.count = (size_t)f->ranks->words[1] - 2;

    ash_assert(f->pass != NULL && count <= f->max_rows);
    for (size_t i = 0; i < count; i++)
        f->rows[i] = (size_t)words[i];
    return ash_ranks_run_rows(f->ranks, f->pass, &wanted, err);
}

static int obey(struct follower *f, struct ash_err *err)
{
    const int32_t *words = f->ranks->words + 2;

    switch ((enum ash_ranks_message)f->ranks->words[0]) {
    case ASH_RANKS_MEASURE:
        return measure(f, (size_t)words[0], err);
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
    case ASH_RANKS_LOAD_ADAPTER:
        return load_adapter(f, (size_t)words[0], (const char *)(words + 1), err);
    case ASH_RANKS_DROP_ADAPTER:
        drop_adapter(f, (size_t)words[0]);
        return 0;
    case ASH_RANKS_SWAP:
        return swap_model(f, (const char *)words, err);
    case ASH_RANKS_LAYERS:
        return run_layers(f, words, err);
    case ASH_RANKS_LOGITS:
    case ASH_RANKS_STATES:
        return run_rows(f, words, err);
    default:
        return ash_err_set(err, -EPROTO, "message %d is unknown", f->ranks->words[0]);
    }
}

int ash_ranks_follow(struct ash_ranks *ranks, struct ash_model **model, struct ash_exec *exec, bool *is_own_out,
                     struct ash_err *err)
{
    struct follower follower = {.ranks = ranks, .model = *model, .exec = exec};
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
    while (follower.adapter_count > 0)
        drop_adapter(&follower, follower.adapters[0].id);
    free(follower.adapters);
    *model = follower.model;
    return rc;
}
