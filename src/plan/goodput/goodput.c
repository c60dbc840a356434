/* From a job to the two-level machine of goodput.h: what each way stops for, how long its snapshots take to count, how
 * its failures are answered, and which interval is best. */
#include "plan/goodput/goodput_priv.h"

#include <errno.h>
#include <math.h>

#include "base/assert.h"

#define SEARCH_STEPS 60
#define SCAN_POINTS 96
#define LONGEST_S (30.0 * 86400.0) /* the longest interval between checkpoints */

const char *ash_goodput_name(enum ash_goodput_kind kind)
{
    static const char *const names[] = {"sync", "async", "tiered", "checkpointless"};
    _Static_assert(ASH_COUNT(names) == ASH_GOODPUT_KINDS, "each way has a name");

    ash_assert((size_t)kind < ASH_COUNT(names));
    return names[kind];
}

static double state_bytes(const struct ash_goodput_job *job)
{
    return job->params * job->bytes_per_param;
}

static double nodes(const struct ash_goodput_job *job)
{
    ash_assert(job->gpus_per_node > 0);
    return ceil(job->gpus / job->gpus_per_node);
}

int ash_goodput_check(const struct ash_goodput_job *job, struct ash_err *err)
{
    double write_s = state_bytes(job) / job->write_bytes_s;

    if (job->interval_s > 0 && job->interval_s < write_s)
        return ash_err_set(err, -EINVAL,
                           "a checkpoint of %.3g GB takes %.0f s to write at %.3g GB/s: an interval of %.0f s is too "
                           "short, the least is %.0f s",
                           state_bytes(job) * 1e-9, write_s, job->write_bytes_s * 1e-9, job->interval_s, write_s);
    if (write_s > LONGEST_S)
        return ash_err_set(err, -EINVAL,
                           "a checkpoint of %.3g GB would take %.0f days to write at %.3g GB/s: give the rate of the "
                           "whole storage, at least %.3g GB/s",
                           state_bytes(job) * 1e-9, write_s / 86400, job->write_bytes_s * 1e-9,
                           state_bytes(job) / 3600 * 1e-9);
    if (job->gpus < job->gpus_per_node && job->gpus > 1 && fmod(job->gpus_per_node, job->gpus) != 0)
        return ash_err_set(err, -EINVAL, "%.0f GPUs are neither whole nodes of %.0f nor an even part of one", job->gpus,
                           job->gpus_per_node);
    if (job->gpus > job->gpus_per_node && fmod(job->gpus, job->gpus_per_node) != 0)
        return ash_err_set(err, -EINVAL, "%.0f GPUs are not whole nodes of %.0f: %.0f or %.0f would be", job->gpus,
                           job->gpus_per_node, floor(job->gpus / job->gpus_per_node) * job->gpus_per_node,
                           nodes(job) * job->gpus_per_node);
    return 0;
}

/* ---- the best interval ------------------------------------------------------------------------------------------- */

typedef double (*rate_fn)(struct ash_goodput_way *way, double work_s);

static double rate_of_fast(struct ash_goodput_way *way, double work_s)
{
    way->fast.work_s = work_s;
    return ash_goodput_fast_rate(way);
}

static double rate_of_slow(struct ash_goodput_way *way, double work_s)
{
    way->slow.work_s = work_s;
    return ash_goodput_slow_rate(way);
}

/* The work between snapshots, not below `least`, at which rate is highest, by golden section over its logarithm (the
 * rate has one peak). In whole steps. */
static double best_work(struct ash_goodput_way *way, rate_fn rate, double least, double step_s)
{
    const double golden = 0.6180339887498949;
    double low = log(least), high = log(fmax(least, LONGEST_S));
    double a = high - golden * (high - low), b = low + golden * (high - low);
    double at_a = rate(way, exp(a)), at_b = rate(way, exp(b));

    for (int i = 0; i < SEARCH_STEPS; i++) {
        if (at_a >= at_b) {
            high = b;
            b = a;
            at_b = at_a;
            a = high - golden * (high - low);
            at_a = rate(way, exp(a));
        } else {
            low = a;
            a = b;
            at_a = at_b;
            b = low + golden * (high - low);
            at_b = rate(way, exp(b));
        }
    }
    return fmax(floor(exp(low) / step_s + 0.5), ceil(least / step_s - 1e-9)) * step_s;
}

/* ---- the four ways ----------------------------------------------------------------------------------------------- */

/* A checkpoint on shared storage: the job starts again and reads it. */
static struct ash_goodput_level shared_level(const struct ash_goodput_job *job)
{
    return (struct ash_goodput_level){
        .detect_s = job->detect_s,
        .restart_s = job->restart_s + job->init_s_per_1k_gpus * job->gpus / 1000,
        .load_s = state_bytes(job) / job->read_bytes_s,
    };
}

static void write_behind(const struct ash_goodput_job *job, struct ash_goodput_level *level)
{
    level->lag_s = state_bytes(job) / job->write_bytes_s;
    level->slowdown = job->write_slowdown;
}

