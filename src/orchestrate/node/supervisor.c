/* One loop: print the processes' output, reap those that end, decide on the others. */
#include "orchestrate/node/supervisor_priv.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "orchestrate/node/ends.h"

#define LOOK_OVER_NS 200000000u
#define LOOK_MS 50 /* a signal interrupts the wait; this bounds what that might miss */
#define BACK_OFF_MAX_S 60.0
#define SHORT_LIFE_S 60.0 /* a process that fails sooner each time is not worth another start */
#define LISTED_RANKS 16   /* in a message */
#define SAVE_S 60.0       /* for the others to save, where a job is ended because it fails again and again */

static atomic_bool has_hung_up; /* with passes_hangups */

static void on_hangup(int number)
{
    (void)number;
    atomic_store(&has_hung_up, true);
}

static pid_t *group_of(struct ash_node_watch *watch, size_t node)
{
    ash_assert(node - watch->supervisor->first_rank / watch->supervisor->job.per_node < watch->node_count);
    return &watch->groups[node - watch->supervisor->first_rank / watch->supervisor->job.per_node];
}

static void wait_output(struct ash_node_watch *watch)
{
    size_t count = 2 * watch->supervisor->count;

    for (size_t i = 0; i < count; i++)
        watch->polls[i] = (struct pollfd){.fd = watch->processes[i / 2].streams[i % 2].fd, .events = POLLIN};
    if (poll(watch->polls, count, LOOK_MS) <= 0) return;
    for (size_t i = 0; i < count; i++)
        if (watch->polls[i].revents != 0)
            ash_process_read(&watch->processes[i / 2], &watch->processes[i / 2].streams[i % 2], &watch->said);
}

static void signal_all(const struct ash_node_watch *watch, int number)
{
    for (size_t i = 0; i < watch->node_count; i++)
        if (watch->groups[i] > 0) kill(-watch->groups[i], number);
}

/* ---- ends -------------------------------------------------------------------------------------------------------- */

static void say_end(struct ash_node_watch *watch, const struct ash_process *process, int code)
{
    char how[128];

    if (code == ASH_END_SAVED && watch->running > 0 && watch->done == 0)
        ash_log(ASH_LOG_WARN, "rank %zu has left, as it was told to; %zu are left", process->rank, watch->running);
    else if (code == watch->code && code < ASH_END_SIGNAL)
        watch->lives[process - watch->processes].is_likewise = true;
    else
        ash_log(ASH_LOG_ERROR, "rank %zu %s", process->rank, ash_end_describe(code, how, sizeof(how)));
}

/* Those that ended as the first one did, in one line: "ranks 1, 2, 5 and 60 more". */
static void say_likewise(struct ash_node_watch *watch)
{
    char ranks[LISTED_RANKS * 24 + 40];
    size_t count = 0, filled = 0;

    for (size_t i = 0; i < watch->supervisor->count; i++) {
        if (!watch->lives[i].is_likewise) continue;
        watch->lives[i].is_likewise = false;
        if (count++ < LISTED_RANKS)
            filled += (size_t)snprintf(ranks + filled, sizeof(ranks) - filled, "%s%zu", filled > 0 ? ", " : "",
                                       watch->processes[i].rank);
    }
    if (count > LISTED_RANKS) snprintf(ranks + filled, sizeof(ranks) - filled, " and %zu more", count - LISTED_RANKS);
    if (count > 0)
        ash_log(ASH_LOG_ERROR, "rank%s %s ended with exit code %d too", count == 1 ? "" : "s", ranks, watch->code);
}

/* ---- failures ---------------------------------------------------------------------------------------------------- */

static bool has_file(const struct ash_node_watch *watch, const char *name)
{
    char path[PATH_MAX];

    return watch->supervisor->job_dir != NULL &&
           ash_path_join(path, sizeof(path), watch->supervisor->job_dir, name) == 0 && ash_path_exists(path);
}

