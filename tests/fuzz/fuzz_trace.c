/* Traces of requests, and addresses of servers: any text. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "serve/client/load.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes)
{
    const struct ash_workload_opts opts = {.trace_speed = 2, .trace_scale = 0.5};
    const struct ash_prompt_form form = {.vocab = 100};
    struct ash_workload workload = {0};
    struct ash_load_url url;
    struct ash_err err = {0};
    struct ash_str prompt = {0};
    char *text = malloc(size_bytes + 1);

    if (text == NULL) return 0;
    memcpy(text, data, size_bytes);
    text[size_bytes] = '\0';
    if (ash_workload_add_trace(&workload, &opts, text, "trace", &err) == 0) {
        for (size_t i = 0; i < workload.count; i++) {
            size_t tokens = 0;

            for (size_t b = 0; b < workload.items[i].block_count; b++)
                tokens += workload.blocks[workload.items[i].first_block + b].tokens;
            if (tokens != workload.items[i].prompt_tokens || tokens == 0) abort();
            if (i > 0 && workload.items[i].at_s < workload.items[i - 1].at_s) abort();
        }
        if (workload.items[0].prompt_tokens < 10000) (void)ash_prompt_add(&form, &workload, workload.items, &prompt);
    }
    if (ash_load_url_parse(text, &url, &err) == 0 && (url.port < 1 || url.port > 65535 || url.host[0] == '\0')) abort();
    ash_str_fini(&prompt);
    ash_workload_fini(&workload);
    free(text);
    return 0;
}
