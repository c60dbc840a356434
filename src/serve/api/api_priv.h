/* api_priv - the inside of the API, which its request forms share. */
#ifndef ASH_SERVE_API_API_PRIV_H
#define ASH_SERVE_API_API_PRIV_H

#include <pthread.h>
#include <stdatomic.h>
#include "serve/adapters.h"
#include "serve/api/api.h"
#include "serve/engine/think.h"
#include "serve/tools/tools.h"

struct ash_api_metrics;
struct ash_api_grammars;
struct ash_responses_memory;

struct ash_api {
    struct ash_api_opts opts;
    struct ash_api_engine engine; /* valid once is_ready */
    _Atomic bool is_ready, is_draining;
    _Atomic uint64_t fingerprint; /* valid once has_fingerprint */
    _Atomic bool has_fingerprint;
    double created_s; /* when the model was loaded, since 1970 */
    enum ash_tool_format tool_format;
    struct ash_thought_tags thought_tags;
    struct ash_think_words think_words; /* zeroed: the model does not think */
    struct ash_api_metrics *metrics;
    struct ash_api_grammars *grammars;
    struct ash_responses_memory *responses;
    _Atomic size_t calls; /* that are being answered */
};

#endif
