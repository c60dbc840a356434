/* ask: texts as ids, split as the harness does, and the results. */
#include "post/eval/ask.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/assert.h"
#include "base/hash.h"
#include "base/math.h"
#include "base/range.h"

#define CHUNK 64 /* documents submitted at once */

/* One request and its results. */
struct asked {
    struct ash_request request;
    struct ash_ids ids;
    size_t first; /* of ids: tokens from here on count */
    double loglikelihood;
    bool is_greedy;
    struct ash_decoder *decoder; /* generated text: */
    struct ash_str text;
    const json_t *until;
    const char *delimiter;
    struct ash_think think;
    bool is_thinking; /* its text has not begun yet */
    int rc;
};

struct asked_list {
    struct asked **items;
    size_t count, capacity;
};

static void free_asked(struct asked *asked)
{
    if (asked == NULL) return;
    ash_ids_fini(&asked->ids);
    ash_decoder_close(asked->decoder);
    ash_str_fini(&asked->text);
    free(asked);
}

static void clear_list(struct asked_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        free_asked(list->items[i]);
    free(list->items);
    *list = (struct asked_list){0};
}

static struct asked *add_asked(struct asked_list *list, struct ash_err *err)
{
    struct asked *asked = calloc(1, sizeof(*asked));

    if (asked == NULL ||
        ash_array_reserve(&list->items, &list->capacity, list->count + 1, sizeof(struct asked *)) < 0) {
        free(asked);
        ash_err_set(err, -ENOMEM, "out of memory for a request");
        return NULL;
    }
    asked->is_greedy = true;
    list->items[list->count++] = asked;
    return asked;
}

/* ---- log-likelihoods --------------------------------------------------------------------------------------------- */

static void take_prompt(void *ctx, size_t index, const struct ash_token *token)
{
    struct asked *asked = ctx;

    ash_assert(index >= asked->first);
    asked->loglikelihood += (double)token->logprob;
    asked->is_greedy &= token->top_count > 0 && token->top[0].id == token->id;
}

/* Drop ids from the front until count fit. */
static void keep_last(struct asked *asked, size_t count)
{
    size_t drop = asked->ids.count > count ? asked->ids.count - count : 0;

    memmove(asked->ids.data, asked->ids.data + drop, (asked->ids.count - drop) * sizeof(int32_t));
    asked->ids.count -= drop;
    asked->first = asked->first > drop ? asked->first - drop : 1;
}

static void ask_likelihood(struct asked *asked, const struct ash_task_model *model)
{
    keep_last(asked, ash_core_max_tokens(model->core));
    asked->request = (struct ash_request){.prompt = asked->ids.data,
                                          .prompt_count = asked->ids.count,
                                          .sampler = ash_sampler_defaults(),
                                          .wants_prompt_logprobs = true,
                                          .prompt_top_logprobs = 1,
                                          .prompt_logprobs_from = asked->first,
                                          .take_prompt = take_prompt,
                                          .ctx = asked};
}

/* A continuation after a context. Blanks at the end of the context belong to the continuation, and where the context's
 * own ids end, it begins. */
static int add_pair(struct asked_list *list, const struct ash_task_model *model, const char *context,
                    const char *continuation, struct ash_err *err)
{
    size_t kept = strlen(context);
    struct asked *asked = add_asked(list, err);
    struct ash_ids before = {0};
    struct ash_str whole = {0};
    int rc = asked == NULL ? -ENOMEM : ash_str_addf(&whole, "%s%s", context, continuation);

    while (kept > 0 && isspace((unsigned char)context[kept - 1]))
        kept--;
    if (rc == 0 && context[0] == '\0') rc = ash_ids_add(&asked->ids, model->prefix);
    if (rc == 0)
        rc = ash_tokenizer_encode(model->tokenizer, whole.data, whole.size_bytes, context[0] != '\0', &asked->ids, err);
    if (rc == 0 && context[0] != '\0') rc = ash_tokenizer_encode(model->tokenizer, context, kept, true, &before, err);
    if (rc == 0) {
        asked->first = ash_max(1, context[0] != '\0' ? before.count : 1);
        if (asked->ids.count <= asked->first)
            rc = ash_err_set(err, -EINVAL, "the continuation '%.60s' adds no tokens", continuation);
        else
            ask_likelihood(asked, model);
    }
    ash_ids_fini(&before);
    ash_str_fini(&whole);
    return rc;
}

/* A whole text, in windows that leave no token out and count none twice. Returns how many windows. */
static int add_rolling(struct asked_list *list, const struct ash_task_model *model, const char *text,
                       struct ash_err *err)
{
    size_t window = ash_core_max_tokens(model->core) - 1, done = 0, count = 0;
    struct ash_ids ids = {0};
    int rc = ash_ids_add(&ids, model->prefix);

