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
#include "serve/stops.h"

#define PASS_ROWS 256
#define MESSAGES_MAX 1024

/* One prompt and the text of its answer. */
struct item {
    struct batch *batch;
    json_t *id;         /* what the line called it, or NULL */
    struct ash_err err; /* why it has no answer */
    int32_t *ids;       /* the prompt */
    size_t count;
    struct ash_request request; /* to the core */
    struct ash_think think;     /* the budget of its thoughts */
    bool is_done;               /* the core has answered it */
    struct ash_request_end end;
    struct ash_ids answer;
    struct ash_decoder *decoder; /* while it is being answered */
    struct ash_str text;         /* decoded */
    bool has_stopped;            /* text ends before a stop string */
};

struct batch {
    struct ash_generate *generate;
    struct ash_stops stops;
    struct ash_think_words words; /* of the budget, if there is one */
    struct item *items;
    size_t count, capacity;
    size_t context_tokens;
    size_t request_count;   /* items without an error */
    size_t printed, failed; /* items */
    int rc;                 /* why no answer can continue, or 0 */
    struct ash_err err;
};

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static struct item *add_item(struct batch *batch)
{
    if (batch->count == batch->capacity) {
        size_t capacity = batch->capacity == 0 ? 64 : 2 * batch->capacity;
        struct item *items = realloc(batch->items, capacity * sizeof(*items));

        if (items == NULL) return NULL;
        batch->items = items;
        batch->capacity = capacity;
    }
    batch->items[batch->count] = (struct item){0};
    return &batch->items[batch->count++];
}

static int encode_messages(const struct batch *batch, const json_t *list, struct item *item, struct ash_err *err)
{
    struct ash_message messages[MESSAGES_MAX];
    size_t count = json_array_size(list);
    char *rendered = NULL;
    int rc;

    if (count == 0 || count > MESSAGES_MAX)
        return ash_err_set(err, -EINVAL, "'messages' must have 1 to %d messages", MESSAGES_MAX);
    for (size_t i = 0; i < count; i++) {
        const json_t *message = json_array_get(list, i);

        messages[i] = (struct ash_message){json_string_value(json_object_get(message, "role")),
                                           json_string_value(json_object_get(message, "content"))};
        if (messages[i].role == NULL || messages[i].content == NULL)
            return ash_err_set(err, -EINVAL, "message %zu has no text 'role' or no text 'content'", i + 1);
    }
    rc = ash_engine_render_chat(batch->generate->engine, messages, count, &rendered, err);
    if (rc < 0) return rc;
    rc = ash_engine_encode(batch->generate->engine, rendered, false, &item->ids, &item->count, err);
    ash_free(rendered);
    return rc;
}

/* A line of JSON: an object with a prompt or with messages, perhaps with an id. */
static int encode_json(const struct batch *batch, const char *line, size_t number, struct item *item,
                       struct ash_err *err)
{
    const json_t *messages, *prompt;
    json_t *json = NULL;
    int rc = ash_json_parse_line(line, strlen(line), batch->generate->prompts, number, &json, err);

    if (rc < 0) return rc;
    messages = json_object_get(json, "messages");
    prompt = json_object_get(json, "prompt");
    item->id = json_incref(json_object_get(json, "id"));
    if (json_is_array(messages))
        rc = encode_messages(batch, messages, item, err);
    else if (json_is_string(prompt) && strlen(json_string_value(prompt)) == json_string_length(prompt))
        rc = ash_generate_encode(batch->generate, json_string_value(prompt), &item->ids, &item->count, err);
    else
        rc = ash_err_set(err, -EINVAL, "the line has neither a text 'prompt' nor a list 'messages'");
    json_decref(json);
    return rc;
}

static int check_length(const struct batch *batch, const struct item *item, struct ash_err *err)
{
    if (item->count == 0) return ash_err_set(err, -EINVAL, "the prompt is empty: there is nothing to continue");
    if (item->count < batch->context_tokens) return 0;
    return ash_err_set(err, -EOVERFLOW,
                       "the context is full: the prompt has %zu tokens, and prompt and answer together may have %zu",
                       item->count, batch->context_tokens);
}

static int read_line(struct batch *batch, const char *line, size_t number, bool is_json, struct ash_err *err)
{
    struct item *item = add_item(batch);
    int rc;

    if (item == NULL) return ash_err_set(err, -ENOMEM, "no memory for the prompts");
    rc = is_json ? encode_json(batch, line, number, item, &item->err)
                 : ash_generate_encode(batch->generate, line, &item->ids, &item->count, &item->err);
    if (rc == 0) rc = check_length(batch, item, &item->err);
    return rc == -ENOMEM ? ash_err_set(err, rc, "no memory for the prompts") : 0;
}

/* Prompts are the lines that are not blank; a first line that opens an object makes them JSON. */
static int read_prompts(struct batch *batch, struct ash_err *err)
{
    struct ash_str text = {0};
    size_t number = 0;
    bool is_json = false;
    int rc = ash_cmd_read_text(batch->generate->prompts, "the prompts", &text, err);

    if (rc == 0 && strlen(text.data) != text.size_bytes)
        rc =
            ash_err_set(err, -EILSEQ, "the prompts have a NUL byte at offset %zu: this is not text", strlen(text.data));
    for (char *line = text.data, *next; rc == 0 && line != NULL && *line != '\0'; line = next) {
        size_t length = strcspn(line, "\n");

        next = line[length] == '\n' ? line + length + 1 : NULL;
        line[length] = '\0';
        if (length > 0 && line[length - 1] == '\r') line[length - 1] = '\0';
        number++;
        if (line[strspn(line, " \t")] == '\0') continue;
        if (batch->count == 0) is_json = line[strspn(line, " \t")] == '{';
        rc = read_line(batch, line, number, is_json, err);
    }
    ash_str_fini(&text);
    if (rc == 0 && batch->count == 0) rc = ash_err_set(err, -EINVAL, "'%s' has no prompt", batch->generate->prompts);
    return rc;
}

