/* The engine loop's life: memory is taken at open, and for each request when it comes; a step takes none. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/cgroup.h"
#include "base/math.h"
#include "model/family.h"
#include "serve/engine/core_priv.h"
#include "serve/engine/ranks.h"

#define LOGITS_BYTES ((size_t)32 << 20) /* of rows whose logits exist at once */
#define LOGITS_ROWS_MIN 16
#define DRAFT_TOKENS 4      /* of a draft model, where nothing is said */
#define EVENT_RECORDS 16384 /* of page events that a reader may be behind */

/* ---- open and close ---------------------------------------------------------------------------------------------- */

/* Memory that could be used without taking it from other programs; INFINITY if unknown. */
static double free_memory(void)
{
    FILE *file = fopen("/proc/meminfo", "r");
    double limit = ash_cgroup_limit("memory.max"), bytes = INFINITY;
    char line[128];
    unsigned long kib;

    while (file != NULL && fgets(line, sizeof(line), file) != NULL)
        if (sscanf(line, "MemAvailable: %lu kB", &kib) == 1) bytes = 1024.0 * (double)kib;
    if (file != NULL) fclose(file);
    return bytes < limit ? bytes : limit;
}

/* Pages of the pool; token_bytes of each token. */
static int choose_page_count(const struct ash_core_opts *opts, size_t token_bytes, size_t *count_out,
                             struct ash_err *err)
{
    double page_bytes = (double)(token_bytes * ASH_CACHE_PAGE_TOKENS);
    double wanted = (double)opts->max_seqs * (double)ash_cache_pages_for(opts->max_tokens);
    double pages = (double)opts->kv_bytes / page_bytes, most = 0.5 * free_memory() / page_bytes;

    if (opts->kv_bytes == 0) pages = wanted < most ? wanted : most;
    if (pages > 2147483647.0) pages = 2147483647.0;
    if (pages < 1.0)
        return ash_err_set(err, -EINVAL,
                           "a key-value cache of %.0f bytes has no room for a page of %.0f bytes (%d tokens)",
                           pages * page_bytes, page_bytes, ASH_CACHE_PAGE_TOKENS);
    *count_out = (size_t)pages;
    return 0;
}

size_t ash_core_batch_rows(const struct ash_exec *exec)
{
    return exec->memory == &ash_memory_host ? ASH_CORE_MAX_BATCH_ROWS : ASH_CORE_DEVICE_BATCH_ROWS;
}

static int fill_opts(struct ash_core *core, const struct ash_core_opts *given, size_t positions, struct ash_err *err)
{
    struct ash_core_opts *opts = &core->opts;

    *opts = *given;
    ash_core_use_eagle(core, given->eagle);
    if (opts->max_seqs == 0) opts->max_seqs = ASH_CORE_MAX_SEQS;
    if (opts->max_batch_rows == 0) opts->max_batch_rows = ash_max(ash_core_batch_rows(core->exec), opts->max_seqs);
    if (opts->max_tokens == 0 || opts->max_tokens > positions) opts->max_tokens = positions;
    if (opts->vocab == 0 || opts->vocab > core->vocab) opts->vocab = core->vocab;
    if (opts->draft != NULL && opts->speculate == 0) opts->speculate = DRAFT_TOKENS;
    if (opts->speculate > 0 && (ash_core_has_states(core->model) || ash_core_has_states(opts->draft)))
        return ash_err_set(err, -ENOTSUP, "drafted tokens cannot be taken out of recurrent states: do not speculate");
    if (ash_core_is_encoder(core->model)) {
        opts->has_no_prefix_cache = true;
        opts->max_batch_rows = ash_max(opts->max_batch_rows, opts->max_tokens); /* a text is computed whole */
    }
    if (opts->max_batch_rows < opts->max_seqs)
        return ash_err_set(err, -EINVAL, "%zu rows of a step are too few for %zu sequences", opts->max_batch_rows,
                           opts->max_seqs);
    core->piece_rows = ash_max(LOGITS_BYTES / (core->vocab * sizeof(float)), LOGITS_ROWS_MIN);
    core->piece_rows = ash_min(core->piece_rows, opts->max_batch_rows);
    return 0;
}

static int open_samplers(struct ash_core *core, struct ash_err *err)
{
    size_t threads = (size_t)ash_workers_count(core->exec->workers);

    core->samplers = calloc(threads + 1, sizeof(struct ash_sampler *));
    if (core->samplers == NULL) return ash_err_set(err, -ENOMEM, "no memory for samplers");
    for (size_t i = 0; i < threads; i++) {
        int rc = ash_sampler_open(core->opts.vocab, &core->samplers[i], err);

        if (rc < 0) return rc;
    }
    return 0;
}

