/* clock - time for measuring and for people. */
#ifndef ASH_BASE_CLOCK_H
#define ASH_BASE_CLOCK_H

#include <stddef.h>
#include <stdint.h>

/* Monotonic nanoseconds; differences are meaningful, absolute values are not. */
uint64_t ash_clock_ns(void);
/* Nanoseconds that the calling thread has run. */
uint64_t ash_clock_thread_ns(void);
/* Seconds since 1970, for names and records. */
double ash_clock_wall_s(void);
/* "58s", "3m12s", "2h05m", "4d03h": a duration for people. Returns buf. */
const char *ash_clock_format(double seconds, char *buf, size_t buf_bytes);
/* A duration as people and schedulers write one, in seconds: "90", "90s", "30m", "24h", "1d12h", "500ms", and Slurm's
 * "30:00" (minutes), "12:30:00", "2-00:00:00". Returns 0 or -EINVAL. */
int ash_clock_parse(const char *text, double *seconds_out);

#endif