bool ash_node_is_placed(const struct ash_node_watch *watch, size_t i)
{
    char name[ASH_PLACED_NAME_BYTES];

    if (watch->lives[i].is_placed || !watch->processes[i].joins) return true;
    ash_supervisor_placed_name(watch->processes[i].pid, name);
    watch->lives[i].is_placed = has_file(watch, name);
    return watch->lives[i].is_placed;
}

void ash_supervisor_placed_name(pid_t pid, char name[ASH_PLACED_NAME_BYTES])
{
    char host[65] = "";

    gethostname(host, sizeof(host) - 1);
    snprintf(name, ASH_PLACED_NAME_BYTES, "placed-%s-%d", host, (int)pid);
}

static double back_off_s(const struct ash_supervisor *supervisor, size_t failures)
{
    double wait_s = failures > 1 ? supervisor->back_off_s : 0;

    for (size_t i = 2; i < failures && wait_s < BACK_OFF_MAX_S; i++)
        wait_s *= 2;
    return wait_s < BACK_OFF_MAX_S ? wait_s : BACK_OFF_MAX_S;
}

/* A rank has failed while others continue. Once too often in the same way, at the same step? */
static void count_equal(struct ash_node_watch *watch, const struct ash_process *process, int code)
{
    const struct ash_supervisor *supervisor = watch->supervisor;
    uint64_t progress = supervisor->progress != NULL ? supervisor->progress(supervisor->ctx) : 0;
    uint64_t epoch = supervisor->epoch != NULL ? supervisor->epoch(supervisor->ctx) : 0;
    bool is_equal = supervisor->progress != NULL && code == watch->equal_code && progress == watch->equal_progress;
    char how[128];

    if (is_equal && supervisor->epoch != NULL && epoch == watch->equal_epoch) return; /* lost with others, at once */
    watch->equal_count = is_equal ? watch->equal_count + 1 : 1;
    watch->equal_epoch = epoch;
    watch->equal_code = code;
    watch->equal_progress = progress;
    if (supervisor->restarts == 0 || watch->equal_count <= supervisor->restarts) return;
    ash_log(ASH_LOG_ERROR,
            "%" PRIu64 " times in a row a rank %s after step %" PRIu64
            ", the last time rank %zu: the job cannot get beyond it and ends",
            watch->equal_count, ash_end_describe(code, how, sizeof(how)), progress, process->rank);
    watch->is_hopeless = true;
    signal_all(watch, SIGTERM);
    watch->force_ns = ash_clock_ns() + (uint64_t)(SAVE_S * 1e9);
}

/* May a process that has failed come back? Then it will. */
static bool plan_return(struct ash_node_watch *watch, size_t i, int code)
{
    struct ash_life *life = &watch->lives[i];
    uint64_t now_ns = ash_clock_ns();
    double wait_s;
    char how[128];

    ash_assert(life->again_ns == 0); /* it ran: it was not waiting for its return */
    if (watch->supervisor->restarts == 0 || watch->is_hopeless || watch->done > 0 || !ash_end_of(code)->is_worth_more ||
        code == ASH_END_SAVED || !has_file(watch, "contacts"))
        return false;
    life->failures = (double)(now_ns - life->start_ns) * 1e-9 < SHORT_LIFE_S ? life->failures + 1 : 1;
    if (life->failures > watch->supervisor->restarts) {
        ash_log(ASH_LOG_ERROR, "rank %zu %s, %zu times in a row soon after its start: it is not started again",
                watch->processes[i].rank, ash_end_describe(code, how, sizeof(how)), life->failures);
        return false;
    }
    wait_s = back_off_s(watch->supervisor, life->failures);
    life->again_ns = now_ns + (uint64_t)(wait_s * 1e9);
    ash_log(ASH_LOG_WARN, "rank %zu is started again in %.0f s, to join the others (%zu of %zu)",
            watch->processes[i].rank, wait_s, life->failures, watch->supervisor->restarts);
    return true;
}

