/* ranks: what the first one tells the others before its own calls. */
#include "base/assert.h"
#include "base/math.h"
#include "model/pass/cache.h"
#include "serve/engine/ranks_priv.h"

int ash_ranks_send_measure(struct ash_ranks *ranks, size_t max_rows, struct ash_err *err)
{
    int rc = ranks != NULL ? ash_ranks_begin(ranks, ASH_RANKS_MEASURE, 1, err) : 0;

    if (rc < 0 || ranks == NULL) return rc;
    ash_ranks_add(ranks, max_rows);
    return ash_ranks_send(ranks, err);
}

int ash_ranks_send_open(struct ash_ranks *ranks, size_t max_rows, size_t page_count, struct ash_err *err)
{
    int rc = ranks != NULL ? ash_ranks_begin(ranks, ASH_RANKS_OPEN, 2, err) : 0;

    if (rc < 0 || ranks == NULL) return rc;
    ash_ranks_add(ranks, max_rows);
    ash_ranks_add(ranks, page_count);
    return ash_ranks_send(ranks, err);
}

int ash_ranks_send_pack(struct ash_ranks *ranks, struct ash_err *err)
{
    int rc;

    if (ranks == NULL || ranks->has_packed) return 0;
    ranks->has_packed = true;
    rc = ash_ranks_begin(ranks, ASH_RANKS_PACK, 0, err);
    return rc < 0 ? rc : ash_ranks_send(ranks, err);
}

int ash_ranks_send_copy(struct ash_ranks *ranks, int32_t from, int32_t to, struct ash_err *err)
{
    const int32_t pages[] = {from, to};
    int rc = ranks != NULL ? ash_ranks_begin(ranks, ASH_RANKS_COPY, 2, err) : 0;

    if (rc < 0 || ranks == NULL) return rc;
    ash_ranks_add_all(ranks, pages, 2);
    return ash_ranks_send(ranks, err);
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

    rc = ash_ranks_drop_adapters(ranks, err);
    if (rc < 0) return rc;
    for (size_t i = 0; i < batch->doc_count; i++)
        words += ASH_RANKS_DOC_WORDS + used_pages(&batch->docs[i]);
    rc = ash_ranks_begin(ranks, ASH_RANKS_LAYERS, words, err);
    if (rc < 0) return rc;
    ash_ranks_add(ranks, batch->rows);
    ash_ranks_add(ranks, batch->doc_count);
    ash_ranks_add_all(ranks, batch->ids, batch->rows);
    for (size_t i = 0; i < batch->doc_count; i++) {
        const struct ash_doc *doc = &batch->docs[i];

        ash_ranks_add(ranks, doc->row);
        ash_ranks_add(ranks, doc->count);
        ash_ranks_add(ranks, doc->pos);
        ash_ranks_add(ranks, ash_ranks_adapter_id(ranks, doc->adapters));
        ash_ranks_add(ranks, used_pages(doc));
        ash_ranks_add_all(ranks, doc->pages, used_pages(doc));
    }
    return ash_ranks_send(ranks, err);
}

int ash_ranks_send_rows(struct ash_ranks *ranks, enum ash_ranks_message kind, const size_t *rows, size_t count,
                        struct ash_err *err)
{
    int rc = ash_ranks_begin(ranks, kind, count, err);

    if (rc < 0) return rc;
    for (size_t i = 0; i < count; i++)
        ash_ranks_add(ranks, rows[i]);
    return ash_ranks_send(ranks, err);
}

int ash_ranks_send_choose(struct ash_ranks *ranks, const size_t *rows, size_t count, struct ash_err *err)
{
    ash_assert(ranks == NULL || ranks->parts.stages == 1);
    return ranks != NULL ? ash_ranks_send_rows(ranks, ASH_RANKS_LOGITS, rows, count, err) : 0;
}

int ash_ranks_send_swap(struct ash_ranks *ranks, const char *path, struct ash_err *err)
{
    int rc;

    if (ranks == NULL) return 0;
    rc = ash_ranks_drop_adapters(ranks, err);
    if (rc == 0) rc = ash_ranks_begin(ranks, ASH_RANKS_SWAP, ash_ranks_text_words(path), err);
    if (rc < 0) return rc;
    ash_ranks_add_text(ranks, path);
    rc = ash_ranks_send(ranks, err);
    if (rc == 0) rc = ash_ranks_agree(ranks, 0, err);
    if (rc == 0) ranks->has_packed = false;
    return rc;
}
