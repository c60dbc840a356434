/* SIGINT and SIGTERM as a flag. */
#include "base/interrupt.h"

#include <signal.h>
#include <stdatomic.h>

static _Atomic int requested; /* lock-free, hence safe in a handler */

static void on_signal(int number)
{
    (void)number;
    atomic_store_explicit(&requested, 1, memory_order_relaxed);
}

void ash_interrupt_install(void)
{
    struct sigaction action = {.sa_handler = on_signal};

    atomic_store_explicit(&requested, 0, memory_order_relaxed);
    sigemptyset(&action.sa_mask);
    sigaction(SIGTERM, &action, NULL);
    action.sa_flags = SA_RESETHAND; /* someone who presses Ctrl-C twice means it */
    sigaction(SIGINT, &action, NULL);
}

bool ash_interrupt_requested(void)
{
    return atomic_load_explicit(&requested, memory_order_relaxed) != 0;
}
