/* page - the page of runs, ranks, nodes and servers, in one file without outside parts. Live, it polls its server;
 * frozen, its data is inside: the report of a run. */
#ifndef ASH_RECORD_PAGE_PAGE_H
#define ASH_RECORD_PAGE_PAGE_H

#include "base/str.h"

/* Append the page that polls its server. nonce is that of the response's Content-Security-Policy. Returns 0 or
 * -ENOMEM. */
int ash_page_write_live(const char *nonce, struct ash_str *out);
/* Append the page with data (JSON) inside, which makes no requests. Returns 0 or -ENOMEM. */
int ash_page_write_frozen(const char *data, struct ash_str *out);

#endif
