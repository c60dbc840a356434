/* When waits end. To the others, a rank that computes is like one that never comes. So the grace after a stop request
 * starts from the longest wait before it. */
#include "collective/core/wait_limits.h"

#include <errno.h>
#include <stdatomic.h>

#include "base/interrupt.h"

static _Atomic uint64_t longest_ns; /* wait of this process that has ended well */

struct ash_wait_limits ash_wait_limits_later(struct ash_wait_limits limits, uint64_t ns)
{
    limits.timeout_ns += ns;
    limits.stop_grace_ns += ns;
    return limits;
}

int ash_wait_limits_check(const struct ash_wait_limits *limits, uint64_t waited_ns)
{
    uint64_t allowed_ns = limits->stop_grace_ns + atomic_load_explicit(&longest_ns, memory_order_relaxed);

    if (waited_ns > limits->timeout_ns) return -ETIMEDOUT;
    /* of two periods, the shorter one counts: since the wait began, and since the request came */
    return ash_interrupt_ends_wait(waited_ns > allowed_ns ? allowed_ns : UINT64_MAX) ? -EINTR : 0;
}

void ash_wait_limits_note(uint64_t waited_ns)
{
    uint64_t before_ns = atomic_load_explicit(&longest_ns, memory_order_relaxed);

    while (waited_ns > before_ns && !atomic_compare_exchange_weak(&longest_ns, &before_ns, waited_ns))
        continue;
}

const char *ash_wait_limits_text(int code)
{
    return code == -EINTR ? "was told to stop after it had waited" : "has waited";
}