static int open_tables(struct ash_core *core, struct ash_err *err)
{
    size_t seqs = core->opts.max_seqs, rows = core->opts.max_batch_rows, piece = core->piece_rows;

    core->running = calloc(seqs, sizeof(struct ash_seq *));
    core->doc_seqs = calloc(seqs, sizeof(struct ash_seq *));
    core->docs = calloc(seqs, sizeof(*core->docs));
    core->ids = calloc(rows, sizeof(*core->ids));
    core->wanted = calloc(rows, sizeof(*core->wanted));
    core->logits = calloc(piece, core->vocab * sizeof(*core->logits));
    core->piece = calloc(piece, sizeof(*core->piece));
    core->best = calloc(piece, sizeof(*core->best));
    core->choices = calloc(piece, sizeof(*core->choices));
    core->log_sums = calloc(piece, sizeof(*core->log_sums));
    core->runs = calloc(piece + 1, sizeof(*core->runs));
    core->states = calloc(ASH_CORE_STATE_ROWS, (core->hidden + 1) * sizeof(*core->states));
    if (core->running == NULL || core->doc_seqs == NULL || core->docs == NULL || core->ids == NULL ||
        core->wanted == NULL || core->logits == NULL || core->piece == NULL || core->best == NULL ||
        core->log_sums == NULL || core->choices == NULL || core->runs == NULL || core->states == NULL)
        return ash_err_set(err, -ENOMEM, "no memory for steps of %zu rows and %zu sequences", rows, seqs);
    return 0;
}

static int open_events(struct ash_core *core, struct ash_err *err)
{
    struct ash_page_events_opts opts = {.pages = ash_cache_page_count(core->cache),
                                        .page_tokens = ASH_CACHE_PAGE_TOKENS,
                                        .medium = core->exec->cuda != NULL ? "GPU" : "CPU",
                                        .records_max = EVENT_RECORDS};
    int rc = ash_page_events_open(&opts, &core->events, err);

    if (rc == 0) ash_prefix_publish(core->prefix, core->events);
    return rc;
}

/* Everything but the pass and the pool, once those are there. */
static int open_rest(struct ash_core *core, struct ash_err *err)
{
    size_t pool = ash_cache_page_count(core->cache) * ASH_CACHE_PAGE_TOKENS;
    int rc;

    core->opts.max_tokens = ash_min(core->opts.max_tokens, pool);
    rc = open_tables(core, err);
    if (rc < 0) return rc;
    rc = open_samplers(core, err);
    if (rc < 0) return rc;
    rc = ash_core_open_ahead(core, err);
    if (rc < 0) return rc;
    rc = ash_core_open_draft(core, err);
    if (rc < 0) return rc;
    if (core->opts.has_no_prefix_cache) return 0;
    rc = ash_prefix_open(core->cache, &core->prefix, err);
    if (rc == 0 && core->opts.publishes_pages) rc = open_events(core, err);
    return rc < 0 ? rc : ash_core_open_kv(core, err);
}

int ash_core_open_cache(const struct ash_model *model, size_t pages, struct ash_cache **cache_out, struct ash_err *err)
{
    if (ash_core_is_encoder(model)) return ash_cache_open_bare(pages, cache_out, err);
    return ash_cache_open(model, pages, cache_out, err);
}

static int open_model(struct ash_core *core, struct ash_err *err)
{
    struct ash_ranks *ranks = core->opts.ranks;
    struct ash_pass_opts pass_opts = ash_core_pass_opts(core);
    size_t pages = 0;
    bool is_encoder = ash_core_is_encoder(core->model);
    size_t token_bytes = is_encoder ? 1 : ash_cache_whole_token_bytes(core->model);
    int rc = choose_page_count(&core->opts, token_bytes, &pages, err);

    if (rc < 0) return rc;
    if (core->opts.pack == ASH_CORE_PACK_AT_OPEN) {
        rc = ash_core_pack_weights(core, err);
        if (rc < 0) return rc;
    }
    rc = ash_core_foresee(core, &pass_opts, &pages, err);
    if (rc < 0) return rc;
    rc = ash_ranks_send_open(ranks, pass_opts.max_rows, pages, err);
    if (rc < 0) return rc;
    rc = ash_pass_open(core->model, core->exec, &pass_opts, &core->pass, err);
    if (rc < 0) return rc;
    rc =
        ash_core_open_cache(core->model, pages, &core->cache, err); /* in the memory that the pass put the model into */
    if (rc == 0) rc = ash_ranks_open_stages(ranks, core->model, pass_opts.max_rows, err);
    return rc < 0 ? rc : open_rest(core, err);
}

int ash_core_open(struct ash_model *model, struct ash_exec *exec, const struct ash_core_opts *opts,
                  struct ash_core **core_out, struct ash_err *err)
{
    const struct ash_model_config *config = ash_model_get_config(model);
    struct ash_core *core = calloc(1, sizeof(*core));
    int rc;