    if (rc == 0) rc = ash_tokenizer_encode(model->tokenizer, text, strlen(text), false, &ids, err);
    while (rc == 0 && done + 1 < ids.count) {
        size_t fresh = ash_min(window, ids.count - 1 - done), end = done + fresh;
        size_t begin = end > window ? end - window : 0;
        struct asked *asked = add_asked(list, err);

        for (size_t i = begin; asked != NULL && rc == 0 && i <= end; i++)
            rc = ash_ids_add(&asked->ids, ids.data[i]);
        if (asked == NULL || rc < 0) {
            rc = -ENOMEM;
            break;
        }
        ash_assert(begin <= done && end - begin <= window);
        asked->first = done + 1 - begin;
        ask_likelihood(asked, model);
        done = end;
        count++;
    }
    ash_ids_fini(&ids);
    return rc < 0 ? rc : (int)count;
}

/* ---- generated text ---------------------------------------------------------------------------------------------- */

/* The offset of a stop string in the generated text; its size if there is none. */
static size_t stop_at(const struct asked *asked)
{
    size_t end = asked->text.size_bytes, i;
    json_t *stop;

    if (asked->until == NULL || json_is_string(asked->until)) {
        const char *one = asked->until != NULL ? json_string_value(asked->until) : asked->delimiter;
        const char *found = one[0] != '\0' ? strstr(asked->text.data, one) : NULL;

        return found != NULL ? (size_t)(found - asked->text.data) : end;
    }
    json_array_foreach((json_t *)(uintptr_t)asked->until, i, stop) {
        const char *text = json_string_value(stop), *found;

        if (text == NULL || text[0] == '\0') continue;
        found = strstr(asked->text.data, text);
        if (found != NULL) end = ash_min(end, (size_t)(found - asked->text.data));
    }
    return end;
}

static int take(void *ctx, const struct ash_token *token)
{
    struct asked *asked = ctx;

    if (asked->is_thinking) { /* thoughts are no part of the text, nor do stop strings end them */
        asked->is_thinking = token->id != asked->think.words->end_id;
        return 0;
    }
    asked->rc = ash_decoder_push(asked->decoder, token->id, &asked->text, NULL);
    return asked->rc < 0 || stop_at(asked) < asked->text.size_bytes;
}

static int add_generation(struct asked_list *list, const struct ash_task *task, const struct ash_task_model *model,
                          const char *context, uint64_t seed, struct ash_err *err)
{
    size_t most = ash_core_max_tokens(model->core), wanted = ash_min(task->max_tokens, most - 1);
    struct asked *asked = add_asked(list, err);
    struct ash_sampler_opts sampler = ash_sampler_defaults();
    int rc = asked == NULL ? -ENOMEM
                           : ash_tokenizer_encode(model->tokenizer, context, strlen(context), true, &asked->ids, err);

    if (rc == 0 && asked->ids.count == 0) rc = ash_ids_add(&asked->ids, model->prefix);
    if (rc == 0) rc = ash_decoder_open(model->tokenizer, true, &asked->decoder, err);
    if (rc < 0) return rc;
    keep_last(asked, most - wanted);
    rc = ash_decoder_start(asked->decoder, asked->ids.data, asked->ids.count, err);
    if (rc == 0 && ash_str_adds(&asked->text, "") < 0) rc = ash_err_set(err, -ENOMEM, "out of memory for an answer");
    sampler.temperature = task->temperature;
    sampler.seed = seed;
    if (model->words != NULL) {
        asked->think = ash_think_start(model->words, model->think_min, model->think_max);
        asked->is_thinking = true;
    }
    asked->until = task->until;
    asked->delimiter = task->fewshot_delimiter;
    asked->request = (struct ash_request){.prompt = asked->ids.data,
                                          .prompt_count = asked->ids.count,
                                          .sampler = sampler,
                                          .max_tokens = wanted,
                                          .stop_ids = model->eos,
                                          .stop_id_count = model->eos_count,
                                          .think = &asked->think,
                                          .take = take,
                                          .ctx = asked};
    return rc;
}

/* ---- documents --------------------------------------------------------------------------------------------------- */

/* Requests of document index. */
static int add_document(struct asked_list *list, const struct ash_task_asked *asked, const struct ash_task_item *item,
                        const char *context, uint64_t index, struct ash_err *err)
{
    const struct ash_task *task = asked->task;
    const struct ash_task_model *model = asked->model;
    struct ash_str continuation = {0};
    const char *delimiter = task->target_delimiter;
    int rc = 0;

    switch (task->output) {
    case ASH_TASK_ROLLING:
        rc = add_rolling(list, model, item->target, err);
        break;
    case ASH_TASK_GENERATE:
        for (uint64_t r = 0; rc == 0 && r < task->repeats; r++) {
            uint64_t words[2] = {index, r};

            rc = add_generation(list, task, model, context, ash_hash_bytes(words, sizeof(words), 0), err);
        }
        break;
    default:
        for (size_t c = 0; rc == 0 && c < ash_max(1, json_array_size(item->choices)); c++) {
            const char *choice =
                item->choices != NULL ? json_string_value(json_array_get(item->choices, c)) : item->target;

            ash_str_clear(&continuation);
            rc = ash_str_addf(&continuation, "%s%s", delimiter, choice);
            if (rc == 0) rc = add_pair(list, model, context, continuation.data, err);
        }
    }
    ash_str_fini(&continuation);
    return rc < 0 ? rc : 0;
}

