/* trainer: newcomers are fed while steps run, and join at a step's edge. First they are spares of the mesh that there
 * is. Next to it the larger one is opened, empty. While a step is computed the state before it travels there, on a
 * thread and in a group of its own: it does not change before that step's update. Then the step's gradients follow,
 * 4 bytes a parameter instead of 12, and the update is made there, too, with the same bits. At the edge after it the
 * larger mesh takes the place of the other, whose memory stays until the new one's copies are filled. Until then the
 * larger mesh counts for nothing: whoever is lost, it is dropped, and the others recover as they always do. */
#include "train/trainer_priv.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/fault_point.h"
#include "base/thread.h"
#include "train/recover/exchange.h"

struct ash_growth {
    struct ash_trainer_epoch *epoch; /* of the larger mesh */
    struct ash_group *group;         /* all ranks; the thread's while it runs */
    const struct ash_model *outline;
    struct ash_patches have, need; /* the state: of the mesh that runs, and what this rank gets in the larger one */
    float *grads;                  /* of what it updates there, one trained patch of need after the other */
    pthread_t thread;
    bool is_running, is_fed; /* fed: its values are those of the last step */
    int rc;
    struct ash_err err;
    struct ash_recovery told; /* what it has taken so far; step: of its values */
};

/* What a rank has to know of a step that it has not computed. Plain data. */
struct update_note {
    double norm, lr;
    uint64_t step, updates; /* after it */
    uint64_t is_updated;
    struct ash_guard_stats guard;
};

/* ---- opening and closing ----------------------------------------------------------------------------------------- */

static int make_room(struct ash_growth *growth, struct ash_err *err)
{
    size_t trained = 0;

    for (size_t i = 0; i < growth->need.count; i++)
        if (growth->need.items[i].range.has_moments != 0) trained += (size_t)growth->need.items[i].range.count;
    growth->grads = malloc(trained * sizeof(float) + 1);
    return growth->grads != NULL ? 0 : ash_err_set(err, -ENOMEM, "out of memory for the gradients of a larger mesh");
}

int ash_trainer_open_growth(struct ash_trainer *trainer, const struct ash_job_mesh *sizes, struct ash_err *err)
{
    const struct ash_stages_source source = {.config = &trainer->config, .is_blank = true};
    struct ash_growth *growth = calloc(1, sizeof(*growth));
    struct ash_trainer_epoch *epoch = trainer->now == trainer->epochs ? &trainer->epochs[1] : &trainer->epochs[0];
    int rc;

    ash_assert(trainer->growth == NULL && trainer->root != NULL);
    if (growth == NULL) return ash_err_set(err, -ENOMEM, "out of memory");
    trainer->growth = growth;
    growth->epoch = epoch;
    growth->outline = trainer->outline;
    epoch->job.mesh = *sizes;
    epoch->place = trainer->now->place;
    rc = ash_trainer_open_epoch(trainer, epoch, &source, err);
    if (rc == 0) rc = ash_group_split(trainer->root, 0, (int64_t)ash_group_rank(trainer->root), &growth->group, err);
    if (rc == 0) rc = ash_patches_add_stages(&growth->need, &epoch->stages, trainer->outline, false, err);
    return rc < 0 ? rc : make_room(growth, err);
}

static void free_growth(struct ash_growth *growth)
{
    ash_patches_fini(&growth->have);
    ash_patches_fini(&growth->need);
    ash_group_close(growth->group);
    free(growth->grads);
    free(growth);
}

void ash_trainer_drop_growth(struct ash_trainer *trainer)
{
    struct ash_growth *growth = trainer->growth;

    if (growth == NULL) return;
    if (growth->is_running) pthread_join(growth->thread, NULL);
    ash_trainer_close_epoch(trainer, growth->epoch, false);
    free_growth(growth);
    trainer->growth = NULL;
}

bool ash_trainer_is_growing(const struct ash_trainer *trainer)
{
    return trainer->growth != NULL;
}