    if (core == NULL) return ash_err_set(err, -ENOMEM, "core: out of memory");
    core->model = model;
    core->exec = exec;
    core->vocab = config->vocab;
    core->hidden = config->hidden;
    rc = fill_opts(core, opts, config->max_positions, err);
    if (rc == 0) rc = open_model(core, err);
    if (rc < 0) {
        ash_core_close(core);
        return rc;
    }
    *core_out = core;
    return 0;
}

int ash_core_open_null(const struct ash_null_model *null, struct ash_exec *exec, const struct ash_core_opts *opts,
                       struct ash_core **core_out, struct ash_err *err)
{
    struct ash_core *core = calloc(1, sizeof(*core));
    size_t pages = 0;
    int rc;

    if (core == NULL) return ash_err_set(err, -ENOMEM, "core: out of memory");
    core->null = null;
    core->exec = exec;
    core->vocab = null->vocab;
    rc = fill_opts(core, opts, null->max_positions, err);
    if (rc == 0) rc = choose_page_count(&core->opts, 1, &pages, err);
    if (rc == 0) rc = ash_cache_open_bare(pages, &core->cache, err);
    if (rc == 0) rc = open_rest(core, err);
    if (rc < 0) {
        ash_core_close(core);
        return rc;
    }
    *core_out = core;
    return 0;
}

void ash_core_close(struct ash_core *core)
{
    if (core == NULL) return;
    ash_core_cancel_all(core);
    ash_core_close_ahead(core);
    ash_queue_fini(&core->queue);
    ash_core_forget_tiers(core);
    ash_kv_close(core->kv);
    ash_prefix_close(core->prefix);
    ash_page_events_close(core->events);
    ash_draft_model_close(core->draft);
    ash_cache_close(core->cache);
    ash_ranks_send_close(core->opts.ranks);
    ash_pass_close(core->pass);
    for (size_t i = 0; core->samplers != NULL && core->samplers[i] != NULL; i++)
        ash_sampler_close(core->samplers[i]);
    free(core->samplers);
    free(core->running);
    free(core->doc_seqs);
    free(core->docs);
    free(core->ids);
    free(core->wanted);
    free(core->logits);
    free(core->piece);
    free(core->best);
    free(core->choices);
    free(core->log_sums);
    free(core->runs);
    free(core->states);
    free(core);
}

struct ash_kv *ash_core_kv(const struct ash_core *core)
{
    return core->kv;
}

struct ash_page_events *ash_core_page_events(const struct ash_core *core)
{
    return core->events;
}

size_t ash_core_max_tokens(const struct ash_core *core)
{
    return core->opts.max_tokens;
}

size_t ash_core_max_rows(const struct ash_core *core)
{
    return core->opts.max_batch_rows;
}

/* ---- requests ---------------------------------------------------------------------------------------------------- */

static int check_ids(const struct ash_core *core, const struct ash_request *request, struct ash_err *err)
{
    for (size_t i = 0; i < request->prompt_count; i++)
        if (request->prompt[i] < 0 || (size_t)request->prompt[i] >= core->vocab)
            return ash_err_set(err, -EINVAL, "the prompt has token id %d, but the model's vocabulary ends at %zu",
                               request->prompt[i], core->vocab - 1);
    for (size_t i = 0; i < request->bias_count; i++)
        if (!isfinite(request->bias[i].bias))
            return ash_err_set(err, -EINVAL, "the bias of token id %d is not a number", request->bias[i].id);
    return 0;
}

/* Log-probabilities over a kept set are the trainer's, which knows logits as they are and one token at a time. */
static int check_kept(const struct ash_core *core, const struct ash_request *request, struct ash_err *err)
{
    bool can = request->wants_logprobs && core->opts.speculate == 0 && request->bias_count == 0 &&
               request->allowed == NULL && request->grammar == NULL && request->think == NULL &&
               !ash_sampler_has_penalties(&request->sampler);

    if (can || !request->wants_kept) return 0;
    return ash_err_set(err, -EINVAL, "kept sets go with log-probabilities, and not with what else changes logits");
}

/* What an encoder and a model without a score are not asked. */
static int check_kind(const struct ash_core *core, const struct ash_request *request, struct ash_err *err)
{
    const struct ash_model_config *config = core->model != NULL ? ash_model_get_config(core->model) : NULL;
    bool writes = request->max_tokens > 0 || request->pooling == ASH_POOLING_NONE || request->wants_prompt_logprobs;

    if (ash_core_is_encoder(core->model) && writes)
        return ash_err_set(err, -ENOTSUP, "%s models are encoders: they give embeddings and scores, and write no text",
                           config->family->type);
    if (request->pooling != ASH_POOLING_NONE && (request->hidden == NULL || config == NULL))
        return ash_err_set(err, -EINVAL, "there is no room for states");
    if (request->wants_score && (config == NULL || config->labels != 1))
        return ash_err_set(err, -ENOTSUP, "the model has no head that gives a score");
    return 0;
}

