/* infer_rows - the logits of a document whose tokens go through a model in pieces, for tests that compare them. */
#ifndef ASH_TESTS_INFER_ROWS_H
#define ASH_TESTS_INFER_ROWS_H

#include <stdlib.h>

#include "base/math.h"
#include "model/pass/cache.h"
#include "model/pass/pass.h"

#define INFER_ROWS_MAX 512

/* Logits [rows, vocab] of the document ids [rows], computed `piece` rows at a time with a cache.
 * The caller frees them. */
static inline float *infer_rows(struct ash_model *model, struct ash_exec *exec, const int32_t *ids, size_t rows,
                                size_t piece)
{
    size_t vocab = ash_model_get_config(model)->vocab, wanted[INFER_ROWS_MAX];
    struct ash_pass_opts opts = {.max_rows = rows};
    struct ash_pass *pass = NULL;
    struct ash_cache *cache = NULL;
    struct ash_block_table table = {0};
    struct ash_err err = {0};
    float *logits = calloc(rows * vocab, sizeof(float));

    assert_non_null(logits);
    assert_true(rows <= INFER_ROWS_MAX);
    for (size_t i = 0; i < rows; i++)
        wanted[i] = i;
    if (ash_pass_open(model, exec, &opts, &pass, &err) < 0) fail_msg("%s", err.text);
    if (ash_cache_open(model, ash_cache_pages_for(rows), &cache, &err) < 0) fail_msg("%s", err.text);
    assert_int_equal(ash_block_table_init(&table, rows), 0);
    assert_int_equal(ash_block_table_grow(&table, cache, rows), 0);
    for (size_t done = 0; done < rows; done += piece) {
        size_t count = ash_min(rows - done, piece);
        struct ash_doc doc = {.count = count, .pos = done, .pages = table.pages, .page_count = table.count};
        struct ash_batch batch = {.rows = count, .ids = ids + done, .docs = &doc, .doc_count = 1};

        if (ash_pass_infer(pass, &batch, cache, wanted, count, logits + done * vocab, &err) < 0)
            fail_msg("%s", err.text);
    }
    ash_block_table_fini(&table);
    ash_cache_close(cache);
    ash_pass_close(pass);
    return logits;
}

#endif
