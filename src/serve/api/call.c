/* Calls. Lock order: the call's lock, then the engine's queue. Callbacks of the engine never wait for a client. */
#include "serve/api/call.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/math.h"
#include "serve/api/apart.h"
#include "serve/api/metrics.h"
#include "serve/api/take.h"
#include "serve/grammar/grammar.h"

/* ---- life -------------------------------------------------------------------------------------------------------- */

struct ash_api_call *ash_call_open(struct ash_api_request *request, const struct ash_form *form, const char *prefix)
{
    struct ash_api_call *call = calloc(1, sizeof(*call));

    if (call == NULL) {
        ash_api_err_set(&request->err, 503, "out_of_memory", NULL, "no memory for the request");
        return NULL;
    }
    call->api = request->api;
    call->exchange = request->exchange;
    call->form = form;
    call->refs = 1;
    call->frames_tokens = request->resumable.is_set;
    call->created_s = request->resumable.is_set ? request->resumable.created_s : (int64_t)ash_clock_wall_s();
    pthread_mutex_init(&call->lock, NULL);
    snprintf(call->id, sizeof(call->id), "%s%s", prefix, ash_http_id(request->exchange));
    snprintf(call->model, sizeof(call->model), "%s", ash_api_model_name(request));
    ash_api_read_blocks(request, &call->blocks);
    call->adapter = ash_adapters_hold(call->api->engine.adapters, ash_api_find_adapter(request));
    ash_http_exchange_get(call->exchange);
    atomic_fetch_add(&call->api->calls, 1);
    return call;
}

static void free_choice(struct ash_api_choice *choice)
{
    ash_decoder_close(choice->decoder);
    ash_str_fini(&choice->held);
    ash_str_fini(&choice->text);
    ash_token_list_fini(&choice->tokens);
    ash_token_list_fini(&choice->prompt_tokens);
    free(choice->ends);
    free(choice->hidden);
}

void ash_call_close(struct ash_api_call *call)
{
    if (call == NULL) return;
    if (call->form->free_state != NULL) call->form->free_state(call);
    for (size_t i = 0; i < call->choice_count; i++)
        free_choice(&call->choices[i]);
    free(call->choices);
    ash_sampling_fini(&call->sampling);
    ash_prompts_fini(&call->prompts);
    ash_prompt_blocks_fini(&call->blocks);
    ash_grammar_put(call->grammar);
    ash_adapters_put(call->api->engine.adapters, call->adapter);
    ash_str_fini(&call->piece);
    ash_token_list_fini(&call->piece_tokens);
    atomic_fetch_sub(&call->api->calls, 1);
    ash_http_exchange_put(call->exchange);
    pthread_mutex_destroy(&call->lock);
    free(call);
}

static void put_call(struct ash_api_call *call)
{
    if (atomic_fetch_sub(&call->refs, 1) == 1) ash_call_close(call);
}

/* ---- the response ------------------------------------------------------------------------------------------------ */

/* All choices are done: on a worker thread, because a long answer takes long to write. */
static void respond(void *ctx)
{
    struct ash_api_call *call = ctx;
    struct ash_str body = {0};
    int rc;

    if (call->err.status != 0) {
        ash_api_respond_err(call->exchange, &call->err);
    } else {
        rc = call->form->write(call, &body);
        if (call->err.status != 0) /* found while it was written */
            ash_api_respond_err(call->exchange, &call->err);
        else
            ash_api_respond_text(call->exchange, rc, &body);
        ash_str_fini(&body);
    }
    put_call(call);
}

/* ---- the stream -------------------------------------------------------------------------------------------------- */

int ash_event_begin(struct ash_str *out)
{
    return ash_str_adds(out, "data: ");
}

int ash_event_end(struct ash_str *out)
{
    return ash_str_adds(out, "\n\n");
}

/* Copy the news of a choice. Returns 1 when they are the last, 0 or -ENOMEM. */
static int copy_new(struct ash_api_call *call, struct ash_api_choice *choice)
{
    struct ash_frame frame;
    int rc = 0;

    ash_str_clear(&call->piece);
    pthread_mutex_lock(&call->lock);
    frame = ash_api_choice_frame(choice);
    if (choice->text.data != NULL)
        rc = ash_str_add(&call->piece, choice->text.data + choice->sent_bytes, frame.text_end - choice->sent_bytes);
    if (rc == 0) rc = ash_token_list_copy(&call->piece_tokens, &choice->tokens, choice->sent_tokens, frame.token_end);
    if (rc == 0) rc = frame.is_last;
    pthread_mutex_unlock(&call->lock);
    return rc;
}

