/* Log lines: formatted on the stack and written with one call, so that lines of several threads do not mix. */
#include "base/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#define LINE_BYTES 2048 /* longer lines are cut */

static _Atomic int threshold = ASH_LOG_INFO;

void ash_log_set_level(enum ash_log_level level)
{
    atomic_store_explicit(&threshold, (int)level, memory_order_relaxed);
}

static const char *level_prefix(enum ash_log_level level)
{
    switch (level) {
    case ASH_LOG_WARN:
        return "ashlar: warning: ";
    case ASH_LOG_ERROR:
        return "ashlar: error: ";
    default:
        return "ashlar: ";
    }
}

static void write_all(const char *data, size_t size_bytes)
{
    while (size_bytes > 0) {
        ssize_t done = write(STDERR_FILENO, data, size_bytes);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) return; /* nowhere left to say so */
        data += done;
        size_bytes -= (size_t)done;
    }
}

void ash_log(enum ash_log_level level, const char *fmt, ...)
{
    char line[LINE_BYTES];
    int saved_errno = errno;
    va_list args;
    size_t used;
    int more;

    if ((int)level < atomic_load_explicit(&threshold, memory_order_relaxed)) return;
    used = (size_t)snprintf(line, sizeof(line), "%s", level_prefix(level));
    va_start(args, fmt);
    more = vsnprintf(line + used, sizeof(line) - used, fmt, args);
    va_end(args);
    if (more > 0) used += (size_t)more;
    if (used > sizeof(line) - 1) used = sizeof(line) - 1; /* the newline takes the place of the NUL */
    line[used] = '\n';
    write_all(line, used + 1);
    errno = saved_errno;
}
