/* ollama_list - models as Ollama's clients get them: entries of /api/tags and /api/ps. */
#ifndef ASH_SERVE_API_OLLAMA_LIST_H
#define ASH_SERVE_API_OLLAMA_LIST_H

#include <stdbool.h>
#include <stdint.h>
#include "base/str.h"

#define ASH_OLLAMA_TIME_BYTES 32

struct ash_ollama_model {
    const char *name;
    uint64_t digest, bytes; /* 0: not known */
    int64_t modified_s;
    bool has_expiry; /* it is put away then, if it stays idle */
    int64_t expires_s;
};

/* A time as RFC 3339 has it. Returns buf. */
const char *ash_ollama_time(int64_t seconds, char buf[ASH_OLLAMA_TIME_BYTES]);
/* Append the object of a model. */
void ash_ollama_put_model(const struct ash_ollama_model *model, struct ash_str *out);
/* Append "details", whose values are not known. */
void ash_ollama_put_details(struct ash_str *out);

#endif
