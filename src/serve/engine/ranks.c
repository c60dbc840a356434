/* ranks: messages are broadcasts of whole numbers: one of HEAD_WORDS, and one with the rest of a longer message. */
#include "serve/engine/ranks.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/math.h"
#include "collective/group.h"
#include "model/pass/cache.h"
#include "parallel/axis_link.h"

#define HEAD_WORDS 256
#define JOIN_SECONDS 120
#define SILENT_SECONDS 3 /* without a heartbeat: a process that is gone is noticed at once */
#define CALL_SECONDS 1e9 /* a rank without work waits for as long as there is none */
#define STOP_GRACE_SECONDS 10
#define DOC_WORDS 4 /* of a document in a message: row, count, position, pages; then the pages */

enum message { MESSAGE_END, MESSAGE_OPEN, MESSAGE_CLOSE, MESSAGE_PACK, MESSAGE_COPY, MESSAGE_LAYERS, MESSAGE_LOGITS };

struct ash_ranks {
    struct ash_group *group;
    struct ash_axis_link link;
    struct ash_meter meter;
    int32_t *words; /* [capacity] the current message: kind, count of all words, then its own */
    size_t count, capacity;
    bool has_packed;
    bool *was_stopped; /* [size], when ash_ranks_watch looked */
};

/* ---- life -------------------------------------------------------------------------------------------------------- */

int ash_ranks_open(const struct ash_launch_env *env, struct ash_ranks **ranks_out, struct ash_err *err)
{
    const struct ash_group_opts opts = {.join_timeout = JOIN_SECONDS,
                                        .silent_timeout = SILENT_SECONDS,
                                        .call_timeout = CALL_SECONDS,
                                        .stop_grace = STOP_GRACE_SECONDS};
    struct ash_ranks *ranks = calloc(1, sizeof(*ranks));
    int rc;

    if (ranks == NULL) return ash_err_set(err, -ENOMEM, "out of memory for ranks");
    ash_meter_open(&ranks->meter);
    ranks->capacity = HEAD_WORDS;
    ranks->words = calloc(HEAD_WORDS, sizeof(*ranks->words));
    ranks->was_stopped = calloc(env->size, sizeof(*ranks->was_stopped));
    rc = ranks->words != NULL && ranks->was_stopped != NULL ? ash_group_open(env, &opts, &ranks->group, err)
                                                            : ash_err_set(err, -ENOMEM, "out of memory for ranks");
    if (rc == 0) rc = ash_axis_link_open(&ranks->link, ranks->group, &ranks->meter, err);
    if (rc == 0 && !ash_group_shares_memory(ranks->group))
        rc = ash_err_set(err, -ENOTSUP, "the ranks are on %zu nodes, but one model is served by ranks of one node",
                         ash_group_nodes(ranks->group));
    if (rc < 0) {
        ash_ranks_close(ranks);
        return rc;
    }
    *ranks_out = ranks;
    return 0;
}

size_t ash_ranks_rank(const struct ash_ranks *ranks)
{
    return ranks != NULL ? ash_group_rank(ranks->group) : 0;
}

size_t ash_ranks_size(const struct ash_ranks *ranks)
{
    return ranks != NULL ? ash_group_size(ranks->group) : 1;
}

struct ash_axis ash_ranks_axis(struct ash_ranks *ranks)
{
    return ranks != NULL ? ash_axis_link_axis(&ranks->link, 0) : (struct ash_axis){0};
}

int ash_ranks_pid(const struct ash_ranks *ranks, size_t rank)
{
    ash_assert(rank < ash_group_size(ranks->group));
    return ash_group_get_member(ranks->group, rank).pid;
}

/* ---- faults ------------------------------------------------------------------------------------------------------ */

/* Has a process of this host been stopped? */
static bool is_stopped(int pid)
{
    char path[64], state = '?';
    FILE *file;

    snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    file = fopen(path, "r");
    if (file == NULL) return false;
    if (fscanf(file, "%*d (%*[^)]) %c", &state) != 1) state = '?';
    fclose(file);
    return state == 'T' || state == 't';
}