bool ash_trainer_is_fed(const struct ash_trainer *trainer)
{
    return trainer->growth != NULL && trainer->growth->is_fed;
}

/* ---- feeding ----------------------------------------------------------------------------------------------------- */

static void count_moves(struct ash_recovery *told, const struct ash_exchange_counts *counts)
{
    told->moved_bytes += counts->moved_bytes;
    if (counts->repeated == 0) return;
    told->repeated += counts->repeated;
    told->damaged_from = counts->damaged_from;
    told->damaged_to = counts->damaged_to;
}

static void *run_feed(void *arg)
{
    struct ash_growth *growth = arg;
    struct ash_exchange_counts counts = {0};

    growth->rc = ash_exchange_run(growth->group, growth->outline, &growth->have, &growth->need, &counts, &growth->err);
    count_moves(&growth->told, &counts);
    return NULL;
}

int ash_trainer_begin_growth(struct ash_trainer *trainer, struct ash_err *err)
{
    struct ash_growth *growth = trainer->growth;
    int rc;

    if (growth == NULL) return 0;
    ash_assert(!growth->is_running && !growth->is_fed);
    rc = ash_patches_add_stages(&growth->have, &trainer->now->stages, trainer->outline, true, err);
    if (rc == 0) {
        rc = ash_thread_start(&growth->thread, run_feed, growth);
        if (rc < 0) ash_err_set(err, rc, "no thread can be started to feed newcomers");
    }
    growth->is_running = rc == 0;
    if (rc == 0) ash_fault_point_meet(ASH_FAULT_FEED);
    return rc;
}

/* Where the gradients are of what this rank updates; as patches without moments. */
static int list_grads(const struct ash_stages *stages, const struct ash_model *outline, struct ash_patches *grads,
                      struct ash_err *err)
{
    struct ash_patches own = {0};
    int rc = ash_patches_add_stages(&own, stages, outline, false, err);

    for (size_t i = 0; rc == 0 && i < own.count; i++) {
        struct ash_patch patch = own.items[i];

        if (patch.range.has_moments == 0) continue;
        patch.range.has_moments = 0;
        patch.values[ASH_PATCH_WEIGHTS] = stages->chunks[patch.chunk].grads + patch.grad_at;
        rc = ash_patches_add(grads, &patch, err);
    }
    ash_patches_fini(&own);
    return rc;
}

/* Where they belong. */
static int list_missing_grads(const struct ash_growth *growth, struct ash_patches *grads, struct ash_err *err)
{
    float *at = growth->grads;
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < growth->need.count; i++) {
        struct ash_patch patch = growth->need.items[i];

        if (patch.range.has_moments == 0) continue;
        patch.range.has_moments = 0;
        patch.values[ASH_PATCH_WEIGHTS] = at;
        at += patch.range.count;
        rc = ash_patches_add(grads, &patch, err);
    }
    return rc;
}

int ash_trainer_send_growth(struct ash_trainer *trainer, struct ash_err *err)
{
    struct ash_growth *growth = trainer->growth;
    struct ash_patches have = {0}, need = {0};
    struct ash_exchange_counts counts = {0};
    uint64_t start_ns = ash_clock_ns();
    int rc;

    if (growth == NULL) return 0;
    if (growth->is_running) pthread_join(growth->thread, NULL);
    growth->is_running = false;
    rc = growth->rc;
    if (rc < 0 && err != NULL) *err = growth->err;
    if (rc == 0) rc = list_grads(&trainer->now->stages, trainer->outline, &have, err);
    if (rc == 0) rc = list_missing_grads(growth, &need, err);
    if (rc == 0) rc = ash_exchange_run(growth->group, trainer->outline, &have, &need, &counts, err);
    ash_patches_fini(&have);
    ash_patches_fini(&need);
    count_moves(&growth->told, &counts);
    growth->told.held_s += (double)(ash_clock_ns() - start_ns) * 1e-9;
    return rc;
}

