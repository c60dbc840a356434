/* Waits in shared memory. A sleeper counts itself before it reads the counter for the last time, and the thread that
 * raises the counter reads the number of sleepers afterwards: one of the two sees the other. */
#include "collective/core/futex.h"

#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "collective/core/wait_limits.h"

#define SPINS 2000 /* some microseconds: longer than a peer that is on its way needs */
#define SPINS_OVERSUBSCRIBED 50
#define YIELD_NS 200000ull   /* then give the core away for so long before sleeping */
#define SLICE_NS 20000000ull /* a sleeper calls progress this often */

static _Thread_local bool yields_early;

void ash_futex_yield_early(void)
{
    yields_early = true;
}

bool ash_futex_yields_early(void)
{
    return yields_early;
}

void ash_cpu_relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

void ash_futex_wake(struct ash_futex *futex)
{
    if (atomic_load(&futex->sleepers) == 0) return;
    atomic_fetch_add(&futex->sequence, 1);
    syscall(SYS_futex, &futex->sequence, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* Sleep until woken or a slice of time has passed. */
static void sleep_on(struct ash_futex *futex, const _Atomic uint64_t *counter, uint64_t value)
{
    const struct timespec slice = {.tv_nsec = SLICE_NS};
    uint32_t sequence;

    atomic_fetch_add(&futex->sleepers, 1);
    sequence = atomic_load(&futex->sequence);
    if (atomic_load(counter) < value) syscall(SYS_futex, &futex->sequence, FUTEX_WAIT, sequence, &slice, NULL, 0);
    atomic_fetch_sub(&futex->sleepers, 1);
}

static int wait_long(struct ash_futex *futex, const _Atomic uint64_t *counter, uint64_t value,
                     ash_futex_progress_fn progress, void *ctx, struct ash_err *err)
{
    uint64_t since_ns = ash_clock_ns(), waited_ns = 0;

    while (atomic_load_explicit(counter, memory_order_acquire) < value) {
        int rc;

        waited_ns = ash_clock_ns() - since_ns;
        rc = progress(ctx, waited_ns, err);
        if (rc < 0 && atomic_load(counter) < value) return rc; /* arrived data counts: the next wait fails */
        if (waited_ns < YIELD_NS)
            sched_yield();
        else
            sleep_on(futex, counter, value);
    }
    ash_wait_limits_note(waited_ns);
    return 0;
}

int ash_futex_wait(struct ash_futex *futex, const _Atomic uint64_t *counter, uint64_t value, bool oversubscribed,
                   ash_futex_progress_fn progress, void *ctx, struct ash_err *err)
{
    for (int spins = oversubscribed || yields_early ? SPINS_OVERSUBSCRIBED : SPINS; spins > 0; spins--) {
        if (atomic_load_explicit(counter, memory_order_acquire) >= value) return 0;
        ash_cpu_relax();
    }
    return wait_long(futex, counter, value, progress, ctx, err);
}
