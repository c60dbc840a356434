/* What a call came to: why a choice ended, or failed; tokens of prompts, of answers, of the thoughts among these. */
#include <errno.h>
#include <stdio.h>

#include "serve/api/api_priv.h"
#include "serve/api/call.h"

const char *ash_api_choice_reason(const struct ash_api_choice *choice)
{
    return choice->has_stopped ? "stop" : ash_finish_reason(choice->end.finish);
}

int ash_api_choice_open_decoder(const struct ash_api_choice *choice, struct ash_decoder **decoder_out,
                                struct ash_err *err)
{
    const struct ash_api_call *call = choice->call;
    int rc = ash_decoder_open(call->api->engine.tokenizer, !call->sampling.keep_special, decoder_out, err);

    return rc < 0 ? rc : ash_decoder_start(*decoder_out, choice->request.prompt, choice->request.prompt_count, err);
}

/* Tokens whose text begins before the end of the thoughts, on the thread that writes. Without memory: 0. */
static size_t count_thoughts(const struct ash_api_choice *choice)
{
    struct ash_decoder *decoder = NULL;
    struct ash_str text = {0};
    struct ash_err err = {0};
    size_t count = 0;
    int rc;

    if (!choice->is_done || choice->thought_bytes == 0) return 0;
    rc = ash_api_choice_open_decoder(choice, &decoder, &err);
    for (; rc == 0 && count < choice->tokens.count && text.size_bytes < choice->thought_bytes; count++)
        rc = ash_decoder_push(decoder, choice->tokens.items[count].id, &text, &err);
    ash_decoder_close(decoder);
    ash_str_fini(&text);
    return rc == 0 ? count : 0;
}

/* With the lock held. */
static struct ash_usage count_usage(const struct ash_api_call *call)
{
    struct ash_usage usage = {0};

    for (size_t i = 0; i < call->prompts.count; i++)
        usage.prompt_tokens += call->prompts.items[i].count;
    for (size_t i = 0; i < call->choice_count; i++) {
        const struct ash_api_choice *choice = &call->choices[i];

        usage.answer_tokens += choice->tokens.count;
        if (i % call->sampling.best_of == 0) usage.cached_tokens += choice->end.cached_tokens;
    }
    return usage;
}

struct ash_usage ash_call_usage(struct ash_api_call *call)
{
    struct ash_usage usage;

    pthread_mutex_lock(&call->lock);
    usage = count_usage(call);
    for (size_t i = 0; i < call->choice_count; i++)
        usage.thought_tokens += count_thoughts(&call->choices[i]);
    pthread_mutex_unlock(&call->lock);
    return usage;
}

void ash_call_note_usage(struct ash_api_call *call)
{
    struct ash_usage usage = count_usage(call);
    bool has_failed = call->err.status != 0;
    char text[128];

    snprintf(text, sizeof(text), "prompt_tokens=%zu cached_tokens=%zu answer_tokens=%zu%s%s", usage.prompt_tokens,
             usage.cached_tokens, usage.answer_tokens, has_failed ? " error=" : "", has_failed ? call->err.code : "");
    ash_http_note(call->exchange, text);
    ash_key_take_tokens(ash_http_key(call->exchange), (double)(usage.prompt_tokens + usage.answer_tokens));
}

void ash_call_note_failure(struct ash_api_call *call, const struct ash_api_choice *choice)
{
    const struct ash_request_end *end = &choice->end;
    bool is_cut = end->finish == ASH_FINISH_CANCELLED && !call->has_gone && !choice->has_stopped;

    if (call->err.status != 0 || (end->rc >= 0 && !(is_cut && atomic_load(&call->api->is_draining)))) return;
    call->has_failed = true;
    if (end->rc >= 0)
        ash_api_err_set(&call->err, 503, "shutting_down", NULL,
                        "the server is shutting down, and the time for answers is over: try again");
    else if (end->rc == -ECONNRESET) /* a rank is lost, and the server ends: a router continues elsewhere */
        ash_api_err_set(&call->err, 503, "shutting_down", NULL, "the server ends: %s", end->err.text);
    else if (end->rc == -E2BIG)
        ash_api_err_set(&call->err, 400, "invalid_grammar", NULL, "%s", end->err.text);
    else
        ash_api_err_set(&call->err, end->rc == -ENOMEM ? 503 : 500, "engine_error", NULL, "%s", end->err.text);
}
