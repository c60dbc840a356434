/* openai - what OpenAI's forms have in common: heads of objects, usage, log-probabilities, ids. out remembers what
 * failed (base/str.h). */
#ifndef ASH_SERVE_API_OPENAI_H
#define ASH_SERVE_API_OPENAI_H

#include "serve/api/call.h"

/* Read stream, stream_options and the field names that OpenAI's forms share (seed and the like are sampling's). */
void ash_openai_read_stream(struct ash_api_call *call, struct ash_api_request *request);
/* {"id":…,"object":…,"created":…,"model":…,"system_fingerprint":… — without the closing brace. */
void ash_openai_write_head(const struct ash_api_call *call, const char *object, struct ash_str *out);
/* ,"usage":{…}: of what there is so far. */
void ash_openai_write_usage(struct ash_api_call *call, struct ash_str *out);
/* The last event of a stream that asked for usage, and [DONE]. object as above. */
void ash_openai_write_end(struct ash_api_call *call, const char *object, struct ash_str *out);
/* ,"usage":… on every event, where continuous_usage_stats asks for it; else ,"usage":null with include_usage. */
void ash_openai_write_running_usage(struct ash_api_call *call, struct ash_str *out);

/* ,"stop_reason":… as vLLM says it: the string or the id that ended the answer, or null. */
void ash_openai_write_stop_reason(const struct ash_api_call *call, const struct ash_api_choice *choice,
                                  struct ash_str *out);

/* The text that a token adds in the middle of a text, as a string; key as in base/json_put.h. */
void ash_openai_write_token(const struct ash_api *api, const char *key, int32_t id, struct ash_str *out);
/* "bytes":[…]: the same text. */
void ash_openai_write_bytes(const struct ash_api *api, int32_t id, struct ash_str *out);
/* Chat's "logprobs":{"content":[{token, logprob, bytes, top_logprobs}, …]}. top: how many of the most likely ones. */
void ash_openai_write_logprobs(const struct ash_api *api, const struct ash_token *tokens, size_t count, size_t top,
                               struct ash_str *out);
/* vLLM's "prompt_logprobs":[null, {"id": {logprob, rank, decoded_token}}, …]. */
void ash_openai_write_prompt_logprobs(const struct ash_api *api, struct ash_api_choice *choice, struct ash_str *out);
/* [1,2,3]; key as in base/json_put.h. */
void ash_openai_write_ids(const char *key, const int32_t *ids, size_t count, struct ash_str *out);
/* The same of tokens. */
void ash_openai_write_token_ids(const char *key, const struct ash_token *tokens, size_t count, struct ash_str *out);

#endif
