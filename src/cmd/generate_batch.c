/* Many prompts of `ashlar generate --prompts`: read at once, answered in batches, printed in their order as soon as all
 * before are done. Each text is the one that its prompt alone would get. */
#include "cmd/generate_priv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/interrupt.h"
#include "base/math.h"
#include "cmd/cmd.h"
#include "cmd/progress_bar.h"
#include "serve/engine/core.h"
#include "serve/engine/think.h"
#include "serve/form.h"
#include "serve/stops.h"
#include "serve/votes.h"

#define PASS_ROWS 256

/* One prompt and the text of its answer. */
struct item {
    struct batch *batch;
    const struct ash_generate_line *line;
    struct ash_request request; /* to the core */
    struct ash_think think;     /* the budget of its thoughts */
    bool is_done;               /* the core has answered it */
    struct ash_ids answer;
    double logprob;              /* of its tokens together, if there is a strategy */
    json_t *logprobs;            /* of each, with --logprobs */
    struct ash_decoder *decoder; /* while it is being answered */
    struct ash_str text;         /* decoded */
    bool has_stopped;            /* text ends before a stop string */
};

struct batch {
    struct ash_generate *generate;
    struct ash_stops stops;
    struct ash_think_words words; /* of the budget, if there is one */
    struct ash_answer_form form;
    struct ash_generate_chooser chooser;
    struct ash_generate_lines lines;
    struct item *items; /* [count]: `samples` for each prompt, one after the other */
    size_t count, samples;
    bool is_one; /* one prompt, whose answer is printed as text */
    size_t context_tokens;
    size_t request_count;   /* items without an error */
    size_t printed, failed; /* items */
    int rc;                 /* why no answer can continue, or 0 */
    struct ash_err err;
};

/* ---- answering --------------------------------------------------------------------------------------------------- */

/* Cut the text before a stop string. The rest may still begin one, unless it is the end. */
static void look_for_stop(struct item *item)
{
    size_t good = ash_stops_scan(&item->batch->stops, item->text.data, item->text.size_bytes, &item->has_stopped);

    if (!item->has_stopped) return;
    item->text.size_bytes = good;
    item->text.data[good] = '\0';
}

static int add_text(struct item *item, int32_t id, struct ash_err *err)
{
    int rc = ash_ids_add(&item->answer, id);

    if (rc < 0) return ash_err_set(err, rc, "no memory for an answer");

    if (item->decoder == NULL) {
        const struct ash_generate *generate = item->batch->generate;

        rc = ash_decoder_open(ash_engine_tokenizer(generate->engine), true, &item->decoder, err);
        if (rc == 0) rc = ash_decoder_start(item->decoder, item->line->ids, item->line->count, err);
    }
    if (rc < 0) return rc;
    rc = ash_decoder_push(item->decoder, id, &item->text, err);
    if (rc < 0) return rc;
    look_for_stop(item);
    return 0;
}

/* One more id of an answer. */
static int take(void *ctx, const struct ash_token *token)
{
    struct item *item = ctx;
    struct batch *batch = item->batch;

    item->logprob += (double)token->logprob;
    if (batch->generate->logprobs) json_array_append_new(item->logprobs, json_real((double)token->logprob));
    if (batch->rc == 0) batch->rc = add_text(item, token->id, &batch->err);
    return batch->rc < 0 || item->has_stopped;
}

static void take_end(void *ctx, const struct ash_request_end *end)
{
    struct item *item = ctx;

    item->is_done = true;
    if (end->rc == 0 || item->batch->rc < 0) return;
    item->batch->rc = end->rc;
    item->batch->err = end->err;
}

/* The answer is over: flush the decoder. */
static int finish_text(struct item *item, struct ash_err *err)
{
    int rc = 0;

    if (item->decoder != NULL && !item->has_stopped) rc = ash_decoder_finish(item->decoder, &item->text, err);
    if (rc == 0 && !item->has_stopped) {
        look_for_stop(item);
        if (item->has_stopped) item->request.end.finish = ASH_FINISH_STOP;
    }
    ash_decoder_close(item->decoder);
    item->decoder = NULL;
    return rc;
}

