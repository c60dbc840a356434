/* One loop: print what they print, reap those that end, judge what that means for the others. */
#include "orchestrate/node/supervisor.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "orchestrate/node/ends.h"

#define LOOK_MS 50 /* a signal interrupts the wait; this bounds what that might miss */
#define BACK_OFF_FIRST_S 1.0
#define BACK_OFF_MAX_S 60.0

struct watch {
    const struct ash_supervisor *supervisor;
    struct ash_process_job job; /* its words are those of this start */
    struct ash_process *processes;
    struct pollfd *polls;
    pid_t *groups; /* of each node: its first process's id */
    size_t node_count, running;
    int code;           /* of the first failure; 0: none */
    size_t failed_rank; /* whose that was */
    size_t likewise;    /* ranks that ended with the same one afterwards */
    size_t done;        /* ranks that ended well */
    struct ash_process_said said;
    uint64_t force_ns; /* when to end by force; 0: not yet */
    bool is_interrupted, is_forced;
};

static pid_t *group_of(struct watch *watch, size_t node)
{
    return &watch->groups[node - watch->supervisor->first_rank / watch->supervisor->job.per_node];
}

static void wait_output(struct watch *watch)
{
    size_t count = 2 * watch->supervisor->count;

    for (size_t i = 0; i < count; i++)
        watch->polls[i] = (struct pollfd){.fd = watch->processes[i / 2].streams[i % 2].fd, .events = POLLIN};
    if (poll(watch->polls, count, LOOK_MS) <= 0) return;
    for (size_t i = 0; i < count; i++)
        if (watch->polls[i].revents != 0)
            ash_process_read(&watch->processes[i / 2], &watch->processes[i / 2].streams[i % 2], &watch->said);
}

static void signal_all(const struct watch *watch, int number)
{
    for (size_t i = 0; i < watch->node_count; i++)
        if (watch->groups[i] > 0) kill(-watch->groups[i], number);
}

/* ---- ends -------------------------------------------------------------------------------------------------------- */

static void say_end(struct watch *watch, const struct ash_process *process, int code)
{
    char how[128];

    if (code == watch->code && code < ASH_END_SIGNAL)
        watch->likewise++;
    else
        ash_log(ASH_LOG_ERROR, "rank %zu %s", process->rank, ash_end_describe(code, how, sizeof(how)));
}

/* May those that are left go on by themselves? They know better than we do what they lost. */
static bool may_go_on(const struct watch *watch, int code)
{
    return watch->supervisor->least > 0 && watch->running >= watch->supervisor->least && code != ASH_END_BAD_SETTINGS;
}

static void note_end(struct watch *watch, struct ash_process *process, int status)
{
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : ASH_END_SIGNAL + WTERMSIG(status);

    process->pid = 0;
    watch->running--;
    if (code == 0) watch->done++;
    if (code == 0 || watch->is_forced) return;
    /* it ended because we told it to: a notice that was heeded is another end than Ctrl-C */
    if (watch->is_interrupted && (code != ASH_END_SAVED || ash_interrupt_signal() == SIGINT))
        code = ASH_END_SIGNAL + ash_interrupt_signal();
    else if (!watch->is_interrupted)
        say_end(watch, process, code);
    if (watch->code == 0) {
        watch->code = code;
        watch->failed_rank = process->rank;
    }
    if (watch->force_ns == 0 && !may_go_on(watch, code))
        watch->force_ns = ash_clock_ns() + (uint64_t)(watch->supervisor->grace_s * 1e9);
}

static void reap(struct watch *watch)
{
    for (size_t i = 0; i < watch->supervisor->count; i++) {
        struct ash_process *process = &watch->processes[i];
        int status = 0;

        if (process->pid > 0 && waitpid(process->pid, &status, WNOHANG) == process->pid)
            note_end(watch, process, status);
    }
}

/* Pass signals on, and end by force what has not ended in time. */
static void pass_on(struct watch *watch)
{
    if (ash_interrupt_requested() && !watch->is_interrupted) {
        watch->is_interrupted = true;
        signal_all(watch, SIGTERM);
    }
    if (watch->force_ns != 0 && ash_clock_ns() >= watch->force_ns && !watch->is_forced) {
        watch->is_forced = true;
        signal_all(watch, SIGKILL);
    }
}

/* ---- one start --------------------------------------------------------------------------------------------------- */

