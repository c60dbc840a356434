/* load - sends a workload to a server that speaks OpenAI's API and records the arrival of its events. One thread, one
 * connection for each request that is being answered. */
#ifndef ASH_SERVE_CLIENT_LOAD_H
#define ASH_SERVE_CLIENT_LOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ashlar/err.h"
#include "base/json.h"
#include "base/str.h"
#include "serve/client/workload.h"

#define ASH_LOAD_HOST_BYTES 256

/* Where the server is: http://host[:port][/path]. */
struct ash_load_url {
    char host[ASH_LOAD_HOST_BYTES]; /* a name or an address, without brackets */
    char path[ASH_LOAD_HOST_BYTES]; /* before /v1, without a slash at its end */
    int port;
};

/* Read an address. Returns 0, or -EINVAL with the expected form. */
int ash_load_url_parse(const char *text, struct ash_load_url *url_out, struct ash_err *err);

struct ash_load_opts {
    struct ash_load_url url;
    const char *api_key; /* NULL: none */
    const char *model;
    bool is_chat;     /* /v1/chat/completions instead of /v1/completions */
    bool ignores_eos; /* answers have their full length */
    double temperature;
    size_t clients; /* requests at the same time where they have no times */
    size_t connections_max;
    double timeout_s; /* of a request */
    struct ash_prompt_form form;
};

/* What became of one request. Times in seconds after the start of the run. */
struct ash_load_result {
    bool is_sent, is_ok;
    unsigned status;
    double due_s;   /* when it should be sent: by the workload, or when its client was free */
    double sent_s;  /* when its first byte was */
    double first_s; /* the first text */
    double last_s;  /* the last text */
    double end_s;   /* the end of the response */
    size_t chunks;  /* events with text */
    size_t prompt_tokens, cached_tokens, answer_tokens; /* as the server counts */
};

struct ash_load_results {
    struct ash_load_result *items; /* one for each of the workload */
    size_t count;
    float *gaps_s; /* between events with text, of all answers */
    size_t gap_count, gap_capacity;
    double seconds;       /* from the start to the last end */
    struct ash_err first; /* the first error, where has_error */
    bool has_error;
};

/* GET path or, with a body, POST it, and wait for the JSON of the answer, which the caller owns. Returns 0 or a
 * negative errno with a sentence. */
int ash_load_fetch(const struct ash_load_opts *opts, const char *path, const struct ash_str *body, json_t **json_out,
                   struct ash_err *err);
/* Send everything and wait. Requests that fail are noted and no error. An interrupt (base/interrupt.h) ends it early.
 * Returns 0 or a negative errno. The caller finis *results_out. */
int ash_load_run(const struct ash_load_opts *opts, const struct ash_workload *workload,
                 struct ash_load_results *results_out, struct ash_err *err);
/* Free them; zeroed ones are fine. */
void ash_load_results_fini(struct ash_load_results *results);

#endif
