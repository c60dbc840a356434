/* Drafts of a model: a catch-up pass over all texts, then one row each per token. Of a head each row takes a state,
 * too: the large model's, and of drafted tokens the head's own. */
#include "serve/engine/draft_model.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/math.h"
#include "compute/backends/backends.h"
#include "model/files/eagle.h"
#include "model/pass/pass.h"
#include "serve/engine/draft_priv.h"

/* ---- life -------------------------------------------------------------------------------------------------------- */

static int open_states(struct ash_draft_model *draft, struct ash_err *err)
{
    draft->row_states = malloc(draft->opts.max_rows * draft->hidden * sizeof(*draft->row_states));
    draft->own_states = malloc(ASH_DRAFT_TEXTS * draft->hidden * sizeof(*draft->own_states));
    if (draft->opts.eagle != NULL) {
        draft->captured =
            malloc(ASH_DRAFT_CAPTURED_ROWS * ASH_MODEL_CAPTURES * draft->opts.hidden * sizeof(*draft->captured));
        draft->spread = malloc(draft->opts.vocab * sizeof(*draft->spread));
    }
    if (draft->row_states != NULL && draft->own_states != NULL &&
        (draft->opts.eagle == NULL || (draft->captured != NULL && draft->spread != NULL)))
        return 0;
    return ash_err_set(err, -ENOMEM, "out of memory for the states of drafts");
}

static int open_parts(struct ash_draft_model *draft, struct ash_model *model, struct ash_err *err)
{
    struct ash_pass_opts pass = {.max_rows = draft->opts.max_rows};
    double page = (double)(ash_cache_token_bytes(model) * ASH_CACHE_PAGE_TOKENS);
    size_t pages = draft->opts.pages;
    int rc = ash_model_pack(model, draft->exec, err);

    if (rc == 0) rc = ash_pass_open(model, draft->exec, &pass, &draft->pass, err);
    if (rc < 0) return rc;
    if (draft->exec->cuda != NULL)
        pages = ash_min(pages, ash_max((size_t)(0.5 * (double)ash_backend_free_bytes(draft->exec) / page), 1));
    rc = ash_cache_open(model, pages, &draft->cache, err);
    if (rc == 0) rc = ash_sampler_open(draft->opts.vocab, &draft->sampler, err);
    if (rc < 0) return rc;
    draft->logits = malloc(ASH_DRAFT_TEXTS * draft->width * sizeof(*draft->logits));
    draft->ids = malloc(draft->opts.max_rows * sizeof(*draft->ids));
    if (draft->logits == NULL || draft->ids == NULL) return ash_err_set(err, -ENOMEM, "out of memory for drafts");
    return draft->hidden > 0 ? open_states(draft, err) : 0;
}

/* Could it ever draft for a model of these sizes? */
static int check(const struct ash_model_config *config, const struct ash_draft_opts *opts, struct ash_err *err)
{
    ash_assert(config->is_eagle == (opts->eagle != NULL));
    if (opts->eagle != NULL) return 0; /* it was opened for this model */
    if (config->vocab < opts->vocab)
        return ash_err_set(err, -EINVAL, "the draft model has %zu ids, the model has %zu: they need one vocabulary",
                           (size_t)config->vocab, opts->vocab);
    if (config->fuses_states && config->hidden != opts->hidden)
        return ash_err_set(err, -EINVAL, "the head reads states of %zu numbers, the model has %zu", config->hidden,
                           opts->hidden);
    return 0;
}

int ash_draft_model_open(struct ash_model *model, struct ash_exec *exec, const struct ash_draft_opts *opts,
                         struct ash_draft_model **draft_out, struct ash_err *err)
{
    const struct ash_model_config *config = ash_model_get_config(model);
    struct ash_draft_model *draft = calloc(1, sizeof(*draft));
    int rc;

    ash_assert(opts->most > 0 && opts->most <= ASH_DRAFT_MOST && opts->max_rows >= ASH_DRAFT_TEXTS);
    if (draft == NULL) return ash_err_set(err, -ENOMEM, "out of memory for drafts");
    draft->opts = *opts;
    draft->opts.max_tokens = ash_min(opts->max_tokens, config->max_positions);
    draft->exec = exec;
    draft->width = config->vocab;
    ash_draft_model_begin_gain(draft);
    if (config->fuses_states) draft->hidden = config->hidden;
    rc = check(config, opts, err);
    if (rc == 0) rc = open_parts(draft, model, err);
    if (rc < 0) {
        ash_draft_model_close(draft);
        return rc;
    }
    *draft_out = draft;
    return 0;
}

void ash_draft_model_close(struct ash_draft_model *draft)
{
    if (draft == NULL) return;
    ash_cache_close(draft->cache);
    ash_pass_close(draft->pass);
    ash_sampler_close(draft->sampler);
    free(draft->logits);
    free(draft->ids);
    free(draft->row_states);
    free(draft->own_states);
    free(draft->captured);
    free(draft->spread);
    free(draft);
}

