/* Rounds, and the only wait of the host. Each pair of ranks has two words in the reader's memory: how many rounds the
 * other one is ready for, and how many it is done with. */
#include "collective/host/device_rounds.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/math.h"
#include "collective/host/control.h"

#define SLOT_BYTES_MIN ((size_t)1 << 20)
#define SLOT_BYTES_MAX ((size_t)32 << 20)
#define SPIN_NS 200000ull       /* then the core goes to others between looks, */
#define NAP_AFTER_NS 5000000ull /* and then this thread sleeps between them */
#define NAP_NS 100000
#define LET_GO_NS 30000000000ull /* that a queue may need to come to its mark when nothing holds it */

/* ---- life -------------------------------------------------------------------------------------------------------- */

int ash_device_calls_open(struct ash_local *local, const struct ash_device_memory *memory,
                          struct ash_device_calls **calls_out, struct ash_err *err)
{
    struct ash_device_calls *calls = calloc(1, sizeof(*calls));
    int rc;

    if (calls == NULL) return ash_err_set(err, -ENOMEM, "out of memory for calls between devices");
    calls->local = local;
    calls->ops = memory->queues;
    calls->slot_bytes_most = SLOT_BYTES_MAX;
    rc = calls->ops->open(memory->device, &calls->queue, err);
    if (rc < 0) {
        ash_device_calls_close(calls);
        return rc;
    }
    *calls_out = calls;
    return 0;
}

void ash_device_calls_close(struct ash_device_calls *calls)
{
    if (calls == NULL) return;
    ash_window_close(calls->window);
    calls->ops->close(calls->queue);
    free(calls);
}

/* ---- a window ---------------------------------------------------------------------------------------------------- */

/* Where there is no room for a larger window, the one that is there is used for good. */
static int grow(struct ash_device_calls *calls, size_t slot_bytes, struct ash_err *err)
{
    struct ash_window *window = NULL;
    int rc =
        ash_window_open_device(calls->local, calls->ops, calls->queue, ASH_DEVICE_SLOTS * slot_bytes, &window, err);

    if (rc == -ENOTSUP && calls->window != NULL) {
        calls->slot_bytes_most = calls->slot_bytes;
        return 0;
    }
    if (rc < 0) return rc;
    ash_window_close(calls->window); /* others may still read it: they have it mapped */
    calls->window = window;
    calls->slot_bytes = slot_bytes;
    calls->round = 0;
    return 0;
}

int ash_device_rounds_begin(struct ash_device_calls *calls, size_t wanted_bytes, size_t pieces, struct ash_err *err)
{
    struct ash_coll_call call = calls->local->call;
    size_t slot_bytes = SLOT_BYTES_MIN;
    int rc = 0;

    while (slot_bytes < wanted_bytes && slot_bytes < calls->slot_bytes_most)
        slot_bytes *= 2;
    if (slot_bytes > calls->slot_bytes) rc = grow(calls, slot_bytes, err);
    if (rc == 0 && calls->slot_bytes / pieces < ASH_DEVICE_ALIGN)
        rc = ash_err_set(err, -ENOTSUP, "a window of %zu bytes is too small for %zu pieces", calls->slot_bytes, pieces);
    if (rc < 0) return rc;
    call.number = calls->local->call.number; /* the ranks may have met since; this is still the call */
    calls->local->call = call;
    calls->ops->begin(calls->queue);
    /* how far the own device is: until then others are not to blame */
    calls->ops->write(calls->queue, &ash_window_words_of(calls->window, calls->local->rank, calls->local->rank)->ready,
                      calls->local->call.number);
    return 0;
}

/* ---- rounds ------------------------------------------------------------------------------------------------------ */

/* Words of a rank for this one, and of this one for that. */
static struct ash_window_words *words_from(const struct ash_device_calls *calls, size_t rank)
{
    return ash_window_words_of(calls->window, rank, calls->local->rank);
}

static struct ash_window_words *words_to(const struct ash_device_calls *calls, size_t rank)
{
    return ash_window_words_of(calls->window, calls->local->rank, rank);
}

uint64_t ash_device_round_fill(struct ash_device_calls *calls)
{
    uint64_t round = calls->round++;

    for (size_t r = 0; r < calls->local->size && round >= ASH_DEVICE_SLOTS; r++)
        if (r != calls->local->rank)
            calls->ops->wait(calls->queue, &words_from(calls, r)->done, round + 1 - ASH_DEVICE_SLOTS);
    return round;
}

