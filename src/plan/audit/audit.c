/* audit: the step of plan/train/step.h over degrees and changes, and what of it is expert traffic
 * (plan/train/dispatch.h). */
#include "plan/audit/audit.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "plan/train/layer.h"

#define BISECTIONS 50
#define BANDWIDTH_MIN 1e8
#define BANDWIDTH_MAX 1e13

static const double shares[ASH_AUDIT_SHARES] = {0.1, 0.3, 0.5};

/* ---- one row ----------------------------------------------------------------------------------------------------- */

static bool overlaps(const struct ash_plan_job *job)
{
    const struct ash_stack *stack = job->stack != NULL ? job->stack : ash_stack_find(NULL);

    return job->overlap_dispatch || stack->overlap_dispatch;
}

/* The job with today's dispatch, and with measured loads if there are any. */
static struct ash_plan_job job_of(const struct ash_audit_job *job, const struct ash_layout *layout)
{
    struct ash_plan_job today = job->job;

    today.dedup_dispatch = job->two_level;
    today.fp8_dispatch = job->fp8_dispatch;
    if (job->counts != NULL)
        today.imbalance = ash_dispatch_imbalance(job->counts, (size_t)today.shape.experts, (size_t)layout->ep);
    return today;
}

/* Tokens go there and back in the forward pass, in the backward pass, and once more where all of the forward pass is
 * recomputed. */
static void evaluate(const struct ash_consts *consts, const struct ash_audit_job *job, const struct ash_layout *layout,
                     struct ash_audit_row *row)
{
    const struct ash_shape *shape = &job->job.shape;
    double sparse = shape->sparse_layers / shape->layers, passes, exposed, layers, stretch, work;
    struct ash_plan_job today = job_of(job, layout);
    struct ash_plan_step step;

    ash_step_predict(consts, &today, layout, false, &step);
    ash_plan_layer_dispatch(consts, &today, layout, &row->layer);
    passes = step.recompute == ASH_PLAN_RECOMPUTE_FULL ? 3 : 2;
    exposed = overlaps(&today) ? consts->dispatch_exposed : 1;
    layers = ceil(shape->layers / layout->pp) * step.micro_batches; /* passes of a layer through one stage */
    work = layers * (step.layer_forward + step.layer_backward);
    stretch = work > 0 ? 1 + step.time.bubble / work : 1; /* a slower layer lengthens the bubble too */
    row->layout = *layout;
    row->inner_s = passes * sparse * layers * row->layer.inner_s;
    row->outer_s = passes * sparse * layers * row->layer.outer_s;
    row->exposed_s = passes * sparse * layers * exposed * row->layer.total_s * stretch;
    row->step_s = step.time.total;
    ash_assert(row->step_s > 0);
    row->share = row->exposed_s / row->step_s;
    row->tokens_s_gpu = job->job.global_batch * job->job.seq_tokens / row->step_s / job->job.cluster.gpus;
    row->memory_bytes = step.memory.total;
    row->capacity_bytes = step.memory.capacity;
    row->fits = step.fits;
    row->recompute = step.recompute;
    row->possible = true;
}

/* The job with another layout; a layout that does not divide is not possible. */
static void add_row(const struct ash_consts *consts, const struct ash_audit_job *job, const struct ash_layout *wanted,
                    const char *name, struct ash_audit_row *row)
{
    struct ash_layout layout = *wanted;

    *row = (struct ash_audit_row){.layout = layout};
    snprintf(row->name, sizeof(row->name), "%s", name);
    if (ash_layout_check(&job->job, &layout, NULL) < 0) return;
    evaluate(consts, job, &layout, row);
}

/* ---- degrees ----------------------------------------------------------------------------------------------------- */

static bool divides(const struct ash_audit_job *job, int ep)
{
    double ranks = (double)job->layout.tp * job->layout.cp * job->layout.dp;

    return fmod(job->job.shape.experts, ep) == 0 && fmod(ranks, ep) == 0;
}

