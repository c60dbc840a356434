/* page - the chat page: one document with its style and script inside, for which the policy of its response makes an
 * exception by a number that is used once. */
#ifndef ASH_SERVE_PAGE_PAGE_H
#define ASH_SERVE_PAGE_PAGE_H

#include "http/http.h"

/* GET /: a handler (ash_http_handle_fn) that does not block; ctx is not used. */
void ash_page_respond(void *ctx, struct ash_http_exchange *exchange);

#endif
