#include "cmd/progress_bar.h"

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"

#define LIVE_NS ((uint64_t)200 * 1000 * 1000)        /* between two updates of a live line */
#define PLAIN_NS ((uint64_t)10 * 1000 * 1000 * 1000) /* between two lines of the log */
#define LINE_BYTES 160

void ash_progress_bar_init(struct ash_progress_bar *progress)
{
    progress->is_live = isatty(STDERR_FILENO) == 1;
    progress->began_ns = ash_clock_ns();
    atomic_store(&progress->next_ns, progress->began_ns + (progress->is_live ? 0 : PLAIN_NS));
}

bool ash_progress_bar_due(struct ash_progress_bar *progress)
{
    uint64_t now_ns = ash_clock_ns(), next_ns = atomic_load(&progress->next_ns);

    if (now_ns < next_ns) return false;
    return atomic_compare_exchange_strong(&progress->next_ns, &next_ns,
                                          now_ns + (progress->is_live ? LIVE_NS : PLAIN_NS));
}

void ash_progress_bar_say(const struct ash_progress_bar *progress, const char *format, ...)
{
    char text[LINE_BYTES];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    if (progress->is_live)
        fprintf(stderr, "\r\033[K%s", text);
    else
        ash_log(ASH_LOG_INFO, "%s", text);
}

void ash_progress_bar_count(struct ash_progress_bar *progress, size_t done, size_t total, const char *what)
{
    char left[32];

    if (!ash_progress_bar_due(progress)) return;
    ash_progress_bar_say(progress, "%zu of %zu %s, %s left", done, total, what,
                         ash_progress_bar_left(progress, (double)done, (double)(total - done), left, sizeof(left)));
}

void ash_progress_bar_clear(const struct ash_progress_bar *progress)
{
    if (progress->is_live) fprintf(stderr, "\r\033[K");
}

double ash_progress_bar_seconds(const struct ash_progress_bar *progress)
{
    return (double)(ash_clock_ns() - progress->began_ns) / 1e9;
}

const char *ash_progress_bar_left(const struct ash_progress_bar *progress, double done, double left, char *buf,
                                  size_t buf_bytes)
{
    if (done <= 0)
        snprintf(buf, buf_bytes, "?");
    else
        ash_clock_format(ash_progress_bar_seconds(progress) * left / done, buf, buf_bytes);
    return buf;
}
