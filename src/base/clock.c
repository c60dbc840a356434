/* Clocks: the monotonic one for durations, the real-time one for records. */
#include "base/clock.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/assert.h"

uint64_t ash_clock_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t ash_clock_thread_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
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

/* ---- reading durations ------------------------------------------------------------------------------------------- */

#define DIGITS_MAX 12

/* Digits of text as a number; *end_out is after them. Returns 0 or -EINVAL: none, or too many. */
static int take_count(const char *text, const char **end_out, double *value_out)
{
    size_t digits = strspn(text, "0123456789");
    double value = 0;

    if (digits == 0 || digits > DIGITS_MAX) return -EINVAL;
    for (size_t i = 0; i < digits; i++)
        value = 10 * value + (text[i] - '0');
    *value_out = value;
    *end_out = text + digits;
    return 0;
}

/* Slurm's form: [days-]hours:minutes:seconds, minutes:seconds, days-hours, days-hours:minutes. */
static int parse_clock(const char *text, double *seconds_out)
{
    double parts[3] = {0}, days = 0;
    bool has_days = strchr(text, '-') != NULL;
    size_t count = 0;

    if (has_days && (take_count(text, &text, &days) < 0 || *text++ != '-')) return -EINVAL;
    do {
        if (count == ASH_COUNT(parts) || take_count(text, &text, &parts[count++]) < 0) return -EINVAL;
    } while (*text++ == ':');
    if (text[-1] != '\0') return -EINVAL;
    if (!has_days && count == 2) /* minutes:seconds */
        *seconds_out = 60 * parts[0] + parts[1];
    else
        *seconds_out = 86400 * days + 3600 * parts[0] + 60 * parts[1] + parts[2];
    return 0;
}

int ash_clock_parse(const char *text, double *seconds_out)
{
    static const struct {
        const char *name;
        double seconds;
    } units[] = {{"ms", 1e-3}, {"d", 86400}, {"h", 3600}, {"m", 60}, {"s", 1}};
    double total = 0, value;
    bool is_bare = text[0] != '\0' && strspn(text, "0123456789") == strlen(text);

    if (strpbrk(text, ":-") != NULL) return parse_clock(text, seconds_out);
    if (is_bare) return take_count(text, &text, seconds_out);
    if (text[0] == '\0') return -EINVAL;
    while (*text != '\0') {
        size_t u = 0;

        if (take_count(text, &text, &value) < 0) return -EINVAL;
        while (u < ASH_COUNT(units) && strncmp(text, units[u].name, strlen(units[u].name)) != 0)
            u++;
        if (u == ASH_COUNT(units)) return -EINVAL;
        total += value * units[u].seconds;
        text += strlen(units[u].name);
    }
    *seconds_out = total;
    return 0;
}