static bool has_failed(struct ash_api_call *call)
{
    bool failed;

    pthread_mutex_lock(&call->lock);
    failed = call->has_failed;
    pthread_mutex_unlock(&call->lock);
    return failed;
}

/* Was the prompt of the first choice computed? */
static bool has_begun(struct ash_api_call *call)
{
    bool begun;

    pthread_mutex_lock(&call->lock);
    begun = call->choices[0].is_done || call->choices[0].tokens.count > 0;
    pthread_mutex_unlock(&call->lock);
    return begun;
}

/* One event of a choice. Returns 1 if another may follow at once, 0 or a negative errno. */
static int write_frame(struct ash_api_call *call, struct ash_api_choice *choice, struct ash_str *out)
{
    struct ash_delta delta;
    bool is_done, wants_tokens = call->form->wants_every_token;
    int rc = copy_new(call, choice);

    if (rc < 0) return rc;
    is_done = rc == 1;
    delta = (struct ash_delta){.text = call->piece.data != NULL ? call->piece.data : "",
                               .size_bytes = call->piece.size_bytes,
                               .tokens = ash_token_list_view(&call->piece_tokens),
                               .token_count = call->piece_tokens.count,
                               .first_token = choice->sent_tokens};
    rc = 0;
    /* tokens whose text is held back come with a good end alone: a router has none of them repeated elsewhere */
    if (delta.size_bytes > 0 || (delta.token_count > 0 && (wants_tokens || (is_done && !has_failed(call))))) {
        choice->sent_bytes += delta.size_bytes;
        choice->sent_tokens += delta.token_count;
        rc = call->form->write_delta(call, choice, &delta, out);
    }
    if (rc < 0) return rc;
    if (!is_done) return call->frames_tokens && delta.token_count > 0;
    choice->is_finished = true;
    return has_failed(call) ? 0 : call->form->write_finish(call, choice, out);
}

static int write_new(struct ash_api_call *call, struct ash_api_choice *choice, struct ash_str *out)
{
    int rc = 1;

    while (rc > 0)
        rc = write_frame(call, choice, out);
    return rc;
}

static int write_error(struct ash_api_call *call, struct ash_str *out)
{
    if (call->form->stream_type != NULL) {
        ash_api_err_write(&call->err, ash_http_path(call->exchange), ash_http_id(call->exchange), out);
        return ash_str_adds(out, "\n");
    }
    if (strncmp(ash_http_path(call->exchange), "/v1/messages", 12) == 0) ash_str_adds(out, "event: error\n");
    ash_event_begin(out);
    ash_api_err_write(&call->err, ash_http_path(call->exchange), ash_http_id(call->exchange), out);
    return ash_event_end(out);
}

/* What libmicrohttpd's thread pulls. */
static int read_stream(void *ctx, struct ash_str *out)
{
    struct ash_api_call *call = ctx;
    size_t finished = 0;
    int rc = 0;

    if (!call->has_started && call->form->waits_for_prompt && !has_begun(call)) return 1;
    if (!call->has_started) rc = call->form->write_start(call, out);
    call->has_started = true;
    for (size_t i = 0; i < call->choice_count && rc == 0; i++) {
        if (!call->choices[i].is_finished) rc = write_new(call, &call->choices[i], out);
        finished += call->choices[i].is_finished;
    }
    if (rc < 0 || finished < call->choice_count) return rc < 0 ? rc : 1;
    if (has_failed(call)) {
        rc = write_error(call, out);
        return rc < 0 ? rc : 0;
    }
    rc = call->form->write_end(call, out);
    return rc < 0 ? rc : 0;
}

/* ---- the engine's callbacks -------------------------------------------------------------------------------------- */

