/* loss_ranks: document by document, which share nothing: so their pages are those of one. */
#include "post/eval/loss_ranks.h"

#include <errno.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/math.h"
#include "model/pass/cache.h"

#define LOGIT_ROWS 32 /* that exist at once */

struct ash_loss_ranks {
    struct ash_ranks *ranks;
    struct ash_exec *exec;
    struct ash_pass *pass;
    struct ash_cache *cache;
    struct ash_block_table pages;
    size_t max_rows, vocab;
    float *logits; /* [LOGIT_ROWS, vocab] */
};

static int open_parts(struct ash_loss_ranks *loss, struct ash_model *model, struct ash_err *err)
{
    struct ash_pass_opts opts = {.max_rows = loss->max_rows, .outs = ash_ranks_axis(loss->ranks)};
    size_t pages = ash_cache_pages_for(loss->max_rows);
    int rc = ash_ranks_send_open(loss->ranks, loss->max_rows, pages, err);

    if (rc == 0) rc = ash_pass_open(model, loss->exec, &opts, &loss->pass, err);
    if (rc == 0) rc = ash_cache_open(model, pages, &loss->cache, err);
    if (rc == 0) rc = ash_ranks_open_stages(loss->ranks, model, loss->max_rows, err);
    if (rc < 0) return rc;
    loss->logits = malloc(LOGIT_ROWS * loss->vocab * sizeof(*loss->logits));
    if (loss->logits == NULL || ash_block_table_init(&loss->pages, loss->max_rows) < 0 ||
        ash_block_table_grow(&loss->pages, loss->cache, loss->max_rows) < 0)
        return ash_err_set(err, -ENOMEM, "no memory for windows of %zu tokens", loss->max_rows);
    return 0;
}

int ash_loss_ranks_open(struct ash_engine *engine, size_t max_rows, struct ash_loss_ranks **loss_out,
                        struct ash_err *err)
{
    struct ash_loss_ranks *loss = calloc(1, sizeof(*loss));
    int rc;

    ash_assert(ash_engine_ranks(engine) != NULL && max_rows > 0);
    if (loss == NULL) return ash_err_set(err, -ENOMEM, "no memory for windows of %zu tokens", max_rows);
    loss->ranks = ash_engine_ranks(engine);
    loss->exec = ash_engine_exec(engine);
    loss->max_rows = max_rows;
    loss->vocab = ash_model_get_config(ash_engine_model(engine))->vocab;
    rc = open_parts(loss, ash_engine_model(engine), err);
    if (rc < 0) {
        ash_loss_ranks_close(loss);
        return rc;
    }
    *loss_out = loss;
    return 0;
}

void ash_loss_ranks_close(struct ash_loss_ranks *loss)
{
    if (loss == NULL) return;
    ash_block_table_fini(&loss->pages);
    ash_cache_close(loss->cache);
    ash_ranks_send_close(loss->ranks);
    ash_pass_close(loss->pass);
    free(loss->logits);
    free(loss);
}

/* Losses of rows [first, first + count) of the current document. */
static int find_losses(struct ash_loss_ranks *loss, size_t first, size_t count, const int32_t *targets, float *losses,
                       struct ash_err *err)
{
    size_t rows[LOGIT_ROWS];
    int rc;

    ash_assert(count <= LOGIT_ROWS);
    for (size_t i = 0; i < count; i++)
        rows[i] = first + i;
    rc = ash_ranks_infer_logits(loss->ranks, loss->pass, rows, count, loss->logits, err);
    if (rc < 0) return rc;
    loss->exec->ops->loss->cross_entropy(
        loss->exec,
        &(struct ash_loss_part){
            .rows = count, .cols = loss->vocab, .logits = loss->logits, .targets = targets, .loss = losses});
    return 0;
}

static int eval_document(struct ash_loss_ranks *loss, const struct ash_batch *batch, const struct ash_doc *doc,
                         float *losses, struct ash_err *err)
{
    struct ash_doc alone = {.count = doc->count, .pages = loss->pages.pages, .page_count = loss->pages.count};
    struct ash_batch one = {.rows = doc->count, .ids = batch->ids + doc->row, .docs = &alone, .doc_count = 1};
    int rc;

    ash_assert(doc->count <= loss->max_rows);
    rc = ash_ranks_infer_layers(loss->ranks, loss->pass, &one, loss->cache, err);
    for (size_t first = 0; first < doc->count && rc == 0; first += LOGIT_ROWS)
        rc = find_losses(loss, first, ash_min(doc->count - first, LOGIT_ROWS), batch->targets + doc->row + first,
                         losses + doc->row + first, err);
    return rc;
}

int ash_loss_ranks_eval(struct ash_loss_ranks *loss, const struct ash_batch *batch, float *losses, struct ash_err *err)
{
    int rc = 0;

    for (size_t d = 0; d < batch->doc_count && rc == 0; d++)
        rc = eval_document(loss, batch, &batch->docs[d], losses, err);
    return rc;
}
