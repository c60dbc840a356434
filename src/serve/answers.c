/* Answers of a batch: each is decoded as its tokens come, and cut at stop strings. */
#include "serve/answers.h"

#include <errno.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/math.h"
#include "serve/engine/sampler.h"
#include "serve/engine/think.h"
#include "serve/form.h"
#include "serve/stops.h"

#define PASS_ROWS 256

/* One answer on its way. */
struct item {
    struct ash_answers *all;
    const struct ash_answers_prompt *prompt;
    struct ash_request request; /* to the core */
    struct ash_think think;     /* the budget of its thoughts */
    struct ash_decoder *decoder;
    bool is_over, has_stopped; /* has_stopped: the text ends before a stop string */
};

struct ash_answers {
    struct ash_engine *engine;
    const struct ash_answers_opts *opts;
    struct ash_stops stops;
    struct ash_think_words words; /* of the budget, if there is one */
    struct ash_answer_form form;
    struct ash_core *core;
    struct item *items;               /* [count]: samples for each prompt, one after the other */
    struct ash_answers_item *answers; /* [count] */
    size_t count;
    int rc; /* the first error of an answer, or 0 */
    struct ash_err err;
};

/* ---- an answer --------------------------------------------------------------------------------------------------- */

static struct ash_answers_item *answer_of(const struct item *item)
{
    return &item->all->answers[item - item->all->items];
}

/* Cut the text before a stop string. The rest may still begin one, unless it is the end. */
static void look_for_stop(struct item *item)
{
    struct ash_str *text = &answer_of(item)->text;
    size_t good = ash_stops_scan(&item->all->stops, text->data, text->size_bytes, &item->has_stopped);

    if (item->has_stopped) ash_str_cut(text, good);
}

static int add_text(struct item *item, int32_t id, struct ash_err *err)
{
    struct ash_answers_item *answer = answer_of(item);
    int rc = ash_ids_add(&answer->ids, id);

    if (rc < 0) return ash_err_set(err, rc, "no memory for an answer");
    if (item->decoder == NULL) {
        rc = ash_decoder_open(ash_engine_tokenizer(item->all->engine), true, &item->decoder, err);
        if (rc == 0) rc = ash_decoder_start(item->decoder, item->prompt->ids, item->prompt->count, err);
    }
    if (rc == 0) rc = ash_decoder_push(item->decoder, id, &answer->text, err);
    if (rc == 0) look_for_stop(item);
    return rc;
}

/* One more id of an answer. */
static int take(void *ctx, const struct ash_token *token)
{
    struct item *item = ctx;
    struct ash_answers_item *answer = answer_of(item);
    struct ash_answers *all = item->all;

    answer->logprob += (double)token->logprob;
    if (answer->logprobs != NULL) json_array_append_new(answer->logprobs, json_real((double)token->logprob));
    if (all->rc == 0) all->rc = add_text(item, token->id, &all->err);
    return all->rc < 0 || item->has_stopped;
}

/* The answer is over: flush the decoder. */
static int finish_text(struct item *item, const struct ash_request_end *end, struct ash_err *err)
{
    struct ash_answers_item *answer = answer_of(item);
    int rc = 0;

    answer->finish = end->finish;
    answer->stop_id = end->stop_id;
    if (item->decoder != NULL && !item->has_stopped) rc = ash_decoder_finish(item->decoder, &answer->text, err);
    if (rc == 0 && !item->has_stopped) {
        look_for_stop(item);
        if (item->has_stopped) answer->finish = ASH_FINISH_STOP;
    }
    ash_decoder_close(item->decoder);
    item->decoder = NULL;
    return rc;
}

static void take_end(void *ctx, const struct ash_request_end *end)
{
    struct item *item = ctx;
    struct ash_answers *all = item->all;

    item->is_over = true;
    if (all->rc < 0) return;
    all->rc = end->rc;
    if (end->rc < 0)
        all->err = end->err;
    else
        all->rc = finish_text(item, end, &all->err);
}

/* ---- all of them ------------------------------------------------------------------------------------------------- */

/* Tokens of an answer: until the context is full, unless fewer are requested. */
static size_t asked_tokens(const struct ash_answers *all)
{
    return all->opts->answer->max_tokens > 0 ? all->opts->answer->max_tokens : SIZE_MAX;
}

static struct ash_sampler_opts sampler_of(const struct ash_answer_opts *answer, size_t sample)
{
    struct ash_sampler_opts sampler = ash_sampler_defaults();

    sampler.temperature = answer->temperature;
    sampler.top_k = answer->top_k;
    sampler.top_p = answer->top_p;
    sampler.min_p = answer->min_p;
    sampler.repetition_penalty = answer->repetition_penalty;
    sampler.presence_penalty = answer->presence_penalty;
    sampler.frequency_penalty = answer->frequency_penalty;
    sampler.seed = ash_sampler_seed(answer->seed, sample);
    return sampler;
}

