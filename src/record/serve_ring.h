/* serve_ring - recent activity of a server, as records of three rings (record/ring_file.h): requests, passes, and each
 * pass's part for each request. Traces and the page are made from them. Times are of ash_clock_ns. */
#ifndef ASH_RECORD_SERVE_RING_H
#define ASH_RECORD_SERVE_RING_H

#include <stdint.h>

#define ASH_REQUEST_RING_KIND "requests"
#define ASH_REQUEST_RING_CAPACITY 4096
#define ASH_REQUEST_ID_BYTES 64
#define ASH_PASS_RING_KIND "passes"
#define ASH_PASS_RING_CAPACITY 4096
#define ASH_PIECE_RING_KIND "pieces"
#define ASH_PIECE_RING_CAPACITY 16384

enum ash_request_outcome {
    ASH_OUTCOME_NOT_YET,
    ASH_OUTCOME_ANSWERED,
    ASH_OUTCOME_CANCELLED,
    ASH_OUTCOME_FAILED,
    ASH_OUTCOMES,
};

/* A request. A time of 0 has not come. */
struct ash_request_record {
    uint64_t number;               /* in the ring */
    char id[ASH_REQUEST_ID_BYTES]; /* the client's; not terminated if it is full */
    uint64_t submit_ns, start_ns;  /* it came; its first row was scheduled */
    uint64_t first_ns, last_ns;    /* its first token, its last so far */
    uint64_t end_ns;
    uint64_t prompt_tokens, cached_tokens, answer_tokens;
    uint64_t outcome; /* enum ash_request_outcome */
};

/* A pass over the model, and how the engine stood after it. */
struct ash_pass_record {
    uint64_t number;
    uint64_t schedule_ns, start_ns, end_ns; /* scheduling began, the pass, its end */
    uint64_t rows, prefill_rows;            /* of them, those of prompts */
    uint64_t tokens;                        /* that it chose */
    uint64_t requests;                      /* that took part */
    uint64_t running, waiting;              /* afterwards */
    uint64_t pages, pages_held;             /* of the cache */
    uint64_t prefix_queries, prefix_hits;   /* tokens looked up and found, since the beginning */
    uint64_t preemptions;                   /* since the beginning */
};

/* A pass's part for a request. */
struct ash_piece_record {
    uint64_t number;
    uint64_t request; /* its number in the ring of requests */
    uint64_t start_ns, end_ns;
    uint32_t rows, tokens; /* computed; chosen. Rows of an answer may be drafts. */
    uint64_t is_prefill;
};

#endif
