#include "serve/api/api_priv.h"
void ash_api_responses(void *ctx, struct ash_http_exchange *exchange)
{
    (void)ctx;
    (void)exchange;
}
void ash_api_embeddings(void *ctx, struct ash_http_exchange *exchange)
{
    (void)ctx;
    (void)exchange;
}
void ash_api_messages(void *ctx, struct ash_http_exchange *exchange)
{
    (void)ctx;
    (void)exchange;
}
void ash_api_count_tokens(void *ctx, struct ash_http_exchange *exchange)
{
    (void)ctx;
    (void)exchange;
}
void ash_api_llama_completion(void *ctx, struct ash_http_exchange *exchange)
{
    (void)ctx;
    (void)exchange;
}
void ash_api_infill(void *ctx, struct ash_http_exchange *exchange)
{
    (void)ctx;
    (void)exchange;
}
