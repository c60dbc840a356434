/* response - reads an HTTP/1.1 response as its bytes come: a body as a whole, or the events of a stream one by one. */
#ifndef ASH_SERVE_CLIENT_RESPONSE_H
#define ASH_SERVE_CLIENT_RESPONSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/str.h"

#define ASH_RESPONSE_LINE_BYTES_MAX ((size_t)64 << 10) /* of a header, or of a chunk's size */
#define ASH_RESPONSE_BODY_BYTES_MAX ((size_t)64 << 20) /* of a body, or of one event */

enum ash_response_stage {
    ASH_RESPONSE_STATUS,
    ASH_RESPONSE_HEADER,
    ASH_RESPONSE_BODY,       /* left_bytes of it, or up to the end of the connection */
    ASH_RESPONSE_CHUNK_SIZE, /* a line */
    ASH_RESPONSE_CHUNK,      /* left_bytes of it */
    ASH_RESPONSE_CHUNK_END,  /* a line without anything */
    ASH_RESPONSE_TRAILER,
    ASH_RESPONSE_DONE
};

/* Sees the data of one event; borrowed for the call. A negative value ends the reading with it. */
typedef int (*ash_response_event_fn)(void *ctx, const char *data, size_t size_bytes);

/* Sees bytes of the body as they come, or a header's name and value; borrowed for the call. A negative value ends the
 * reading with it. */
typedef int (*ash_response_body_fn)(void *ctx, const char *bytes, size_t size_bytes);
typedef int (*ash_response_header_fn)(void *ctx, const char *name, const char *value);

struct ash_response {
    enum ash_response_stage stage;
    unsigned status;
    bool is_chunked, has_length, is_stream, keeps_open; /* keeps_open: another request may follow */
    uint64_t left_bytes;
    struct ash_str line;  /* the received part of a line of the protocol */
    struct ash_str body;  /* unless it is a stream */
    struct ash_str field; /* the received part of a line of the stream */
    struct ash_str event; /* the data of the event so far */
    bool has_data;
    ash_response_event_fn see;
    ash_response_header_fn see_header; /* NULL: they are not wanted */
    ash_response_body_fn see_body;     /* takes the body instead of `body` and `see`; NULL: these have it */
    void *ctx;
};

/* Expect a response. see may be NULL: then events are dropped. */
void ash_response_init(struct ash_response *response, ash_response_event_fn see, void *ctx);
/* Free its members; a zeroed one is fine. */
void ash_response_fini(struct ash_response *response);
/* Forget the last response and expect another; memory is kept. */
void ash_response_reset(struct ash_response *response);
/* Read bytes. Returns 1 when the response is complete (bytes after it are an error), 0 when more must come, -EPROTO
 * if it is no HTTP, -EMSGSIZE beyond a limit, -ENOMEM, or what see returned. After an error only reset and fini may
 * follow. */
int ash_response_push(struct ash_response *response, const char *bytes, size_t size_bytes);
/* The connection ended. Returns 1 if that completes the response, else -ECONNRESET. */
int ash_response_end(struct ash_response *response);

#endif