/* May the remaining ranks continue by themselves? Once they have formed a group they decide that. */
static bool may_go_on(const struct ash_node_watch *watch, int code)
{
    if (watch->supervisor->job_dir != NULL && watch->supervisor->has_others == NULL && !has_file(watch, "contacts"))
        return false;
    return watch->supervisor->least > 0 && watch->running + watch->done >= watch->supervisor->least &&
           code != ASH_END_BAD_SETTINGS;
}

/* The first failure after which no rank can continue decides the job's exit code, regardless of failures recovered
 * before it. */
static void break_off(struct ash_node_watch *watch, size_t i, int code)
{
    if (watch->is_broken && code != ASH_END_BAD_SETTINGS) return; /* what others end with is only its consequence */
    if (watch->code != code) say_likewise(watch);
    watch->is_broken = true;
    watch->code = code;
    watch->failed_rank = watch->processes[i].rank;
    if (watch->force_ns == 0) watch->force_ns = ash_clock_ns() + (uint64_t)(watch->supervisor->grace_s * 1e9);
}

/* Decide on the others after the end of a process. */
static void judge(struct ash_node_watch *watch, size_t i, int code)
{
    bool was_rank = watch->lives[i].is_placed, goes_on;

    if (watch->is_interrupted || watch->is_hopeless) return;
    if (was_rank && watch->running > 0 && code != ASH_END_SAVED) count_equal(watch, &watch->processes[i], code);
    goes_on = plan_return(watch, i, code) || !was_rank || may_go_on(watch, code);
    if (!goes_on) break_off(watch, i, code);
}

/* A process has ended by itself, and not well. */
static void note_failure(struct ash_node_watch *watch, size_t i, int code)
{
    const struct ash_process *process = &watch->processes[i];

    /* it ended on our signal: an exit after a notice differs from Ctrl-C; a process that has not joined has nothing to
     * save */
    if (watch->is_interrupted && !watch->lives[i].is_placed && ash_interrupt_signal() != SIGINT)
        code = ASH_END_SAVED;
    else if (watch->is_interrupted && (code != ASH_END_SAVED || ash_interrupt_signal() == SIGINT))
        code = ASH_END_SIGNAL + ash_interrupt_signal();
    else if (!watch->is_interrupted)
        say_end(watch, process, code);
    if (watch->code == 0 && (watch->lives[i].is_placed || watch->supervisor->joins)) {
        watch->code = code;
        watch->failed_rank = process->rank;
    }
    judge(watch, i, code);
}

static void note_end(struct ash_node_watch *watch, size_t i, int status)
{
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : ASH_END_SIGNAL + WTERMSIG(status);

    ash_assert(watch->running > 0 && watch->processes[i].pid > 0);
    watch->lives[i].is_placed = ash_node_is_placed(watch, i);
    watch->processes[i].pid = 0;
    watch->running--;
    if (code == 0) watch->done++;
    if (code != 0 && !watch->is_forced && !watch->lives[i].is_dropped) note_failure(watch, i, code);
}

static void reap(struct ash_node_watch *watch)
{
    for (size_t i = 0; i < watch->supervisor->count; i++) {
        struct ash_process *process = &watch->processes[i];
        int status = 0;

        if (process->pid > 0 && waitpid(process->pid, &status, WNOHANG) == process->pid) note_end(watch, i, status);
    }
}

/* The job is over and processes are left, which the others continued without: they have the grace to end. */
static void await_end(struct ash_node_watch *watch)
{
    const struct ash_supervisor *supervisor = watch->supervisor;

    if (watch->force_ns != 0 || supervisor->is_over == NULL || watch->running == 0 ||
        watch->running == supervisor->count || ash_clock_ns() < watch->over_ns)
        return;
    watch->over_ns = ash_clock_ns() + LOOK_OVER_NS;
    if (!supervisor->is_over(supervisor->ctx)) return;
    watch->force_ns = ash_clock_ns() + (uint64_t)(supervisor->grace_s * 1e9);
    watch->is_over = true;
}

