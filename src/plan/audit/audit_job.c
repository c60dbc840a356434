/* Defaults of an audit: the batch, the layout around a number of ranks that share the experts,
 * and measured routing. */
#include "plan/audit/audit.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define PASSES 16 /* micro-batches of a replica by default: enough to see a pipeline's steady part */
#define TENSOR_MAX 8
#define STAGES_MAX 64
#define COUNT_MAX 1e18

int ash_audit_routing(const char *text, const char *name, size_t experts, double *counts, struct ash_err *err)
{
    size_t found = 0;

    while (*text != '\0') {
        char *end = NULL;
        double value = strtod(text, &end);

        if (end == text) {
            text++;
            continue;
        }
        if (!(value >= 0 && value < COUNT_MAX))
            return ash_err_set(err, -EINVAL, "%s: '%.20s' is not a count of tokens", name, text);
        if (found < experts) counts[found] = value;
        found++;
        text = end;
    }
    if (found == experts) return 0;
    return ash_err_set(err, -EINVAL, "%s has %zu counts, the model has %zu experts", name, found, experts);
}

/* ---- layout ------------------------------------------------------------------------------------------------------ */

static void set_batch(struct ash_audit_job *job, const struct ash_layout *layout, double batch)
{
    double dp = (double)job->job.cluster.gpus / ((double)layout->tp * layout->pp * layout->cp);

    job->job.global_batch = batch > 0 ? batch : fmax(1, dp) * layout->micro_batch * PASSES;
}

/* The degrees that divide both the experts and the GPUs, for the message. */
static int refuse_degree(const struct ash_audit_job *job, int ep, struct ash_err *err)
{
    char degrees[160] = "";
    size_t used = 0;

    for (int d = 1; d <= job->job.shape.experts && d <= job->job.cluster.gpus && used + 8 < sizeof(degrees); d++)
        if (fmod(job->job.shape.experts, d) == 0 && job->job.cluster.gpus % d == 0)
            used += (size_t)snprintf(degrees + used, sizeof(degrees) - used, "%s%d", used > 0 ? ", " : "", d);
    return ash_err_set(err, -EINVAL, "ep %d does not divide the %g experts of %s and %d GPUs: %s do", ep,
                       job->job.shape.experts, job->job.shape.name, job->job.cluster.gpus, degrees);
}

static int check_degree(const struct ash_audit_job *job, int ep, struct ash_err *err)
{
    if (job->job.shape.sparse_layers <= 0)
        return ash_err_set(err, -EINVAL,
                           "%s has no experts, so nothing is dispatched: audit a mixture-of-experts model",
                           job->job.shape.name);
    if (fmod(job->job.shape.experts, ep) != 0 || job->job.cluster.gpus % ep != 0) return refuse_degree(job, ep, err);
    return 0;
}

int ash_audit_given(struct ash_audit_job *job, double batch, struct ash_err *err)
{
    int rc = check_degree(job, job->layout.ep, err);

    if (rc < 0) return rc;
    set_batch(job, &job->layout, batch);
    return ash_layout_check(&job->job, &job->layout, err);
}

int ash_audit_choose(const struct ash_consts *consts, struct ash_audit_job *job, double batch, struct ash_err *err)
{
    struct ash_layout best = job->layout;
    double fastest = -1, smallest = INFINITY;
    int rc = check_degree(job, job->layout.ep, err);

    if (rc < 0) return rc;
    for (int tp = 1; tp <= TENSOR_MAX; tp *= 2) {
        for (int pp = 1; pp <= STAGES_MAX; pp *= 2) {
            struct ash_layout layout = job->layout;
            struct ash_plan_step step;

            layout.tp = tp;
            layout.pp = pp;
            layout.dp = 0;
            set_batch(job, &layout, batch);
            if (ash_layout_check(&job->job, &layout, NULL) < 0) continue;
            ash_step_predict(consts, &job->job, &layout, false, &step);
            if (step.fits ? step.tokens_s <= fastest : fastest > 0 || step.memory.total >= smallest) continue;
            if (step.fits) fastest = step.tokens_s;
            smallest = step.memory.total;
            best = layout;
        }
    }
    if (smallest == INFINITY)
        return ash_err_set(
            err, -EINVAL,
            "no tp up to %d and pp up to %d divide %d GPUs, %g heads and %g layers so that ep %d divides "
            "what is left%s: give a --layout",
            TENSOR_MAX, STAGES_MAX, job->job.cluster.gpus, job->job.shape.heads, job->job.shape.layers, job->layout.ep,
            batch > 0 ? ", and the global batch" : "");
    job->layout = best;
    set_batch(job, &best, batch);
    return 0;
}
