/* SIGINT, SIGTERM and SIGHUP as a flag, and when it was raised. */
#include "base/interrupt.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"

#define SAME_REQUEST_NS 500000000ull /* a launcher forwards a signal that the terminal has sent to its ranks too */

/* All lock-free, hence safe in a handler. */
static _Atomic uint64_t requested_ns; /* of the first signal; 0: none */
static _Atomic bool urgent, taken_up;
static _Atomic int first_signal;           /* its number; 0: none */
static const char *_Atomic announced_text; /* written when it arrives; NULL: nothing */

/* With what a handler may call. */
static void announce(int number)
{
    const char *text = atomic_load(&announced_text);

    atomic_store(&first_signal, number);
    if (text != NULL && write(STDERR_FILENO, text, strlen(text)) < 0) return; /* no reader is left */
}

static void on_signal(int number)
{
    uint64_t now_ns = ash_clock_ns(), first_ns = 0;
    int cause = errno;

    if (atomic_compare_exchange_strong(&requested_ns, &first_ns, now_ns))
        announce(number);
    else if (now_ns - first_ns > SAME_REQUEST_NS)
        atomic_store(&urgent, true);
    errno = cause;
}

void ash_interrupt_install(void)
{
    struct sigaction action = {.sa_handler = on_signal}, before;

    atomic_store(&requested_ns, 0);
    atomic_store(&urgent, false);
    atomic_store(&taken_up, false);
    atomic_store(&first_signal, 0);
    atomic_store(&announced_text, NULL);
    sigemptyset(&action.sa_mask);
    sigaction(SIGTERM, &action, NULL);
    /* a terminal that was closed; but nohup means that this must not matter */
    if (sigaction(SIGHUP, NULL, &before) == 0 && before.sa_handler != SIG_IGN) sigaction(SIGHUP, &action, NULL);
    action.sa_flags = SA_RESETHAND; /* a second Ctrl-C ends the process at once */
    sigaction(SIGINT, &action, NULL);
}

bool ash_interrupt_requested(void)
{
    return atomic_load_explicit(&requested_ns, memory_order_relaxed) != 0;
}

int ash_interrupt_signal(void)
{
    return atomic_load(&first_signal);
}

void ash_interrupt_announce(const char *text)
{
    atomic_store(&announced_text, text);
}

void ash_interrupt_take_up(void)
{
    atomic_store(&taken_up, true);
}

bool ash_interrupt_ends_wait(uint64_t grace_ns)
{
    uint64_t since_ns = atomic_load_explicit(&requested_ns, memory_order_relaxed);

    if (since_ns == 0) return false;
    return atomic_load(&urgent) || (!atomic_load(&taken_up) && ash_clock_ns() - since_ns > grace_ns);
}
