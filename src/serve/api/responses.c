#include "serve/api/api_priv.h"
void ash_api_responses(void *ctx, struct ash_http_exchange *exchange)
{
    (void)ctx;
    (void)exchange;
}
