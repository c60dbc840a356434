/* Batching by slots: a step gathers rows (one per running answer, then parts of new prompts), runs them, and chooses
 * one id for each slot whose tokens are all in the cache. */
#include "serve/batcher.h"

#include <errno.h>
#include <stdlib.h>

#include "model/pass/cache.h"
#include "model/pass/pass.h"
#include "base/assert.h"
#include "base/math.h"

/* One place in the cache and the request that sits in it. */
struct slot {
    struct ash_request *request; /* NULL: free */
    size_t cached;               /* its tokens in the cache */
    struct ash_block_table table;
};

struct ash_batcher {
    struct ash_batcher_opts opts;
    size_t vocab; /* width of a row of logits */
    struct ash_pass *pass;
    struct ash_cache *cache;
    struct ash_sampler *sampler;
    struct slot *slots;   /* [slots] */
    int32_t *earlier;     /* [slot_tokens]: prompt and answer of one request, for the sampler's penalty */
    int32_t *ids;         /* [rows] */
    struct ash_doc *docs; /* [slots] */
    size_t *doc_slots;    /* [slots]: whose they are */
    size_t doc_count;     /* of the present step */
    size_t *wanted;       /* [slots]: the last row of each slot that will have all its tokens in the cache */
    size_t wanted_count;
    float *logits;                /* [slots, vocab] */
    struct ash_request *requests; /* being answered; borrowed */
    size_t request_count, next;   /* requests[next] is the first that has no slot yet */
};

static int check_opts(const struct ash_batcher_opts *opts, const struct ash_model_config *config, struct ash_err *err)
{
    if (opts->slots == 0 || opts->slot_tokens == 0 || opts->rows < opts->slots)
        return ash_err_set(err, -EINVAL, "batcher: %zu rows cannot serve %zu slots of %zu tokens", opts->rows,
                           opts->slots, opts->slot_tokens);
    if (opts->slot_tokens > config->max_positions)
        return ash_err_set(err, -EINVAL, "%zu tokens are more than the model's %zu positions", opts->slot_tokens,
                           config->max_positions);
    return 0;
}

static bool take_memory(struct ash_batcher *batcher)
{
    const struct ash_batcher_opts *opts = &batcher->opts;

    batcher->slots = calloc(opts->slots, sizeof(*batcher->slots));
    batcher->earlier = calloc(opts->slot_tokens, sizeof(*batcher->earlier));
    batcher->ids = calloc(opts->rows, sizeof(*batcher->ids));
    batcher->docs = calloc(opts->slots, sizeof(*batcher->docs));
    batcher->doc_slots = calloc(opts->slots, sizeof(*batcher->doc_slots));
    batcher->wanted = calloc(opts->slots, sizeof(*batcher->wanted));
    batcher->logits = calloc(opts->slots, batcher->vocab * sizeof(*batcher->logits));
    return batcher->slots != NULL && batcher->earlier != NULL && batcher->ids != NULL && batcher->docs != NULL &&
           batcher->doc_slots != NULL && batcher->wanted != NULL && batcher->logits != NULL;
}

int ash_batcher_open(struct ash_model *model, struct ash_exec *exec, const struct ash_batcher_opts *opts,
                     struct ash_batcher **batcher_out, struct ash_err *err)
{
    const struct ash_model_config *config = ash_model_get_config(model);
    struct ash_pass_opts pass_opts = {.max_rows = opts->rows};
    struct ash_batcher *batcher;
    int rc = check_opts(opts, config, err);

    if (rc < 0) return rc;
    batcher = calloc(1, sizeof(*batcher));
    if (batcher == NULL) return ash_err_set(err, -ENOMEM, "batcher: out of memory");
    batcher->opts = *opts;
    batcher->vocab = config->vocab;
    if (!take_memory(batcher)) {
        rc = ash_err_set(err, -ENOMEM, "batcher: no memory for %zu slots", opts->slots);
        goto fail;
    }
    rc = ash_model_pack(model, exec, err);
    if (rc < 0) goto fail;
    rc = ash_pass_open(model, exec, &pass_opts, &batcher->pass, err);
    if (rc < 0) goto fail;
    rc = ash_cache_open(model, opts->slots * ash_cache_pages_for(opts->slot_tokens), &batcher->cache, err);
    if (rc < 0) goto fail;
    for (size_t s = 0; s < opts->slots; s++)
        if (ash_block_table_init(&batcher->slots[s].table, opts->slot_tokens) < 0) {
            rc = ash_err_set(err, -ENOMEM, "batcher: no memory for %zu slots", opts->slots);
            goto fail;
        }
    rc = ash_sampler_open(&opts->sampler, opts->vocab > 0 && opts->vocab < config->vocab ? opts->vocab : config->vocab,
                          &batcher->sampler, err);
    if (rc < 0) goto fail;
    *batcher_out = batcher;
    return 0;

fail:
    ash_batcher_close(batcher);
    return rc;
}