static void done(void *ctx, const struct ash_request_end *end)
{
    struct ash_api_choice *choice = ctx;
    struct ash_api_call *call = choice->call;
    bool is_last;

    pthread_mutex_lock(&call->lock);
    choice->end = *end;
    ash_api_choice_end(choice);
    choice->is_done = true;
    call->done_count++;
    ash_call_note_failure(call, choice);
    is_last = call->done_count == call->choice_count;
    ash_api_metrics_done(call->api->metrics, choice);
    if (is_last) ash_call_note_usage(call);
    pthread_mutex_unlock(&call->lock);
    if (call->is_stream)
        ash_http_wake(call->exchange);
    else if (is_last) {
        ash_http_post(call->exchange, respond, call); /* takes this choice's reference */
        return;
    }
    put_call(call);
}

/* The client has gone: the rest is not needed. */
static void cancel_all(struct ash_api_call *call)
{
    pthread_mutex_lock(&call->lock);
    call->has_gone = true;
    for (size_t i = 0; i < call->choice_count; i++)
        if (call->choices[i].is_submitted && !call->choices[i].is_done)
            call->api->engine.cancel(call->api->engine.ctx, &call->choices[i].request);
    pthread_mutex_unlock(&call->lock);
}

static void gone(void *ctx)
{
    cancel_all(ctx);
}

static void ended(void *ctx)
{
    put_call(ctx);
}

/* ---- submitting -------------------------------------------------------------------------------------------------- */

/* Keys and values of an adapter are its own. */
static uint64_t salt_of(const struct ash_api_call *call)
{
    const struct ash_served_adapter *adapter = call->adapter;

    if (adapter == NULL) return call->sampling.salt;
    return ash_hash_bytes(&adapter->hash, sizeof(adapter->hash), call->sampling.salt);
}

static void number_choice(struct ash_api_call *call, size_t i)
{
    const struct ash_sampling *sampling = &call->sampling;
    struct ash_api_choice *choice = &call->choices[i];

    choice->call = call;
    choice->think = ash_think_start(&call->api->think_words, sampling->think_min, sampling->think_max);
    choice->index = i;
    choice->prompt_index = i / sampling->best_of;
}

static int init_choice(struct ash_api_call *call, size_t i, struct ash_err *err)
{
    struct ash_sampling *sampling = &call->sampling;
    struct ash_api_choice *choice = &call->choices[i];
    const struct ash_ids *prompt = &call->prompts.items[i / sampling->best_of];
    size_t room = call->api->engine.context_tokens - prompt->count;
    size_t most = sampling->max_tokens == ASH_SAMPLING_UNLIMITED ? room : ash_min(sampling->max_tokens, room);

    choice->request = (struct ash_request){
        .prompt = prompt->data,
        .prompt_count = prompt->count,
        .sampler = ash_sampling_of(sampling, i % sampling->best_of),
        .min_tokens = sampling->min_tokens,
        .max_tokens = most,
        .stop_ids = sampling->stop_ids.data,
        .stop_id_count = sampling->stop_ids.count,
        .bias = sampling->bias,
        .bias_count = sampling->bias_count,
        .allowed = sampling->allowed.data,
        .allowed_count = sampling->allowed.count,
        .grammar = call->grammar,
        .think = &choice->think,
        .wants_logprobs = sampling->top_logprobs >= 0 || sampling->best_of > sampling->n,
        .top_logprobs = sampling->top_logprobs > 0 ? (size_t)sampling->top_logprobs : 0,
        .wants_prompt_logprobs = sampling->prompt_logprobs >= 0,
        .prompt_top_logprobs = sampling->prompt_logprobs > 0 ? (size_t)sampling->prompt_logprobs : 0,
        .priority = sampling->priority,
        .owner = ash_key_id(ash_http_key(call->exchange)),
        .salt = salt_of(call),
        .adapters = call->adapter != NULL ? call->adapter->set.adapters : NULL,
        .skips_cache = sampling->skips_cache,
        .take = ash_api_choice_take,
        .take_prompt = ash_api_choice_take_prompt,
        .done = done,
        .ctx = choice,
        .id = call->id};
    ash_call_set_states(choice);
    if (call->prompts.count == 1 && sampling->truncate_tokens == 0) choice->request.blocks = &call->blocks;
    ash_call_set_apart(call, &choice->request);
    return ash_api_choice_open_decoder(choice, &choice->decoder, err);
}