/* Tokens of an answer: until the context is full, unless fewer are requested. */
static size_t asked_tokens(const struct batch *batch)
{
    return batch->generate->max_tokens > 0 ? (size_t)batch->generate->max_tokens : SIZE_MAX;
}

static int submit_all(struct batch *batch, struct ash_core *core, struct ash_err *err)
{
    const struct ash_answer_opts *answer = &batch->generate->answer_opts;
    const struct ash_defaults *defaults = ash_engine_defaults(batch->generate->engine);
    struct ash_sampler_opts sampler = ash_sampler_defaults();
    int rc;

    sampler.temperature = answer->temperature;
    sampler.top_k = answer->top_k;
    sampler.top_p = answer->top_p;
    sampler.min_p = answer->min_p;
    sampler.repetition_penalty = answer->repetition_penalty;
    sampler.presence_penalty = answer->presence_penalty;
    sampler.frequency_penalty = answer->frequency_penalty;
    for (size_t i = 0; i < batch->count; i++) {
        struct item *item = &batch->items[i];

        sampler.seed = ash_sampler_seed(answer->seed, i % batch->samples);
        item->batch = batch;
        if (item->line->err.code != 0) continue;
        if (batch->generate->logprobs) item->logprobs = json_array();
        item->think =
            ash_think_start(&batch->words, (size_t)batch->generate->think_min, (size_t)batch->generate->think_max);
        item->request = (struct ash_request){.prompt = item->line->ids,
                                             .prompt_count = item->line->count,
                                             .sampler = sampler,
                                             .max_tokens = asked_tokens(batch),
                                             .stop_ids = defaults->eos,
                                             .stop_id_count = defaults->eos_count,
                                             .think = &item->think,
                                             .grammar = batch->form.grammar,
                                             .wants_logprobs = batch->samples > 1 || batch->generate->logprobs,
                                             .take = take,
                                             .done = take_end,
                                             .ctx = item};
        rc = ash_core_submit(core, &item->request, err);
        if (rc < 0) return rc;
    }
    return 0;
}

/* ---- printing ---------------------------------------------------------------------------------------------------- */

static json_t *error_json(const struct item *item, size_t index)
{
    return json_pack("{s:I, s:O*, s:s}", "index", (json_int_t)index, "id", item->line->id, "error",
                     item->line->err.text);
}

static json_t *answer_json(struct item *item, size_t index)
{
    enum ash_finish finish = item->request.end.finish;

    if (item->request.end.stop_id >= 0 && ash_ids_add(&item->answer, item->request.end.stop_id) < 0)
        return NULL; /* as for one prompt */
    return json_pack("{s:I, s:O*, s:s%, s:o, s:O*, s:s, s:s, s:{s:I, s:I}}", "index", (json_int_t)index, "id",
                     item->line->id, "text", item->text.data != NULL ? item->text.data : "", item->text.size_bytes,
                     "ids", ash_generate_ids_json(item->answer.data, item->answer.count), "logprobs", item->logprobs,
                     "finish_reason", ash_finish_reason(finish), "finish_detail", ash_generate_finish_detail(finish),
                     "usage", "prompt_tokens", (json_int_t)item->line->count, "answer_tokens",
                     (json_int_t)item->answer.count);
}

static int print_line(json_t *json, struct ash_err *err)
{
    if (json == NULL) return ash_err_set(err, -ENOMEM, "no memory for the JSON of an answer");
    json_dumpf(json, stdout, JSON_COMPACT);
    putchar('\n');
    fflush(stdout);
    json_decref(json);
    return 0;
}

/* Of the answers to a prompt, the one that counts; *votes_out: why, if there are several. */
static int choose(struct batch *batch, struct item *items, struct item **item_out, json_t **votes_out,
                  struct ash_err *err)
{
    struct ash_generate_candidate *candidates;
    size_t chosen = 0;
    int rc;

