/* Drafts of a model: a catch-up pass over all texts, then one row each per token. */
#include "serve/engine/draft_model.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/math.h"
#include "compute/backends/backends.h"
#include "model/pass/pass.h"

#define ACCEPT_START 0.7
#define ACCEPT_STEP 0.1 /* of the way, at each token that held or did not */
#define COST_KEEP 0.7   /* of the average, at each pass */
#define GAIN_LEAST 1.02 /* below this it rests */
#define REST_FIRST 8    /* steps */
#define REST_MOST 512

struct ash_draft_model {
    struct ash_draft_opts opts;
    struct ash_exec *exec;
    struct ash_pass *pass;
    struct ash_cache *cache;
    struct ash_sampler *sampler;
    size_t width;  /* of a row of logits */
    float *logits; /* [ASH_DRAFT_TEXTS, width] */
    int32_t *ids;  /* [max_rows] */
    bool is_broken;
    /* what pays: */
    double accept;                     /* share of drafted tokens that hold */
    double own_s;                      /* a pass of one row a text */
    double pass_s[ASH_DRAFT_MOST + 1]; /* of the large model, by drafts; 0: not measured */
    size_t rest, rest_next;
};

/* ---- life -------------------------------------------------------------------------------------------------------- */

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
    return draft->logits != NULL && draft->ids != NULL ? 0 : ash_err_set(err, -ENOMEM, "out of memory for drafts");
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
    draft->accept = ACCEPT_START;
    draft->rest_next = REST_FIRST;
    rc = config->vocab < opts->vocab
             ? ash_err_set(err, -EINVAL, "the draft model has %zu ids, the model has %zu: they need one vocabulary",
                           (size_t)config->vocab, opts->vocab)
             : open_parts(draft, model, err);
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
    free(draft);
}

void ash_draft_model_forget(struct ash_draft_model *draft, struct ash_draft_state *state)
{
    while (state->table.count > 0)
        ash_cache_unref(draft->cache, state->table.pages[--state->table.count]);
    ash_block_table_fini(&state->table);
    state->computed = 0;
}

/* ---- what pays --------------------------------------------------------------------------------------------------- */

static void average(double *cost, double now)
{
    *cost = *cost <= 0 ? now : COST_KEEP * *cost + (1 - COST_KEEP) * now;
}

/* Tokens a second with `drafts` of them, beside those without; 0 where nothing is known of that. */
static double gain(const struct ash_draft_model *draft, size_t drafts)
{
    double tokens = 1, hold = 1, pass_s = draft->pass_s[0];

    for (size_t i = 1; i <= drafts; i++) {
        hold *= draft->accept;
        tokens += hold;
        pass_s = draft->pass_s[i] > 0 ? draft->pass_s[i] : pass_s; /* as fast as fewer, until it was measured */
    }
    return draft->pass_s[0] > 0 ? tokens * draft->pass_s[0] / (pass_s + (double)drafts * draft->own_s) : 0;
}

size_t ash_draft_model_depth(struct ash_draft_model *draft)
{
    size_t best = 0;
    double most = GAIN_LEAST;

    if (draft->is_broken || draft->pass_s[0] <= 0) return 0; /* a step without drafts is the measure */
    if (draft->rest > 0 && --draft->rest > 0) return 0;
    for (size_t drafts = 1; drafts <= draft->opts.most; drafts++)
        if (gain(draft, drafts) > most) {
            most = gain(draft, drafts);
            best = drafts;
        }
    if (best > 0) {
        draft->rest_next = REST_FIRST;
        return best;
    }
    draft->rest = draft->rest_next;
    draft->rest_next = ash_min(2 * draft->rest_next, REST_MOST);
    return 1; /* to see whether it is still so */
}

bool ash_draft_model_rests(const struct ash_draft_model *draft)
{
    return draft->is_broken || draft->rest > 1;
}

void ash_draft_model_learn(struct ash_draft_model *draft, size_t drafted, size_t accepted)
{
    ash_assert(drafted > 0 && accepted <= drafted);
    for (size_t i = 0; i < accepted; i++)
        draft->accept += ACCEPT_STEP * (1 - draft->accept);
    if (accepted < drafted) draft->accept -= ACCEPT_STEP * draft->accept;
}

