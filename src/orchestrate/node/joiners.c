/* Processes that join a job that runs: lost ones that come back, more that are wanted, and those that wait in vain. */
#include <signal.h>

#include "base/clock.h"
#include "base/log.h"
#include "orchestrate/node/ends.h"
#include "orchestrate/node/supervisor_priv.h"

#define LOOK_WANTED_NS 200000000u
#define LOOK_OTHERS_NS 1000000000u

bool ash_node_awaits_return(const struct ash_node_watch *watch)
{
    for (size_t i = 0; i < watch->supervisor->count && watch->supervisor->has_others != NULL; i++)
        if (watch->lives[i].again_ns != 0) return true;
    return false;
}

/* Has no rank elsewhere answered for too long? Checked periodically. */
static bool are_others_gone(struct ash_node_watch *watch)
{
    const struct ash_supervisor *supervisor = watch->supervisor;
    uint64_t now_ns = ash_clock_ns();

    if (supervisor->has_others == NULL) return true;
    if (watch->running == 0 && !ash_node_awaits_return(watch)) return false;
    if (now_ns < watch->others_ns) return false;
    watch->others_ns = now_ns + LOOK_OTHERS_NS;
    if (supervisor->has_others(supervisor->ctx))
        watch->alone_ns = 0;
    else if (watch->alone_ns == 0)
        watch->alone_ns = now_ns;
    return watch->alone_ns != 0 && (double)(now_ns - watch->alone_ns) * 1e-9 >= supervisor->alone_s;
}

/* Those that wait for a place in a job that is over, or whose ranks are all lost, wait in vain. They hold nothing. */
static void drop_joiners(struct ash_node_watch *watch)
{
    size_t count = watch->supervisor->count;

    for (size_t i = 0; i < count; i++)
        if (watch->processes[i].pid > 0 && ash_node_is_placed(watch, i)) return;
    if (!are_others_gone(watch)) return;
    if (watch->supervisor->has_others != NULL && !watch->is_interrupted) {
        ash_log(ASH_LOG_ERROR, "no rank of the job answers any more: what waits here for a place ends");
        if (watch->code == 0) watch->code = ASH_END_FAILED;
    }
    for (size_t i = 0; i < count; i++) {
        watch->lives[i].again_ns = 0;
        watch->lives[i].is_dropped = true;
        if (watch->processes[i].pid > 0) kill(watch->processes[i].pid, SIGKILL);
    }
}

/* A request for more processes than there are: restart those that have left, or failed for good. */
static void heed_wanted(struct ash_node_watch *watch)
{
    const struct ash_supervisor *supervisor = watch->supervisor;
    size_t wanted, coming = watch->running;

    if (supervisor->wanted == NULL || ash_clock_ns() < watch->look_ns) return;
    watch->look_ns = ash_clock_ns() + LOOK_WANTED_NS;
    wanted = supervisor->wanted(supervisor->ctx, watch->running);
    if (wanted == 0) return;
    for (size_t i = 0; i < supervisor->count; i++)
        coming += watch->lives[i].again_ns != 0;
    for (size_t i = 0; i < supervisor->count && coming < wanted; i++) {
        if (watch->processes[i].pid > 0 || watch->lives[i].again_ns != 0) continue;
        watch->lives[i].again_ns = ash_clock_ns();
        watch->lives[i].failures = 0;
        coming++;
    }
    if (coming < wanted)
        ash_log(ASH_LOG_WARN, "%zu processes are wanted, and --procs and --spares give %zu", wanted, supervisor->count);
}

void ash_node_tend_joiners(struct ash_node_watch *watch)
{
    struct ash_err err = {0};

    drop_joiners(watch);
    heed_wanted(watch);
    for (size_t i = 0; i < watch->supervisor->count; i++) {
        if (watch->lives[i].again_ns == 0 || watch->lives[i].again_ns > ash_clock_ns()) continue;
        if (watch->done > 0 || watch->is_interrupted || watch->is_hopeless)
            watch->lives[i].again_ns = 0;
        else if (ash_node_start_one(watch, i, true, &err) < 0)
            ash_log(ASH_LOG_ERROR, "%s", err.text);
    }
}
