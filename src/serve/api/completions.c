/* POST /v1/completions: text that continues prompts. */
#include "serve/api/openai.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/math.h"
#include "serve/api/grammars.h"
#include "serve/api/handlers.h"
#include "serve/api/strategy.h"
#include "serve/api/write.h"

#define OBJECT "text_completion"
#define MAX_TOKENS_DEFAULT 16 /* OpenAI's */

/* What only this form knows. */
struct completion {
    bool has_echo, has_logprobs;
    size_t *offsets; /* [choice_count]: characters of tokens so far, for text_offset in a stream */
};

static void free_state(struct ash_api_call *call)
{
    struct completion *completion = call->state;

    if (completion != NULL) free(completion->offsets);
    free(completion);
}

/* ---- log-probabilities ------------------------------------------------------------------------------------------- */

/* Tokens of a prompt (the first without a log-probability) and of an answer, one after the other. */
struct run {
    const struct ash_api *api;
    const struct ash_ids *prompt; /* NULL: not shown */
    const struct ash_token *prompt_tokens, *tokens;
    size_t count;   /* of tokens */
    size_t top;     /* most likely ones that are shown */
    size_t *offset; /* characters before; is moved on */
};

static size_t run_count(const struct run *run)
{
    return run->count + (run->prompt != NULL ? run->prompt->count : 0);
}

/* Token i; *has_logprob_out is false for the first of a prompt. */
static struct ash_token run_token(const struct run *run, size_t i, bool *has_logprob_out)
{
    size_t before = run->prompt != NULL ? run->prompt->count : 0;

    *has_logprob_out = i >= before || (i > 0 && run->prompt_tokens != NULL);
    if (i >= before) return run->tokens[i - before];
    if (*has_logprob_out) return run->prompt_tokens[i - 1];
    return (struct ash_token){.id = run->prompt->data[i]};
}

static void write_top_entry(const struct run *run, int32_t id, float logprob, struct ash_str *out)
{
    ash_openai_write_token(run->api, NULL, id, out); /* a key */
    ash_str_adds(out, ":");
    ash_write_float(out, NULL, logprob);
}

static void write_top(const struct run *run, const struct ash_token *token, struct ash_str *out)
{
    bool is_shown = false;

    ash_json_put_begin(out, NULL, '{');
    for (size_t t = 0; t < ash_min(token->top_count, run->top); t++) {
        write_top_entry(run, token->top[t].id, token->top[t].logprob, out);
        is_shown = is_shown || token->top[t].id == token->id;
    }
    if (!is_shown) write_top_entry(run, token->id, token->logprob, out); /* the chosen one is always there */
    ash_json_put_end(out, '}');
}

enum column { COLUMN_TOKENS, COLUMN_LOGPROBS, COLUMN_TOPS, COLUMN_OFFSETS, COLUMN_COUNT };

/* The characters of a token's text. */
static size_t count_points(const struct ash_str *text)
{
    size_t count = 0;

    for (size_t i = 0; i < text->size_bytes; i++)
        count += ((unsigned char)text->data[i] & 0xc0) != 0x80;
    return count;
}

static void write_offset(const struct run *run, int32_t id, struct ash_str *out)
{
    struct ash_str text = {0};

    ash_json_put_int(out, NULL, (int64_t)*run->offset);
    ash_str_fail(out, ash_tokenizer_add_bytes(run->api->engine.tokenizer, id, &text));
    *run->offset += count_points(&text);
    ash_str_fini(&text);
}

static void write_cell(const struct run *run, enum column column, size_t i, struct ash_str *out)
{
    bool has_logprob = false;
    struct ash_token token = run_token(run, i, &has_logprob);

    if (column == COLUMN_TOKENS)
        ash_openai_write_token(run->api, NULL, token.id, out);
    else if (column == COLUMN_OFFSETS)
        write_offset(run, token.id, out);
    else if (!has_logprob)
        ash_json_put_null(out, NULL);
    else if (column == COLUMN_LOGPROBS)
        ash_write_float(out, NULL, token.logprob);
    else
        write_top(run, &token, out);
}

