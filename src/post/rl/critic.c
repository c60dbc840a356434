/* critic: PPO's second trained model. It is a reward model that gives a value to every token of an answer, in a
 * separate trainer on the policy's mesh. Its state at a step is a function of its start and of the rollouts until then,
 * which are recorded: it is saved periodically, and a resumed run redoes the steps since the last save. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/file.h"
#include "base/log.h"
#include "post/objective/policy.h"
#include "post/rl/rl_priv.h"
#include "train/checkpoint.h"
#include "train/save/restore.h"
#include "train/save/saver.h"

#define SAVE_MEMORY_BYTES ((size_t)64 << 20)

/* ---- sequences --------------------------------------------------------------------------------------------------- */

/* A row with a target has a value: the "label" 0. */
static void mark_values(const struct ash_policy_run *rl, struct ash_sample *sample)
{
    for (size_t r = 0; sample->doc_count > 0 && r < (size_t)rl->job->data.seq_tokens; r++)
        if (sample->targets[r] >= 0) sample->targets[r] = 0;
}

static int read_learned(const void *ctx, uint64_t step, uint64_t slot, uint64_t slots_per_step,
                        struct ash_sample *sample, struct ash_err *err)
{
    struct ash_policy_run *rl = (struct ash_policy_run *)(uintptr_t)ctx;
    int rc = rl->source.ops->read(rl->source.ctx, step, slot, slots_per_step, sample, err);

    if (rc == 0) mark_values(rl, sample);
    return rc;
}

static uint64_t count_learned(const void *ctx, uint64_t step, uint64_t slot, uint64_t slots_per_step)
{
    const struct ash_policy_run *rl = ctx;

    return rl->source.ops->count(rl->source.ctx, step, slot, slots_per_step);
}

static const struct ash_source_ops learned_ops = {.read = read_learned, .count = count_learned};

/* Sequences of one minibatch of a rollout, in their order: `step` is the first that learns from it. */
static int read_valued(const void *ctx, uint64_t step, uint64_t slot, uint64_t slots_per_step,
                       struct ash_sample *sample, struct ash_err *err)
{
    struct ash_policy_run *rl = (struct ash_policy_run *)(uintptr_t)ctx;

    (void)slots_per_step;
    (void)err;
    ash_rl_read_bin(rl, rl->critic.valued_step + step, (size_t)slot, sample);
    mark_values(rl, sample);
    return 0;
}

static uint64_t count_valued(const void *ctx, uint64_t step, uint64_t slot, uint64_t slots_per_step)
{
    (void)ctx;
    (void)step;
    (void)slot;
    (void)slots_per_step;
    return 1; /* of no consequence: nothing is learned */
}

static const struct ash_source_ops valued_ops = {.read = read_valued, .count = count_valued};

int ash_critic_values(struct ash_policy_run *rl, struct ash_rollout *rollout, struct ash_err *err)
{
    struct ash_train_source source = rl->source;
    size_t seq = (size_t)rl->job->data.seq_tokens, per_minibatch = rl->shape.answers / rl->shape.minibatches;
    float *rows;
    int rc = 0;

    source.ops = &valued_ops;
    source.ctx = rl;
    for (size_t m = 0; rc == 0 && m < rl->shape.minibatches; m++) {
        size_t bins = rollout->bin_counts[m];

        rl->critic.valued_step = rollout->number * ash_rl_steps_per_rollout(&rl->shape) + m;
        rows = calloc(bins * seq, sizeof(*rows));
        if (rows == NULL) return ash_err_set(err, -ENOMEM, "out of memory for the values of a rollout");
        rc = ash_stages_eval_rows(ash_trainer_stages(rl->critic.trainer), &source, bins, rows, err);
        for (size_t a = m * per_minibatch; rc == 0 && a < (m + 1) * per_minibatch; a++) {
            struct ash_answer_row *row = &rollout->answers[a];
            size_t first = rollout->bin_of[a] * seq + rollout->row_of[a] + rollout->prompts[row->prompt].ids.count - 1;

            ash_assert(rollout->bin_of[a] < bins &&
                       row->count <= rl->shape.max_tokens); /* with a critic all answers are placed */
            memcpy(row->values, rows + first, row->count * sizeof(*rows));
        }
        free(rows);
    }
    return rc;
}