void ash_draft_model_learn_pass(struct ash_draft_model *draft, size_t drafts, double pass_s)
{
    average(&draft->pass_s[ash_min(drafts, ASH_DRAFT_MOST)], pass_s);
}

/* ---- drafting ---------------------------------------------------------------------------------------------------- */

/* Room for a text and its drafts. Returns whether there is. */
static bool make_room(struct ash_draft_model *draft, struct ash_draft_text *text)
{
    struct ash_draft_state *state = text->state;

    if (text->count + text->wanted > draft->opts.max_tokens) return false;
    if (state->table.pages == NULL && ash_block_table_init(&state->table, draft->opts.max_tokens) < 0) return false;
    return ash_block_table_grow(&state->table, draft->cache, text->count + text->wanted) == 0;
}

/* The next token of a text, chosen as the large model chooses, but without what its request adds. */
static bool choose(struct ash_draft_model *draft, struct ash_draft_text *text, const float *logits)
{
    struct ash_sampler_opts opts = *text->sampler;
    struct ash_choice choice = {.opts = &opts, .logits = logits, .position = text->count + text->drafted};
    struct ash_err err = {0};

    opts.repetition_penalty = 1.0;
    opts.presence_penalty = opts.frequency_penalty = 0.0;
    return ash_sampler_next(draft->sampler, &choice, &text->tokens[text->count + text->drafted], &err) >= 0;
}

/* Rows of a pass, and the texts that get a token after it. */
struct rows {
    struct ash_batch batch;
    struct ash_doc docs[ASH_DRAFT_TEXTS];
    struct ash_draft_text *texts[ASH_DRAFT_TEXTS];
    size_t wanted[ASH_DRAFT_TEXTS], wanted_count;
};

/* Rows that a text lacks, as far as they fit. */
static void add_text(struct ash_draft_model *draft, struct rows *rows, struct ash_draft_text *text)
{
    struct ash_batch *batch = &rows->batch;
    struct ash_draft_state *state = text->state;
    size_t end = text->count + text->drafted,
           count = ash_min(end - state->computed, draft->opts.max_rows - batch->rows);

    if (count == 0) return;
    memcpy(draft->ids + batch->rows, text->tokens + state->computed, count * sizeof(*draft->ids));
    rows->docs[batch->doc_count++] = (struct ash_doc){.row = batch->rows,
                                                      .count = count,
                                                      .pos = state->computed,
                                                      .pages = state->table.pages,
                                                      .page_count = state->table.count};
    batch->rows += count;
    state->computed += count;
    if (state->computed < end) return;
    rows->texts[rows->wanted_count] = text;
    rows->wanted[rows->wanted_count++] = batch->rows - 1;
}

/* One pass, and a token for each text that lacks no row then. is_first: texts without drafts take part. Returns how
 * many got a token. */
static size_t run_pass(struct ash_draft_model *draft, struct ash_draft_text *texts, size_t count, bool is_first)
{
    struct rows rows = {.batch.ids = draft->ids};
    struct ash_err err = {0};
    size_t drafted = 0;
    int rc;

    rows.batch.docs = rows.docs;
    for (size_t i = 0; i < count; i++)
        if (texts[i].drafted < texts[i].wanted && (is_first || texts[i].drafted > 0)) add_text(draft, &rows, &texts[i]);
    if (rows.batch.rows == 0) return 0;
    rc = ash_pass_infer_layers(draft->pass, &rows.batch, draft->cache, &err);
    if (rc == 0 && rows.wanted_count > 0)
        rc = ash_pass_infer_logits(draft->pass, rows.wanted, rows.wanted_count, draft->logits, &err);
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
        if (!make_room(draft, &texts[i])) texts[i].wanted = 0;
        most = ash_max(most, texts[i].wanted);
    }
    for (size_t step = 0; step < most && !draft->is_broken; step++) {
        uint64_t begin_ns = ash_clock_ns();

        if (run_pass(draft, texts, count, step == 0) == 0) break;
        if (step > 0) average(&draft->own_s, 1e-9 * (double)(ash_clock_ns() - begin_ns));
    }
    for (size_t i = 0; i < count && draft->is_broken; i++)
        texts[i].drafted = 0;
}
