/* Progress of the endpoint: polls, sleeps, and events given to the mailboxes that they belong to. */
#include "collective/net/progress.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/thread.h"
#include "collective/core/futex.h"
#include "collective/net/mailbox.h"

#define EVENTS 64
#define YIELD_NS 200000ull   /* a waiter gives its core away for so long before it sleeps */
#define SLEEP_NS 20000000ull /* at most, so that bad news from elsewhere is noticed */
#define REST_NS 5000000ull   /* the thread checks this often whether a thread still waits */
#define IDLE_NS 100000000ull /* the longest sleep that the endpoint allows */

/* ---- progress ---------------------------------------------------------------------------------------------------- */

/* Handle all pending events. The lock is held. Returns how many events there were. */
static size_t take_events(struct ash_progress *progress)
{
    struct ash_fabric_event events[EVENTS];
    size_t count = ash_fabric_poll(progress->fabric, events, EVENTS);

    for (size_t i = 0; i < count; i++)
        ash_mailbox_event(progress, &events[i]);
    if (count > 0) pthread_cond_broadcast(&progress->news);
    return count;
}

void ash_progress_poll(struct ash_progress *progress)
{
    pthread_mutex_lock(&progress->lock);
    take_events(progress);
    pthread_mutex_unlock(&progress->lock);
}

/* Poll if no other thread does. */
static size_t try_events(struct ash_progress *progress)
{
    size_t count;

    if (pthread_mutex_trylock(&progress->lock) != 0) return 0;
    count = take_events(progress);
    pthread_mutex_unlock(&progress->lock);
    return count;
}

/* Wait on the condition for so long. The lock is held. */
static void rest(struct ash_progress *progress, uint64_t ns)
{
    struct timespec until;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += (long)ns;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_cond_timedwait(&progress->news, &progress->lock, &until);
}

/* Sleep until something happens, or for ns (under a second). One thread sleeps on the descriptor, the others on it. */
static void sleep_on(struct ash_progress *progress, const _Atomic uint64_t *counter, uint64_t value, uint64_t ns)
{
    struct pollfd entries[2] = {{.fd = progress->wake_fd, .events = POLLIN}, {.events = POLLIN}};

    pthread_mutex_lock(&progress->lock);
    if (progress->asleep) {
        if (counter == NULL || atomic_load(counter) < value) rest(progress, ns);
        pthread_mutex_unlock(&progress->lock);
        return;
    }
    entries[1].fd = ash_fabric_wait_fd(progress->fabric);
    if (take_events(progress) == 0 && !progress->stop && (counter == NULL || atomic_load(counter) < value)) {
        progress->asleep = true;
        pthread_mutex_unlock(&progress->lock);
        if (entries[1].fd >= 0)
            poll(entries, 2, (int)(ns / 1000000) + 1);
        else
            sched_yield(); /* this provider can only be polled */
        pthread_mutex_lock(&progress->lock);
        progress->asleep = false;
        take_events(progress);
        pthread_cond_broadcast(&progress->news); /* another one sleeps on the descriptor now */
    }
    pthread_mutex_unlock(&progress->lock);
}

bool ash_progress_wait(struct ash_progress *progress, const _Atomic uint64_t *counter, uint64_t value,
                       uint64_t until_ns)
{
    uint64_t now_ns = ash_clock_ns(), since_ns = now_ns;
    bool there, yields = !ash_futex_yields_early(); /* next to a thread that computes, even a yield is slow */

    atomic_fetch_add(&progress->waiters, 1);
    while (!(there = atomic_load_explicit(counter, memory_order_acquire) >= value) && now_ns < until_ns) {
        uint64_t left_ns = until_ns - now_ns;

        if (try_events(progress) > 0)
            since_ns = ash_clock_ns();
        else if (yields && now_ns - since_ns < YIELD_NS)
            sched_yield();
        else
            sleep_on(progress, counter, value, left_ns < SLEEP_NS ? left_ns : SLEEP_NS);
        now_ns = ash_clock_ns();
    }
    atomic_fetch_sub(&progress->waiters, 1);
    return there;
}

/* Polls while no thread waits. */
static void *progress_main(void *arg)
{
    struct ash_progress *progress = arg;
    bool stop = false;

    while (!stop) {
        if (atomic_load(&progress->waiters) == 0) sleep_on(progress, NULL, 0, IDLE_NS);
        pthread_mutex_lock(&progress->lock);
        if (!progress->stop && atomic_load(&progress->waiters) > 0) rest(progress, REST_NS);
        stop = progress->stop;
        pthread_mutex_unlock(&progress->lock);
    }
    return NULL;
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

static int start_thread(struct ash_progress *progress, struct ash_err *err)
{
    int rc = ash_thread_start(&progress->thread, progress_main, progress);

    progress->has_thread = rc == 0;
    return rc == 0 ? 0 : ash_err_set(err, rc, "the network's thread cannot be started: %s", strerror(-rc));
}

int ash_progress_open(const struct ash_fabric_opts *opts, const char *node, const char *address,
                      struct ash_progress **progress_out, struct ash_err *err)
{
    struct ash_fabric_opts own = opts != NULL ? *opts : (struct ash_fabric_opts){0};
    struct ash_progress *progress = calloc(1, sizeof(*progress));
    int rc;

    if (progress == NULL) return ash_err_set(err, -ENOMEM, "out of memory for the network");
    pthread_mutex_init(&progress->lock, NULL);
    ash_cond_init(&progress->news);
    own.node = node;
    own.address = address;
    progress->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    rc = progress->wake_fd < 0 ? ash_err_set(err, -errno, "the network cannot be used: %s", strerror(errno)) : 0;
    if (rc < 0) goto fail;
    rc = ash_fabric_open(&own, &progress->fabric, err);
    if (rc < 0) goto fail;
    rc = start_thread(progress, err);
    if (rc < 0) goto fail;
    *progress_out = progress;
    return 0;

fail:
    ash_progress_close(progress);
    return rc;
}

void ash_progress_close(struct ash_progress *progress)
{
    uint64_t one = 1;

    if (progress == NULL) return;
    pthread_mutex_lock(&progress->lock);
    progress->stop = true;
    pthread_cond_broadcast(&progress->news);
    pthread_mutex_unlock(&progress->lock);
    if (progress->has_thread && write(progress->wake_fd, &one, sizeof(one)) > 0) pthread_join(progress->thread, NULL);
    ash_fabric_close(progress->fabric);
    if (progress->wake_fd >= 0) close(progress->wake_fd);
    pthread_cond_destroy(&progress->news);
    pthread_mutex_destroy(&progress->lock);
    free(progress);
}

void ash_progress_get_addr(struct ash_progress *progress, struct ash_fabric_addr *addr_out)
{
    pthread_mutex_lock(&progress->lock);
    ash_fabric_get_addr(progress->fabric, addr_out);
    pthread_mutex_unlock(&progress->lock);
}

int ash_progress_connect(struct ash_progress *progress, uint32_t rank, const struct ash_fabric_addr *addr,
                         struct ash_err *err)
{
    int rc;

    pthread_mutex_lock(&progress->lock);
    rc = ash_fabric_add_peer(progress->fabric, rank, addr, err);
    pthread_mutex_unlock(&progress->lock);
    return rc;
}

void ash_progress_disconnect(struct ash_progress *progress, uint32_t rank)
{
    pthread_mutex_lock(&progress->lock);
    ash_fabric_drop_peer(progress->fabric, rank);
    pthread_mutex_unlock(&progress->lock);
}
