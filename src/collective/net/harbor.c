/* Progress of the endpoint: polls, sleeps, and events handed to the docks that they belong to. */
#include "collective/net/harbor.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/thread.h"
#include "collective/core/bell.h"
#include "collective/net/dock.h"

#define EVENTS 64
#define YIELD_NS 200000ull   /* a waiter gives its core away for so long before it sleeps */
#define SLEEP_NS 20000000ull /* at most, so that bad news from elsewhere is noticed */
#define REST_NS 5000000ull   /* the thread looks this often whether somebody still waits */
#define IDLE_NS 100000000ull /* the longest sleep that the endpoint allows */

/* ---- progress ---------------------------------------------------------------------------------------------------- */

/* Take what has happened. The lock is held. Returns how many events there were. */
static size_t take_events(struct ash_harbor *harbor)
{
    struct ash_fabric_event events[EVENTS];
    size_t count = ash_fabric_poll(harbor->fabric, events, EVENTS);

    for (size_t i = 0; i < count; i++)
        ash_dock_event(harbor, &events[i]);
    if (count > 0) pthread_cond_broadcast(&harbor->news);
    return count;
}

void ash_harbor_poll(struct ash_harbor *harbor)
{
    pthread_mutex_lock(&harbor->lock);
    take_events(harbor);
    pthread_mutex_unlock(&harbor->lock);
}

/* Poll if nobody else does. */
static size_t try_events(struct ash_harbor *harbor)
{
    size_t count;

    if (pthread_mutex_trylock(&harbor->lock) != 0) return 0;
    count = take_events(harbor);
    pthread_mutex_unlock(&harbor->lock);
    return count;
}

/* Wait on the condition for so long. The lock is held. */
static void rest(struct ash_harbor *harbor, uint64_t ns)
{
    struct timespec until;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += (long)ns;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_cond_timedwait(&harbor->news, &harbor->lock, &until);
}

/* Sleep until something happens, or for ns (under a second). One thread sleeps on the descriptor, the others on it. */
static void sleep_on(struct ash_harbor *harbor, const _Atomic uint64_t *counter, uint64_t value, uint64_t ns)
{
    struct pollfd entries[2] = {{.fd = harbor->wake_fd, .events = POLLIN}, {.events = POLLIN}};

    pthread_mutex_lock(&harbor->lock);
    if (harbor->asleep) {
        if (counter == NULL || atomic_load(counter) < value) rest(harbor, ns);
        pthread_mutex_unlock(&harbor->lock);
        return;
    }
    entries[1].fd = ash_fabric_wait_fd(harbor->fabric);
    if (take_events(harbor) == 0 && !harbor->stop && (counter == NULL || atomic_load(counter) < value)) {
        harbor->asleep = true;
        pthread_mutex_unlock(&harbor->lock);
        if (entries[1].fd >= 0)
            poll(entries, 2, (int)(ns / 1000000) + 1);
        else
            sched_yield(); /* this provider can only be polled */
        pthread_mutex_lock(&harbor->lock);
        harbor->asleep = false;
        take_events(harbor);
        pthread_cond_broadcast(&harbor->news); /* another one sleeps on the descriptor now */
    }
    pthread_mutex_unlock(&harbor->lock);
}

bool ash_harbor_wait(struct ash_harbor *harbor, const _Atomic uint64_t *counter, uint64_t value, uint64_t until_ns)
{
    uint64_t now_ns = ash_clock_ns(), since_ns = now_ns;
    bool there, yields = !ash_bell_gives_way(); /* beside one that computes even that takes its time */

    atomic_fetch_add(&harbor->waiters, 1);
    while (!(there = atomic_load_explicit(counter, memory_order_acquire) >= value) && now_ns < until_ns) {
        uint64_t left_ns = until_ns - now_ns;

        if (try_events(harbor) > 0)
            since_ns = ash_clock_ns();
        else if (yields && now_ns - since_ns < YIELD_NS)
            sched_yield();
        else
            sleep_on(harbor, counter, value, left_ns < SLEEP_NS ? left_ns : SLEEP_NS);
        now_ns = ash_clock_ns();
    }
    atomic_fetch_sub(&harbor->waiters, 1);
    return there;
}

