/* Fuzz target: lines of reward programs and of environments. An accepted reward is a finite number; a turn with a role
 * has a text. */
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "base/assert.h"
#include "post/reward/program.h"
#include "post/reward/turn.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes)
{
    struct ash_err err = {0};
    struct ash_turn turn = {0};
    double reward = NAN;
    int rc = ash_program_parse((const char *)data, size_bytes, &reward, &err);

    ash_assert(rc == 0 ? isfinite(reward) : err.text[0] != '\0');
    rc = ash_turn_parse((const char *)data, size_bytes, &turn, &err);
    ash_assert(rc == 0 ? turn.role == NULL || turn.text != NULL : turn.text == NULL);
    ash_turn_fini(&turn);
    return 0;
}
