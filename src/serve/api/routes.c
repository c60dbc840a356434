/* The routes: what a client may ask for, and which file answers. */
#include "base/assert.h"
#include "serve/api/api.h"
#include "serve/api/handlers.h"
#include "serve/page/page.h"

#define GENERATES .takes_requests = true
#define QUICK .is_open = true, .is_quick = true

static const struct ash_http_route routes[] = {
    {.method = "GET", .path = "/", .handle = ash_page_respond, QUICK},
    {.method = "GET", .path = "/health", .handle = ash_api_health, QUICK},
    {.method = "GET", .path = "/ping", .handle = ash_api_health, QUICK},
    {.method = "POST", .path = "/ping", .handle = ash_api_health, QUICK},
    {.method = "GET", .path = "/ready", .handle = ash_api_ready, QUICK},
    {.method = "GET", .path = "/v1/health", .handle = ash_api_health, QUICK},
    {.method = "GET", .path = "/metrics", .handle = ash_api_metrics_page, .is_open = true},
    {.method = "GET", .path = "/version", .handle = ash_api_version, QUICK},
    {.method = "GET", .path = "/load", .handle = ash_api_load, QUICK},
    {.method = "GET", .path = "/kv_events", .handle = ash_api_kv_events},
    {.method = "GET", .path = "/props", .handle = ash_api_props},
    {.method = "GET", .path = "/slots", .handle = ash_api_slots},
    {.method = "GET", .path = "/v1/models", .handle = ash_api_models},
    {.method = "GET", .path = "/models", .handle = ash_api_models},
    {.method = "GET", .path = "/v1/models/*", .handle = ash_api_model},
    {.method = "POST", .path = "/v1/completions", .handle = ash_api_completions, GENERATES},
    {.method = "POST", .path = "/v1/chat/completions", .handle = ash_api_chat, GENERATES},
    {.method = "POST", .path = "/chat/completions", .handle = ash_api_chat, GENERATES},
    {.method = "POST", .path = "/v1/responses", .handle = ash_api_responses, GENERATES},
    {.method = "POST", .path = "/responses", .handle = ash_api_responses, GENERATES},
    {.method = "POST", .path = "/v1/responses/input_tokens", .handle = ash_api_response_tokens},
    {.method = "POST", .path = "/v1/embeddings", .handle = ash_api_embeddings, GENERATES},
    {.method = "POST", .path = "/embeddings", .handle = ash_api_embeddings, GENERATES},
    {.method = "POST", .path = "/v1/rerank", .handle = ash_api_rerank, GENERATES},
    {.method = "POST", .path = "/v2/rerank", .handle = ash_api_rerank, GENERATES},
    {.method = "POST", .path = "/rerank", .handle = ash_api_rerank, GENERATES},
    {.method = "POST", .path = "/v1/score", .handle = ash_api_score, GENERATES},
    {.method = "POST", .path = "/score", .handle = ash_api_score, GENERATES},
    {.method = "POST", .path = "/v1/messages", .handle = ash_api_messages, GENERATES},
    {.method = "POST", .path = "/v1/messages/count_tokens", .handle = ash_api_count_tokens},
    {.method = "POST", .path = "/completion", .handle = ash_api_llama_completion, GENERATES},
    {.method = "POST", .path = "/completions", .handle = ash_api_llama_completion, GENERATES},
    {.method = "POST", .path = "/infill", .handle = ash_api_infill, GENERATES},
    {.method = "POST", .path = "/api/chat", .handle = ash_api_ollama_chat, GENERATES},
    {.method = "POST", .path = "/api/generate", .handle = ash_api_ollama_generate, GENERATES},
    {.method = "GET", .path = "/api/tags", .handle = ash_api_ollama_tags},
    {.method = "GET", .path = "/api/ps", .handle = ash_api_ollama_tags},
    {.method = "POST", .path = "/api/show", .handle = ash_api_ollama_show},
    {.method = "GET", .path = "/api/version", .handle = ash_api_ollama_version, QUICK},
    {.method = "POST", .path = "/reset_prefix_cache", .handle = ash_api_reset_prefix, .needs_admin = true},
    {.method = "POST", .path = "/flush_cache", .handle = ash_api_reset_prefix, .needs_admin = true},
    {.method = "GET", .path = "/flush_cache", .handle = ash_api_reset_prefix, .needs_admin = true},
    {.method = "POST", .path = "/pause", .handle = ash_api_pause, .needs_admin = true},
    {.method = "POST", .path = "/pause_generation", .handle = ash_api_pause, .needs_admin = true},
    {.method = "POST", .path = "/resume", .handle = ash_api_resume, .needs_admin = true},
    {.method = "POST", .path = "/continue_generation", .handle = ash_api_resume, .needs_admin = true},
    {.method = "POST", .path = "/sleep", .handle = ash_api_sleep, .needs_admin = true},
    {.method = "POST", .path = "/wake_up", .handle = ash_api_resume, .needs_admin = true},
    {.method = "GET", .path = "/is_sleeping", .handle = ash_api_is_paused, .needs_admin = true},
    {.method = "GET", .path = "/is_paused", .handle = ash_api_is_paused, .needs_admin = true},
    {.method = "POST", .path = "/update_weights_from_disk", .handle = ash_api_update_weights, .needs_admin = true},
    {.method = "POST", .path = "/v1/load_lora_adapter", .handle = ash_api_load_adapter, .needs_admin = true},
    {.method = "POST", .path = "/v1/unload_lora_adapter", .handle = ash_api_unload_adapter, .needs_admin = true},
    {.method = "POST", .path = "/tokenize", .handle = ash_api_tokenize},
    {.method = "POST", .path = "/detokenize", .handle = ash_api_detokenize},
    {.method = "POST", .path = "/apply-template", .handle = ash_api_apply_template},
};

const struct ash_http_route *ash_api_routes(size_t *count_out)
{
    *count_out = ASH_COUNT(routes);
    return routes;
}
