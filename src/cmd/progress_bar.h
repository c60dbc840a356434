/* progress_bar - how far long work is: on a terminal one line that is written over, elsewhere a line of the log now and
 * then. */
#ifndef ASH_CMD_PROGRESS_BAR_H
#define ASH_CMD_PROGRESS_BAR_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ash_progress_bar {
    bool is_live; /* stderr is a terminal */
    uint64_t began_ns;
    _Atomic uint64_t next_ns; /* bytes are counted in one thread while another reports waiting for a server */
};

/* Begin to measure; finds out whether standard error is a terminal. */
void ash_progress_bar_init(struct ash_progress_bar *progress);
/* Is it time for the next line? Then the caller prints it. Any thread; true for one of them. */
bool ash_progress_bar_due(struct ash_progress_bar *progress);
/* Show a line: over the last one on a terminal, else in the log. */
void ash_progress_bar_say(const struct ash_progress_bar *progress, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* "12 of 340 windows, 2m05s left", when it is due. */
void ash_progress_bar_count(struct ash_progress_bar *progress, size_t done, size_t total, const char *what);
/* Take the live line away, before anything else is written and at the end. */
void ash_progress_bar_clear(const struct ash_progress_bar *progress);

double ash_progress_bar_seconds(const struct ash_progress_bar *progress); /* since init */
/* "2m05s": the time for the rest, at the rate since init; "?" before anything is done. Returns buf. */
const char *ash_progress_bar_left(const struct ash_progress_bar *progress, double done, double left, char *buf,
                                  size_t buf_bytes);

#endif
