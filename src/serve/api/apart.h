/* apart - prefill apart from decode, as requests say it to a server in headers. A router asks a prefill server for the
 * pages of a prompt, and tells a decode server where they are. */
#ifndef ASH_SERVE_API_APART_H
#define ASH_SERVE_API_APART_H

#include "base/str.h"
#include "serve/api/call.h"

/* With this header a prefill server computes the prompt alone, and answers with the next one: at once, while it
 * computes. The body ends when the prompt is computed. */
#define ASH_API_PREFILL_HEADER "x-ashlar-prefill"
/* TOKENS FINGERPRINT JOB SHELF: how much of the prompt is computed, of which weights, as which job of the place of its
 * pages, and that place; but for TOKENS in hex. */
#define ASH_API_PAGES_HEADER "x-ashlar-pages"
/* The admin key, with the header above, where servers have keys. */
#define ASH_API_PAGES_KEY_HEADER "x-ashlar-pages-key"
/* What /ready says of a server that has a role: its name. */
#define ASH_API_ROLE_HEADER "x-ashlar-role"

/* "both", "prefill", "decode", NULL: for flags and headers, in the order of enum ash_api_role. */
extern const char *const ash_api_roles[];

/* Write the value of ASH_API_PAGES_HEADER. Returns 0 or -ENOMEM. */
int ash_api_source_write(const struct ash_kv_source *source, struct ash_str *out);
/* Read it. Returns whether it is one. */
bool ash_api_source_read(const char *text, struct ash_kv_source *source_out);

/* Before a call is prepared: read its headers. Returns false if they are not for this server, with call->err. */
bool ash_call_read_apart(struct ash_api_call *call);
/* What they mean for the request of a choice. */
void ash_call_set_apart(const struct ash_api_call *call, struct ash_request *request);
/* A call that wants its prompt's pages alone was submitted: say where they are, and when it is done. */
void ash_call_stream_pages(struct ash_api_call *call);

#endif
