/* call - a request that generates, from submission to its last byte: choices that the engine fills with tokens, and
 * the form that writes them. The engine's thread turns tokens into text and looks for stop strings; the thread that
 * writes takes new text as fast as the client reads. A call lives until the engine and the server have both let
 * go of it. */
#ifndef ASH_SERVE_API_CALL_H
#define ASH_SERVE_API_CALL_H

#include "serve/api/prompt.h"
#include "serve/api/sampling.h"
#include "serve/api/token_list.h"
#include "serve/engine/prompt_blocks.h"

struct ash_api_call;
struct ash_grammar;

/* One answer. */
struct ash_api_choice {
    struct ash_api_call *call;
    struct ash_request request;
    struct ash_think think;      /* the budget of its thoughts */
    size_t index;                /* in the response */
    size_t prompt_index;         /* whose answer it is */
    struct ash_decoder *decoder; /* the engine's thread alone uses it */
    struct ash_str held;         /* decoded, but perhaps the beginning of a stop string */
    /* under the call's lock: */
    struct ash_str text;
    struct ash_token_list tokens, prompt_tokens;
    bool is_submitted, is_done, has_stopped; /* stopped: by a stop string */
    size_t stop_index;                       /* which one */
    struct ash_request_end end;
    uint64_t last_token_ns;
    size_t *ends, end_capacity; /* where the text of each token ends, if the call frames tokens */
    /* the writer's: */
    size_t sent_bytes, sent_tokens;
    bool is_finished;     /* its end was written */
    size_t thought_bytes; /* of the text, up to the end of its thoughts */
    void *parser;         /* of the form */
    float *hidden;        /* embeddings; with sampling.wants_score a score, first */
    size_t second;        /* of a pair: as in struct ash_request */
};

/* News of a choice. */
struct ash_delta {
    const char *text;
    size_t size_bytes;
    const struct ash_token *tokens;
    size_t token_count, first_token;
};

/* How a call is written. All return 0 or a negative errno. */
struct ash_form {
    /* The whole response, once all choices are done. */
    int (*write)(struct ash_api_call *call, struct ash_str *out);
    /* Events of a stream. Before the first: */
    int (*write_start)(struct ash_api_call *call, struct ash_str *out);
    /* New text or tokens of a choice (never neither). */
    int (*write_delta)(struct ash_api_call *call, struct ash_api_choice *choice, const struct ash_delta *delta,
                       struct ash_str *out);
    /* A choice is done. */
    int (*write_finish)(struct ash_api_call *call, struct ash_api_choice *choice, struct ash_str *out);
    /* After the last. */
    int (*write_end)(struct ash_api_call *call, struct ash_str *out);
    /* Free what the form keeps in call->state and choice->parser; NULL: nothing. */
    void (*free_state)(struct ash_api_call *call);
    /* Of a form whose requests ash_call_serve takes: what ids begin with, zeros that call->state begins as, and how a
     * request's fields are read into the call and its state. An error goes to request->err. */
    const char *id_prefix;
    size_t state_bytes;
    void (*read)(struct ash_api_call *call, struct ash_api_request *request);
    const char *stream_type; /* of the stream, borrowed for good; NULL: server-sent events. Others have lines of JSON */
    bool wants_every_token;  /* deltas for tokens without text too */
    bool waits_for_prompt;   /* nothing is written before the prompt was computed: its usage is known then */
};

struct ash_api_call {
    struct ash_api *api;
    struct ash_http_exchange *exchange;
    const struct ash_form *form;
    _Atomic int refs;
    pthread_mutex_t lock;
    struct ash_sampling sampling;
    struct ash_prompts prompts;
    struct ash_prompt_blocks blocks; /* of the request's text, as a router sees it */
    struct ash_api_choice *choices;
    size_t choice_count, done_count;
    bool frames_tokens; /* a stream has an event per token, whenever it is written: a function of the tokens alone */
    bool is_stream, wants_usage, wants_usage_always, has_failed;
    bool has_started; /* the stream's first event was written */
    bool has_gone;
    bool wants_pages;            /* of the prompt alone: no token is chosen (apart.h) */
    uint64_t job;                /* with wants_pages: as which its pages are told */
    struct ash_kv_source source; /* where pages of the prompt are; without tokens: nowhere */
    bool is_thinking;            /* the prompt has opened a thought */
    struct ash_api_err err;      /* of a choice that failed */
    struct ash_grammar *grammar;
    const struct ash_served_adapter *adapter; /* held; NULL: the model alone answers */
    char id[80], model[128];
    int64_t created_s;
    _Atomic uint64_t fingerprint; /* of the weights that chose its first token; 0: none was chosen yet */
    void *state;                  /* of the form */
    struct ash_str piece;         /* the writer's copy of the new text */
    struct ash_token_list piece_tokens;
};

/* A call for a request, with prefix before its id ("chatcmpl-"). NULL: out of memory, which was answered. The caller
 * fills sampling, prompts and form, then starts it or closes it. */
struct ash_api_call *ash_call_open(struct ash_api_request *request, const struct ash_form *form, const char *prefix);
/* A call that was not started. NULL is a no-op. */
void ash_call_close(struct ash_api_call *call);
/* Submit all choices and answer when they are done, or stream. Takes the call, also if it answers with an error. */
void ash_call_start(struct ash_api_call *call);

/* A whole request of a form that reads: opened, read, and started or answered with the error. */
void ash_call_serve(const struct ash_form *form, struct ash_api *api, struct ash_http_exchange *exchange);

/* call_queue.c: may its choices wait for the engine? If not, the call's error says why. */
bool ash_call_may_wait(struct ash_api_call *call);

/* call_states.c: its request wants the states, or the score, that the call's sampling says. */
void ash_call_set_states(struct ash_api_choice *choice);
/* call_states.c: a choice for every prompt, with room for a state. An error is in request->err. */
void ash_call_take_states(struct ash_api_call *call, struct ash_api_request *request);

struct ash_usage {
    size_t prompt_tokens, cached_tokens, answer_tokens;
    size_t thought_tokens; /* of the answers that are done: those of thoughts and their tags */
};
/* Tokens of all prompts, of those in the cache, and of all answers. After it is done, or for what there is so far. */
struct ash_usage ash_call_usage(struct ash_api_call *call);
/* call_usage.c: the same for log and limits, before the call is seen as done. With the lock held. */
void ash_call_note_usage(struct ash_api_call *call);
/* call_usage.c: set the call's error if a choice that is done is not whole: a grammar too large for its matcher is the
 * client's fault, all else the server's. With the lock held. */
void ash_call_note_failure(struct ash_api_call *call, const struct ash_api_choice *choice);
/* A decoder for the answer, which follows the prompt. The caller closes it, after a failure too. */
int ash_api_choice_open_decoder(const struct ash_api_choice *choice, struct ash_decoder **decoder_out,
                                struct ash_err *err);
/* "stop", "length": why a choice ended. */
const char *ash_api_choice_reason(const struct ash_api_choice *choice);
/* Append "data: ", and after it "\n\n": the frame of an event. */
int ash_event_begin(struct ash_str *out);
/* See above. */
int ash_event_end(struct ash_str *out);

#endif
