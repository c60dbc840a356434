/* request - what the request forms share: parse and check a request, refuse it, respond to it. */
#ifndef ASH_SERVE_API_REQUEST_H
#define ASH_SERVE_API_REQUEST_H

#include "serve/api/api_priv.h"
#include "serve/api/errors.h"
#include "serve/api/fields.h"
#include "serve/engine/prompt_blocks.h"

/* The status of a request whose handler will run again, on a thread for what takes long. No response has it. */
#define ASH_API_LATER 1
#define ASH_API_EVENT_STREAM "text/event-stream; charset=utf-8" /* the type of server-sent events */
/* What a router asks for in its header, so that another server can continue a stream: an event per token, and the same
 * values where a server would draw its own. The answer's header ASH_API_FRAMES_HEADER says that it was understood. */
#define ASH_API_RESUMABLE_HEADER "x-ashlar-resumable" /* SEED CREATED, in decimal digits */
#define ASH_API_FRAMES_HEADER "x-ashlar-frames"
struct ash_api_resumable {
    bool is_set;
    uint64_t seed;     /* of a request without one */
    int64_t created_s; /* the time that answers say */
};

/* Read that header's value; NULL, or one that cannot be read, asks for nothing. */
struct ash_api_resumable ash_api_resumable_read(const char *text);

/* The salt of a request's prompt blocks (prompt_blocks.h), for a router and its replicas: that of the key that it came
 * with. On the handler's call only. */
uint64_t ash_api_blocks_salt(struct ash_http_exchange *exchange);

/* A request of any form: its fields and its error. */
struct ash_api_request {
    struct ash_api *api;
    struct ash_http_exchange *exchange;
    json_t *json;
    struct ash_fields fields;
    struct ash_api_err err;
    struct ash_api_resumable resumable;
    const struct ash_served_adapter *adapter; /* that the model's name means, held; NULL: none */
};

/* Parse the body of a request that needs the model. False: it was refused, and answered. Release with
 * ash_api_request_fini. */
bool ash_api_request_init(struct ash_api_request *request, struct ash_api *api, struct ash_http_exchange *exchange);
/* Read the blocks of its prompt's text, where a router may want to know of them. Finish them in any case. */
void ash_api_read_blocks(struct ash_api_request *request, struct ash_prompt_blocks *blocks_out);
/* Find the adapter that the model's name means, once. Returns request->adapter. */
const struct ash_served_adapter *ash_api_find_adapter(struct ash_api_request *request);
/* Check the model's name (field "model"; absent: the one that is served). */
void ash_api_check_model(struct ash_api_request *request);
/* After all fields were read: name the unknown ones in log and header, or refuse them. */
void ash_api_check_unknown(struct ash_api_request *request);
/* Was anything wrong? Then answer so, or defer the handler (ASH_API_LATER), and return true. */
bool ash_api_request_failed(struct ash_api_request *request);
/* Free its members. */
void ash_api_request_fini(struct ash_api_request *request);
/* Respond with a JSON value and drop the reference to it. */
void ash_api_respond_json(struct ash_http_exchange *exchange, unsigned status, json_t *json);
/* Respond with text that is JSON already; takes its memory. A failed write (rc < 0) is 503. */
void ash_api_respond_text(struct ash_http_exchange *exchange, int rc, struct ash_str *body);
/* The name that answers give the model: the request's own, or the first. */
const char *ash_api_model_name(const struct ash_api_request *request);

#endif
