/* The simulation: a heap of events (ends of runs, failures and repairs of hosts, passes put off) and the trace, which
 * is in order already. The policy decides; what its decisions do to jobs is kept here. */
#include "queue/replay/replay_priv.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/rng.h"

#define QUICK_WAITING 64 /* with more jobs waiting passes are apart by the policy's interval, else by */
#define QUICK_S 1.0
#define STREAM_FAILURE 0

enum kind { END_RUN, FAIL_HOST, REPAIR_HOST, PASS, PROMISED };

struct event {
    double time_s;
    uint32_t index; /* of a job or host */
    uint32_t generation;
    enum kind kind;
};

struct simulation {
    const struct ash_replay_opts *opts;
    struct ash_policy *policy;
    struct ash_replay_run *runs;
    struct event *events;
    size_t event_count, event_capacity;
    struct ash_replay_report *report;
    double now_s, passed_s, used_area, stranded_area, waiting_s;
    double sampled_s, sample_step_s;
    uint64_t failures;
    size_t left; /* jobs that are not over */
    bool is_freed, has_pass, is_out_of_memory;
    bool is_due;       /* a promised start is now */
    double promised_s; /* of the event for the first promised start; < 0: none */
    double height_slow[ASH_REPLAY_HEIGHTS];
    int *lowest; /* by hosts wanted: the lowest height that holds that many, in the empty cluster */
};

/* ---- events ------------------------------------------------------------------------------------------------------ */

static bool is_before(const struct event *a, const struct event *b)
{
    if (a->time_s != b->time_s) return a->time_s < b->time_s;
    return a->kind != b->kind ? a->kind < b->kind : a->index < b->index;
}

