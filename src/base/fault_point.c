/* fault_point: SIGKILL, which nothing can catch: what is lost is what a crash of the machine would take, too. */
#include "base/fault_point.h"

#include <signal.h>
#include <stdatomic.h>

#include "base/assert.h"

static _Atomic int armed;

void ash_fault_point_arm(enum ash_fault_point point)
{
    ash_assert(point < ASH_FAULT_POINTS);
    atomic_store_explicit(&armed, (int)point, memory_order_relaxed);
}

void ash_fault_point_meet(enum ash_fault_point point)
{
    if (atomic_load_explicit(&armed, memory_order_relaxed) == (int)point) raise(SIGKILL);
}