int ash_ranks_watch(struct ash_ranks *ranks, struct ash_err *err)
{
    const char *host = ranks != NULL ? ash_group_get_member(ranks->group, 0).host : NULL;
    char why[ASH_ERR_TEXT_BYTES];

    for (size_t r = 1; r < ash_ranks_size(ranks); r++) {
        struct ash_group_member member = ash_group_get_member(ranks->group, r);
        bool is_now = strcmp(member.host, host) == 0 && is_stopped(member.pid);

        if (is_now && ranks->was_stopped[r]) {
            snprintf(why, sizeof(why), "rank %zu (process %d) is stopped: it computes nothing", r, member.pid);
            ash_group_abort(ranks->group, why);
        }
        ranks->was_stopped[r] = is_now;
    }
    return ranks != NULL ? ash_group_check(ranks->group, err) : 0;
}

void ash_ranks_fail(struct ash_ranks *ranks, const struct ash_err *why)
{
    char text[ASH_ERR_TEXT_BYTES + 32];

    snprintf(text, sizeof(text), "rank %zu: %s", ash_ranks_rank(ranks), why->text);
    ash_group_abort(ranks->group, text);
}

/* ---- messages ---------------------------------------------------------------------------------------------------- */

/* Room for count words. Returns 0 or -ENOMEM. */
static int reserve(struct ash_ranks *ranks, size_t count, struct ash_err *err)
{
    size_t capacity = ash_max(count, 2 * ranks->capacity);
    int32_t *words;

    if (count <= ranks->capacity) return 0;
    words = realloc(ranks->words, capacity * sizeof(*words));
    if (words == NULL) return ash_err_set(err, -ENOMEM, "out of memory for a message of %zu words", count);
    ranks->words = words;
    ranks->capacity = capacity;
    return 0;
}

/* Begin a message that has `count` words of its own. */
static int begin(struct ash_ranks *ranks, enum message kind, size_t count, struct ash_err *err)
{
    int rc = reserve(ranks, count + 2, err);

    ash_assert(count <= INT32_MAX - 2);
    if (rc < 0) return rc;
    ranks->words[0] = (int32_t)kind;
    ranks->words[1] = (int32_t)(count + 2);
    ranks->count = 2;
    return 0;
}

static void add(struct ash_ranks *ranks, size_t word)
{
    ash_assert(ranks->count < (size_t)ranks->words[1] && word <= INT32_MAX);
    ranks->words[ranks->count++] = (int32_t)word;
}

static void add_all(struct ash_ranks *ranks, const int32_t *words, size_t count)
{
    ash_assert(ranks->count + count <= (size_t)ranks->words[1]);
    memcpy(ranks->words + ranks->count, words, count * sizeof(*words));
    ranks->count += count;
}

/* The head; whose count all ranks know then, and the rest. */
static int broadcast(struct ash_ranks *ranks, struct ash_err *err)
{
    int rc = ash_group_broadcast(ranks->group, ranks->words, HEAD_WORDS * sizeof(*ranks->words), 0, err);
    size_t count;

    if (rc < 0) return rc;
    count = (size_t)ranks->words[1];
    if (count <= HEAD_WORDS) return 0;
    rc = reserve(ranks, count, err);
    if (rc < 0) return rc;
    return ash_group_broadcast(ranks->group, ranks->words + HEAD_WORDS, (count - HEAD_WORDS) * sizeof(*ranks->words), 0,
                               err);
}

static int send(struct ash_ranks *ranks, struct ash_err *err)
{
    ash_assert(ranks->count == (size_t)ranks->words[1] && ash_ranks_rank(ranks) == 0);
    return broadcast(ranks, err);
}

/* ---- the first rank ---------------------------------------------------------------------------------------------- */

int ash_ranks_send_open(struct ash_ranks *ranks, size_t max_rows, size_t page_count, struct ash_err *err)
{
    int rc = ranks != NULL ? begin(ranks, MESSAGE_OPEN, 2, err) : 0;

    if (rc < 0 || ranks == NULL) return rc;
    add(ranks, max_rows);
    add(ranks, page_count);
    return send(ranks, err);
}

int ash_ranks_send_pack(struct ash_ranks *ranks, struct ash_err *err)
{
    int rc;

    if (ranks == NULL || ranks->has_packed) return 0;
    ranks->has_packed = true;
    rc = begin(ranks, MESSAGE_PACK, 0, err);
    return rc < 0 ? rc : send(ranks, err);
}

