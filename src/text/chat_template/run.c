/* The limits of a rendering, and its messages: every other part counts its work here. */
#include "text/chat_template/jinja_priv.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/assert.h"

int ash_jinja_fail(struct ash_jinja_run *run, int code, const char *fmt, ...)
{
    char message[300];
    va_list args;

    ash_assert(code < 0);
    va_start(args, fmt);
    vsnprintf(message, sizeof(message), fmt, args);
    va_end(args);
    return ash_err_set(run->err, code, "line %d: %s", run->line, message);
}

int ash_jinja_spend(struct ash_jinja_run *run, size_t size_bytes)
{
    run->steps += 1 + size_bytes / ASH_JINJA_BYTES_PER_STEP;
    if (run->steps > ASH_JINJA_STEPS_MAX)
        return ash_jinja_fail(run, -EOVERFLOW, "the template takes more than %zu steps", ASH_JINJA_STEPS_MAX);
    return 0;
}

int ash_jinja_step(struct ash_jinja_run *run)
{
    return ash_jinja_spend(run, 0);
}

int ash_jinja_enter(struct ash_jinja_run *run)
{
    if (run->depth >= ASH_JINJA_RUN_DEPTH_MAX) return ash_jinja_fail(run, -E2BIG, "the template calls itself too deep");
    run->depth++;
    return 0;
}

void ash_jinja_leave(struct ash_jinja_run *run)
{
    ash_assert(run->depth > 0);
    run->depth--;
}
