/* A step of reinforcement learning: the trainer's step of plan/train/search.h over the answers that the replicas of
 * plan/serve/serve.h make, and the way of the weights between them. */
#include "plan/rl/rl.h"

#include <errno.h>
#include <math.h>

#define NETWORK_SHARE 0.8 /* of the network's rate at which weights and state travel */
#define NVLINK_SHARE 0.8
#define HOST_RATE_MIN 1e9 /* bytes/s between a GPU and its host where the catalog does not say */
#define STATE_BYTES 14.0  /* of a weight in the trainer: bf16 2, fp32 master 4, Adam's moments 8 */
#define STATE_SHARE 0.5   /* of a GPU's memory that state and weights may take next to caches */
#define POINTS_MAX 64
#define SPLITS_MAX (sizeof(((struct ash_rl *)NULL)->splits) / sizeof(((struct ash_rl *)NULL)->splits[0]))

static double out_tokens(const struct ash_serve_job *job)
{
    return job->thinking_tokens + job->answer_tokens;
}

static void set_machines(const struct ash_cluster *all, int machines, struct ash_cluster *cluster)
{
    *cluster = *all;
    if (machines == all->machines) return;
    cluster->machines = machines;
    cluster->gpus = machines * all->machine.gpus;
    cluster->domain_gpus = all->machine.domain_gpus < cluster->gpus ? all->machine.domain_gpus : cluster->gpus;
}

/* ---- the two halves ---------------------------------------------------------------------------------------------- */

static int plan_training(const struct ash_consts *consts, const struct ash_rl_job *job, struct ash_rl_split *split,
                         struct ash_err *err)
{
    struct ash_plan_job train = {.shape = job->serve.shape,
                                 .seq_tokens = job->serve.in_tokens + out_tokens(&job->serve),
                                 .global_batch = job->prompts * job->serve.samples,
                                 .dedup_dispatch = true};
    struct ash_search_result result;
    int rc;

    set_machines(&job->serve.cluster, split->train_machines, &train.cluster);
    rc = ash_search_run(consts, &train, &job->search, &split->plan, 1, &result, err);
    if (rc == 0) split->train_s = split->plan.step.time.total;
    if (rc != -EINVAL || err == NULL) return rc;
    return ash_err_prefix(err, rc, "a step trains on %.0f prompts x %.0f answers", job->prompts, job->serve.samples);
}

/* The cut whose replicas are first done with the prompts of a step, each taking its part at once as far as they fit. */
static int plan_sampling(const struct ash_consts *consts, const struct ash_rl_job *job, struct ash_rl_split *split,
                         struct ash_err *err)
{
    struct ash_serve_point points[POINTS_MAX];
    struct ash_serve_job serve = job->serve;
    size_t count;
    int rc;

    set_machines(&job->serve.cluster, split->sample_machines, &serve.cluster);
    rc = ash_serve_check(consts, &serve, err);
    if (rc < 0) return rc;
    count = ash_serve_search(consts, &serve, points, POINTS_MAX);
    split->sample_s = INFINITY;
    for (size_t i = 0; i < count; i++) {
        double replicas = floor((double)serve.cluster.gpus / ash_infer_gpus(&points[i].infer));
        double each = ceil(job->prompts / replicas), together = fmin(each, floor(points[i].capacity / serve.samples));
        struct ash_serve_point point;
        double seconds;

        if (replicas < 1 || together < 1) continue;
        ash_serve_evaluate(consts, &serve, &points[i].infer, together * serve.samples, &point);
        seconds = each / together * point.request_s;
        if (seconds >= split->sample_s) continue;
        split->sample_s = seconds;
        split->replicas = replicas;
        split->point = point;
    }
    if (isfinite(split->sample_s)) return 0;
    return ash_err_set(err, -ENOSPC, "no replica of %s has room for %g answers to one prompt", serve.shape.name,
                       serve.samples);
}

/* ---- between them ------------------------------------------------------------------------------------------------ */

/* A machine of samplers gets one copy of its GPUs' weights, over the network if there is more than one machine; a
 * machine forwards it, so that the trainer sends it once. */
