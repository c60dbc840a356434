/* Clocks: the monotonic one for durations, the real-time one for records. */
#include "base/clock.h"

#include <stdio.h>
#include <time.h>

uint64_t ash_clock_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

double ash_clock_wall_s(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

const char *ash_clock_format(double seconds, char *buf, size_t buf_bytes)
{
    uint64_t s;

    if (!(seconds >= 0 && seconds < 1e15)) { /* negative, NaN or beyond any use */
        snprintf(buf, buf_bytes, "?");
        return buf;
    }
    s = (uint64_t)(seconds + 0.5);
    if (s < 60)
        snprintf(buf, buf_bytes, "%us", (unsigned)s);
    else if (s < 3600)
        snprintf(buf, buf_bytes, "%um%02us", (unsigned)(s / 60), (unsigned)(s % 60));
    else if (s < 86400)
        snprintf(buf, buf_bytes, "%uh%02um", (unsigned)(s / 3600), (unsigned)(s % 3600 / 60));
    else
        snprintf(buf, buf_bytes, "%llud%02uh", (unsigned long long)(s / 86400), (unsigned)(s % 86400 / 3600));
    return buf;
}
