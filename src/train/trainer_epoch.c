/* trainer: what lives with an epoch of the job's ranks: mesh, stages, copies. Data, threads and the values of the state
 * live longer. */
#include "train/trainer_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "train/foresee.h"
#include "train/recover/shape.h"

/* The ranks of the mesh; the others are spares. */
static int split_spares(struct ash_trainer *trainer, struct ash_err *err)
{
    size_t ranks = ash_shape_ranks(&trainer->current.mesh), place = trainer->place;

    trainer->group = trainer->root;
    if (trainer->root == NULL || ash_group_size(trainer->root) == ranks) return 0;
    ash_assert(ranks < ash_group_size(trainer->root));
    trainer->group = NULL;
    return ash_group_split(trainer->root, place < ranks ? 0 : -1, place < ranks ? (int64_t)place : 0, &trainer->group,
                           err);
}

/* A device's memory is taken when it is asked for, so what does not fit is said before. Part by part into *memory. */
static int check_room(struct ash_trainer *trainer, const struct ash_stages_source *source,
                      struct ash_train_memory *memory, struct ash_err *err)
{
    struct ash_foresee_opts opts = {
        .job = &trainer->current, .exec = &trainer->exec, .mesh = &trainer->mesh, .config = source->config};

    if (trainer->exec.memory->host_visible || source->config->lora != NULL) return 0;
    if (trainer->exec.cuda == NULL) return ash_train_foresee(&opts, memory, err);
    return ash_train_foresee_room(&opts, ash_backend_free_bytes(&trainer->exec), memory, err);
}

int ash_trainer_begin_epoch(struct ash_trainer *trainer, struct ash_group *root, const struct ash_stages_source *source,
                            struct ash_err *err)
{
    struct ash_train_memory device = {0};
    int rc;

    ash_assert(trainer->stages.chunks == NULL && trainer->root == NULL);
    trainer->root = root;
    trainer->has_values = false;
    rc = split_spares(trainer, err);
    if (rc < 0 || ash_trainer_is_spare(trainer)) return rc;
    rc = ash_mesh_open(&trainer->mesh, &trainer->current.mesh, trainer->group, err);
    if (rc < 0) return rc;
    if (trainer->config.lora != NULL) trainer->mesh.shares_gradients = false; /* x A^T is each rank's own */
    rc = check_room(trainer, source, &device, err);
    if (rc < 0) return rc;
    rc = ash_stages_open(&trainer->stages, &trainer->current, &trainer->exec, &trainer->mesh, source, err);
    if (rc < 0) return rc;
    rc = ash_copies_open(&trainer->copies, &trainer->stages, trainer->outline, (size_t)trainer->job->recover.copies,
                         err);
    if (rc < 0) return rc;
    trainer->are_copies_new = true;
    ash_train_memory_measure(&trainer->stages, &trainer->memory);
    trainer->memory.moments = device.moments;
    trainer->memory.logits = device.logits;
    trainer->memory.scratch = device.scratch;
    trainer->memory.device = device.device;
    trainer->memory.state += ash_copies_bytes(&trainer->copies);
    return 0;
}

/* Keep the values beyond the epoch. Without memory for the list they are lost, as after any other failure. */
static bool keep_values(struct ash_trainer *trainer)
{
    struct ash_kept_state *kept = realloc(trainer->kept, (trainer->kept_count + 1) * sizeof(*kept));

    if (kept == NULL) return false;
    ash_copies_drop_empty(&trainer->copies);
    trainer->kept = kept;
    kept[trainer->kept_count++] = (struct ash_kept_state){trainer->stages, trainer->copies, false};
    memset(&trainer->stages, 0, sizeof(trainer->stages));
    memset(&trainer->copies, 0, sizeof(trainer->copies));
    return true;
}

void ash_trainer_end_epoch(struct ash_trainer *trainer, bool keeps)
{
    if (trainer->parts.end != NULL) trainer->parts.end(trainer->parts.ctx);
    ash_trainer_end_refill(trainer, NULL); /* those that are there by now count */
    ash_seals_break(&trainer->seals);
    if (trainer->stages.chunks != NULL) ash_stages_detach(&trainer->stages);
    ash_copies_detach(&trainer->copies);
    if (!keeps || !trainer->has_values || trainer->stages.chunks == NULL || !keep_values(trainer)) {
        ash_copies_close(&trainer->copies);
        ash_stages_close(&trainer->stages);
    }
    ash_mesh_close(&trainer->mesh);
    if (trainer->group != trainer->root) ash_group_close(trainer->group);
    trainer->group = trainer->root = NULL;
    trainer->has_values = false;
}

void ash_trainer_drop_kept(struct ash_trainer *trainer)
{
    for (size_t i = 0; i < trainer->kept_count; i++) {
        ash_copies_close(&trainer->kept[i].copies);
        ash_stages_close(&trainer->kept[i].stages);
    }
    free(trainer->kept);
    trainer->kept = NULL;
    trainer->kept_count = 0;
    trainer->damages.count = 0;
}

bool ash_trainer_is_spare(const struct ash_trainer *trainer)
{
    return trainer->root != NULL && trainer->group == NULL;
}
