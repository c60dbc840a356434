/* ranks: messages of the first rank. They are broadcasts of whole numbers: one of ASH_RANKS_HEAD_WORDS, and one with
 * the rest of a longer message. */
#include "serve/engine/ranks_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/math.h"
#include "model/pass/cache.h"

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
static int begin(struct ash_ranks *ranks, enum ash_ranks_message kind, size_t count, struct ash_err *err)
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
int ash_ranks_broadcast(struct ash_ranks *ranks, struct ash_err *err)
{
    int rc = ash_group_broadcast(ranks->group, ranks->words, ASH_RANKS_HEAD_WORDS * sizeof(*ranks->words), 0, err);
    size_t count;

    if (rc < 0) return rc;
    count = (size_t)ranks->words[1];
    if (count <= ASH_RANKS_HEAD_WORDS) return 0;
    rc = reserve(ranks, count, err);
    if (rc < 0) return rc;
    return ash_group_broadcast(ranks->group, ranks->words + ASH_RANKS_HEAD_WORDS,
                               (count - ASH_RANKS_HEAD_WORDS) * sizeof(*ranks->words), 0, err);
}

static int send(struct ash_ranks *ranks, struct ash_err *err)
{
    ash_assert(ranks->count == (size_t)ranks->words[1] && ash_group_rank(ranks->group) == 0);
    return ash_ranks_broadcast(ranks, err);
}

/* ---- the first rank ---------------------------------------------------------------------------------------------- */

int ash_ranks_send_open(struct ash_ranks *ranks, size_t max_rows, size_t page_count, struct ash_err *err)
{
    int rc = ranks != NULL ? begin(ranks, ASH_RANKS_OPEN, 2, err) : 0;

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
    rc = begin(ranks, ASH_RANKS_PACK, 0, err);
    return rc < 0 ? rc : send(ranks, err);
}

int ash_ranks_send_copy(struct ash_ranks *ranks, int32_t from, int32_t to, struct ash_err *err)
{
    const int32_t pages[] = {from, to};
    int rc = ranks != NULL ? begin(ranks, ASH_RANKS_COPY, 2, err) : 0;

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
        words += ASH_RANKS_DOC_WORDS + used_pages(&batch->docs[i]);
        if (batch->docs[i].adapters != NULL)
            return ash_err_set(err, -ENOTSUP, "a model over several ranks has no adapters: serve it with --tp 1");
    }
    rc = begin(ranks, ASH_RANKS_LAYERS, words, err);
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
    int rc = ranks != NULL ? begin(ranks, ASH_RANKS_LOGITS, count, err) : 0;

    if (rc < 0 || ranks == NULL) return rc;
    for (size_t i = 0; i < count; i++)
        add(ranks, rows[i]);
    return send(ranks, err);
}

void ash_ranks_send_plain(struct ash_ranks *ranks, enum ash_ranks_message kind)
{
    struct ash_err ignored = {0};

    if (ranks == NULL || ash_group_rank(ranks->group) > 0 || ash_group_check(ranks->group, &ignored) < 0) return;
    if (begin(ranks, kind, 0, &ignored) == 0) (void)send(ranks, &ignored);
}

int ash_ranks_send_page(struct ash_ranks *ranks, enum ash_ranks_message kind, int32_t page, struct ash_err *err)
{
    int rc = begin(ranks, kind, 1, err);

    if (rc < 0) return rc;
    add(ranks, (size_t)page);
    return send(ranks, err);
}