int ash_ranks_send_copy(struct ash_ranks *ranks, int32_t from, int32_t to, struct ash_err *err)
{
    const int32_t pages[] = {from, to};
    int rc = ranks != NULL ? begin(ranks, MESSAGE_COPY, 2, err) : 0;

    if (rc < 0 || ranks == NULL) return rc;
    add_all(ranks, pages, 2);
    return send(ranks, err);
}

/* Pages that hold what the document has with these rows: the others are not read. */
static size_t used_pages(const struct ash_doc *doc)
{
    return ash_min(ash_cache_pages_for(doc->pos + doc->count), doc->page_count);
}

int ash_ranks_send_layers(struct ash_ranks *ranks, const struct ash_batch *batch, struct ash_err *err)
{
    size_t words = 2 + batch->rows;
    int rc;

    if (ranks == NULL) return 0;
    for (size_t i = 0; i < batch->doc_count; i++) {
        words += DOC_WORDS + used_pages(&batch->docs[i]);
        if (batch->docs[i].adapters != NULL)
            return ash_err_set(err, -ENOTSUP, "a model over several ranks has no adapters: serve it with --tp 1");
    }
    rc = begin(ranks, MESSAGE_LAYERS, words, err);
    if (rc < 0) return rc;
    add(ranks, batch->rows);
    add(ranks, batch->doc_count);
    add_all(ranks, batch->ids, batch->rows);
    for (size_t i = 0; i < batch->doc_count; i++) {
        const struct ash_doc *doc = &batch->docs[i];

        add(ranks, doc->row);
        add(ranks, doc->count);
        add(ranks, doc->pos);
        add(ranks, used_pages(doc));
        add_all(ranks, doc->pages, used_pages(doc));
    }
    return send(ranks, err);
}

int ash_ranks_send_logits(struct ash_ranks *ranks, const size_t *rows, size_t count, struct ash_err *err)
{
    int rc = ranks != NULL ? begin(ranks, MESSAGE_LOGITS, count, err) : 0;

    if (rc < 0 || ranks == NULL) return rc;
    for (size_t i = 0; i < count; i++)
        add(ranks, rows[i]);
    return send(ranks, err);
}

/* A message without words. The group may have ended: then it is dropped. */
static void send_plain(struct ash_ranks *ranks, enum message kind)
{
    struct ash_err ignored = {0};

    if (ranks == NULL || ash_ranks_rank(ranks) > 0 || ash_group_check(ranks->group, &ignored) < 0) return;
    if (begin(ranks, kind, 0, &ignored) == 0) (void)send(ranks, &ignored);
}

void ash_ranks_send_close(struct ash_ranks *ranks)
{
    send_plain(ranks, MESSAGE_CLOSE);
}

void ash_ranks_close(struct ash_ranks *ranks)
{
    if (ranks == NULL) return;
    if (ranks->link.group != NULL) send_plain(ranks, MESSAGE_END);
    ash_axis_link_close(&ranks->link);
    ash_group_close(ranks->group);
    free(ranks->was_stopped);
    free(ranks->words);
    free(ranks);
}

/* ---- the others -------------------------------------------------------------------------------------------------- */

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
                                      .pages = at + DOC_WORDS};
        at += DOC_WORDS + f->docs[i].page_count;
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

    switch ((enum message)f->ranks->words[0]) {
    case MESSAGE_OPEN:
        return open_pass(f, words, err);
    case MESSAGE_CLOSE:
        close_pass(f);
        return 0;
    case MESSAGE_PACK:
        return ash_model_pack(f->model, f->exec, err);
    case MESSAGE_COPY:
        ash_cache_copy_page(f->cache, words[0], words[1]);
        return 0;
    case MESSAGE_LAYERS:
        return run_layers(f, words, err);
    case MESSAGE_LOGITS:
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
    while ((rc = broadcast(ranks, err)) == 0 && ranks->words[0] != MESSAGE_END) {
        rc = obey(&follower, err);
        if (rc < 0) break;
    }
    *is_own_out = rc < 0 && ash_group_check(ranks->group, &ignored) == 0;
    if (*is_own_out) ash_ranks_fail(ranks, err);
    close_pass(&follower);
    return rc;
}
