/* load_priv - what sending and reading share. */
#ifndef ASH_SERVE_CLIENT_LOAD_PRIV_H
#define ASH_SERVE_CLIENT_LOAD_PRIV_H

#include <sys/socket.h>
#include "serve/client/load.h"

/* Append the head and body of a request. method "GET" has none. Returns 0 or -ENOMEM. */
int ash_load_write_request(const struct ash_load_opts *opts, const char *path, const struct ash_str *body,
                           struct ash_str *out);
/* Append the JSON of a request for an answer to one item. Returns 0 or -ENOMEM. */
int ash_load_write_body(const struct ash_load_opts *opts, const struct ash_workload *workload,
                        const struct ash_workload_item *item, struct ash_str *out);
/* The sentence of an error response, or of an error event: what the server says, or its status. Returns -EREMOTEIO. */
int ash_load_server_err(unsigned status, const char *body, struct ash_err *err);

/* One event of an answer, or its whole: does it have text, how many tokens were counted? */
struct ash_load_event {
    bool has_text, has_usage, is_error;
    size_t prompt_tokens, cached_tokens, answer_tokens;
};
/* Read it. Returns 0, or -EPROTO if it does not follow the API. */
int ash_load_read_event(const char *text, size_t size_bytes, struct ash_load_event *event_out);
/* Note an event of request `index` that was read at at_s. Returns 0 or -ENOMEM. */
int ash_load_results_note(struct ash_load_results *results, size_t index, const struct ash_load_event *event,
                          double at_s);
/* The socket address of a server; of several that a name has, the first that answers. Returns 0 or -ENOENT. */
int ash_load_resolve(const struct ash_load_url *url, struct sockaddr_storage *addr_out, socklen_t *bytes_out,
                     struct ash_err *err);

#endif