static void prepare(struct watch *watch)
{
    const struct ash_supervisor *supervisor = watch->supervisor;

    memset(watch->groups, 0, watch->node_count * sizeof(*watch->groups));
    for (size_t i = 0; i < supervisor->count; i++) {
        size_t rank = supervisor->first_rank + i;

        watch->processes[i] = (struct ash_process){
            .rank = rank, .node = rank / supervisor->job.per_node, .streams = {{.fd = -1}, {.fd = -1}}};
    }
    watch->code = 0;
    watch->likewise = watch->done = watch->running = 0;
    watch->said = (struct ash_process_said){0};
    watch->force_ns = 0;
    watch->is_forced = false;
}

/* Start all and see them to their end. Returns the exit code or a negative errno. */
static int run_once(struct watch *watch, struct ash_err *err)
{
    int rc = 0;

    prepare(watch);
    for (size_t i = 0; i < watch->supervisor->count && rc == 0; i++) {
        struct ash_process *process = &watch->processes[i];

        rc = ash_process_start(process, &watch->job, group_of(watch, process->node), err);
        if (process->pid > 0) watch->running++;
    }
    if (rc < 0) {
        watch->is_forced = true;
        signal_all(watch, SIGKILL);
    }
    while (watch->running > 0) {
        wait_output(watch);
        reap(watch);
        pass_on(watch);
    }
    signal_all(watch, SIGKILL); /* what the ranks themselves have left */
    for (size_t i = 0; i < watch->supervisor->count; i++)
        ash_process_drain(&watch->processes[i], &watch->said);
    if (watch->likewise > 0)
        ash_log(ASH_LOG_ERROR, "%zu other rank%s ended with exit code %d too", watch->likewise,
                watch->likewise == 1 ? "" : "s", watch->code);
    if (rc < 0) return rc;
    return watch->supervisor->least > 0 && watch->done >= watch->supervisor->least ? 0 : watch->code;
}

/* ---- starting again ---------------------------------------------------------------------------------------------- */

/* Wait before another start. Returns false where we are told to stop meanwhile. */
static bool back_off(double seconds)
{
    uint64_t end_ns = ash_clock_ns() + (uint64_t)(seconds * 1e9);

    while (ash_clock_ns() < end_ns && !ash_interrupt_requested())
        poll(NULL, 0, LOOK_MS);
    return !ash_interrupt_requested();
}

static int run(struct watch *watch, struct ash_err *err)
{
    double wait_s = BACK_OFF_FIRST_S;
    char how[128];

    for (size_t starts = 0;; starts++) {
        int code = run_once(watch, err);

        if (code <= 0 || watch->is_interrupted || !ash_end_of(code)->is_worth_more) return code;
        if (starts >= watch->supervisor->restarts) {
            if (starts > 0)
                ash_log(ASH_LOG_ERROR,
                        "the job has failed %zu times; the last time rank %zu %s: it is not started again", starts + 1,
                        watch->failed_rank, ash_end_describe(code, how, sizeof(how)));
            return code;
        }
        ash_log(ASH_LOG_WARN, "all ranks are started again in %.0f s (%zu of %zu)", wait_s, starts + 1,
                watch->supervisor->restarts);
        if (!back_off(wait_s)) return code;
        if (watch->supervisor->again != NULL) watch->job.argv = watch->supervisor->again;
        wait_s = 2 * wait_s < BACK_OFF_MAX_S ? 2 * wait_s : BACK_OFF_MAX_S;
    }
}

int ash_supervise(const struct ash_supervisor *supervisor, struct ash_err *err)
{
    size_t per_node = supervisor->job.per_node;
    struct watch watch = {.supervisor = supervisor, .job = supervisor->job};
    int rc;

    ash_assert(supervisor->count > 0 && per_node > 0 && supervisor->job.argv[0] != NULL);
    ash_assert(supervisor->restarts == 0 || supervisor->count == supervisor->job.world);
    watch.node_count =
        (supervisor->first_rank + supervisor->count - 1) / per_node - supervisor->first_rank / per_node + 1;
    watch.processes = calloc(supervisor->count, sizeof(*watch.processes));
    watch.groups = calloc(watch.node_count, sizeof(*watch.groups));
    watch.polls = calloc(2 * supervisor->count, sizeof(*watch.polls));
    ash_interrupt_install();
    if (watch.processes == NULL || watch.groups == NULL || watch.polls == NULL)
        rc = ash_err_set(err, -ENOMEM, "out of memory for %zu processes", supervisor->count);
    else
        rc = run(&watch, err);
    free(watch.polls);
    free(watch.groups);
    free(watch.processes);
    return rc;
}
