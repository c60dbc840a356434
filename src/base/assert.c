/* Failed assertions: the only place where the library ends the process, because its own state can no longer be
 * trusted. */
#include "base/assert.h"

#include <stdio.h>
#include <stdlib.h>

_Noreturn void ash_assert_fail(const char *cond, const char *file, int line)
{
    fprintf(stderr, "ashlar: internal error: '%s' does not hold at %s:%d\n", cond, file, line);
    fflush(stderr);
    abort();
}
