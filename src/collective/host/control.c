/* Signals and waits between control blocks. A wait also checks whether the peer is in the same call at all,
 * whether it counts as lost, and the clock. */
#include "collective/host/control.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/hash.h"

static const char *const call_names[] = {"no call",   "barrier",    "all-reduce", "reduce-scatter", "all-gather",
                                         "broadcast", "all-to-all", "all-reduce", "reduce-scatter"};

void ash_control_signal(struct ash_local *local, _Atomic uint64_t *counter, uint64_t value)
{
    atomic_store(counter, value);
    ash_futex_wake(&local->controls[local->rank]->futex);
}

/* ---- errors ------------------------------------------------------------------------------------------------------ */

const char *ash_coll_call_text(const struct ash_coll_call *call, char *buf, size_t buf_bytes)
{
    if (call->kind == ASH_CALL_ALL_REDUCE || call->kind == ASH_CALL_REDUCE_SCATTER ||
        call->kind == ASH_CALL_WINDOW_REDUCE || call->kind == ASH_CALL_WINDOW_PARTS)
        snprintf(buf, buf_bytes, "%s (%s of %s, %llu bytes)", call_names[call->kind], ash_coll_op_name(call->op),
                 ash_coll_dtype_name(call->dtype), (unsigned long long)call->size_bytes);
    else
        snprintf(buf, buf_bytes, "%s (%llu bytes)", call_names[call->kind], (unsigned long long)call->size_bytes);
    return buf;
}

/* All waits on this node see an error in the control block, even if the tree of watches has lost a branch. */
static void publish_failure(struct ash_local *local, int code, size_t failed_rank)
{
    struct ash_control *control = local->controls[local->rank];

    control->failed_rank = (uint32_t)failed_rank;
    memcpy(control->why, local->why, sizeof(control->why));
    atomic_store(&control->failed, code);
    ash_futex_wake(&control->futex);
}

int ash_local_fail(struct ash_local *local, int code, size_t rank, const char *why, struct ash_err *err)
{
    int before = 0;

    ash_assert(code < 0 && code != -EINPROGRESS && why != NULL);
    if (atomic_compare_exchange_strong(&local->state, &before, -EINPROGRESS)) {
        snprintf(local->why, sizeof(local->why), "%s", why);
        atomic_store(&local->failed_rank, rank);
        atomic_store(&local->state, code);
        if (local->size > 0) publish_failure(local, code, rank);
    }
    while ((before = atomic_load(&local->state)) == -EINPROGRESS) /* another thread is writing its reason */
        ash_cpu_relax();
    return ash_err_set(err, before, "%s", local->why);
}

int ash_local_check(struct ash_local *local, struct ash_err *err)
{
    return atomic_load(&local->state) == 0 ? 0 : ash_local_fail(local, -ECONNRESET, 0, "", err);
}

int ash_local_check_node(struct ash_local *local, struct ash_err *err)
{
    for (size_t r = 0; r < local->size && atomic_load(&local->state) == 0; r++) {
        const struct ash_control *control = local->controls[r];
        char why[ASH_ERR_TEXT_BYTES];
        int code = atomic_load(&control->failed);

        if (code == 0) continue;
        memcpy(why, control->why, sizeof(why));
        why[sizeof(why) - 1] = '\0';
        return ash_local_fail(local, code < 0 ? code : -ECONNRESET, control->failed_rank, why, err);
    }
    return ash_local_check(local, err);
}

size_t ash_local_failed_rank(const struct ash_local *local)
{
    return atomic_load(&local->failed_rank);
}

static int mismatch(struct ash_local *local, size_t peer, struct ash_err *err)
{
    char ours[96], theirs[96], why[ASH_ERR_TEXT_BYTES];

    ash_assert(peer < local->size);
    snprintf(why, sizeof(why), "call %llu: rank %u makes %s while rank %u makes %s: all ranks must make the same calls",
             (unsigned long long)local->call.number, local->labels[local->rank],
             ash_coll_call_text(&local->call, ours, sizeof(ours)), local->labels[peer],
             ash_coll_call_text(&local->controls[peer]->call[local->call.number % 2], theirs, sizeof(theirs)));
    return ash_local_fail(local, -EPROTO, local->labels[peer], why, err);
}

/* How far a rank has come: the call that it is in, then its pieces, those that it has finished first: a rank may
 * have copied in further ahead than others that wait for it. */
struct rank_progress {
    uint64_t steps[5];
};

static struct rank_progress progress_of(const struct ash_local *local, size_t rank)
{
    const struct ash_control *control = local->controls[rank];
    uint64_t number = local->call.number, flag = atomic_load(&control->flag) >> ASH_CONTROL_CHECK_BITS,
             inlined = atomic_load(&control->inlined[number % 2].flag) >> ASH_CONTROL_CHECK_BITS;

    ash_assert(rank < local->size);
    if (flag < number && inlined < number) return (struct rank_progress){{0}};
    return (struct rank_progress){{1, atomic_load(&control->finished), atomic_load(&control->taken),
                                   atomic_load(&control->reduced), atomic_load(&control->copied_in)}};
}

static bool is_behind(const struct rank_progress *a, const struct rank_progress *b)
{
    size_t i = 0;

    while (i + 1 < sizeof(a->steps) / sizeof(a->steps[0]) && a->steps[i] == b->steps[i])
        i++;
    return a->steps[i] < b->steps[i];
}