/* Forward signals, and kill processes that have not ended in time. */
static void pass_on(struct ash_node_watch *watch)
{
    if (atomic_exchange(&has_hung_up, false)) signal_all(watch, SIGHUP);
    if (ash_interrupt_requested() && !watch->is_interrupted) {
        watch->is_interrupted = true;
        if (watch->force_ns == 0) watch->code = 0; /* the job has outlived what failed before */
        signal_all(watch, SIGTERM);
        if (watch->force_ns == 0 && watch->supervisor->notice_s > 0)
            watch->force_ns = ash_clock_ns() + (uint64_t)(watch->supervisor->notice_s * 1e9);
    }
    if (watch->force_ns != 0 && ash_clock_ns() >= watch->force_ns && !watch->is_forced) {
        watch->is_forced = true;
        if (watch->is_over)
            ash_log(ASH_LOG_WARN, "the job is over, and %zu of its processes did not end in %g s: killed",
                    watch->running, watch->supervisor->grace_s);
        else if (watch->is_interrupted)
            ash_log(ASH_LOG_ERROR, "%zu processes have not ended in the %.0f s that they had: they are killed",
                    watch->running, watch->supervisor->notice_s);
        if (watch->is_interrupted && watch->code == 0) watch->code = ASH_END_SIGNAL + ash_interrupt_signal();
        signal_all(watch, SIGKILL);
    }
}

int ash_node_start_one(struct ash_node_watch *watch, size_t i, bool joins, struct ash_err *err)
{
    struct ash_process *process = &watch->processes[i];
    pid_t *group = group_of(watch, process->node);
    int rc;

    ash_assert(process->pid == 0);                 /* one process a place */
    if (joins && kill(-*group, 0) < 0) *group = 0; /* all of its node are gone, and their process group with them */
    ash_process_drain(process, &watch->said);
    process->joins = joins;
    watch->lives[i].start_ns = ash_clock_ns();
    watch->lives[i].again_ns = 0;
    watch->lives[i].is_placed = !joins;
    watch->lives[i].is_dropped = false;
    rc = ash_process_start(process, &watch->job, group, err);
    if (process->pid > 0) watch->running++;
    return rc;
}

/* ---- one start --------------------------------------------------------------------------------------------------- */

static void prepare(struct ash_node_watch *watch)
{
    const struct ash_supervisor *supervisor = watch->supervisor;

    memset(watch->groups, 0, watch->node_count * sizeof(*watch->groups));
    for (size_t i = 0; i < supervisor->count; i++) {
        size_t rank = supervisor->first_rank + i;

        watch->processes[i] = (struct ash_process){
            .rank = rank, .node = rank / supervisor->job.per_node, .streams = {{.fd = -1}, {.fd = -1}}};
    }
    watch->code = 0;
    watch->is_broken = false;
    watch->done = watch->running = 0;
    watch->said = (struct ash_process_said){0};
    watch->force_ns = watch->over_ns = 0;
    watch->is_forced = watch->is_over = false;
    memset(watch->lives, 0, supervisor->count * sizeof(*watch->lives));
}

/* Start all and see them to their end. Returns the exit code or a negative errno. */
static int run_once(struct ash_node_watch *watch, struct ash_err *err)
{
    bool is_good;
    int rc = 0;

    prepare(watch);
    for (size_t i = 0; i < watch->supervisor->count && rc == 0; i++)
        rc = ash_node_start_one(watch, i, watch->supervisor->joins, err);
    if (rc < 0) {
        watch->is_forced = true;
        signal_all(watch, SIGKILL);
    }
    while (watch->running > 0 || ash_node_awaits_return(watch)) {
        wait_output(watch);
        reap(watch);
        pass_on(watch);
        await_end(watch);
        ash_node_tend_joiners(watch);
    }
    signal_all(watch, SIGKILL); /* orphans of the ranks */
    for (size_t i = 0; i < watch->supervisor->count; i++)
        ash_process_drain(&watch->processes[i], &watch->said);
    say_likewise(watch);
    if (watch->is_broken && watch->done > 0)
        ash_log(ASH_LOG_ERROR, "%zu of %zu ranks ended well, but rank %zu was not replaced: exit code %d", watch->done,
                watch->supervisor->count, watch->failed_rank, watch->code);
    if (rc < 0) return rc;
    is_good = !watch->is_broken && !watch->is_hopeless && watch->done >= watch->supervisor->least;
    return watch->supervisor->least > 0 && is_good ? 0 : watch->code;
}

