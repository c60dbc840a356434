/* Tokens become text here, on the engine's thread, because a stop string must end the answer with the token that
 * completes it. Everything else that a form does with text is left to the thread that writes. */
#include "serve/api/take.h"

#include <string.h>

#include "base/array.h"
#include "serve/api/metrics.h"

/* The length of the stop string that begins at text and ends first; *index_out is its number. */
static size_t stop_at(const struct ash_stops *stops, const char *text, size_t size_bytes, size_t *index_out)
{
    size_t shortest = 0;

    for (size_t i = 0; i < stops->count; i++) {
        size_t bytes = strlen(stops->items[i]);

        if (bytes > size_bytes || memcmp(text, stops->items[i], bytes) != 0) continue;
        if (shortest != 0 && bytes >= shortest) continue;
        shortest = bytes;
        *index_out = i;
    }
    return shortest;
}

/* Move the text that can no longer change from held to text. Returns 1 when a stop string was found, 0 or -ENOMEM. */
static int release(struct ash_api_choice *choice, bool is_last)
{
    const struct ash_sampling *sampling = &choice->call->sampling;
    struct ash_str *held = &choice->held;
    bool is_found = false, looks = choice->tokens.count > sampling->min_tokens;
    size_t given = looks ? ash_stops_scan(&sampling->stops, held->data, held->size_bytes, &is_found) : held->size_bytes;
    int rc;

    if (is_found) {
        size_t bytes = stop_at(&sampling->stops, held->data + given, held->size_bytes - given, &choice->stop_index);

        choice->has_stopped = true;
        if (sampling->shows_stop) given += bytes;
    } else if (is_last) {
        given = held->size_bytes; /* nothing will complete a stop string any more */
    }
    if (given == 0) return is_found;
    rc = ash_str_add(&choice->text, held->data, given);
    if (rc < 0) return rc;
    held->size_bytes -= given;
    memmove(held->data, held->data + given, held->size_bytes + 1);
    return is_found;
}

/* The record and the text of a token. Returns as release. */
static int add_token(struct ash_api_choice *choice, const struct ash_token *token, struct ash_err *err)
{
    bool has_ends = choice->call->frames_tokens;
    size_t count = choice->tokens.count;
    int rc = has_ends ? ash_array_reserve(&choice->ends, &choice->end_capacity, count + 1, sizeof(*choice->ends)) : 0;

    if (rc == 0) rc = ash_token_list_add(&choice->tokens, token);
    if (rc == 0 && has_ends) choice->ends[count] = choice->text.size_bytes;
    if (rc == 0) rc = ash_decoder_push(choice->decoder, token->id, &choice->held, err);
    if (rc == 0) rc = release(choice, false);
    if (rc >= 0 && has_ends) choice->ends[count] = choice->text.size_bytes;
    return rc;
}

struct ash_frame ash_api_choice_frame(const struct ash_api_choice *choice)
{
    const struct ash_api_call *call = choice->call;
    struct ash_frame all = {choice->text.size_bytes, choice->tokens.count, choice->is_done};

    if (!call->frames_tokens) return all;
    for (size_t i = choice->sent_tokens; i < choice->tokens.count; i++)
        if (choice->ends[i] > choice->sent_bytes || call->form->wants_every_token)
            return (struct ash_frame){choice->ends[i], i + 1, false};
    return choice->is_done ? all : (struct ash_frame){choice->sent_bytes, choice->sent_tokens, false};
}

int ash_api_choice_take(void *ctx, const struct ash_token *token)
{
    struct ash_api_choice *choice = ctx;
    struct ash_api_call *call = choice->call;
    struct ash_err err = {0};
    size_t before;
    bool is_new;
    int rc;

    pthread_mutex_lock(&call->lock);
    before = choice->text.size_bytes;
    if (choice->tokens.count == 0) choice->end.cached_tokens = choice->request.end.cached_tokens;
    rc = add_token(choice, token, &err);
    is_new = choice->text.size_bytes > before || call->form->wants_every_token ||
             (call->form->waits_for_prompt && choice->tokens.count == 1);
    if (rc < 0 && call->err.status == 0) {
        call->has_failed = true;
        ash_api_err_set(&call->err, 503, "out_of_memory", NULL, "no memory for the answer");
    }
    pthread_mutex_unlock(&call->lock);
    if (call->fingerprint == 0) call->fingerprint = call->api->fingerprint;
    ash_api_metrics_token(call->api->metrics, choice);
    if (call->is_stream && is_new) ash_http_wake(call->exchange);
    return rc != 0;
}

void ash_api_choice_take_prompt(void *ctx, size_t index, const struct ash_token *token)
{
    struct ash_api_choice *choice = ctx;

    (void)index; /* ascending, so the list has the place */
    pthread_mutex_lock(&choice->call->lock);
    if (ash_token_list_add(&choice->prompt_tokens, token) < 0 && choice->call->err.status == 0) {
        choice->call->has_failed = true;
        ash_api_err_set(&choice->call->err, 503, "out_of_memory", NULL, "no memory for the answer");
    }
    pthread_mutex_unlock(&choice->call->lock);
}

void ash_api_choice_end(struct ash_api_choice *choice)
{
    struct ash_err err = {0};

    if (choice->has_stopped || choice->end.rc < 0) return;
    if (ash_decoder_finish(choice->decoder, &choice->held, &err) == 0) (void)release(choice, true);
}