static int submit(struct ash_answers *all, size_t i, struct ash_err *err)
{
    const struct ash_answer_opts *answer = all->opts->answer;
    const struct ash_defaults *defaults = ash_engine_defaults(all->engine);
    struct item *item = &all->items[i];

    if (answer->wants_logprobs) all->answers[i].logprobs = json_array();
    item->think = ash_think_start(&all->words, answer->think_min, answer->think_max);
    item->request = (struct ash_request){.prompt = item->prompt->ids,
                                         .prompt_count = item->prompt->count,
                                         .sampler = sampler_of(answer, i % all->opts->samples),
                                         .max_tokens = asked_tokens(all),
                                         .stop_ids = defaults->eos,
                                         .stop_id_count = defaults->eos_count,
                                         .think = &item->think,
                                         .grammar = all->form.grammar,
                                         .wants_logprobs = all->opts->samples > 1 || answer->wants_logprobs,
                                         .take = take,
                                         .done = take_end,
                                         .ctx = item};
    return ash_core_submit(all->core, &item->request, err);
}

static int open_core(struct ash_answers *all, struct ash_err *err)
{
    struct ash_core_opts opts = {.vocab = ash_tokenizer_vocab_size(ash_engine_tokenizer(all->engine)),
                                 .pack = ASH_CORE_PACK_AT_OPEN,
                                 .vocab_trie = all->form.trie,
                                 .ranks = ash_engine_ranks(all->engine)};
    size_t requests = 0;

    for (size_t i = 0; i < all->count; i++) {
        const struct ash_answers_prompt *prompt = all->items[i].prompt;
        size_t room = all->opts->context_tokens - ash_min(prompt->count, all->opts->context_tokens);

        if (prompt->ids == NULL) continue;
        opts.max_tokens = ash_max(opts.max_tokens, prompt->count + ash_min(asked_tokens(all), room));
        requests++;
    }
    ash_assert(requests > 0);
    opts.max_seqs = ash_min(all->opts->concurrent, requests);
    opts.max_batch_rows = ash_max(PASS_ROWS, opts.max_seqs);
    return ash_core_open(ash_engine_model(all->engine), ash_engine_exec(all->engine), &opts, &all->core, err);
}

/* What all answers share. */
static int open_shared(struct ash_answers *all, struct ash_err *err)
{
    const struct ash_answer_opts *answer = all->opts->answer;
    int rc = ash_stops_init(&all->stops, answer->stops, answer->stop_count, err);

    if (rc == 0) rc = ash_think_check(answer->think_min, answer->think_max, err);
    if (rc == 0 && answer->think_min + answer->think_max > 0)
        rc = ash_think_words_init(&all->words, NULL, NULL, ash_engine_tokenizer(all->engine), err);
    if (rc == 0) rc = ash_answer_form_init(&all->form, all->engine, answer, err);
    return rc < 0 ? rc : open_core(all, err);
}

int ash_answers_open(struct ash_engine *engine, const struct ash_answers_opts *opts,
                     const struct ash_answers_prompt *prompts, size_t count, struct ash_answers **answers_out,
                     struct ash_err *err)
{
    struct ash_answers *all = calloc(1, sizeof(*all));
    int rc;

    ash_assert(opts->samples > 0 && opts->concurrent > 0);
    if (all != NULL) {
        *all = (struct ash_answers){.engine = engine, .opts = opts, .count = count * opts->samples};
        all->items = calloc(all->count, sizeof(*all->items));
        all->answers = calloc(all->count, sizeof(*all->answers));
    }
    if (all == NULL || all->items == NULL || all->answers == NULL) {
        ash_answers_close(all);
        return ash_err_set(err, -ENOMEM, "no memory for the prompts");
    }
    for (size_t i = 0; i < all->count; i++) {
        all->items[i].all = all;
        all->items[i].prompt = &prompts[i / opts->samples];
    }
    rc = open_shared(all, err);
    for (size_t i = 0; rc == 0 && i < all->count; i++)
        if (all->items[i].prompt->ids != NULL) rc = submit(all, i, err);
    if (rc < 0) {
        ash_answers_close(all);
        return rc;
    }
    *answers_out = all;
    return 0;
}

void ash_answers_close(struct ash_answers *all)
{
    if (all == NULL) return;
    ash_core_close(all->core);
    if (all->items != NULL && all->answers != NULL)
        for (size_t p = 0; p < all->count / all->opts->samples; p++)
            ash_answers_forget(all, p);
    ash_answer_form_fini(&all->form);
    ash_stops_fini(&all->stops);
    ash_think_words_fini(&all->words);
    free(all->items);
    free(all->answers);
    free(all);
}

int ash_answers_step(struct ash_answers *all, struct ash_err *err)
{
    ash_core_step(all->core);
    if (all->rc < 0 && err != NULL) *err = all->err;
    return all->rc;
}

struct ash_answers_item *ash_answers_of(struct ash_answers *all, size_t prompt)
{
    size_t first = prompt * all->opts->samples;

    ash_assert(first < all->count);
    for (size_t s = 0; s < all->opts->samples; s++)
        if (!all->items[first + s].is_over) return NULL;
    return &all->answers[first];
}

void ash_answers_forget(struct ash_answers *all, size_t prompt)
{
    size_t first = prompt * all->opts->samples;

    for (size_t i = first; i < first + all->opts->samples; i++) {
        ash_decoder_close(all->items[i].decoder);
        all->items[i].decoder = NULL;
        ash_ids_fini(&all->answers[i].ids);
        ash_str_fini(&all->answers[i].text);
        json_decref(all->answers[i].logprobs);
        all->answers[i].logprobs = NULL;
    }
}
