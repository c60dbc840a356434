/* kmsg - follows a kernel log: /dev/kmsg, or a plain file that grows (a recorded tree, /var/log/kern.log). Every record
 * has a number that only grows; with the last one saved, each record is seen once, across restarts. */
#ifndef ASH_OBSERVE_AGENT_KMSG_H
#define ASH_OBSERVE_AGENT_KMSG_H

#include <stdint.h>
#include "ashlar/err.h"

#define ASH_KMSG_LINE_BYTES 8192

struct ash_kmsg; /* one owner thread */

/* Open path and skip records up to number `after` (0: none). Returns 0 or a negative errno: -EPERM with the missing
 * right in err. On 0 the caller owns *kmsg_out. */
int ash_kmsg_open(const char *path, uint64_t after, struct ash_kmsg **kmsg_out, struct ash_err *err);
/* NULL is a no-op. */
void ash_kmsg_close(struct ash_kmsg *kmsg);
/* The next record's text, NUL-terminated in line (ASH_KMSG_LINE_BYTES), and its number. Waits wait_ms at most, or until
 * wake_fd can be read (negative: none). Returns 1, 0 (none came) or a negative errno. */
int ash_kmsg_next(struct ash_kmsg *kmsg, int wait_ms, int wake_fd, char *line, uint64_t *number_out);
/* Records that the kernel dropped before we read them. */
uint64_t ash_kmsg_lost(const struct ash_kmsg *kmsg);

#endif