/* The group ends because of a peer, which does or has done `what`. */
static int blame(struct ash_local *local, size_t peer, uint64_t waited_ns, int code, const char *what,
                 struct ash_err *err)
{
    char text[96], why[ASH_ERR_TEXT_BYTES];

    snprintf(why, sizeof(why), "call %llu: rank %u %s %.1f s in %s for rank %u, which %s",
             (unsigned long long)local->call.number, local->labels[local->rank], ash_wait_limits_text(code),
             (double)waited_ns * 1e-9, ash_coll_call_text(&local->call, text, sizeof(text)), local->labels[peer], what);
    return ash_local_fail(local, code, local->labels[peer], why, err);
}

static const char stopped[] = "has stopped in the middle of it";

int ash_control_stopped(struct ash_local *local, size_t peer, uint64_t waited_ns, int code, struct ash_err *err)
{
    ash_assert(peer < local->size);
    return blame(local, peer, waited_ns, code, stopped, err);
}

/* The one we wait for may itself wait for another: the one that is furthest behind is to blame. */
static int late_peer(struct ash_local *local, size_t peer, uint64_t waited_ns, int code, struct ash_err *err)
{
    struct rank_progress least = progress_of(local, peer);

    ash_assert(peer < local->size);
    for (size_t r = 0; r < local->size; r++) {
        struct rank_progress own = progress_of(local, r);

        if (r == local->rank || !is_behind(&own, &least)) continue;
        least = own;
        peer = r;
    }
    return blame(local, peer, waited_ns, code, least.steps[0] == 0 ? "has not made this call" : stopped, err);
}

/* ---- waiting ----------------------------------------------------------------------------------------------------- */

/* Does this flag belong to the present call's number, with another check? */
static bool differs(const struct ash_local *local, uint64_t flag)
{
    return flag >> ASH_CONTROL_CHECK_BITS == local->call.number && flag != local->check;
}

struct control_wait {
    struct ash_local *local;
    size_t peer;
    const _Atomic uint64_t *counter;
    uint64_t value;
};

static int left_peer(struct ash_local *local, size_t peer, struct ash_err *err)
{
    char text[96], why[ASH_ERR_TEXT_BYTES];

    ash_assert(peer < local->size);
    snprintf(why, sizeof(why), "call %llu: rank %u makes %s while rank %u has left the group",
             (unsigned long long)local->call.number, local->labels[local->rank],
             ash_coll_call_text(&local->call, text, sizeof(text)), local->labels[peer]);
    return ash_local_fail(local, -EPROTO, local->labels[peer], why, err);
}

static int on_progress(void *ctx, uint64_t waited_ns, struct ash_err *err)
{
    const struct control_wait *wait = ctx;
    struct ash_local *local = wait->local;
    size_t peer = wait->peer;
    const struct ash_control *control = local->controls[peer];
    int rc = ash_local_check_node(local, err);

    if (rc < 0) return rc;
    if (differs(local, atomic_load(&control->flag)) ||
        differs(local, atomic_load(&control->inlined[local->call.number % 2].flag)))
        return mismatch(local, peer, err);
    if (atomic_load(&control->left) != 0 && atomic_load(wait->counter) < wait->value)
        return left_peer(local, peer, err);
    rc = ash_wait_limits_check(&local->limits, waited_ns);
    return rc < 0 ? late_peer(local, peer, waited_ns, rc, err) : 0;
}

int ash_control_wait(struct ash_local *local, size_t peer, const _Atomic uint64_t *counter, uint64_t value,
                     struct ash_err *err)
{
    struct control_wait wait = {local, peer, counter, value};

    ash_assert(peer < local->size && peer != local->rank);
    return ash_futex_wait(&local->controls[peer]->futex, counter, value, local->oversubscribed, on_progress, &wait,
                          err);
}

/* A flag of a later call is as good: its rank has seen ours and found it equal. */
int ash_control_wait_flag(struct ash_local *local, size_t peer, const _Atomic uint64_t *flag, struct ash_err *err)
{
    int rc = ash_control_wait(local, peer, flag, local->call.number << ASH_CONTROL_CHECK_BITS, err);

    ash_assert(peer < local->size);
    if (rc < 0) return rc;
    return differs(local, atomic_load_explicit(flag, memory_order_acquire)) ? mismatch(local, peer, err) : 0;
}

static uint64_t check_of(const struct ash_coll_call *call)
{
    uint64_t words = (uint64_t)call->kind << 32 | (uint64_t)call->dtype << 24 | (uint64_t)call->op << 16 | call->root;

    return ash_hash_mix(call->size_bytes ^ ash_hash_mix(words)) >> (64 - ASH_CONTROL_CHECK_BITS);
}

int ash_control_begin(struct ash_local *local, struct ash_coll_call call, struct ash_err *err)
{
    int rc = ash_local_check(local, err);

    ash_assert(local->size > 0 && call.kind != ASH_CALL_NONE);
    if (rc < 0) return rc;
    call.number = local->call.number + 1;
    local->call = call;
    local->controls[local->rank]->call[call.number % 2] = call;
    local->check = call.number << ASH_CONTROL_CHECK_BITS | check_of(&call);
    return 0;
}