static double handover(const struct ash_rl_job *job, const struct ash_rl_split *split)
{
    const struct ash_cluster *cluster = &job->serve.cluster;
    double part = ash_infer_weight_bytes(&split->point.infer), gpus = fmin(cluster->gpus, cluster->machine.gpus);
    double copy = fmin(part * gpus, part * ash_infer_gpus(&split->point.infer));
    double inside = cluster->machine.gpu->nvlink_bandwidth * NVLINK_SHARE;

    if (cluster->machines > 1) return copy / (NETWORK_SHARE * cluster->machine.net_bandwidth);
    return part / fmax(inside, fmax(cluster->machine.gpu->host_bandwidth, HOST_RATE_MIN));
}

/* Where the trainer's state and the sampler's weights do not fit together the state waits in host memory. */
static double swap(const struct ash_rl_split *split)
{
    const struct ash_step_memory *memory = &split->plan.step.memory;
    double state = memory->weights + memory->gradients + memory->optimizer;
    double rate = fmax(split->point.infer.cluster.machine.gpu->host_bandwidth, HOST_RATE_MIN);

    if (!split->turns || state + ash_infer_weight_bytes(&split->point.infer) <= STATE_SHARE * memory->capacity)
        return 0;
    return 2 * state / rate;
}

static int evaluate(const struct ash_consts *consts, const struct ash_rl_job *job, struct ash_rl_split *split,
                    struct ash_err *err)
{
    int rc = plan_training(consts, job, split, err);

    if (rc == 0) rc = plan_sampling(consts, job, split, err);
    if (rc < 0) return rc;
    split->handover_s = handover(job, split);
    split->swap_s = swap(split);
    split->step_s = split->turns ? split->train_s + split->sample_s : fmax(split->train_s, split->sample_s);
    split->step_s += split->handover_s + split->swap_s;
    split->usd_step = job->serve.usd_gpu_hour / 3600 * job->serve.cluster.gpus * split->step_s;
    return 0;
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

static void add(const struct ash_consts *consts, const struct ash_rl_job *job, int train_machines, int sample_machines,
                struct ash_rl *rl, struct ash_err *err)
{
    struct ash_rl_split split = {.train_machines = train_machines,
                                 .sample_machines = sample_machines,
                                 .turns = train_machines == sample_machines &&
                                          train_machines == job->serve.cluster.machines};

    if (rl->count == SPLITS_MAX || evaluate(consts, job, &split, err) < 0) return;
    if (rl->count == 0 || split.step_s < rl->splits[rl->best].step_s) rl->best = rl->count;
    rl->splits[rl->count++] = split;
}

/* What holds whatever the split: prompts that are shared, answers that are lost, state that moves. */
static void add_costs(const struct ash_consts *consts, const struct ash_rl_job *job, struct ash_rl *rl)
{
    const struct ash_rl_split *best = &rl->splits[rl->best];
    const struct ash_machine *machine = &job->serve.cluster.machine;
    double each = ceil(job->prompts / best->replicas), group = fmin(each, fmax(1, best->point.infer.attn_dp));
    double prompts = each / group * ash_infer_prefill(consts, &best->point.infer, group, job->serve.in_tokens, 0);
    double saved = (job->serve.samples - 1) * prompts;
    double state = ash_shape_params(&job->serve.shape) * STATE_BYTES / (best->train_machines * (double)machine->gpus);

    rl->reuse_share = saved / (saved + best->sample_s);
    rl->leave_s = best->point.request_s;
    rl->move_s = machine->net_bandwidth > 0 ? state * machine->gpus / (NETWORK_SHARE * machine->net_bandwidth) : 0;
}

int ash_rl_plan(const struct ash_consts *consts, const struct ash_rl_job *job, struct ash_rl *rl_out,
                struct ash_err *err)
{
    static const double shares[] = {0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 0.875}; /* of the machines for training */
    int machines = job->serve.cluster.machines, last = 0;
    struct ash_rl rl = {0};

    add(consts, job, machines, machines, &rl, err);
    for (size_t i = 0; i < sizeof(shares) / sizeof(shares[0]); i++) {
        int train = (int)(shares[i] * machines);

        if (train <= last || train >= machines) continue;
        add(consts, job, train, machines - train, &rl, NULL);
        last = train;
    }
    if (rl.count == 0) return err != NULL && err->code != 0 ? err->code : -ENOSPC;
    add_costs(consts, job, &rl);
    *rl_out = rl;
    return 0;
}