int ash_core_check(const struct ash_core *core, const struct ash_request *request, struct ash_err *err)
{
    size_t most = core->opts.max_tokens;
    int rc = ash_sampler_check(&request->sampler, err);

    if (rc < 0) return rc;
    if (request->prompt_count == 0)
        return ash_err_set(err, -EINVAL, "the prompt is empty: there is nothing to continue");
    if (request->prompt_count > most || (request->max_tokens > 0 && request->prompt_count == most))
        return ash_err_set(
            err, -EOVERFLOW,
            "the context is full: the prompt has %zu tokens, and prompt and answer together may have %zu",
            request->prompt_count, most);
    if (request->top_logprobs > ASH_CORE_TOP_LOGPROBS_MAX || request->prompt_top_logprobs > ASH_CORE_TOP_LOGPROBS_MAX)
        return ash_err_set(err, -EINVAL, "log-probabilities of more than %d tokens", ASH_CORE_TOP_LOGPROBS_MAX);
    rc = check_kind(core, request, err);
    if (rc < 0) return rc;
    if (request->grammar != NULL &&
        (core->opts.vocab_trie == NULL || core->opts.vocab > 64 * ash_vocab_trie_mask_words(core->opts.vocab_trie)))
        return ash_err_set(err, -EINVAL, "this engine was opened without a vocabulary for grammars");
    rc = check_kept(core, request, err);
    return rc < 0 ? rc : check_ids(core, request, err);
}

int ash_core_enqueue(struct ash_core *core, struct ash_seq *seq, struct ash_err *err)
{
    struct ash_owner *owner = ash_queue_owner(&core->queue, seq->request->owner);

    if (owner == NULL || ash_queue_reserve(owner) < 0)
        return ash_err_set(err, -ENOMEM, "no memory for another request");
    seq->owner = owner;
    seq->number = core->next_number++;
    owner->alive++;
    seq->record = ash_recorder_add(core->opts.recorder, seq->request->id, seq->submit_ns, seq->request->prompt_count);
    ash_queue_push(&core->queue, seq);
    return 0;
}

int ash_core_submit(struct ash_core *core, struct ash_request *request, struct ash_err *err)
{
    struct ash_seq *seq = NULL;
    int rc = ash_core_check(core, request, err);

    if (rc < 0) return rc;
    atomic_store(&request->is_cancelled, false);
    rc = ash_seq_open(core, request, &seq, err);
    if (rc < 0) return rc;
    rc = ash_core_enqueue(core, seq, err);
    if (rc < 0) ash_seq_close(seq);
    return rc;
}

void ash_core_cancel(struct ash_core *core, struct ash_request *request)
{
    atomic_store(&request->is_cancelled, true);
    atomic_store(&core->has_cancels, true);
    if (core->is_in_step) return;
    ash_core_end_cancelled(core);
}

void ash_core_cancel_all(struct ash_core *core)
{
    ash_assert(!core->is_in_step);
    core->ends_all = true;
    atomic_store(&core->has_cancels, true);
    ash_core_end_cancelled(core);
    core->ends_all = false;
}

void ash_core_hold(struct ash_core *core, bool holds)
{
    ash_assert(!core->is_in_step);
    core->is_held = holds;
}

int ash_core_finish(struct ash_core *core, int rc, struct ash_err *err)
{
    if (rc < 0) ash_core_cancel_all(core);
    while (ash_core_step(core) > 0)
        continue;
    if (rc == 0 && core->failure < 0) {
        rc = core->failure;
        if (err != NULL) *err = core->failure_err;
    }
    core->failure = 0;
    return rc;
}

size_t ash_core_cached_tokens(struct ash_core *core, const int32_t *prompt, size_t count, uint64_t salt)
{
    struct ash_prefix_text text = {.tokens = prompt, .count = count - (count > 0), .salt = salt};

    return core->prefix != NULL ? ash_prefix_peek(core->prefix, &text) : 0;
}

size_t ash_core_reset_prefix(struct ash_core *core)
{
    size_t before = ash_cache_free_count(core->cache);

    ash_assert(!core->is_in_step);
    ash_core_forget_tiers(core); /* first: forgotten pages do not go there */
    if (core->prefix != NULL) (void)ash_prefix_evict(core->prefix, ash_cache_page_count(core->cache));
    ash_core_resume_tiers(core);
    ash_page_events_publish(core->events);
    return ash_cache_free_count(core->cache) - before;
}