/* ---- drafting ---------------------------------------------------------------------------------------------------- */

/* Logits of all tokens, of which the draft has some. */
static const float *spread_logits(struct ash_draft_model *draft, const float *logits)
{
    const int32_t *ids;

    if (draft->opts.eagle == NULL) return logits;
    ids = draft->opts.eagle->ids;
    for (size_t i = 0; i < draft->opts.vocab; i++)
        draft->spread[i] = -INFINITY;
    for (size_t i = 0; i < draft->width; i++)
        if ((size_t)ids[i] < draft->opts.vocab) draft->spread[ids[i]] = logits[i];
    return draft->spread;
}

/* The next token of a text, chosen as the large model chooses, but without what its request adds. */
static bool choose(struct ash_draft_model *draft, struct ash_draft_text *text, const float *logits)
{
    struct ash_sampler_opts opts = *text->sampler;
    struct ash_choice choice = {
        .opts = &opts, .logits = spread_logits(draft, logits), .position = text->count + text->drafted};
    struct ash_err err = {0};

    opts.repetition_penalty = 1.0;
    opts.presence_penalty = opts.frequency_penalty = 0.0;
    return ash_sampler_next(draft->sampler, &choice, &text->tokens[text->count + text->drafted], &err) >= 0;
}

static void add_texts(struct ash_draft_model *draft, struct ash_draft_rows *rows, struct ash_draft_text *texts,
                      size_t count, bool is_first)
{
    for (size_t i = 0; i < count; i++) {
        struct ash_draft_text *text = &texts[i];
        const float *own = text->drafted > 0 && draft->hidden > 0 ? draft->own_states + i * draft->hidden : NULL;

        if (text->drafted < text->wanted && (is_first || text->drafted > 0))
            ash_draft_model_add_rows(draft, rows, text, text->count + text->drafted, own);
    }
}

/* A head's states after the texts' last rows: the rows of drafted tokens take them. */
static int keep_own_states(struct ash_draft_model *draft, const struct ash_draft_rows *rows,
                           const struct ash_draft_text *texts, struct ash_err *err)
{
    for (size_t i = 0; i < rows->wanted_count && draft->hidden > 0; i++) {
        float *own = draft->own_states + (size_t)(rows->texts[i] - texts) * draft->hidden;
        int rc = draft->opts.eagle != NULL ? ash_pass_infer_stream(draft->pass, rows->wanted[i], own, err)
                                           : ash_pass_infer_states(draft->pass, &rows->wanted[i], 1, own, err);

        if (rc < 0) return rc;
    }
    return 0;
}

/* One pass, and a token for each text that lacks no row then. is_first: texts without drafts take part. Returns how
 * many got a token. */
static size_t run_pass(struct ash_draft_model *draft, struct ash_draft_text *texts, size_t count, bool is_first)
{
    struct ash_draft_rows rows = {.batch = {.ids = draft->ids, .states = draft->row_states}};
    struct ash_err err = {0};
    size_t drafted = 0;
    int rc;

    rows.batch.docs = rows.docs;
    add_texts(draft, &rows, texts, count, is_first);
    if (rows.batch.rows == 0) return 0;
    rc = ash_pass_infer_layers(draft->pass, &rows.batch, draft->cache, &err);
    if (rc == 0 && rows.wanted_count > 0)
        rc = ash_pass_infer_logits(draft->pass, rows.wanted, rows.wanted_count, draft->logits, &err);
    if (rc == 0) rc = keep_own_states(draft, &rows, texts, &err);
    draft->is_broken = rc < 0;
    for (size_t i = 0; i < rows.wanted_count && rc == 0; i++) {
        bool has_token = choose(draft, rows.texts[i], draft->logits + i * draft->width);

        rows.texts[i]->drafted += has_token;
        drafted += has_token;
    }
    return drafted;
}

void ash_draft_model_run(struct ash_draft_model *draft, struct ash_draft_text *texts, size_t count)
{
    size_t most = 0;

    ash_assert(count <= ASH_DRAFT_TEXTS);
    for (size_t i = 0; i < count; i++) {
        texts[i].drafted = 0;
        if (!ash_draft_model_knows(draft, &texts[i]) || !ash_draft_model_make_room(draft, &texts[i]))
            texts[i].wanted = 0;
        most = ash_max(most, texts[i].wanted);
    }
    for (size_t step = 0; step < most && !draft->is_broken; step++) {
        uint64_t begin_ns = ash_clock_ns();

        if (run_pass(draft, texts, count, step == 0) == 0) break;
        if (step > 0) ash_draft_model_learn_own(draft, 1e-9 * (double)(ash_clock_ns() - begin_ns));
    }
    for (size_t i = 0; i < count; i++) {
        struct ash_draft_state *state = texts[i].state;

        if (draft->is_broken) texts[i].drafted = 0;
        if (draft->hidden > 0) state->computed = ash_min(state->computed, texts[i].count); /* drafts had own states */
    }
}