void ash_batcher_close(struct ash_batcher *batcher)
{
    if (batcher == NULL) return;
    ash_pass_close(batcher->pass);
    ash_cache_close(batcher->cache);
    ash_sampler_close(batcher->sampler);
    for (size_t s = 0; batcher->slots != NULL && s < batcher->opts.slots; s++)
        ash_block_table_fini(&batcher->slots[s].table);
    free(batcher->slots);
    free(batcher->earlier);
    free(batcher->ids);
    free(batcher->docs);
    free(batcher->doc_slots);
    free(batcher->wanted);
    free(batcher->logits);
    free(batcher);
}

static int check_requests(const struct ash_batcher *batcher, const struct ash_request *requests, size_t count,
                          struct ash_err *err)
{
    size_t most = batcher->opts.slot_tokens;

    for (size_t i = 0; i < count; i++) {
        const struct ash_request *request = &requests[i];

        if (request->prompt_count == 0 || request->answer_max == 0 || request->prompt_count > most ||
            request->answer_max > most - request->prompt_count)
            return ash_err_set(err, -EINVAL, "request %zu: a prompt of %zu tokens and an answer of %zu do not fit %zu",
                               i, request->prompt_count, request->answer_max, most);
    }
    return 0;
}

/* Token number index of a request: its prompt, then its answer. */
static int32_t token_at(const struct ash_request *request, size_t index)
{
    return index < request->prompt_count ? request->prompt[index] : request->answer[index - request->prompt_count];
}

static size_t total_tokens(const struct ash_request *request)
{
    return request->prompt_count + request->answer_count;
}

/* Add the tokens of slot s that its cache lacks to the step, as many as rows are left. Returns the rows taken. */
static size_t gather(struct ash_batcher *batcher, size_t s, size_t row)
{
    struct slot *slot = &batcher->slots[s];
    size_t missing = total_tokens(slot->request) - slot->cached;
    size_t count = ash_min(missing, batcher->opts.rows - row);

    ash_assert(slot->cached < total_tokens(slot->request) && row <= batcher->opts.rows);
    if (count == 0) return 0;
    for (size_t i = 0; i < count; i++)
        batcher->ids[row + i] = token_at(slot->request, slot->cached + i);
    ash_assert(ash_block_table_grow(&slot->table, batcher->cache, slot->cached + count) == 0); /* slots have enough */
    batcher->doc_slots[batcher->doc_count] = s;
    batcher->docs[batcher->doc_count++] = (struct ash_doc){
        .row = row, .count = count, .pos = slot->cached, .pages = slot->table.pages, .page_count = slot->table.count};
    if (count == missing) batcher->wanted[batcher->wanted_count++] = row + count - 1;
    return count;
}

/* Running answers come first: slots are walked twice, so that a long new prompt never keeps a running answer out. */
static size_t gather_all(struct ash_batcher *batcher)
{
    size_t row = 0;

    batcher->doc_count = batcher->wanted_count = 0;
    for (int in_prompt = 0; in_prompt < 2; in_prompt++)
        for (size_t s = 0; s < batcher->opts.slots; s++) {
            const struct slot *slot = &batcher->slots[s];

            if (slot->request != NULL && (slot->cached < slot->request->prompt_count) == (in_prompt == 1))
                row += gather(batcher, s, row);
        }
    ash_assert(row > 0 && row <= batcher->opts.rows);
    return row;
}

static bool is_eos(const struct ash_batcher *batcher, int32_t id)
{
    for (size_t i = 0; i < batcher->opts.eos_count; i++)
        if (batcher->opts.eos[i] == id) return true;
    return false;
}