/* The step's update, on the values of the larger mesh: the bits that the owners in the other one get. */
static void replay(struct ash_growth *growth, const struct update_note *note)
{
    const struct ash_stages *stages = &growth->epoch->stages;
    const float *grads = growth->grads;

    for (size_t c = 0; c < stages->chunk_count; c++)
        stages->chunks[c].state.updates = note->updates - note->is_updated;
    for (size_t i = 0; note->is_updated != 0 && i < growth->need.count; i++) {
        const struct ash_patch *patch = &growth->need.items[i];
        struct ash_optimizer_run run = {.count = (size_t)patch->range.count,
                                        .grads = grads,
                                        .weights = patch->values[ASH_PATCH_WEIGHTS],
                                        .m = patch->values[ASH_PATCH_M],
                                        .v = patch->values[ASH_PATCH_V],
                                        .is_matrix = ash_model_param(growth->outline, patch->range.param)->is_matrix};

        if (patch->range.has_moments == 0) continue;
        ash_optimizer_update_run(&stages->chunks[patch->chunk].optimizer, &run, note->norm, note->lr);
        grads += patch->range.count;
    }
    for (size_t c = 0; c < stages->chunk_count; c++) {
        stages->chunks[c].state.updates = note->updates;
        stages->chunks[c].state.step = note->step;
    }
    if (stages->chunk_count > 0) stages->chunks[0].state.guard = note->guard;
}

int ash_trainer_update_growth(struct ash_trainer *trainer, struct ash_err *err)
{
    struct ash_growth *growth = trainer->growth;
    const struct ash_pending_step *pending = &trainer->pending;
    struct update_note note = {0};
    uint64_t start_ns = ash_clock_ns();
    int rc;

    if (growth == NULL) return 0;
    if (!ash_trainer_is_spare(trainer)) {
        const struct ash_state *state = ash_trainer_state(trainer);

        note = (struct update_note){.norm = pending->step.norm,
                                    .lr = pending->step.lr,
                                    .step = state->step,
                                    .updates = state->updates,
                                    .is_updated = pending->is_updated,
                                    .guard = state->guard};
    }
    rc = ash_group_broadcast(growth->group, &note, sizeof(note), 0, err);
    if (rc < 0) return rc;
    replay(growth, &note);
    growth->is_fed = true;
    growth->told.step = note.step;
    growth->told.held_s += (double)(ash_clock_ns() - start_ns) * 1e-9;
    return 0;
}

int ash_trainer_feed_spare(struct ash_trainer *trainer, struct ash_err *err)
{
    struct ash_growth *growth = trainer->growth;
    int rc;

    ash_assert(ash_trainer_is_spare(trainer));
    if (growth == NULL) return 0;
    ash_fault_point_meet(ASH_FAULT_FEED);
    run_feed(growth);
    rc = ash_trainer_send_growth(trainer, err);
    return rc < 0 ? rc : ash_trainer_update_growth(trainer, err);
}

/* ---- the edge ---------------------------------------------------------------------------------------------------- */

int ash_trainer_grow(struct ash_trainer *trainer, struct ash_recovery *recovery_out, struct ash_err *err)
{
    struct ash_growth *growth = trainer->growth;
    struct ash_trainer_epoch *old = trainer->now;
    struct ash_recovery recovery;
    uint64_t start_ns = ash_clock_ns();
    int rc;

    ash_assert(growth != NULL && growth->is_fed);
    ash_trainer_end_refill(trainer, NULL);
    ash_seals_break(&trainer->seals);
    ash_trainer_close_epoch(trainer, old, true);
    trainer->now = growth->epoch;
    trainer->now->has_values = true;
    trainer->growth = NULL;
    recovery = growth->told;
    recovery.has_newcomers = true;
    free_growth(growth);
    rc = ash_trainer_take_up(trainer, err);
    if (rc < 0) return rc;
    recovery.transfer_s = (double)(ash_clock_ns() - start_ns) * 1e-9;
    *recovery_out = recovery;
    return 0;
}