/* ---- answering --------------------------------------------------------------------------------------------------- */

/* Cut the text before a stop string. What is left may still begin one, unless it is the end. */
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
        if (rc == 0) rc = ash_decoder_start(item->decoder, item->ids, item->count, err);
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

    if (batch->rc == 0) batch->rc = add_text(item, token->id, &batch->err);
    return batch->rc < 0 || item->has_stopped;
}

static void take_end(void *ctx, const struct ash_request_end *end)
{
    struct item *item = ctx;

    item->is_done = true;
    item->end = *end;
    if (end->rc == 0 || item->batch->rc < 0) return;
    item->batch->rc = end->rc;
    item->batch->err = end->err;
}

/* The answer is over: what the decoder held comes out. */
static int finish_text(struct item *item, struct ash_err *err)
{
    int rc = 0;

    if (item->decoder != NULL && !item->has_stopped) rc = ash_decoder_finish(item->decoder, &item->text, err);
    if (rc == 0 && !item->has_stopped) {
        look_for_stop(item);
        if (item->has_stopped) item->end.finish = ASH_FINISH_STOP;
    }
    ash_decoder_close(item->decoder);
    item->decoder = NULL;
    return rc;
}

/* Tokens of an answer: until the context is full, unless fewer are asked for. */
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
    sampler.seed = answer->seed;
    for (size_t i = 0; i < batch->count; i++) {
        struct item *item = &batch->items[i];

        item->batch = batch;
        if (item->err.code != 0) continue;
        item->think =
            ash_think_start(&batch->words, (size_t)batch->generate->think_min, (size_t)batch->generate->think_max);
        item->request = (struct ash_request){.prompt = item->ids,
                                             .prompt_count = item->count,
                                             .sampler = sampler,
                                             .max_tokens = asked_tokens(batch),
                                             .stop_ids = defaults->eos,
                                             .stop_id_count = defaults->eos_count,
                                             .think = &item->think,
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
    return json_pack("{s:I, s:O*, s:s}", "index", (json_int_t)index, "id", item->id, "error", item->err.text);
}

static json_t *answer_json(struct item *item, size_t index)
{
    enum ash_finish finish = item->end.finish;

    if (item->end.stop_id >= 0 && ash_ids_add(&item->answer, item->end.stop_id) < 0)
        return NULL; /* as for one prompt */
    return json_pack("{s:I, s:O*, s:s%, s:o, s:s, s:s, s:{s:I, s:I}}", "index", (json_int_t)index, "id", item->id,
                     "text", item->text.data != NULL ? item->text.data : "", item->text.size_bytes, "ids",
                     ash_generate_ids_json(item->answer.data, item->answer.count), "finish_reason",
                     ash_finish_reason(finish), "finish_detail", ash_generate_finish_detail(finish), "usage",
                     "prompt_tokens", (json_int_t)item->count, "answer_tokens", (json_int_t)item->answer.count);
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

/* Print what is done up to the first item that is not. */
static int print_done(struct batch *batch, struct ash_err *err)
{
    int rc = 0;

    for (; rc == 0 && batch->printed < batch->count; batch->printed++) {
        struct item *item = &batch->items[batch->printed];

        if (item->err.code != 0) {
            batch->failed++;
            rc = print_line(error_json(item, batch->printed), err);
            continue;
        }
        if (!item->is_done) break;
        rc = finish_text(item, err);
        if (rc == 0) rc = print_line(answer_json(item, batch->printed), err);
        ash_str_fini(&item->text);
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
    };

    for (size_t i = 0; i < batch->count; i++) {
        size_t count = batch->items[i].count, room = batch->context_tokens - ash_min(count, batch->context_tokens);

        if (batch->items[i].err.code == 0)
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
        ash_progress_bar_count(&progress, batch->printed, batch->count, "prompts");
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

        json_decref(item->id);
        ash_free(item->ids);
        ash_ids_fini(&item->answer);
        ash_decoder_close(item->decoder);
        ash_str_fini(&item->text);
    }
    ash_stops_fini(&batch->stops);
    ash_think_words_fini(&batch->words);
    free(batch->items);
}

int ash_generate_batch(struct ash_generate *generate)
{
    size_t most = ash_engine_context(generate->engine);
    struct batch batch = {.generate = generate, .context_tokens = most};
    struct ash_err err = {0};
    int rc, code;

    if (generate->context > 0) batch.context_tokens = ash_min((size_t)generate->context, most);
    rc = ash_stops_init(&batch.stops, generate->stop.items, generate->stop.count, &err);
    if (rc == 0) rc = find_words(&batch, &err);
    if (rc == 0) rc = read_prompts(&batch, &err);
    for (size_t i = 0; i < batch.count; i++)
        batch.request_count += batch.items[i].err.code == 0;
    if (rc == 0) rc = batch.request_count > 0 ? answer_all(&batch, &err) : print_done(&batch, &err);
    code = rc == -ECANCELED ? ash_cmd_stopped() : rc < 0 ? ash_cmd_fail(&err) : batch.failed > 0;
    fini_batch(&batch);
    return code;
}