/* Polls while nobody waits. */
static void *harbor_main(void *arg)
{
    struct ash_harbor *harbor = arg;
    bool stop = false;

    while (!stop) {
        if (atomic_load(&harbor->waiters) == 0) sleep_on(harbor, NULL, 0, IDLE_NS);
        pthread_mutex_lock(&harbor->lock);
        if (!harbor->stop && atomic_load(&harbor->waiters) > 0) rest(harbor, REST_NS);
        stop = harbor->stop;
        pthread_mutex_unlock(&harbor->lock);
    }
    return NULL;
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

static int start_thread(struct ash_harbor *harbor, struct ash_err *err)
{
    int rc = ash_thread_start(&harbor->thread, harbor_main, harbor);

    harbor->has_thread = rc == 0;
    return rc == 0 ? 0 : ash_err_set(err, rc, "the network's thread cannot be started: %s", strerror(-rc));
}

int ash_harbor_open(const struct ash_fabric_opts *opts, const char *node, const char *address,
                    struct ash_harbor **harbor_out, struct ash_err *err)
{
    struct ash_fabric_opts own = opts != NULL ? *opts : (struct ash_fabric_opts){0};
    struct ash_harbor *harbor = calloc(1, sizeof(*harbor));
    int rc;

    if (harbor == NULL) return ash_err_set(err, -ENOMEM, "out of memory for the network");
    pthread_mutex_init(&harbor->lock, NULL);
    ash_cond_init(&harbor->news);
    own.node = node;
    own.address = address;
    harbor->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    rc = harbor->wake_fd < 0 ? ash_err_set(err, -errno, "the network cannot be used: %s", strerror(errno)) : 0;
    if (rc == 0) rc = ash_fabric_open(&own, &harbor->fabric, err);
    if (rc == 0) rc = start_thread(harbor, err);
    if (rc < 0) {
        ash_harbor_close(harbor);
        return rc;
    }
    *harbor_out = harbor;
    return 0;
}

void ash_harbor_close(struct ash_harbor *harbor)
{
    uint64_t one = 1;

    if (harbor == NULL) return;
    pthread_mutex_lock(&harbor->lock);
    harbor->stop = true;
    pthread_cond_broadcast(&harbor->news);
    pthread_mutex_unlock(&harbor->lock);
    if (harbor->has_thread && write(harbor->wake_fd, &one, sizeof(one)) > 0) pthread_join(harbor->thread, NULL);
    ash_fabric_close(harbor->fabric);
    if (harbor->wake_fd >= 0) close(harbor->wake_fd);
    pthread_cond_destroy(&harbor->news);
    pthread_mutex_destroy(&harbor->lock);
    free(harbor);
}

void ash_harbor_addr(struct ash_harbor *harbor, struct ash_fabric_addr *addr_out)
{
    pthread_mutex_lock(&harbor->lock);
    ash_fabric_addr(harbor->fabric, addr_out);
    pthread_mutex_unlock(&harbor->lock);
}

int ash_harbor_connect(struct ash_harbor *harbor, uint32_t rank, const struct ash_fabric_addr *addr,
                       struct ash_err *err)
{
    int rc;

    pthread_mutex_lock(&harbor->lock);
    rc = ash_fabric_add_peer(harbor->fabric, rank, addr, err);
    pthread_mutex_unlock(&harbor->lock);
    return rc;
}

void ash_harbor_disconnect(struct ash_harbor *harbor, uint32_t rank)
{
    pthread_mutex_lock(&harbor->lock);
    ash_fabric_drop_peer(harbor->fabric, rank);
    pthread_mutex_unlock(&harbor->lock);
}
