/* event - what a router reads of the events that a replica streams, without building a tree of them: where one ends,
 * what in it another replica must repeat, and counts of tokens. */
#ifndef ASH_SERVE_ROUTE_EVENT_H
#define ASH_SERVE_ROUTE_EVENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Tokens as a server counts them; 0: it does not say. */
struct ash_route_usage {
    uint64_t prompt_tokens, cached_tokens, answer_tokens;
};

struct ash_route_event {
    bool has_data;    /* else it is a comment, or nothing */
    bool is_error;    /* it says why the answer ends early */
    bool is_shutdown; /* an error: the server is shutting down */
    uint64_t choice;  /* which answer of the request it belongs to */
    uint64_t digest;  /* of its bytes, without times, counts of tokens and fingerprints */
    struct ash_route_usage usage;
};

/* The bytes of the first event with the empty line that ends it; 0: it is not whole yet. */
size_t ash_route_event_bytes(const char *bytes, size_t size_bytes);
/* Read one event, or the JSON of a whole answer. Any bytes can be read. */
void ash_route_event_read(const char *bytes, size_t size_bytes, struct ash_route_event *event_out);

#endif
