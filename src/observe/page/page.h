/* page - GET /: the page of agents and of `ashlar dash`: nodes by verdict, runs, ranks and their steps. */
#ifndef ASH_OBSERVE_PAGE_PAGE_H
#define ASH_OBSERVE_PAGE_PAGE_H

#include "http/http.h"

/* A handler: the page. It polls /v1/board of the same server. ctx is not used. */
void ash_board_page_respond(void *ctx, struct ash_http_exchange *exchange);

#endif