    *item_out = items;
    if (batch->samples == 1) return 0;
    candidates = calloc(batch->samples, sizeof(*candidates));
    if (candidates == NULL) return ash_err_set(err, -ENOMEM, "no memory for the answers");
    for (size_t s = 0; s < batch->samples; s++)
        candidates[s] = (struct ash_generate_candidate){.text = items[s].text.data != NULL ? items[s].text.data : "",
                                                        .prompt = items[s].line->ids,
                                                        .prompt_count = items[s].line->count,
                                                        .ids = items[s].answer.data,
                                                        .count = items[s].answer.count,
                                                        .logprob = items[s].logprob,
                                                        .has_ended = items[s].request.end.finish == ASH_FINISH_EOS};
    rc = ash_generate_choose(&batch->chooser, candidates, batch->samples, &chosen, votes_out, err);
    free(candidates);
    *item_out = items + chosen;
    return rc;
}

/* The answer of one prompt as text, as without a strategy. */
static int print_text(const struct batch *batch, const struct item *item)
{
    const char *text = item->text.data != NULL ? item->text.data : "";

    if (batch->generate->chat) text += strspn(text, " \t\r\n");
    fputs(text, stdout);
    if (text[0] == '\0' || text[strlen(text) - 1] != '\n') putchar('\n');
    fflush(stdout);
    return 0;
}

static int print_prompt(struct batch *batch, struct item *items, struct ash_err *err)
{
    size_t index = batch->printed / batch->samples;
    json_t *votes = NULL, *json;
    struct item *item = items;
    int rc = choose(batch, items, &item, &votes, err);

    if (rc < 0) return rc;
    if (batch->is_one && !batch->generate->json) {
        json_decref(votes);
        return print_text(batch, item);
    }
    json = answer_json(item, index);
    if (votes != NULL && json != NULL)
        json_object_update_new(json,
                               json_pack("{s:s, s:I, s:o}", "strategy", ash_strategy_names[batch->generate->strategy],
                                         "chosen", (json_int_t)(item - items), "votes", votes));
    return print_line(json, err);
}

static bool are_done(const struct item *items, size_t count)
{
    for (size_t s = 0; s < count; s++)
        if (!items[s].is_done) return false;
    return true;
}