static void add_degrees(const struct ash_consts *consts, const struct ash_audit_job *job, struct ash_audit *audit)
{
    for (int ep = 1; ep <= job->job.shape.experts && audit->degree_count < ASH_AUDIT_DEGREES_MAX; ep *= 2) {
        struct ash_layout layout = job->layout;
        struct ash_audit_row *row = &audit->degrees[audit->degree_count];
        char name[48];

        if (!divides(job, ep)) continue;
        layout.ep = ep;
        snprintf(name, sizeof(name), "EP%d", ep);
        add_row(consts, job, &layout, name, row);
        if (!row->possible) continue;
        audit->degree_count++;
        for (int i = 0; i < ASH_AUDIT_SHARES; i++)
            if (audit->passes_at[i] == 0 && row->share > shares[i]) audit->passes_at[i] = ep;
        if (!row->fits || (audit->fastest > 0 && row->step_s >= audit->fastest_s)) continue;
        audit->fastest = ep;
        audit->fastest_s = row->step_s;
    }
}

/* ---- changes ----------------------------------------------------------------------------------------------------- */

static void add_change(const struct ash_consts *consts, const struct ash_audit_job *job,
                       const struct ash_layout *layout, const char *name, struct ash_audit *audit)
{
    if (audit->change_count < ASH_AUDIT_CHANGES_MAX)
        add_row(consts, job, layout, name, &audit->changes[audit->change_count++]);
}

/* The same layout on racks whose NVLink reaches further. */
static void add_rack(const struct ash_consts *consts, const struct ash_audit_job *job, struct ash_audit *audit)
{
    struct ash_audit_job racks = *job;
    char name[48];

    if (job->rack.gpus != job->job.cluster.gpus || job->rack.domain_gpus <= job->job.cluster.domain_gpus) return;
    racks.job.cluster = job->rack;
    snprintf(name, sizeof(name), "%.40s", job->rack.machine.name);
    add_change(consts, &racks, &job->layout, name, audit);
}

static void add_changes(const struct ash_consts *consts, const struct ash_audit_job *job, struct ash_audit *audit)
{
    struct ash_audit_job changed = *job;
    struct ash_layout layout = job->layout;
    char name[48];

    for (layout.ep = 1; layout.ep * 2 <= job->job.cluster.domain_gpus && divides(job, layout.ep * 2);)
        layout.ep *= 2;
    if (layout.ep < job->layout.ep) {
        snprintf(name, sizeof(name), "EP%d, inside a domain", layout.ep);
        add_change(consts, job, &layout, name, audit);
    }
    layout = job->layout;
    changed.two_level = true;
    if (!job->two_level) add_change(consts, &changed, &layout, "two-level dispatch", audit);
    changed = *job;
    changed.fp8_dispatch = true;
    if (!job->fp8_dispatch) add_change(consts, &changed, &layout, "fp8 dispatch", audit);
    layout.micro_batch *= 2;
    add_change(consts, job, &layout, "micro-batch twice as large", audit);
    add_rack(consts, job, audit);
    changed.two_level = true;
    layout = job->layout;
    add_change(consts, &changed, &layout, "two-level and fp8", audit);
}

/* ---- the flip ---------------------------------------------------------------------------------------------------- */

static double share_at(const struct ash_consts *consts, const struct ash_audit_job *job, double bandwidth)
{
    struct ash_audit_job other = *job;
    struct ash_audit_row row;

    other.job.cluster.machine.net_bandwidth = bandwidth * job->job.cluster.machine.gpus;
    evaluate(consts, &other, &job->layout, &row);
    return row.share;
}

/* The share falls as bandwidth grows: where is it fits_share? */
static double find_flip(const struct ash_consts *consts, const struct ash_audit_job *job)
{
    double low = BANDWIDTH_MIN, high = BANDWIDTH_MAX;

    if (job->layout.ep <= job->job.cluster.domain_gpus) return 0;
    if (share_at(consts, job, high) > job->fits_share || share_at(consts, job, low) <= job->fits_share) return 0;
    for (int i = 0; i < BISECTIONS; i++) {
        double middle = sqrt(low * high);

        if (share_at(consts, job, middle) > job->fits_share)
            low = middle;
        else
            high = middle;
    }
    return high;
}