static int push(struct simulation *sim, struct event event)
{
    size_t at = sim->event_count;

    if (at == sim->event_capacity) {
        size_t capacity = sim->event_capacity == 0 ? 4096 : 2 * sim->event_capacity;
        struct event *events = realloc(sim->events, capacity * sizeof(*events));

        if (events == NULL) return -ENOMEM;
        sim->events = events;
        sim->event_capacity = capacity;
    }
    sim->event_count++;
    while (at > 0 && is_before(&event, &sim->events[(at - 1) / 2])) {
        sim->events[at] = sim->events[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    sim->events[at] = event;
    return 0;
}

static struct event pop(struct simulation *sim)
{
    struct event first = sim->events[0], last = sim->events[--sim->event_count];
    size_t at = 0;

    for (;;) {
        size_t child = 2 * at + 1;

        if (child + 1 < sim->event_count && is_before(&sim->events[child + 1], &sim->events[child])) child++;
        if (child >= sim->event_count || !is_before(&sim->events[child], &last)) break;
        sim->events[at] = sim->events[child];
        at = child;
    }
    sim->events[at] = last;
    return first;
}

static void push_or_note(struct simulation *sim, struct event event)
{
    if (push(sim, event) < 0) sim->is_out_of_memory = true;
}

/* ---- what decisions do ------------------------------------------------------------------------------------------- */

static const struct ash_trace_job *job_of(const struct simulation *sim, uint64_t key)
{
    return &sim->opts->trace->jobs[key];
}

static double gpu_hours(const struct ash_trace_job *job, double seconds)
{
    return seconds * job->gpus * job->gpu_milli / 1000 / 3600;
}

/* Seconds after its submission. */
static double age(const struct simulation *sim, uint64_t key)
{
    return sim->now_s - job_of(sim, key)->submit_s;
}

static void set_end(struct simulation *sim, uint64_t key, double extra_s)
{
    struct ash_replay_run *run = &sim->runs[key];

    run->generation++;
    push_or_note(sim, (struct event){.time_s = sim->now_s + extra_s + (double)run->left_s * run->slow +
                                               sim->opts->conf->turnaround_s,
                                     .kind = END_RUN,
                                     .index = (uint32_t)key,
                                     .generation = run->generation});
}

/* The height of the domain that holds the hosts. */
static int spread_of(const struct simulation *sim, const struct ash_policy_decision *decision)
{
    const struct ash_topology *topology = sim->opts->topology;
    int domain = sim->opts->hosts[decision->hosts[0]].node;

    for (int i = 1; i < decision->host_count && domain != 0; i++)
        domain = ash_topology_meet(topology, domain, sim->opts->hosts[decision->hosts[i]].node);
    return topology->nodes[domain].height;
}

static void place_run(struct simulation *sim, const struct ash_policy_decision *decision)
{
    struct ash_replay_run *run = &sim->runs[decision->key];
    int height = decision->host_count > 1 ? spread_of(sim, decision) : 0;

    run->slow = (float)sim->height_slow[height];
    if (height == 0) return;
    sim->report->spread[height]++;
    sim->report->needless += height > sim->lowest[decision->host_count];
}

static void start_run(struct simulation *sim, const struct ash_policy_decision *decision)
{
    struct ash_replay_run *run = &sim->runs[decision->key];
    double restart_s = run->must_restart ? sim->opts->conf->restart_s : 0;

    run->wait_s += (float)age(sim, decision->key) - run->since_s;
    run->since_s = (float)(age(sim, decision->key) + restart_s); /* work begins then */
    run->is_running = run->has_started = true;
    run->must_restart = false;
    sim->report->starts++;
    sim->report->backfilled += decision->reason == ASH_POLICY_BACKFILLED;
    sim->report->restart_hours += gpu_hours(job_of(sim, decision->key), restart_s);
    place_run(sim, decision);
    set_end(sim, decision->key, restart_s);
}

/* It stops computing: count its work without the lost part. */
static void bank_work(struct simulation *sim, uint64_t key, double lost_s, double *lost_hours)
{
    struct ash_replay_run *run = &sim->runs[key];
    double ran_s = fmax(0, age(sim, key) - run->since_s), kept_s = fmax(0, ran_s - lost_s);

    run->left_s = (float)fmax(0, run->left_s - kept_s / run->slow);
    sim->report->spread_hours += gpu_hours(job_of(sim, key), kept_s - kept_s / run->slow);
    *lost_hours += gpu_hours(job_of(sim, key), ran_s - kept_s);
    run->since_s = (float)age(sim, key);
}

static void decide(void *ctx, const struct ash_policy_decision *decision)
{
    struct simulation *sim = ctx;
    struct ash_replay_run *run = &sim->runs[decision->key];
    bool has_failed = decision->reason == ASH_POLICY_HOST_FAILED;
    double *lost = has_failed ? &sim->report->failed_hours : &sim->report->stopped_hours;

    if (decision->act == ASH_POLICY_START) {
        start_run(sim, decision);
        return;
    }
    bank_work(sim, decision->key, decision->lost_s, lost);
    sim->report->stops += decision->act == ASH_POLICY_STOP;
    sim->report->shrinks += decision->act == ASH_POLICY_SHRINK;
    sim->report->replaced += decision->act == ASH_POLICY_REPLACE;
    sim->report->requeued += decision->act == ASH_POLICY_REQUEUE;
    sim->is_freed = true;
    if (decision->act == ASH_POLICY_STOP || decision->act == ASH_POLICY_REQUEUE) {
        run->is_running = false;
        run->must_restart = true;
        run->generation++;
        return;
    }
    run->since_s += (float)sim->opts->conf->restart_s;
    sim->report->restart_hours += gpu_hours(job_of(sim, decision->key), sim->opts->conf->restart_s);
    place_run(sim, decision);
    set_end(sim, decision->key, sim->opts->conf->restart_s);
}

/* ---- time -------------------------------------------------------------------------------------------------------- */

static void sample(struct simulation *sim, const struct ash_policy_state *state)
{
    struct ash_replay_report *report = sim->report;

    if (sim->now_s < sim->sampled_s || report->sample_count >= ASH_REPLAY_SAMPLES) return;
    report->samples[report->sample_count++] = (struct ash_replay_sample){
        sim->now_s, state->gpu_milli_total > 0 ? (double)state->gpu_milli_used / (double)state->gpu_milli_total : 0,
        state->waiting};
    sim->sampled_s = sim->now_s + sim->sample_step_s;
}

/* Add up the usage until then. */
static void advance(struct simulation *sim, double time_s)
{
    struct ash_policy_state state = ash_policy_look(sim->policy);
    double span_s = fmin(time_s, sim->report->submit_span_s) - sim->now_s;

    if (span_s > 0) {
        sim->used_area += span_s * (double)state.gpu_milli_used;
        if (state.waiting > 0) {
            sim->stranded_area += span_s * (double)state.gpu_milli_stranded;
            sim->waiting_s += span_s;
        }
    }
    sample(sim, &state);
    if (time_s > sim->now_s) sim->now_s = time_s;
}

static int pass(struct simulation *sim)
{
    int rc;

    sim->report->passes++;
    if (!sim->is_freed) return ash_policy_pass_new(sim->policy, sim->now_s);
    sim->is_freed = false;
    sim->passed_s = sim->now_s;
    rc = ash_policy_pass(sim->policy, sim->now_s);
    sim->is_freed = false; /* what preemption freed was looked at */
    return rc;
}

/* Passes come by the interval alone, and one follows as long as jobs wait. */
static int pass_in_cycles(struct simulation *sim)
{
    double next_s = sim->passed_s + sim->opts->conf->interval_s;
    int rc = 0;

    if (sim->now_s >= next_s) {
        sim->is_freed = true;
        rc = pass(sim);
        next_s = sim->passed_s + sim->opts->conf->interval_s;
    }
    if (rc < 0 || sim->has_pass || ash_policy_look(sim->policy).waiting == 0) return rc;
    sim->has_pass = true;
    return push(sim, (struct event){.time_s = next_s, .kind = PASS});
}

/* A promised start is a time at which something happens, whether or not a job ends then. */
static int expect_promise(struct simulation *sim)
{
    double start_s = ash_policy_look(sim->policy).reserved_s;

    sim->is_due = false;
    if (sim->opts->conf->backfill != ASH_POLICY_BACKFILL_CONSERVATIVE || start_s <= sim->now_s) return 0;
    if (sim->promised_s > sim->now_s && sim->promised_s <= start_s) return 0;
    sim->promised_s = start_s;
    return push(sim, (struct event){.time_s = start_s, .kind = PROMISED});
}

/* After the events of one time: a pass now, or later where many wait. */
static int pass_or_put_off(struct simulation *sim)
{
    struct ash_policy_state state = ash_policy_look(sim->policy);
    double interval_s = sim->opts->conf->interval_s, next_s;

    if (state.waiting == 0) return 0;
    if (sim->opts->conf->queue_starts > 0) return pass_in_cycles(sim);
    if (sim->is_due) return pass(sim);
    next_s = sim->passed_s + (state.waiting <= QUICK_WAITING ? fmin(interval_s, QUICK_S) : interval_s);
    if (!sim->is_freed || sim->now_s >= next_s || sim->opts->conf->backfill == ASH_POLICY_BACKFILL_NONE)
        return pass(sim);
    if (sim->has_pass) return 0;
    sim->has_pass = true;
    return push(sim, (struct event){.time_s = next_s, .kind = PASS});
}

/* ---- what happens ------------------------------------------------------------------------------------------------ */

static void draw_failure(struct simulation *sim, uint32_t host)
{
    double draw = ash_rng_uniform(sim->opts->seed, STREAM_FAILURE, sim->failures++);

    if (sim->opts->host_mtbf_s <= 0) return;
    push_or_note(sim, (struct event){.time_s = sim->now_s - log(1 - draw) * sim->opts->host_mtbf_s,
                                     .kind = FAIL_HOST,
                                     .index = host});
}

static void end_run(struct simulation *sim, const struct event *event)
{
    struct ash_replay_run *run = &sim->runs[event->index];
    double unused = 0;

    if (run->generation != event->generation) return; /* it was stopped meanwhile */
    bank_work(sim, event->index, 0, &unused);
    ash_policy_end(sim->policy, run->number, sim->now_s);
    run->number = -1;
    run->is_running = false;
    sim->report->finished++;
    sim->left--;
    sim->is_freed = true;
}

static void happen(struct simulation *sim, const struct event *event)
{
    switch (event->kind) {
    case END_RUN:
        end_run(sim, event);
        break;
    case FAIL_HOST:
        ash_policy_host_down(sim->policy, (int)event->index, sim->now_s);
        sim->report->failures++;
        push_or_note(sim, (struct event){
                              .time_s = sim->now_s + sim->opts->repair_s, .kind = REPAIR_HOST, .index = event->index});
        break;
    case REPAIR_HOST:
        ash_policy_host_up(sim->policy, (int)event->index);
        draw_failure(sim, event->index);
        sim->is_freed = true;
        break;
    case PASS:
        sim->has_pass = false;
        break;
    case PROMISED:
        sim->is_freed = sim->is_due = true;
        break;
    }
}

static int submit(struct simulation *sim, size_t index)
{
    struct ash_policy_job job = ash_replay_request(sim->opts, index);
    struct ash_replay_run *run = &sim->runs[index];
    struct ash_err why = {0};

    *run = (struct ash_replay_run){.slow = 1, .left_s = job_of(sim, index)->run_s};
    if (run->left_s > job_of(sim, index)->limit_s) run->left_s = job_of(sim, index)->limit_s;
    run->number = ash_policy_submit(sim->policy, &job, sim->now_s, &why);
    if (run->number == -ENOMEM) return -ENOMEM;
    if (run->number >= 0) return 0;
    if (sim->report->refused++ == 0)
        snprintf(sim->report->refused_why, sizeof(sim->report->refused_why), "%s", why.text);
    run->number = -1;
    sim->left--;
    return 0;
}

static int run_all(struct simulation *sim)
{
    const struct ash_trace *trace = sim->opts->trace;
    size_t next = 0;
    int rc = 0;

    while (rc == 0 && sim->left > 0 && !sim->is_out_of_memory) {
        double submit_s = next < trace->count ? trace->jobs[next].submit_s : INFINITY;
        double event_s = sim->event_count > 0 ? sim->events[0].time_s : INFINITY, time_s = fmin(submit_s, event_s);

        if (isinf(time_s)) break; /* the rest can never start: hosts are gone */
        advance(sim, time_s);
        while (sim->event_count > 0 && sim->events[0].time_s <= time_s) {
            struct event event = pop(sim);

            happen(sim, &event);
        }
        while (next < trace->count && trace->jobs[next].submit_s <= time_s && rc == 0)
            rc = submit(sim, next++);
        if (rc == 0) rc = pass_or_put_off(sim);
        if (rc == 0) rc = expect_promise(sim);
    }
    return sim->is_out_of_memory ? -ENOMEM : rc;
}

/* ---- all --------------------------------------------------------------------------------------------------------- */

static int open_simulation(struct simulation *sim, struct ash_err *err)
{
    const struct ash_replay_opts *opts = sim->opts;
    const struct ash_trace *trace = opts->trace;
    int rc = ash_policy_open(opts->conf, opts->topology, opts->hosts, opts->host_count, &sim->policy, err);

    if (rc < 0) return rc;
    ash_policy_listen(sim->policy, decide, sim);
    sim->runs = calloc(trace->count, sizeof(*sim->runs));
    if (sim->runs == NULL || (sim->lowest = ash_replay_lowest(opts->topology)) == NULL)
        return ash_err_set(err, -ENOMEM, "out of memory");
    ash_replay_slowness(opts, sim->height_slow);
    sim->left = trace->count;
    sim->report->jobs = trace->count;
    sim->report->submit_span_s = trace->jobs[trace->count - 1].submit_s;
    sim->sample_step_s = sim->report->submit_span_s / (ASH_REPLAY_SAMPLES - 1);
    sim->passed_s = -INFINITY;
    sim->promised_s = -1;
    for (int host = 0; host < opts->host_count; host++)
        draw_failure(sim, (uint32_t)host);
    return 0;
}

static void summarise(struct simulation *sim)
{
    struct ash_replay_report *report = sim->report;
    double capacity = 0;

    for (int i = 0; i < sim->opts->host_count; i++)
        capacity += sim->opts->hosts[i].gpus * 1000.0;
    report->span_s = sim->now_s;
    report->unfinished = sim->left;
    if (report->submit_span_s > 0) report->used = sim->used_area / (capacity * report->submit_span_s);
    if (sim->waiting_s > 0) report->stranded = sim->stranded_area / (capacity * sim->waiting_s);
}

int ash_replay(const struct ash_replay_opts *opts, struct ash_replay_report *report_out, struct ash_err *err)
{
    struct ash_replay_report report = {0};
    struct simulation sim = {.opts = opts, .report = &report};
    int rc;

    ash_assert(opts->trace->count > 0);
    rc = open_simulation(&sim, err);
    if (rc == 0) {
        rc = run_all(&sim);
        if (rc == 0) rc = ash_replay_count(opts, sim.runs, &report);
        if (rc < 0) ash_err_set(err, rc, "out of memory");
    }
    if (rc == 0) summarise(&sim);
    ash_policy_close(sim.policy);
    free(sim.runs);
    free(sim.events);
    free(sim.lowest);
    if (rc == 0)
        *report_out = report;
    else
        ash_replay_fini(&report);
    return rc;
}