/* ---- starting again ---------------------------------------------------------------------------------------------- */

/* Wait before another start. Returns false if interrupted. */
static bool back_off(double seconds)
{
    uint64_t end_ns = ash_clock_ns() + (uint64_t)(seconds * 1e9);

    while (ash_clock_ns() < end_ns && !ash_interrupt_requested())
        poll(NULL, 0, LOOK_MS);
    return !ash_interrupt_requested();
}

/* All have failed. Are they to be started once more? starts: after failures without progress, of which this is one
 * more. */
static bool wants_again(struct ash_node_watch *watch, int code, size_t starts)
{
    const struct ash_supervisor *supervisor = watch->supervisor;
    double wait_s = back_off_s(supervisor, starts + 1);
    char how[128];

    if (watch->is_interrupted || watch->is_hopeless || !ash_end_of(code)->is_worth_more || supervisor->restarts == 0 ||
        supervisor->count != supervisor->job.world)
        return false;
    if (starts > supervisor->restarts) {
        ash_log(ASH_LOG_ERROR, "the job has failed %zu times; the last time rank %zu %s: it is not started again",
                starts, watch->failed_rank, ash_end_describe(code, how, sizeof(how)));
        return false;
    }
    ash_log(ASH_LOG_WARN, "all ranks are started again in %.0f s (%zu of %zu)", wait_s, starts, supervisor->restarts);
    return back_off(wait_s);
}

static int run(struct ash_node_watch *watch, struct ash_err *err)
{
    const struct ash_supervisor *supervisor = watch->supervisor;
    uint64_t before = 0;
    size_t starts = 0;

    for (;;) {
        int code = run_once(watch, err);
        uint64_t progress = supervisor->progress != NULL && code > 0 ? supervisor->progress(supervisor->ctx) : 0;

        if (code <= 0) return code;
        starts = progress > before && code != ASH_END_TAKEN ? 1 : starts + 1; /* then it is another job's progress */
        before = progress;
        if (!wants_again(watch, code, starts)) return code;
        if (supervisor->renew != NULL && supervisor->renew(supervisor->ctx) < 0) return code;
        if (supervisor->again != NULL) watch->job.argv = supervisor->again;
    }
}

int ash_supervise(const struct ash_supervisor *supervisor, struct ash_err *err)
{
    size_t per_node = supervisor->job.per_node;
    struct ash_node_watch watch = {.supervisor = supervisor, .job = supervisor->job};
    int rc;

    ash_assert(supervisor->count > 0 && per_node > 0 && supervisor->job.argv[0] != NULL);
    watch.node_count =
        (supervisor->first_rank + supervisor->count - 1) / per_node - supervisor->first_rank / per_node + 1;
    watch.processes = calloc(supervisor->count, sizeof(*watch.processes));
    watch.lives = calloc(supervisor->count, sizeof(*watch.lives));
    watch.groups = calloc(watch.node_count, sizeof(*watch.groups));
    watch.polls = calloc(2 * supervisor->count, sizeof(*watch.polls));
    ash_interrupt_install();
    if (supervisor->passes_hangups) signal(SIGHUP, on_hangup);
    if (watch.processes == NULL || watch.lives == NULL || watch.groups == NULL || watch.polls == NULL)
        rc = ash_err_set(err, -ENOMEM, "out of memory for %zu processes", supervisor->count);
    else
        rc = run(&watch, err);
    free(watch.polls);
    free(watch.groups);
    free(watch.lives);
    free(watch.processes);
    return rc;
}