static void write_logprobs(const struct run *run, struct ash_str *out)
{
    static const char *const columns[] = {"tokens", "token_logprobs", "top_logprobs", "text_offset"};

    ash_json_put_begin(out, "logprobs", '{');
    for (int column = 0; column < COLUMN_COUNT; column++) {
        ash_json_put_begin(out, columns[column], '[');
        for (size_t i = 0; i < run_count(run); i++)
            write_cell(run, (enum column)column, i, out);
        ash_json_put_end(out, ']');
    }
    ash_json_put_end(out, '}');
}

/* ---- a choice ---------------------------------------------------------------------------------------------------- */

/* The text of the prompt, appended. */
static int add_prompt_text(const struct ash_api_call *call, const struct ash_api_choice *choice, struct ash_str *text)
{
    const struct ash_ids *prompt = &call->prompts.items[choice->prompt_index];
    struct ash_err err = {0};

    return ash_tokenizer_decode(call->api->engine.tokenizer, prompt->data, prompt->count, !call->sampling.keep_special,
                                text, &err);
}

/* A choice with this much of its text and tokens. reason NULL: it continues. is_first: with what echo shows. */
struct part {
    const struct ash_delta *delta;
    const char *reason;
    bool is_first;
    size_t index;
};

static void write_text(struct ash_api_call *call, struct ash_api_choice *choice, const struct part *part,
                       struct ash_str *out)
{
    const struct completion *completion = call->state;
    struct ash_str text = {0};

    if (part->is_first && completion->has_echo) ash_str_fail(out, add_prompt_text(call, choice, &text));
    ash_str_fail(out, ash_str_add(&text, part->delta->text, part->delta->size_bytes));
    ash_json_put_string(out, "text", text.data, text.size_bytes);
    ash_str_fini(&text);
}

static void write_run(struct ash_api_call *call, struct ash_api_choice *choice, const struct part *part,
                      struct ash_str *out)
{
    const struct completion *completion = call->state;
    struct run run = {.api = call->api,
                      .tokens = part->delta->tokens,
                      .count = part->delta->token_count,
                      .top = call->sampling.top_logprobs > 0 ? (size_t)call->sampling.top_logprobs : 0,
                      .offset = &completion->offsets[choice->index]};

    if (!completion->has_logprobs) {
        ash_json_put_null(out, "logprobs");
        return;
    }
    if (part->is_first && completion->has_echo) {
        run.prompt = &call->prompts.items[choice->prompt_index];
        run.prompt_tokens = ash_token_list_view(&choice->prompt_tokens);
    }
    write_logprobs(&run, out);
}

/* vLLM's extra fields, if requested: log-probabilities of the prompt, and ids. */
static void write_extras(struct ash_api_call *call, struct ash_api_choice *choice, const struct part *part,
                         struct ash_str *out)
{
    const struct ash_ids *prompt = &call->prompts.items[choice->prompt_index];

    if (part->is_first && call->sampling.prompt_logprobs >= 0) ash_openai_write_prompt_logprobs(call->api, choice, out);
    if (!call->sampling.returns_ids) return;
    ash_openai_write_token_ids("token_ids", part->delta->tokens, part->delta->token_count, out);
    if (part->is_first) ash_openai_write_ids("prompt_token_ids", prompt->data, prompt->count, out);
}

