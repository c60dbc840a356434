/* The table of ends. */
#include "orchestrate/node/ends.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"

static const struct ash_end ends[] = {
    {ASH_END_DONE, "done", false},
    {ASH_END_FAILED, "failed", true},
    {ASH_END_BAD_SETTINGS, "bad settings", false},
    {ASH_END_TAKEN, "folder is taken", true},
    {ASH_END_SAVED, "saved and stopped", true},
    {ASH_END_BAD_MACHINE, "bad machine", false},
    {126, "cannot be run", false},
    {127, "no such program", false},
    {ASH_END_INTERRUPTED, "interrupted", false},
    {ASH_END_SIGNAL + SIGTERM, "told to stop", false},
    {ASH_END_SIGNAL + SIGKILL, "killed (by a user, or because memory ran out)", true},
};

const struct ash_end *ash_end_of(int code)
{
    static const struct ash_end by_signal = {ASH_END_SIGNAL, "killed by a signal", true},
                                other = {ASH_END_FAILED, "failed", true};

    for (size_t i = 0; i < ASH_COUNT(ends); i++)
        if (ends[i].code == code) return &ends[i];
    return code > ASH_END_SIGNAL ? &by_signal : &other;
}

const char *ash_end_describe(int code, char *buf, size_t buf_bytes)
{
    if (code > ASH_END_SIGNAL && code != ASH_END_INTERRUPTED)
        snprintf(buf, buf_bytes, "was killed by signal %d (%s)", code - ASH_END_SIGNAL,
                 strsignal(code - ASH_END_SIGNAL));
    else
        snprintf(buf, buf_bytes, "ended with exit code %d (%s)", code, ash_end_of(code)->name);
    return buf;
}