/* Put id at the end of the answer, or end it. */
static int add_id(const struct ash_batcher *batcher, struct ash_request *request, int32_t id, struct ash_err *err)
{
    int rc = 0;

    if (is_eos(batcher, id)) {
        request->eos_id = id;
        request->finish = ASH_FINISH_EOS;
        return 0;
    }
    ash_assert(request->answer_count < request->answer_max);
    request->answer[request->answer_count++] = id;
    if (request->take != NULL) rc = request->take(request->ctx, id, err);
    if (rc < 0) return rc;
    if (rc > 0)
        request->finish = ASH_FINISH_STOP;
    else if (request->answer_count == request->answer_max)
        request->finish = ASH_FINISH_MAX_TOKENS;
    return 0;
}

/* Choose the next id of one slot from its logits; a finished request leaves its slot. */
static int choose(struct ash_batcher *batcher, struct slot *slot, const float *logits, struct ash_err *err)
{
    struct ash_request *request = slot->request;
    size_t total = total_tokens(request);
    int32_t id = -1;
    int rc;

    ash_assert(total <= batcher->opts.slot_tokens);
    for (size_t i = 0; i < total; i++)
        batcher->earlier[i] = token_at(request, i);
    rc = ash_sampler_next(batcher->sampler, logits, batcher->earlier, total, total, &id, err);
    if (rc < 0) return rc;
    rc = add_id(batcher, request, id, err);
    if (rc < 0) return rc;
    if (request->finish != ASH_FINISH_NOT_YET) {
        slot->request = NULL;
        ash_block_table_cut(&slot->table, batcher->cache, 0);
    }
    return 0;
}

/* Put waiting requests into free slots; returns whether any slot is taken. */
static bool assign_slots(struct ash_batcher *batcher)
{
    bool any = false;

    for (size_t s = 0; s < batcher->opts.slots; s++) {
        struct slot *slot = &batcher->slots[s];

        if (slot->request == NULL && batcher->next < batcher->request_count)
            *slot = (struct slot){.request = &batcher->requests[batcher->next++], .table = slot->table};
        any = any || slot->request != NULL;
    }
    return any;
}

int ash_batcher_start(struct ash_batcher *batcher, struct ash_request *requests, size_t count, struct ash_err *err)
{
    int rc = check_requests(batcher, requests, count, err);

    if (rc < 0) return rc;
    for (size_t s = 0; s < batcher->opts.slots; s++) {
        ash_block_table_cut(&batcher->slots[s].table, batcher->cache, 0);
        batcher->slots[s].request = NULL;
    }
    for (size_t i = 0; i < count; i++) {
        requests[i].answer_count = 0;
        requests[i].eos_id = -1;
        requests[i].finish = ASH_FINISH_NOT_YET;
    }
    batcher->requests = requests;
    batcher->request_count = count;
    batcher->next = 0;
    return 0;
}

int ash_batcher_step(struct ash_batcher *batcher, struct ash_err *err)
{
    struct ash_batch batch = {.ids = batcher->ids, .docs = batcher->docs};
    const float *logits = batcher->logits;
    int rc;

    if (!assign_slots(batcher)) return 0;
    batch.rows = gather_all(batcher);
    batch.doc_count = batcher->doc_count;
    rc = ash_pass_infer(batcher->pass, &batch, batcher->cache, batcher->wanted, batcher->wanted_count, batcher->logits,
                        err);
    for (size_t d = 0; d < batcher->doc_count && rc == 0; d++) {
        struct slot *slot = &batcher->slots[batcher->doc_slots[d]];

        slot->cached += batcher->docs[d].count;
        if (slot->cached < total_tokens(slot->request)) continue; /* more of the prompt follows */
        rc = choose(batcher, slot, logits, err);
        logits += batcher->vocab;
    }
    return rc < 0 ? rc : 1;
}

int ash_batcher_run(struct ash_batcher *batcher, struct ash_request *requests, size_t count, struct ash_err *err)
{
    int rc = ash_batcher_start(batcher, requests, count, err);

    if (rc < 0) return rc;
    do
        rc = ash_batcher_step(batcher, err);
    while (rc > 0);
    return rc;
}