static int run_all(struct asked_list *list, struct ash_core *core, struct ash_err *err)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < list->count; i++)
        rc = ash_core_submit(core, &list->items[i]->request, err);
    rc = ash_core_finish(core, rc, err);
    for (size_t i = 0; rc == 0 && i < list->count; i++)
        rc = list->items[i]->rc;
    return rc;
}

/* Texts [repeats], or log-likelihoods, of a document whose requests are [first, end). */
static int keep_answer(const struct ash_task *task, const struct asked_list *list, struct ash_range requests,
                       struct ash_task_answer *answer)
{
    ash_assert(ash_range_end(requests) <= list->count);
    answer->is_greedy = true;
    if (task->output == ASH_TASK_GENERATE) {
        answer->texts = calloc(requests.count, sizeof(*answer->texts));
        for (size_t r = 0; answer->texts != NULL && r < requests.count; r++) {
            struct asked *asked = list->items[requests.first + r];

            answer->texts[r] = strndup(asked->text.data, stop_at(asked));
            if (answer->texts[r] == NULL) return -ENOMEM;
        }
        return answer->texts == NULL ? -ENOMEM : 0;
    }
    answer->loglikelihoods = calloc(ash_max(1, requests.count), sizeof(*answer->loglikelihoods));
    for (size_t r = 0; answer->loglikelihoods != NULL && r < requests.count; r++) {
        const struct asked *asked = list->items[requests.first + r];

        answer->loglikelihoods[task->output == ASH_TASK_ROLLING ? 0 : r] += asked->loglikelihood;
        answer->is_greedy &= asked->is_greedy;
    }
    return answer->loglikelihoods == NULL ? -ENOMEM : 0;
}

/* Documents [chunk.first, ...) from question to answer. */
static int ask_chunk(const struct ash_task_asked *asked, struct ash_range chunk, struct ash_task_answers *answers,
                     struct ash_err *err)
{
    const struct ash_task *task = asked->task;
    struct asked_list list = {0};
    size_t starts[CHUNK + 1] = {0};
    int rc = 0;

    ash_assert(chunk.count <= CHUNK);
    for (size_t i = 0; rc == 0 && i < chunk.count; i++) {
        struct ash_task_item *item = &answers->items[chunk.first + i];
        struct ash_str context = {0};

        rc = ash_task_item_init(task, json_array_get(asked->docs, chunk.first + i), item, err);
        if (rc == 0) rc = ash_task_context(task, asked->few, asked->docs, chunk.first + i, &context, err);
        if (rc == 0) rc = add_document(&list, asked, item, context.data, chunk.first + i, err);
        ash_str_fini(&context);
        starts[i + 1] = list.count;
        if (rc < 0) ash_err_prefix(err, rc, "document %zu", chunk.first + i);
    }
    if (rc == 0) rc = run_all(&list, asked->model->core, err);
    for (size_t i = 0; rc == 0 && i < chunk.count; i++) {
        struct ash_task_answer *answer = &answers->answers[chunk.first + i];

        answer->item = &answers->items[chunk.first + i];
        if (keep_answer(task, &list, (struct ash_range){starts[i], starts[i + 1] - starts[i]}, answer) < 0)
            rc = ash_err_set(err, -ENOMEM, "out of memory for an answer");
    }
    clear_list(&list);
    return rc;
}

int ash_task_ask(const struct ash_task_asked *asked, struct ash_task_answers *answers_out, struct ash_err *err)
{
    const struct ash_task_model *model = asked->model;
    size_t count = asked->count;
    int rc = 0;

    ash_assert(count <= json_array_size(asked->docs));
    *answers_out = (struct ash_task_answers){.items = calloc(count + 1, sizeof(*answers_out->items)),
                                             .answers = calloc(count + 1, sizeof(*answers_out->answers)),
                                             .count = count,
                                             .repeats = asked->task->repeats};
    if (answers_out->items == NULL || answers_out->answers == NULL)
        rc = ash_err_set(err, -ENOMEM, "out of memory for %zu documents", count);
    for (size_t at = 0; rc == 0 && at < count; at += CHUNK) {
        rc = ask_chunk(asked, (struct ash_range){at, ash_min(CHUNK, count - at)}, answers_out, err);
        if (rc == 0) rc = ash_eval_progress_report(&model->progress, ash_min(count, at + CHUNK), count);
    }
    if (rc < 0) ash_task_answers_fini(answers_out);
    return rc;
}

void ash_task_answers_fini(struct ash_task_answers *answers)
{
    for (size_t i = 0; answers->answers != NULL && i < answers->count; i++) {
        free(answers->answers[i].loglikelihoods);
        for (size_t r = 0; answers->answers[i].texts != NULL && r < answers->repeats; r++)
            free(answers->answers[i].texts[r]);
        free(answers->answers[i].texts);
    }
    for (size_t i = 0; answers->items != NULL && i < answers->count; i++)
        ash_task_item_fini(&answers->items[i]);
    free(answers->items);
    free(answers->answers);
    *answers = (struct ash_task_answers){0};
}
