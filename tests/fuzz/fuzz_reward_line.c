/* Fuzz target: lines of reward programs. What is accepted is a finite number. */
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "base/assert.h"
#include "post/reward/program.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes)
{
    struct ash_err err = {0};
    double reward = NAN;
    int rc = ash_program_parse((const char *)data, size_bytes, &reward, &err);

    ash_assert(rc == 0 ? isfinite(reward) : err.text[0] != '\0');
    return 0;
}