/* Print answers up to the first prompt that is not done. */
static int print_done(struct batch *batch, struct ash_err *err)
{
    size_t samples = batch->samples;
    int rc = 0;

    ash_assert(samples > 0);
    for (; rc == 0 && batch->printed < batch->count; batch->printed += samples) {
        struct item *items = &batch->items[batch->printed];

        if (items->line->err.code != 0) {
            batch->failed++;
            rc = print_line(error_json(items, batch->printed / samples), err);
            continue;
        }
        if (!are_done(items, samples)) break;
        for (size_t s = 0; rc == 0 && s < samples; s++)
            rc = finish_text(&items[s], err);
        if (rc == 0) rc = print_prompt(batch, items, err);
        for (size_t s = 0; s < samples; s++) {
            ash_str_fini(&items[s].text);
            json_decref(items[s].logprobs);
            items[s].logprobs = NULL;
        }
    }
    return rc;
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

static int find_words(struct batch *batch, struct ash_err *err)
{
    size_t min = (size_t)batch->generate->think_min, max = (size_t)batch->generate->think_max;
    int rc = ash_think_check(min, max, err);

    if (rc < 0 || (min == 0 && max == 0)) return rc;
    return ash_think_words_init(&batch->words, NULL, NULL, ash_engine_tokenizer(batch->generate->engine), err);
}

static int open_core(const struct batch *batch, struct ash_core **core_out, struct ash_err *err)
{
    struct ash_engine *engine = batch->generate->engine;
    struct ash_core_opts opts = {
        .max_seqs = ash_min((size_t)batch->generate->batch, batch->request_count),
        .vocab = ash_tokenizer_vocab_size(ash_engine_tokenizer(engine)),
        .pack = ASH_CORE_PACK_AT_OPEN,
        .vocab_trie = batch->form.trie,
    };

    for (size_t i = 0; i < batch->count; i++) {
        size_t count = batch->items[i].line->count,
               room = batch->context_tokens - ash_min(count, batch->context_tokens);

        if (batch->items[i].line->err.code == 0)
            opts.max_tokens = ash_max(opts.max_tokens, count + ash_min(asked_tokens(batch), room));
    }
    opts.max_batch_rows = ash_max(PASS_ROWS, opts.max_seqs);
    return ash_core_open(ash_engine_model(engine), ash_engine_exec(engine), &opts, core_out, err);
}

static int answer_all(struct batch *batch, struct ash_err *err)
{
    struct ash_core *core = NULL;
    struct ash_progress_bar progress;
    int rc = open_core(batch, &core, err);

    if (rc == 0) rc = submit_all(batch, core, err);
    ash_progress_bar_init(&progress);
    while (rc == 0 && batch->printed < batch->count) {
        ash_core_step(core);
        rc = batch->rc;
        if (rc < 0) *err = batch->err;
        if (rc == 0) rc = print_done(batch, err);
        ash_progress_bar_count(&progress, batch->printed / batch->samples, batch->count / batch->samples, "prompts");
        if (rc == 0 && ash_interrupt_requested()) rc = -ECANCELED;
    }
    ash_progress_bar_clear(&progress);
    ash_core_close(core);
    return rc;
}

static void fini_batch(struct batch *batch)
{
    for (size_t i = 0; i < batch->count; i++) {
        struct item *item = &batch->items[i];

        ash_ids_fini(&item->answer);
        ash_decoder_close(item->decoder);
        ash_str_fini(&item->text);
        json_decref(item->logprobs);
    }
    ash_answer_form_fini(&batch->form);
    ash_generate_lines_fini(&batch->lines);
    ash_generate_chooser_close(&batch->chooser);
    ash_stops_fini(&batch->stops);
    ash_think_words_fini(&batch->words);
    free(batch->items);
}

/* As many items for each prompt as there are answers. */
static int make_items(struct batch *batch, struct ash_err *err)
{
    batch->samples = batch->generate->strategy != ASH_STRATEGY_GREEDY ? (size_t)batch->generate->n : 1;
    batch->items = calloc(batch->lines.count * batch->samples, sizeof(*batch->items));
    if (batch->items == NULL) return ash_err_set(err, -ENOMEM, "no memory for the prompts");
    batch->count = batch->lines.count * batch->samples;
    for (size_t i = 0; i < batch->count; i++)
        batch->items[i].line = &batch->lines.items[i / batch->samples];
    if (batch->samples == 1) return 0;
    return ash_generate_chooser_open(&batch->chooser, batch->generate, batch->context_tokens, err);
}

int ash_generate_batch(struct ash_generate *generate, const char *text)
{
    size_t most = ash_engine_context(generate->engine);
    struct batch batch = {.generate = generate, .context_tokens = most, .samples = 1, .is_one = text != NULL};
    struct ash_err err = {0};
    int rc, code;

    if (generate->context > 0) batch.context_tokens = ash_min((size_t)generate->context, most);
    rc = ash_stops_init(&batch.stops, generate->stop.items, generate->stop.count, &err);
    if (rc == 0) rc = find_words(&batch, &err);
    if (rc == 0) rc = ash_answer_form_init(&batch.form, generate->engine, &generate->answer_opts, &err);
    if (rc == 0) rc = ash_generate_lines_read(&batch.lines, generate, text, batch.context_tokens, &err);
    if (rc == 0) rc = make_items(&batch, &err);
    for (size_t i = 0; i < batch.count; i++)
        batch.request_count += batch.items[i].line->err.code == 0;
    if (rc == 0) rc = batch.request_count > 0 ? answer_all(&batch, &err) : print_done(&batch, &err);
    code = rc == -ECANCELED ? ash_cmd_stopped() : rc < 0 ? ash_cmd_fail(&err) : batch.failed > 0;
    fini_batch(&batch);
    return code;
}
