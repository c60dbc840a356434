/* fault_point: SIGKILL, which no process can catch: it loses as much as a crash of the machine. */
#include "base/fault_point.h"

#include <signal.h>
#include <stdatomic.h>

#include "base/assert.h"

static _Atomic int armed;
static _Atomic unsigned passes; /* that it lives through */

void ash_fault_point_arm(enum ash_fault_point point)
{
    ash_fault_point_arm_later(point, 0);
}

void ash_fault_point_arm_later(enum ash_fault_point point, unsigned times)
{
    ash_assert(point < ASH_FAULT_POINTS);
    atomic_store_explicit(&passes, times, memory_order_relaxed);
    atomic_store_explicit(&armed, (int)point, memory_order_relaxed);
}

void ash_fault_point_meet(enum ash_fault_point point)
{
    if (atomic_load_explicit(&armed, memory_order_relaxed) != (int)point) return;
    if (atomic_fetch_sub_explicit(&passes, 1, memory_order_relaxed) == 0) raise(SIGKILL);
}
