/* handlers - what the routes call, by file. Each answers one exchange, on a worker thread; ctx is the api. */
#ifndef ASH_SERVE_API_HANDLERS_H
#define ASH_SERVE_API_HANDLERS_H

struct ash_http_exchange;

/* completions.c: POST /v1/completions. */
void ash_api_completions(void *ctx, struct ash_http_exchange *exchange);
/* chat.c: POST /v1/chat/completions. */
void ash_api_chat(void *ctx, struct ash_http_exchange *exchange);
/* responses.c: POST /v1/responses. */
void ash_api_responses(void *ctx, struct ash_http_exchange *exchange);
/* responses_read.c: POST /v1/responses/input_tokens. */
void ash_api_response_tokens(void *ctx, struct ash_http_exchange *exchange);
/* embeddings.c: POST /v1/embeddings. */
void ash_api_embeddings(void *ctx, struct ash_http_exchange *exchange);
/* rerank.c: POST /v1/rerank. */
void ash_api_rerank(void *ctx, struct ash_http_exchange *exchange);
/* score.c: POST /v1/score. */
void ash_api_score(void *ctx, struct ash_http_exchange *exchange);
/* messages.c: POST /v1/messages. */
void ash_api_messages(void *ctx, struct ash_http_exchange *exchange);
/* messages.c: POST /v1/messages/count_tokens. */
void ash_api_count_tokens(void *ctx, struct ash_http_exchange *exchange);
/* llama_read.c: POST /completion. */
void ash_api_llama_completion(void *ctx, struct ash_http_exchange *exchange);
/* infill.c: POST /infill. */
void ash_api_infill(void *ctx, struct ash_http_exchange *exchange);
/* ollama.c: POST /api/chat. */
void ash_api_ollama_chat(void *ctx, struct ash_http_exchange *exchange);
/* ollama.c: POST /api/generate. */
void ash_api_ollama_generate(void *ctx, struct ash_http_exchange *exchange);
/* ollama.c: GET /api/tags, /api/ps: the models. */
void ash_api_ollama_tags(void *ctx, struct ash_http_exchange *exchange);
/* ollama.c: POST /api/show. */
void ash_api_ollama_show(void *ctx, struct ash_http_exchange *exchange);
/* ollama.c: GET /api/version: of Ollama's API. */
void ash_api_ollama_version(void *ctx, struct ash_http_exchange *exchange);
/* status.c: GET /v1/models. */
void ash_api_models(void *ctx, struct ash_http_exchange *exchange);
/* status.c: GET /v1/models/NAME. */
void ash_api_model(void *ctx, struct ash_http_exchange *exchange);
/* status.c: GET /health: 200 when the engine can answer and makes steps. */
void ash_api_health(void *ctx, struct ash_http_exchange *exchange);
/* status.c: GET /ready: 200 when the model is loaded. */
void ash_api_ready(void *ctx, struct ash_http_exchange *exchange);
/* kv_events.c: GET /kv_events: which pages of prefixes the cache stores and drops. */
void ash_api_kv_events(void *ctx, struct ash_http_exchange *exchange);
/* status.c: GET /load: how many requests are being answered. */
void ash_api_load(void *ctx, struct ash_http_exchange *exchange);
/* status.c: GET /version. */
void ash_api_version(void *ctx, struct ash_http_exchange *exchange);
/* status.c: GET /props. */
void ash_api_props(void *ctx, struct ash_http_exchange *exchange);
/* status.c: GET /slots. */
void ash_api_slots(void *ctx, struct ash_http_exchange *exchange);
/* weights.c: POST /pause, /resume, /update_weights_from_disk; GET /is_paused. */
void ash_api_pause(void *ctx, struct ash_http_exchange *exchange);
/* Go on. */
void ash_api_resume(void *ctx, struct ash_http_exchange *exchange);
/* Is it paused? */
void ash_api_is_paused(void *ctx, struct ash_http_exchange *exchange);
/* Pause, and give memory back. */
void ash_api_sleep(void *ctx, struct ash_http_exchange *exchange);
/* Other weights of the same shape. */
void ash_api_update_weights(void *ctx, struct ash_http_exchange *exchange);
/* admin.c: POST /reset_prefix_cache. */
void ash_api_reset_prefix(void *ctx, struct ash_http_exchange *exchange);
/* admin.c: POST /v1/load_lora_adapter. */
void ash_api_load_adapter(void *ctx, struct ash_http_exchange *exchange);
/* admin.c: POST /v1/unload_lora_adapter. */
void ash_api_unload_adapter(void *ctx, struct ash_http_exchange *exchange);
/* tokens.c: POST /tokenize. */
void ash_api_tokenize(void *ctx, struct ash_http_exchange *exchange);
/* tokens.c: POST /detokenize. */
void ash_api_detokenize(void *ctx, struct ash_http_exchange *exchange);
/* tokens.c: POST /apply-template. */
void ash_api_apply_template(void *ctx, struct ash_http_exchange *exchange);
/* metrics.c: GET /metrics. */
void ash_api_metrics_page(void *ctx, struct ash_http_exchange *exchange);

#endif
