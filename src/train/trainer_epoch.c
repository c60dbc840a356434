/* trainer: what lives with an epoch of the job's ranks: mesh, stages, copies. Data, threads and the values of the state
 * live longer. */
#include "train/trainer_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "compute/backends/backends.h"
#include "train/foresee.h"
#include "train/recover/shape.h"

/* The ranks of the mesh; the others are spares. */
static int split_spares(const struct ash_trainer *trainer, struct ash_trainer_epoch *epoch, struct ash_err *err)
{
    size_t ranks = ash_shape_ranks(&epoch->job.mesh), place = epoch->place;

    epoch->group = trainer->root;
    if (trainer->root == NULL || ash_group_size(trainer->root) == ranks) return 0;
    ash_assert(ranks < ash_group_size(trainer->root));
    epoch->group = NULL;
    return ash_group_split(trainer->root, place < ranks ? 0 : -1, place < ranks ? (int64_t)place : 0, &epoch->group,
                           err);
}

/* What a rank has found goes for all: one that stops here would leave the others waiting. */
static int share_verdict(struct ash_group *group, int rc, struct ash_err *err)
{
    int64_t failed = rc < 0 ? (int64_t)ash_group_rank(group) + 1 : 0;
    int shared = ash_group_all_reduce(group, &failed, &failed, 1, ASH_COLL_I64, ASH_COLL_MAX, rc < 0 ? NULL : err);

    if (rc < 0 || shared < 0 || failed == 0) return rc < 0 ? rc : shared;
    return ash_err_set(err, -ENOMEM,
                       "rank %lld has too little memory on its GPU: its own output says how much it needs",
                       (long long)failed - 1);
}

/* A device's memory is taken when it is allocated, so the estimate is checked before. Part by part into *memory. */
static int check_room(struct ash_trainer *trainer, struct ash_trainer_epoch *epoch,
                      const struct ash_stages_source *source, struct ash_train_memory *memory, struct ash_err *err)
{
    struct ash_foresee_opts opts = {
        .job = &epoch->job, .exec = &trainer->exec, .mesh = &epoch->mesh, .config = source->config};
    int rc;

    if (trainer->exec.memory->host_visible || source->config->lora != NULL) return 0;
    if (trainer->exec.cuda == NULL) return ash_train_foresee(&opts, memory, err);
    rc = ash_train_foresee_room(&opts, ash_backend_free_bytes(&trainer->exec), memory, err);
    return epoch->group != NULL ? share_verdict(epoch->group, rc, err) : rc;
}

int ash_trainer_open_epoch(struct ash_trainer *trainer, struct ash_trainer_epoch *epoch,
                           const struct ash_stages_source *source, struct ash_err *err)
{
    struct ash_train_memory device = {0};
    int rc;

    ash_assert(epoch->stages.chunks == NULL);
    epoch->has_values = false;
    rc = split_spares(trainer, epoch, err);
    if (rc < 0 || (trainer->root != NULL && epoch->group == NULL)) return rc;
    rc = ash_mesh_open(&epoch->mesh, &epoch->job.mesh, epoch->group, err);
    if (rc < 0) return rc;
    if (trainer->config.lora != NULL) epoch->mesh.shares_gradients = false; /* x A^T is each rank's own */
    rc = check_room(trainer, epoch, source, &device, err);
    if (rc < 0) return rc;
    rc = ash_stages_open(&epoch->stages, &epoch->job, &trainer->exec, &epoch->mesh, source, err);
    if (rc < 0) return rc;
    rc = ash_copies_open(&epoch->copies, &epoch->stages, trainer->outline, (size_t)trainer->job->recover.copies, err);
    if (rc < 0) return rc;
    epoch->are_copies_new = true;
    ash_train_memory_measure(&epoch->stages, &epoch->memory);
    epoch->memory.moments = device.moments;
    epoch->memory.logits = device.logits;
    epoch->memory.scratch = device.scratch;
    epoch->memory.device = device.device;
    epoch->memory.state += ash_copies_bytes(&epoch->copies);
    return 0;
}

/* The losses of the step that was being made, as far as they are known. Without memory for them none is. */
static double *copy_losses(const struct ash_trainer *trainer)
{
    size_t grains = (size_t)trainer->job->train.grains;
    double *losses = calloc(grains, sizeof(*losses));

    if (losses != NULL) memcpy(losses, trainer->losses, grains * sizeof(*losses));
    return losses;
}

/* Keep the values beyond the epoch. Without memory for the list they are lost, as after any other failure. */
static bool keep_values(struct ash_trainer *trainer, struct ash_trainer_epoch *epoch)
{
    struct ash_kept_state *kept = realloc(trainer->kept, (trainer->kept_count + 1) * sizeof(*kept));

    if (kept == NULL) return false;
    ash_copies_drop_empty(&epoch->copies);
    trainer->kept = kept;
    kept[trainer->kept_count++] =
        (struct ash_kept_state){.stages = epoch->stages,
                                .copies = epoch->copies,
                                .mesh = epoch->job.mesh,
                                .place = epoch->place,
                                .reports = ash_mesh_is_reporting_rank(&epoch->mesh),
                                .losses = epoch->stages.summed_step > 0 ? copy_losses(trainer) : NULL};
    memset(&epoch->stages, 0, sizeof(epoch->stages));
    memset(&epoch->copies, 0, sizeof(epoch->copies));
    return true;
}

void ash_trainer_close_epoch(struct ash_trainer *trainer, struct ash_trainer_epoch *epoch, bool keeps)
{
    if (epoch->stages.chunks != NULL) ash_stages_detach(&epoch->stages);
    ash_copies_detach(&epoch->copies);
    if (!keeps || !epoch->has_values || epoch->stages.chunks == NULL || !keep_values(trainer, epoch)) {
        ash_copies_close(&epoch->copies);
        ash_stages_close(&epoch->stages);
    }
    ash_mesh_close(&epoch->mesh);
    if (epoch->group != trainer->root) ash_group_close(epoch->group);
    epoch->group = NULL;
    epoch->has_values = false;
}

int ash_trainer_begin_epoch(struct ash_trainer *trainer, struct ash_group *root, const struct ash_stages_source *source,
                            struct ash_err *err)
{
    ash_assert(trainer->root == NULL);
    trainer->root = root;
    if (root != NULL) ash_group_set_memory(root, ash_backend_device_memory(&trainer->exec));
    return ash_trainer_open_epoch(trainer, trainer->now, source, err);
}

void ash_trainer_end_epoch(struct ash_trainer *trainer, bool keeps)
{
    if (trainer->parts.end != NULL) trainer->parts.end(trainer->parts.ctx);
    ash_trainer_end_refill(trainer, NULL); /* those that are there by now count */
    ash_trainer_drop_growth(trainer);
    ash_seals_break(&trainer->seals);
    ash_trainer_close_epoch(trainer, trainer->now, keeps);
    if (trainer->root != NULL) ash_group_set_memory(trainer->root, NULL);
    trainer->root = NULL;
}

void ash_trainer_drop_kept(struct ash_trainer *trainer)
{
    for (size_t i = 0; i < trainer->kept_count; i++) {
        ash_copies_close(&trainer->kept[i].copies);
        ash_stages_close(&trainer->kept[i].stages);
        free(trainer->kept[i].losses);
    }
    free(trainer->kept);
    trainer->kept = NULL;
    trainer->kept_count = 0;
    trainer->damages.count = 0;
}

bool ash_trainer_is_spare(const struct ash_trainer *trainer)
{
    return trainer->root != NULL && trainer->now->group == NULL;
}