void ash_device_round_meet(struct ash_device_calls *calls, uint64_t round)
{
    for (size_t r = 0; r < calls->local->size; r++)
        if (r != calls->local->rank) calls->ops->write(calls->queue, &words_to(calls, r)->ready, round + 1);
    for (size_t r = 0; r < calls->local->size; r++)
        if (r != calls->local->rank) calls->ops->wait(calls->queue, &words_from(calls, r)->ready, round + 1);
}

void ash_device_round_done(struct ash_device_calls *calls, uint64_t round)
{
    for (size_t r = 0; r < calls->local->size; r++)
        if (r != calls->local->rank) calls->ops->write(calls->queue, &words_to(calls, r)->done, round + 1);
}

char *ash_device_slot(const struct ash_device_calls *calls, uint64_t round, size_t rank)
{
    return (char *)ash_window_data_of(calls->window, rank) + round % ASH_DEVICE_SLOTS * calls->slot_bytes;
}

/* ---- the wait ---------------------------------------------------------------------------------------------------- */

/* Let all waits of the own queue pass, so that it comes to its mark; its results are thrown away. A word that a
 * rank still raises is set again. */
static void let_go(const struct ash_device_calls *calls)
{
    const struct timespec nap = {.tv_nsec = NAP_NS};
    uint64_t since_ns = ash_clock_ns();

    while (calls->ops->poll(calls->queue, NULL) == 0 && ash_clock_ns() - since_ns < LET_GO_NS) {
        for (size_t r = 0; r < calls->local->size; r++) {
            atomic_store(&words_from(calls, r)->ready, ASH_DEVICE_COUNTER_MOST);
            atomic_store(&words_from(calls, r)->done, ASH_DEVICE_COUNTER_MOST);
        }
        nanosleep(&nap, NULL);
    }
}

/* The rank that is furthest behind, of those that the queue may wait for; this one: none is. */
static size_t slowest(const struct ash_device_calls *calls)
{
    uint64_t least = calls->round; /* all rounds of the call are enqueued */
    size_t found = calls->local->rank;

    for (size_t r = 0; r < calls->local->size; r++) {
        uint64_t ready = atomic_load(&words_from(calls, r)->ready);

        if (r == calls->local->rank || ready >= least) continue;
        least = ready;
        found = r;
    }
    return found;
}

static int own_is_late(struct ash_local *local, uint64_t waited_ns, int code, struct ash_err *err)
{
    char text[96], why[ASH_ERR_TEXT_BYTES];

    snprintf(why, sizeof(why), "call %llu: rank %u %s %.1f s in %s for its own device",
             (unsigned long long)local->call.number, local->labels[local->rank], ash_wait_limits_text(code),
             (double)waited_ns * 1e-9, ash_coll_call_text(&local->call, text, sizeof(text)));
    return ash_local_fail(local, code, local->labels[local->rank], why, err);
}

/* Must the wait end? */
static int check(const struct ash_device_calls *calls, uint64_t waited_ns, struct ash_err *err)
{
    struct ash_local *local = calls->local;
    int rc = ash_local_check_node(local, err);
    size_t late;

    if (rc < 0) return rc;
    rc = ash_wait_limits_check(&local->limits, waited_ns);
    if (rc == 0) return 0;
    late = slowest(calls);
    return late == local->rank ? own_is_late(local, waited_ns, rc, err)
                               : ash_control_stopped(local, late, waited_ns, rc, err);
}

static void pause_for(uint64_t waited_ns)
{
    const struct timespec nap = {.tv_nsec = NAP_NS};

    if (waited_ns > NAP_AFTER_NS)
        nanosleep(&nap, NULL);
    else if (waited_ns > SPIN_NS || ash_futex_yields_early())
        sched_yield();
    else
        ash_cpu_relax();
}

int ash_device_rounds_end(struct ash_device_calls *calls, struct ash_err *err)
{
    const _Atomic uint64_t *begun = &words_from(calls, calls->local->rank)->ready;
    uint64_t since_ns = ash_clock_ns(), waited_ns = 0;
    bool has_begun = false;
    int rc;

    calls->ops->end(calls->queue);
    while ((rc = calls->ops->poll(calls->queue, err)) == 0) {
        if (!has_begun && atomic_load(begun) >= calls->local->call.number) {
            has_begun = true; /* the own device has come so far: from now on others are waited for */
            since_ns = ash_clock_ns();
        }
        waited_ns = ash_clock_ns() - since_ns;
        rc = has_begun ? check(calls, waited_ns, err) : ash_local_check_node(calls->local, err);
        if (rc < 0) break;
        pause_for(waited_ns);
    }
    if (rc < 0) {
        let_go(calls);
        return rc;
    }
    if (has_begun) ash_wait_limits_note(waited_ns);
    return 0;
}