/* ---- the objective ----------------------------------------------------------------------------------------------- */

static int weigh_values(void *ctx, const struct ash_objective_rows *rows, double *loss_out, struct ash_err *err)
{
    struct ash_policy_run *rl = ctx;
    const struct ash_rollout *rollout = ash_rl_rollout_of(rl, rows->step);
    size_t minibatch = (size_t)(rows->step % ash_rl_steps_per_rollout(&rl->shape)) % rl->shape.minibatches;
    size_t per_minibatch = rl->shape.answers / rl->shape.minibatches, bin = ash_rl_bin_of_slot(rl, rows->slot);
    double weight = 1.0 / rollout->weight_tokens[minibatch];

    (void)err;
    for (size_t a = minibatch * per_minibatch; a < (minibatch + 1) * per_minibatch; a++) {
        const struct ash_answer_row *row = &rollout->answers[a];
        size_t first = rollout->row_of[a] + rollout->prompts[row->prompt].ids.count - 1;

        if (rollout->bin_of[a] != bin || !ash_rl_counts(rl, row)) continue;
        for (size_t t = 0; t < row->count; t++) {
            if (ash_rl_is_given(row, t)) continue;
            double slope = 0.0, loss = ash_policy_value_loss((double)rows->losses[first + t], (double)row->values[t],
                                                             row->returns[t], rl->job->rl.value_clip, &slope);

            *loss_out += weight * loss;
            rows->scales[first + t] = (float)(weight * slope);
        }
    }
    return 0;
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

void ash_critic_init(struct ash_policy_run *rl)
{
    const struct ash_job *job = rl->job;

    if (!rl->shape.has_critic) return;
    rl->critic.job = *job;
    rl->critic.job.model.from = job->rl.critic != NULL ? job->rl.critic : job->model.from;
    rl->critic.job.model.quant = ASH_JOB_QUANT_NONE;
    rl->critic.job.lora = (struct ash_job_lora){0};
    rl->critic.job.optimizer.lr = job->rl.critic_lr > 0 ? job->rl.critic_lr : job->optimizer.lr;
    rl->critic.job.recover.copies = 0; /* lost state is recomputed */
    rl->critic.source = rl->source;
    rl->critic.source.ops = &learned_ops;
    rl->critic.source.ctx = rl;
    rl->critic.objective = (struct ash_objective){.weigh = weigh_values, .ctx = rl, .needs_losses = true};
}

void ash_critic_close(struct ash_policy_run *rl)
{
    ash_trainer_close(rl->critic.trainer);
    rl->critic.trainer = NULL;
}

static int root_path(const struct ash_policy_run *rl, char root[PATH_MAX], struct ash_err *err)
{
    int rc = ash_path_join(root, PATH_MAX, rl->dir, "critic");

    return rc < 0 ? ash_err_set(err, rc, "'%s' is too long a path", rl->dir) : 0;
}

void ash_critic_forget(const struct ash_policy_run *rl, uint64_t step)
{
    struct ash_err err = {0};
    char root[PATH_MAX];

    if (!rl->shape.has_critic || root_path(rl, root, NULL) < 0 || !ash_path_exists(root)) return;
    if (ash_checkpoint_clear_newer(root, step, &err) < 0) ash_log(ASH_LOG_WARN, "the critic: %s", err.text);
}

/* Open it: blank for a checkpoint's values, or as it starts. */
static int open_trainer(struct ash_policy_run *rl, struct ash_trainer *trainer, const char *weights_dir,
                        struct ash_err *err)
{
    const struct ash_mesh *mesh = ash_trainer_get_facts(trainer).mesh;
    struct ash_trainer_parts parts = {
        .train = &rl->critic.source, .wants_scores = true, .objective = &rl->critic.objective};
    struct ash_job_mesh *sizes = &rl->critic.job.mesh;
    int rc;

    ash_critic_close(rl);
    sizes->dp = (int64_t)mesh->size[ASH_MESH_DP];
    sizes->fsdp = (int64_t)mesh->size[ASH_MESH_FSDP];
    sizes->tp = (int64_t)mesh->size[ASH_MESH_TP];
    sizes->pp = (int64_t)mesh->size[ASH_MESH_PP];
    sizes->cp = (int64_t)mesh->size[ASH_MESH_CP];
    sizes->ep = (int64_t)mesh->size[ASH_MESH_EP];
    rc = ash_trainer_open(&rl->critic.job, weights_dir, rl->group, &parts, &rl->critic.trainer, err);
    return rc < 0 ? ash_err_prefix(err, rc, "the critic") : 0;
}

/* A checkpoint that is not newer than step. Returns 1 if it was loaded, 0 if it was not. */
static int load_one(struct ash_policy_run *rl, struct ash_trainer *trainer, struct ash_restore *restore,
                    const struct ash_restored *restored, struct ash_err *err)
{
    struct ash_checkpoint checkpoint = {0};
    int rc;

    snprintf(checkpoint.dir, sizeof(checkpoint.dir), "%s", restored->dir);
    rc = ash_checkpoint_decode(restored->manifest, &checkpoint, err);
    if (rc == 0) rc = open_trainer(rl, trainer, restored->dir, err);
    if (rc == 0)
        rc = ash_restore_read(restore, restored, ash_trainer_stages(rl->critic.trainer),
                              ash_trainer_outline(rl->critic.trainer), err);
    if (rc == 0) rc = ash_checkpoint_load(&checkpoint, ash_trainer_stages(rl->critic.trainer), err);
    ash_checkpoint_fini(&checkpoint);
    return rc == -EBADMSG ? 0 : rc < 0 ? rc : 1;
}

static int load(struct ash_policy_run *rl, struct ash_trainer *trainer, const char *root, uint64_t step,
                struct ash_err *err)
{
    struct ash_restore_opts opts = {.root = root, .group = rl->group};
    struct ash_restore *restore = NULL;
    int rc = ash_restore_open(&opts, &restore, err), loaded = 0;

    while (rc == 0 && loaded == 0) {
        struct ash_restored restored = {0};

        rc = ash_restore_next(restore, &restored, err);
        if (rc == 0 && restored.step <= step) loaded = load_one(rl, trainer, restore, &restored, err);
        ash_restored_fini(&restored);
    }
    ash_restore_close(restore);
    if (loaded < 0) return loaded;
    return loaded > 0 || rc == -ENODATA || rc == -ENOENT ? loaded : rc;
}

/* The steps since its checkpoint, from rollouts that are recorded. */
static int catch_up(struct ash_policy_run *rl, uint64_t step, struct ash_err *err)
{
    int rc = 0;

    while (rc == 0 && ash_trainer_state(rl->critic.trainer)->step < step) {
        uint64_t number = ash_trainer_state(rl->critic.trainer)->step / ash_rl_steps_per_rollout(&rl->shape);
        struct ash_step done;

        if (rl->rollouts[number % rl->rollout_count].number != number)
            rc = ash_rl_find_rollout(rl, number, UINT64_MAX, err);
        if (rc == 0) rc = ash_trainer_step(rl->critic.trainer, &done, err);
    }
    return rc;
}

int ash_critic_settle(struct ash_policy_run *rl, struct ash_trainer *trainer, uint64_t step, struct ash_err *err)
{
    bool is_first = ash_group_rank(rl->group) == 0;
    struct ash_err newer = {0};
    int32_t is_behind;
    char root[PATH_MAX];
    int rc = 0;

    if (!rl->shape.has_critic) return 0;
    is_behind = rl->critic.trainer == NULL || ash_trainer_state(rl->critic.trainer)->step != step;
    rc = ash_group_all_reduce(rl->group, &is_behind, &is_behind, 1, ASH_COLL_I32, ASH_COLL_MAX, err);
    if (rc < 0 || is_behind == 0) return rc;
    rc = root_path(rl, root, err);
    if (rc == 0 && step > 0) rc = load(rl, trainer, root, step, err);
    if (rc == 0) rc = open_trainer(rl, trainer, NULL, err);
    if (rc < 0) return rc;
    if (is_first && ash_path_exists(root) &&
        ash_checkpoint_clear_newer(root, ash_trainer_state(rl->critic.trainer)->step, &newer) < 0)
        ash_log(ASH_LOG_WARN, "%s", newer.text); /* the next save reports it, too */
    return catch_up(rl, step, err);
}

/* ---- saves ------------------------------------------------------------------------------------------------------- */

static int begin_save(struct ash_policy_run *rl, struct ash_saver *saver, const char *root, struct ash_err *err)
{
    struct ash_trainer_facts facts = ash_trainer_get_facts(rl->critic.trainer);
    const struct ash_state *state = ash_trainer_state(rl->critic.trainer);
    struct ash_checkpoint_facts about = {.job_yaml = "", .arithmetic = facts.arithmetic, .data_hash = facts.data_hash};
    char dir[PATH_MAX];
    struct ash_save_opts save = {.dir = dir, .number = state->step, .flush_fd = -1};
    int rc = ash_stages_hash(ash_trainer_stages(rl->critic.trainer), &about.weights_hash, err);

    about.state_hash = about.weights_hash;
    if (rc == 0 && ash_checkpoint_path(root, state->step, dir, sizeof(dir)) < 0)
        rc = ash_err_set(err, -ENAMETOOLONG, "'%s' is too long a path", root);
    if (rc == 0 && ash_group_rank(rl->group) == 0) {
        save.state = ash_checkpoint_encode(state, &about);
        if (save.state == NULL) rc = ash_err_set(err, -ENOMEM, "out of memory for a checkpoint's manifest");
    }
    if (rc == 0) rc = ash_saver_begin(saver, &save, err);
    return rc < 0 ? rc : ash_saver_finish(saver, NULL, NULL, err);
}

/* A save that fails costs nothing but itself: the next one is longer ago. Only a lost rank is an error. */
static int save(struct ash_policy_run *rl, struct ash_err *err)
{
    struct ash_fence fence = {0};
    char root[PATH_MAX];
    struct ash_saver_opts opts = {.stages = ash_trainer_stages(rl->critic.trainer),
                                  .mesh = &rl->critic.job.mesh,
                                  .group = rl->group,
                                  .root = root,
                                  .memory_bytes = SAVE_MEMORY_BYTES,
                                  .fence = &fence};
    struct ash_saver *saver = NULL;
    struct ash_save_result result;
    int rc = root_path(rl, root, err);

    if (rc == 0) rc = ash_saver_open(&opts, &saver, err);
    if (rc == 0) rc = begin_save(rl, saver, root, err);
    while (rc == 0 && ash_saver_take_result(saver, &result))
        if (result.rc < 0) ash_log(ASH_LOG_WARN, "the critic was not saved: %s", result.err.text);
    ash_saver_close(saver);
    if (rc == 0 && ash_group_rank(rl->group) == 0) ash_checkpoint_prune(root, (size_t)rl->job->train.keep, NULL);
    return rc;
}

int ash_critic_learn(struct ash_policy_run *rl, uint64_t step, struct ash_err *err)
{
    int64_t every = rl->job->train.save_every;
    struct ash_step done;
    int rc;

    if (!rl->shape.has_critic) return 0;
    rc = ash_trainer_step(rl->critic.trainer, &done, err);
    if (rc < 0) return ash_err_prefix(err, rc, "the critic");
    rl->critic.value_loss = done.loss;
    return every > 0 && step % (uint64_t)every == 0 ? save(rl, err) : 0;
}