static void write_part(struct ash_api_call *call, struct ash_api_choice *choice, const struct part *part,
                       struct ash_str *out)
{
    ash_json_put_begin(out, NULL, '{');
    ash_json_put_int(out, "index", (int64_t)part->index);
    write_text(call, choice, part, out);
    write_run(call, choice, part, out);
    write_extras(call, choice, part, out);
    ash_json_put_text(out, "finish_reason", part->reason);
    if (part->reason != NULL) ash_openai_write_stop_reason(call, choice, out);
    ash_json_put_end(out, '}');
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

static int by_logprob(const void *a, const void *b)
{
    const struct ash_api_choice *x = *(const struct ash_api_choice *const *)a;
    const struct ash_api_choice *y = *(const struct ash_api_choice *const *)b;
    double mx = ash_api_choice_logprob(x), my = ash_api_choice_logprob(y);

    if (mx != my) return mx > my ? -1 : 1;
    return x->index < y->index ? -1 : 1;
}

/* Put the answer that counts first. */
static int put_chosen_first(struct ash_api_call *call, size_t prompt, struct ash_api_choice **order)
{
    size_t count = call->sampling.best_of, chosen = 0;
    const char **texts = calloc(count, sizeof(*texts));
    int rc = texts != NULL ? 0 : -ENOMEM;

    for (size_t i = 0; rc == 0 && i < count; i++)
        texts[i] = order[i]->text.data != NULL ? order[i]->text.data : "";
    if (rc == 0) rc = ash_strategy_choose(call, prompt, texts, &chosen);
    order[0] = &call->choices[prompt * count + chosen];
    free(texts);
    return rc;
}

/* The n best of the best_of answers to a prompt, by log-probability if there are more than n; or the one that a
 * strategy chooses. */
static void write_best(struct ash_api_call *call, size_t prompt, struct ash_str *out)
{
    size_t n = call->sampling.n, most = call->sampling.best_of;
    struct ash_api_choice **order = calloc(most, sizeof(*order));
    int rc = order != NULL ? 0 : -ENOMEM;

    for (size_t i = 0; i < most && rc == 0; i++)
        order[i] = &call->choices[prompt * most + i];
    if (rc == 0 && call->sampling.strategy != ASH_STRATEGY_GREEDY)
        rc = put_chosen_first(call, prompt, order);
    else if (rc == 0 && most > n)
        qsort(order, most, sizeof(*order), by_logprob);
    for (size_t i = 0; i < n && rc == 0; i++) {
        struct ash_api_choice *choice = order[i];
        struct ash_delta delta = {choice->text.data != NULL ? choice->text.data : "", choice->text.size_bytes,
                                  ash_token_list_view(&choice->tokens), choice->tokens.count, 0};

        write_part(call, choice, &(struct part){&delta, ash_api_choice_reason(choice), true, prompt * n + i}, out);
    }
    free(order);
    ash_str_fail(out, rc);
}

static int write_all(struct ash_api_call *call, struct ash_str *out)
{
    ash_openai_write_head(call, OBJECT, out);
    ash_json_put_begin(out, "choices", '[');
    for (size_t i = 0; i < call->prompts.count; i++)
        write_best(call, i, out);
    ash_json_put_end(out, ']');
    ash_openai_write_usage(call, out);
    ash_json_put_end(out, '}');
    return out->rc;
}

/* ---- the stream -------------------------------------------------------------------------------------------------- */

static int write_event(struct ash_api_call *call, struct ash_api_choice *choice, const struct part *part,
                       struct ash_str *out)
{
    ash_event_begin(out);
    ash_openai_write_head(call, OBJECT, out);
    ash_json_put_begin(out, "choices", '[');
    write_part(call, choice, part, out);
    ash_json_put_end(out, ']');
    ash_openai_write_running_usage(call, out);
    ash_json_put_end(out, '}');
    return ash_event_end(out);
}

static int write_start(struct ash_api_call *call, struct ash_str *out)
{
    (void)call, (void)out;
    return 0;
}

/* The first event of a choice; choice->parser remembers that it was written. */
static bool take_first(struct ash_api_choice *choice)
{
    bool is_first = choice->parser == NULL;

    choice->parser = choice->call;
    return is_first;
}

static int write_delta(struct ash_api_call *call, struct ash_api_choice *choice, const struct ash_delta *delta,
                       struct ash_str *out)
{
    return write_event(call, choice, &(struct part){delta, NULL, take_first(choice), choice->index}, out);
}

static int write_finish(struct ash_api_call *call, struct ash_api_choice *choice, struct ash_str *out)
{
    struct ash_delta none = {.text = ""};

    return write_event(call, choice,
                       &(struct part){&none, ash_api_choice_reason(choice), take_first(choice), choice->index}, out);
}

static int write_end(struct ash_api_call *call, struct ash_str *out)
{
    ash_openai_write_end(call, OBJECT, out);
    return out->rc;
}

/* ---- the request ------------------------------------------------------------------------------------------------- */

static void read_logprobs(struct ash_api_call *call, struct ash_api_request *request, struct completion *completion)
{
    const json_t *value = ash_fields_any(&request->fields, "logprobs");
    int64_t top = json_is_boolean(value)
                      ? (json_is_true(value) ? 0 : -1)
                      : ash_fields_int(&request->fields, "logprobs", 0, ASH_SAMPLING_LOGPROBS_MAX, -1);

    completion->has_logprobs = top >= 0;
    call->sampling.top_logprobs = (int)top;
    if (completion->has_echo && completion->has_logprobs && call->sampling.prompt_logprobs < top)
        call->sampling.prompt_logprobs = (int)top;
}

static void read_best_of(struct ash_api_call *call, struct ash_api_request *request)
{
    struct ash_sampling *sampling = &call->sampling;

    sampling->best_of = (size_t)ash_fields_int(&request->fields, "best_of", (int64_t)sampling->n,
                                               (int64_t)request->api->opts.choices_max, (int64_t)sampling->n);
    if (call->is_stream && sampling->best_of > sampling->n)
        ash_fields_wrong(&request->fields, "best_of", "cannot be streamed: which answers are best is known at the end");
}

static void read_request(struct ash_api_call *call, struct ash_api_request *request)
{
    static const char *const max_keys[] = {"max_tokens", "max_completion_tokens", "n_predict", NULL};
    struct completion *completion = call->state;
    struct ash_fields *fields = &request->fields;

    ash_api_check_model(request);
    ash_openai_read_stream(call, request);
    ash_sampling_read(&call->sampling, request, ASH_DIALECT_OPENAI);
    ash_sampling_read_stops(&call->sampling, request, "stop");
    ash_sampling_read_max(&call->sampling, request, max_keys, MAX_TOKENS_DEFAULT);
    completion->has_echo = ash_fields_bool(fields, "echo", false);
    read_logprobs(call, request, completion);
    read_best_of(call, request);
    ash_sampling_read_strategy(&call->sampling, request, call->is_stream);
    if (ash_fields_string(fields, "suffix") != NULL && ash_fields_string(fields, "suffix")[0] != '\0')
        ash_fields_wrong(fields, "suffix", "is not supported here: POST /infill fills a gap in a text");
    ash_api_grammars_read(call, request);
    ash_prompts_read(&call->prompts, request, "prompt", ash_fields_bool(fields, "add_special_tokens", true));
    if (request->err.status == 0) ash_prompts_fit(&call->prompts, request, &call->sampling, "prompt");
    ash_api_check_unknown(request);
    if (request->err.status != 0) return;
    completion->offsets = calloc(call->prompts.count * call->sampling.best_of, sizeof(*completion->offsets));
    if (completion->offsets == NULL)
        ash_api_err_set(&request->err, 503, "out_of_memory", NULL, "no memory for the request");
}

static const struct ash_form form = {.write = write_all,
                                     .write_start = write_start,
                                     .write_delta = write_delta,
                                     .write_finish = write_finish,
                                     .write_end = write_end,
                                     .free_state = free_state,
                                     .id_prefix = "cmpl-",
                                     .state_bytes = sizeof(struct completion),
                                     .read = read_request};

void ash_api_completions(void *ctx, struct ash_http_exchange *exchange)
{
    ash_call_serve(&form, ctx, exchange);
}