static int prepare(struct ash_api_call *call, struct ash_err *err)
{
    int rc = 0;

    if (call->grammar != NULL && !call->is_thinking && (call->sampling.think_min > 0 || call->sampling.think_max > 0))
        return ash_err_set(err, -EINVAL, "think_min and think_max: constrained output leaves no place for thoughts");
    call->choice_count = call->prompts.count * call->sampling.best_of;
    ash_assert(call->choice_count > 0);
    if (call->choices == NULL) call->choices = calloc(call->choice_count, sizeof(*call->choices));
    if (call->choices == NULL) {
        call->choice_count = 0;
        return ash_err_set(err, -ENOMEM, "no memory for the request");
    }
    for (size_t i = 0; rc == 0 && i < call->choice_count; i++) {
        number_choice(call, i);
        rc = init_choice(call, i, err);
    }
    return rc;
}

/* Submit the choices one by one; a failure cancels those before it. Returns 0 or the failure. */
static int submit_all(struct ash_api_call *call, struct ash_err *err)
{
    const struct ash_api_engine *engine = &call->api->engine;
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < call->choice_count; i++) {
        struct ash_api_choice *choice = &call->choices[i];

        atomic_fetch_add(&call->refs, 1);
        pthread_mutex_lock(&call->lock);
        choice->is_submitted = true;
        pthread_mutex_unlock(&call->lock);
        rc = engine->submit(engine->ctx, &choice->request, err);
        if (rc < 0) {
            pthread_mutex_lock(&call->lock);
            choice->is_submitted = false;
            pthread_mutex_unlock(&call->lock);
            atomic_fetch_sub(&call->refs, 1);
        }
    }
    return rc;
}

/* The choices that were submitted lose their reader: when they are done the call is closed. */
static void give_up(struct ash_api_call *call, const struct ash_err *err)
{
    struct ash_api_err shown = {0};

    if (call->err.status != 0)
        shown = call->err;
    else if (err->code == -EOVERFLOW)
        ash_api_err_set(&shown, 400, "context_length_exceeded", "prompt", "%s", err->text);
    else
        ash_api_err_take(&shown, NULL, err);
    ash_api_respond_err(call->exchange, &shown);
    cancel_all(call);
    put_call(call);
}

void ash_call_start(struct ash_api_call *call)
{
    struct ash_err err = {0};
    bool has_gone;
    int rc = ash_call_read_apart(call) ? prepare(call, &err) : -EINVAL;

    if (rc < 0 || !ash_call_may_wait(call)) {
        give_up(call, &err);
        return;
    }
    atomic_fetch_add(&call->refs, 1); /* the exchange's */
    ash_http_on_end(call->exchange, ended, call);
    ash_http_on_gone(call->exchange, gone, call);
    ash_api_metrics_call(call->api->metrics, call);
    rc = submit_all(call, &err);
    if (rc < 0) {
        give_up(call, &err);
        return;
    }
    pthread_mutex_lock(&call->lock);
    has_gone = call->has_gone;
    pthread_mutex_unlock(&call->lock);
    if (has_gone) cancel_all(call); /* it left while we submitted */
    if (call->is_stream && call->frames_tokens) ash_http_add_header(call->exchange, ASH_API_FRAMES_HEADER, "token");
    if (call->wants_pages)
        ash_call_stream_pages(call);
    else if (call->is_stream)
        ash_http_stream(call->exchange, 200,
                        call->form->stream_type != NULL ? call->form->stream_type : ASH_API_EVENT_STREAM, read_stream,
                        call);
    put_call(call);
}

void ash_call_serve(const struct ash_form *form, struct ash_api *api, struct ash_http_exchange *exchange)
{
    struct ash_api_request request;
    struct ash_api_call *call;

    if (!ash_api_request_init(&request, api, exchange)) return;
    call = ash_call_open(&request, form, form->id_prefix);
    if (call != NULL) call->state = calloc(1, form->state_bytes);
    if (call != NULL && call->state != NULL)
        form->read(call, &request);
    else
        ash_api_err_set(&request.err, 503, "out_of_memory", NULL, "no memory for the request");
    if (ash_api_request_failed(&request))
        ash_call_close(call);
    else
        ash_call_start(call);
    ash_api_request_fini(&request);
}
