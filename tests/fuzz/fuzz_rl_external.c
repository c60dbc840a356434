/* Fuzz target: answers of servers that sample. What is read has no more tokens than there is room for, ids are not
 * negative, and no log-probability is positive. */
#include <math.h>
#include <stdint.h>

#include "base/assert.h"
#include "post/rl/external.h"

#define ROOM 4

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes)
{
    int32_t ids[ROOM];
    float logps[ROOM];
    struct ash_external_answer answer = {.ids = ids, .logps = logps, .room = ROOM};
    struct ash_err err = {0};
    int rc = ash_external_parse((const char *)data, size_bytes, &answer, &err);

    ash_assert(rc == 0 || err.text[0] != '\0');
    for (size_t t = 0; rc == 0 && t < answer.count; t++)
        ash_assert(t < ROOM && ids[t] >= 0 && (isnan(logps[t]) || logps[t] <= 0.0f));
    return 0;
}