int ash_audit_run(const struct ash_consts *consts, const struct ash_audit_job *job, struct ash_audit *audit_out,
                  struct ash_err *err)
{
    struct ash_audit audit = {.bandwidth = job->job.cluster.machine.net_bandwidth / job->job.cluster.machine.gpus};

    if (job->job.shape.sparse_layers <= 0)
        return ash_err_set(err, -EINVAL,
                           "%s has no experts, so nothing is dispatched: audit a mixture-of-experts model",
                           job->job.shape.name);
    add_row(consts, job, &job->layout, "now", &audit.now);
    add_degrees(consts, job, &audit);
    add_changes(consts, job, &audit);
    audit.flip_bandwidth = find_flip(consts, job);
    *audit_out = audit;
    return 0;
}

/* ---- words ------------------------------------------------------------------------------------------------------- */

const char *ash_audit_verdict(const struct ash_audit_job *job, const struct ash_audit *audit, char *buf,
                              size_t buf_bytes)
{
    char flip[96] = "no network changes it";
    double share = 100 * audit->now.share;

    if (audit->flip_bandwidth > 0)
        snprintf(flip, sizeof(flip), "flips at %.0f GB/s of network per GPU (now %.0f)", audit->flip_bandwidth * 1e-9,
                 audit->bandwidth * 1e-9);
    if (job->layout.ep <= job->job.cluster.domain_gpus)
        snprintf(buf, buf_bytes,
                 "fits: EP%d stays inside the NVLink domain of %d, %.0f %% of the step is exposed dispatch",
                 job->layout.ep, job->job.cluster.domain_gpus, share);
    else if (audit->now.share <= job->fits_share)
        snprintf(buf, buf_bytes, "fits: %.0f %% of the step is exposed dispatch; %s", share, flip);
    else if (audit->fastest > 0 && audit->fastest_s < audit->now.step_s)
        snprintf(buf, buf_bytes,
                 "take EP%d: its step takes %.4g s, not %.4g s; at EP%d %.0f %% is exposed dispatch; %s",
                 audit->fastest, audit->fastest_s, audit->now.step_s, job->layout.ep, share, flip);
    else
        snprintf(buf, buf_bytes,
                 "network-bound: %.0f %% of the step is exposed dispatch, and no other EP has a shorter step; %s",
                 share, flip);
    return buf;
}

/* Met by others on EFA (awslabs/awsome-distributed-ai, ep-backend-comparison). */
const char *ash_audit_limit(const struct ash_audit_job *job, const struct ash_audit *audit, size_t index)
{
    int ep = job->layout.ep;
    const struct {
        bool near;
        const char *text;
    } limits[] = {
        {ep > 160, "DeepEP's throughput kernels take at most 160 ranks (8 x 20)"},
        {ep > 64, "low-latency kernels have failed between 64 and 128 ranks on EFA"},
        {ep > 64, "UCCL's buffer size passes INT_MAX between 64 and 128 ranks"},
        {ep > 128, "beyond 128 ranks only plain all-to-all has run on EFA"},
        {audit->now.layer.buffer_bytes > 2147483647.0,
         "a rank that every token chooses receives more than 2 GiB per layer: dispatchers with 32-bit sizes overflow"},
        {!audit->now.fits, "the layout does not fit into the memory of a GPU"},
    };

    for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++)
        if (limits[i].near && index-- == 0) return limits[i].text;
    return NULL;
}

const char *ash_audit_dispatcher(const struct ash_audit_job *job)
{
    bool blackwell = strstr(job->job.cluster.machine.gpu->arch, "Blackwell") != NULL;

    if (job->layout.ep <= job->job.cluster.domain_gpus) return "kernels inside the NVLink domain (DeepEP intranode)";
    if (job->layout.ep > 128) return "NCCL all-to-all (the only one that has run at 256 ranks)";
    if (blackwell && job->layout.ep >= 32 && job->layout.micro_batch >= 4)
        return "UCCL (faster than NCCL from micro-batch 4 on B300, slower at 1)";
    if (blackwell && job->layout.ep < 32) return "DeepEP over NVSHMEM (fastest at 16 ranks on B300)";
    return "NCCL all-to-all (at 64 ranks on p5 as fast as the others, and the most robust)";
}
