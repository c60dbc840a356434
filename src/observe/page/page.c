/* The page of runs, ranks and nodes, live. */
#include "observe/page/page.h"

#include "record/page/page.h"

void ash_board_page_respond(void *ctx, struct ash_http_exchange *exchange)
{
    (void)ctx;
    ash_http_respond_page(exchange, ash_page_write_live);
}