/* What a way is made of, but for its intervals. */
static void describe(const struct ash_goodput_job *job, enum ash_goodput_kind kind, struct ash_goodput_way *way)
{
    double stage_s = state_bytes(job) / job->gpus / job->stage_bytes_s;
    double peer_s = state_bytes(job) / nodes(job) / job->peer_bytes_s;

    way->slow = way->fast = shared_level(job);
    way->has_fast = kind == ASH_GOODPUT_TIERED || kind == ASH_GOODPUT_PEERS;
    way->cover = way->has_fast ? 1 - job->uncovered : 0;
    way->fast.load_s = peer_s;
    if (kind == ASH_GOODPUT_SYNC) way->slow.stall_s = state_bytes(job) / job->write_bytes_s;
    if (kind != ASH_GOODPUT_SYNC) write_behind(job, &way->slow);
    if (kind == ASH_GOODPUT_ASYNC || kind == ASH_GOODPUT_PEERS) way->slow.stall_s = stage_s;
    if (kind == ASH_GOODPUT_TIERED) { /* shared storage is fed from the copy in host memory */
        way->fast.stall_s = stage_s;
        way->fast.lag_s = peer_s;
    }
    if (kind == ASH_GOODPUT_PEERS) {
        way->fast.detect_s = job->peer_detect_s;
        way->fast.restart_s = job->peer_recover_s;
        way->overhead = job->peer_overhead;
    }
}

void ash_goodput_plan(const struct ash_goodput_job *job, enum ash_goodput_kind kind, struct ash_goodput_way *way_out)
{
    struct ash_goodput_way way = {
        .kind = kind,
        .mtbf_s = 3600 / (job->failures_per_gpu_hour * job->gpus),
        .replace_share = job->replace_share,
        .repair_s = job->repair_s,
        .spares = job->spares,
    };

    describe(job, kind, &way);
    way.fast.work_s = job->step_s;
    if (kind == ASH_GOODPUT_TIERED)
        way.fast.work_s = best_work(&way, rate_of_fast, fmax(job->step_s, way.fast.lag_s), job->step_s);
    if (job->interval_s > 0)
        way.slow.work_s = fmax(1, floor(job->interval_s / job->step_s + 0.5)) * job->step_s;
    else
        way.slow.work_s = best_work(&way, rate_of_slow, fmax(job->step_s, way.slow.lag_s), job->step_s);
    *way_out = way;
}

void ash_goodput_memory_of(const struct ash_goodput_job *job, enum ash_goodput_kind kind,
                           struct ash_goodput_memory *memory_out)
{
    double state = state_bytes(job), share = state / nodes(job);
    struct ash_goodput_memory memory = {.state_bytes = state, .fits = true};

    if (kind == ASH_GOODPUT_ASYNC || kind == ASH_GOODPUT_PEERS) memory.host_bytes_per_node = share;
    if (kind == ASH_GOODPUT_TIERED) {
        memory.host_bytes_per_node = 3 * share; /* own, the neighbour's, and the one being received */
        memory.nvme_bytes_per_node = 2 * share; /* the one that counts and the one being written */
    }
    /* The optimizer's shards are spread over half as many ranks. The bf16 weights are there anyway. */
    if (kind == ASH_GOODPUT_PEERS)
        memory.hbm_bytes_per_gpu = job->params * fmax(0, job->bytes_per_param - 2) / job->gpus;
    if (job->node_ram_bytes > 0 && memory.host_bytes_per_node > job->node_ram_bytes) memory.fits = false;
    if (job->gpu_free_bytes > 0 && memory.hbm_bytes_per_gpu > job->gpu_free_bytes) memory.fits = false;
    *memory_out = memory;
}

/* ---- who is better, and where ------------------------------------------------------------------------------------ */

/* How much better b is than a. */
static double advantage(const struct ash_goodput_job *job, enum ash_goodput_kind a, enum ash_goodput_kind b)
{
    struct ash_goodput_way way;
    struct ash_goodput_result of_a, of_b;

    ash_goodput_plan(job, a, &way);
    ash_goodput_solve(&way, &of_a);
    ash_goodput_plan(job, b, &way);
    ash_goodput_solve(&way, &of_b);
    return of_b.shares.useful - of_a.shares.useful;
}

/* The value of *field (inside *job) between low and high at which b overtakes a, or 0. */
static double overtaking(struct ash_goodput_job *job, double *field, double low, double high, enum ash_goodput_kind a,
                         enum ash_goodput_kind b)
{
    double factor = pow(high / low, 1.0 / SCAN_POINTS), left = 0, right = 0, before = 0;

    for (int i = 0; i <= SCAN_POINTS && right == 0; i++) {
        double now;

        *field = low * pow(factor, i);
        now = advantage(job, a, b);
        if (i > 0 && before <= 0 && now > 0) right = *field;
        if (right == 0) left = *field;
        before = now;
    }
    if (right == 0) return 0;
    for (int i = 0; i < 40; i++) {
        *field = sqrt(left * right);
        if (advantage(job, a, b) > 0)
            right = *field;
        else
            left = *field;
    }
    return right;
}

void ash_goodput_break_even_of(const struct ash_goodput_job *job, enum ash_goodput_kind a, enum ash_goodput_kind b,
                               struct ash_goodput_break_even *even_out)
{
    struct ash_goodput_job copy = *job;
    struct ash_goodput_break_even even = {0};

    even.failures_per_gpu_hour =
        overtaking(&copy, &copy.failures_per_gpu_hour, 1e-9, 3600 / (job->gpus * 60), a, b); /* to one a minute */
    even.exists = even.failures_per_gpu_hour > 0;
    if (even.exists) even.mtbf_s = 3600 / (even.failures_per_gpu_hour * job->gpus);
    copy = *job;
    even.gpus = overtaking(&copy, &copy.gpus, job->gpus_per_node, 1 << 20, a, b);
    *even_out = even;
}
