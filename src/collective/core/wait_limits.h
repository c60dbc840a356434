/* wait_limits - how long a rank waits for another one. Without a stop request a wait is bounded by a timeout.
 * After a stop request (SIGTERM, SIGINT) the step is finished if the others come: a wait may then last as long as the
 * longest before it did, and a grace. When the ranks have agreed to stop (ash_interrupt_take_up), the timeout counts
 * again. A second signal ends every wait at once. */
#ifndef ASH_COLLECTIVE_CORE_WAIT_LIMITS_H
#define ASH_COLLECTIVE_CORE_WAIT_LIMITS_H

#include <stdint.h>

struct ash_wait_limits {
    uint64_t timeout_ns;    /* without a stop request */
    uint64_t stop_grace_ns; /* after one, beyond the longest wait that this process has seen */
};

/* Both limits so much later. */
struct ash_wait_limits ash_wait_limits_later(struct ash_wait_limits limits, uint64_t ns);
/* What a wait that has lasted waited_ns does: 0 (continues), -ETIMEDOUT or -EINTR (ends). Any thread. */
int ash_wait_limits_check(const struct ash_wait_limits *limits, uint64_t waited_ns);
/* A wait has ended well after waited_ns. Any thread. */
void ash_wait_limits_note(uint64_t waited_ns);
/* Why such a wait ended, for the sentence "rank 0 WORDS 2.0 s": "has waited", or that it was told to stop. */
const char *ash_wait_limits_text(int code);

#endif
