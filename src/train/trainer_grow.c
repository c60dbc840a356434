/* trainer: scale-up. Joining ranks receive the state while steps run, and join at a step boundary. First they are
 * spares of the present mesh. Next to it the larger one is opened, empty. While a step is computed the state before it
 * is streamed there, on a separate thread and group: it does not change before that step's update. The step's gradients
 * follow, 4 bytes a parameter instead of 12, those of a layer as soon as they are complete, and the update is made
 * there, too, with the same bits. At the next step boundary the larger mesh replaces the other, whose memory stays
 * until the new one's copies are filled. Until then any loss drops the larger mesh, and the others recover as
 * always. */
#include "train/trainer_priv.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/fault_point.h"
#include "base/thread.h"
#include "infra/memory.h"
#include "train/recover/exchange.h"

struct ash_growth {
    struct ash_trainer_epoch *epoch; /* of the larger mesh */
    struct ash_group *group;         /* all ranks; the thread's while it runs */
    const struct ash_model *outline;
    struct ash_patches have, need; /* the state: of the running mesh, and this rank's part of the larger one */
    struct ash_buffer grads;       /* of its part there, one trained patch of need after the other */
    struct ash_patches grads_have, grads_need; /* of the step, as patches without moments */
    pthread_mutex_t lock;                      /* of the members below */
    pthread_cond_t changed;
    size_t offered;   /* of grads_have, from the last one on: those that have their values */
    bool is_canceled; /* no more will come */
    pthread_t thread;
    bool is_running, is_fed; /* is_fed: its values are those of the last step */
    int rc;
    struct ash_err err;
    struct ash_recovery told; /* figures so far; step: of its values */
};

/* Inputs of an update in a rank that has not computed the step. Plain data. */
struct update_note {
    double norm, lr;
    uint64_t step, updates; /* after it */
    uint64_t is_updated;
    struct ash_guard_stats guard;
};

/* ---- opening and closing ----------------------------------------------------------------------------------------- */

static int make_room(struct ash_growth *growth, const struct ash_memory_ops *memory, struct ash_err *err)
{
    size_t trained = 0;

    for (size_t i = 0; i < growth->need.count; i++)
        if (growth->need.items[i].range.has_moments != 0) trained += (size_t)growth->need.items[i].range.count;
    return ash_buffer_init(&growth->grads, memory, (trained + 1) * sizeof(float), "the gradients of a larger mesh",
                           err);
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
    pthread_mutex_init(&growth->lock, NULL);
    pthread_cond_init(&growth->changed, NULL);
    growth->epoch = epoch;
    growth->outline = trainer->outline;
    epoch->job.mesh = *sizes;
    epoch->place = trainer->now->place;
    rc = ash_trainer_open_epoch(trainer, epoch, &source, err);
    if (rc == 0) rc = ash_group_split(trainer->root, 0, (int64_t)ash_group_rank(trainer->root), &growth->group, err);
    if (rc == 0) rc = ash_patches_add_stages(&growth->need, &epoch->stages, trainer->outline, false, err);
    return rc < 0 ? rc : make_room(growth, trainer->exec.memory, err);
}

static void free_growth(struct ash_growth *growth)
{
    ash_patches_fini(&growth->have);
    ash_patches_fini(&growth->need);
    ash_patches_fini(&growth->grads_have);
    ash_patches_fini(&growth->grads_need);
    ash_group_close(growth->group);
    ash_buffer_fini(&growth->grads);
    pthread_cond_destroy(&growth->changed);
    pthread_mutex_destroy(&growth->lock);
    free(growth);
}

void ash_trainer_drop_growth(struct ash_trainer *trainer)
{
    struct ash_growth *growth = trainer->growth;

    if (growth == NULL) return;
    pthread_mutex_lock(&growth->lock);
    growth->is_canceled = true;
    pthread_cond_broadcast(&growth->changed);
    pthread_mutex_unlock(&growth->lock);
    if (growth->is_running) pthread_join(growth->thread, NULL);
    ash_trainer_close_epoch(trainer, growth->epoch, false);
    free_growth(growth);
    trainer->growth = NULL;
}

bool ash_trainer_is_growing(const struct ash_trainer *trainer)
{
    return trainer->growth != NULL;
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

static uint16_t *bf16_of(const struct ash_growth *growth, const struct ash_patch *patch)
{
    return ash_state_bf16_of(&growth->epoch->stages.chunks[patch->chunk].state, patch->values[ASH_PATCH_WEIGHTS]);
}

/* Until a patch of the step's gradients has its values. */
static int wait_for_grads(void *ctx, size_t patch, struct ash_err *err)
{
    struct ash_growth *growth = ctx;
    bool is_offered;

    pthread_mutex_lock(&growth->lock);
    while (patch + growth->offered < growth->grads_have.count && !growth->is_canceled)
        pthread_cond_wait(&growth->changed, &growth->lock);
    is_offered = patch + growth->offered >= growth->grads_have.count;
    pthread_mutex_unlock(&growth->lock);
    return is_offered ? 0 : ash_err_set(err, -ECANCELED, "the step that newcomers were fed in has failed");
}

/* Pages of memory that is written while others wait come now. */
static void touch_pages(const struct ash_growth *growth)
{
    if (!growth->grads.memory->host_visible) return;
    memset(growth->grads.data, 0, growth->grads.size_bytes);
    for (size_t i = 0; i < growth->need.count; i++) {
        const struct ash_patch *patch = &growth->need.items[i];
        uint16_t *bf16 = bf16_of(growth, patch);

        if (bf16 != NULL) memset(bf16, 0, (size_t)patch->range.count * sizeof(*bf16));
    }
}

/* The state, then the gradients, the last layers' first. */
static void *run_feed(void *arg)
{
    struct ash_growth *growth = arg;
    const struct ash_exchange_gate gate = {wait_for_grads, growth};
    const struct ash_exchange_sides state = {.have = &growth->have, .need = &growth->need},
                                    grads = {.have = &growth->grads_have,
                                             .need = &growth->grads_need,
                                             .gate = &gate,
                                             .last_first = true};
    struct ash_exchange_counts counts = {0};

    growth->rc = ash_exchange_run(growth->group, growth->outline, &state, &counts, &growth->err);
    count_moves(&growth->told, &counts);
    if (growth->rc < 0) return NULL;
    touch_pages(growth);
    growth->rc = ash_exchange_run(growth->group, growth->outline, &grads, &counts, &growth->err);
    count_moves(&growth->told, &counts);
    return NULL;
}

/* The gradients of this rank's part; as patches without moments, whose values come later. */
static int list_grads(const struct ash_stages *stages, const struct ash_model *outline, struct ash_patches *grads,
                      struct ash_err *err)
{
    struct ash_patches own = {0};
    int rc = ash_patches_add_stages(&own, stages, outline, false, err);

    for (size_t i = 0; rc == 0 && i < own.count; i++) {
        struct ash_patch patch = own.items[i];

        if (patch.range.has_moments == 0) continue;
        patch.range.has_moments = 0;
        patch.values[ASH_PATCH_WEIGHTS] = NULL;
        rc = ash_patches_add(grads, &patch, err);
    }
    ash_patches_fini(&own);
    return rc;
}

/* Where they belong. */
static int list_missing_grads(const struct ash_growth *growth, struct ash_patches *grads, struct ash_err *err)
{
    float *at = growth->grads.data;
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

int ash_trainer_begin_growth(struct ash_trainer *trainer, struct ash_err *err)
{
    struct ash_growth *growth = trainer->growth;
    int rc;

    if (growth == NULL) return 0;
    ash_assert(!growth->is_running && !growth->is_fed);
    rc = ash_patches_add_stages(&growth->have, &trainer->now->stages, trainer->outline, true, err);
    if (rc == 0) rc = list_grads(&trainer->now->stages, trainer->outline, &growth->grads_have, err);
    if (rc == 0) rc = list_missing_grads(growth, &growth->grads_need, err);
    if (rc == 0) {
        rc = ash_thread_start(&growth->thread, run_feed, growth);
        if (rc < 0) ash_err_set(err, rc, "no thread can be started to feed newcomers");
    }
    growth->is_running = rc == 0;
    if (rc == 0) ash_fault_point_meet(ASH_FAULT_FEED);
    return rc;
}

/* Where the gradients of a patch are; NULL: not complete. is_over: they are, the passes are over. */
static const float *find_grads(const struct ash_stages *stages, const struct ash_patch *patch, bool is_over)
{
    struct ash_range range = {patch->grad_at, (size_t)patch->range.count};

    return is_over ? stages->chunks[patch->chunk].grads + range.first : ash_stages_sum(stages, patch->chunk, range);
}

void ash_trainer_offer_growth(struct ash_trainer *trainer, bool is_over)
{
    struct ash_growth *growth = trainer->growth;
    size_t offered;

    if (growth == NULL || !growth->is_running) return;
    for (offered = growth->offered; offered < growth->grads_have.count; offered++) {
        struct ash_patch *patch = &growth->grads_have.items[growth->grads_have.count - 1 - offered];
        const float *grads = find_grads(&trainer->now->stages, patch, is_over);

        if (grads == NULL) break;
        patch->values[ASH_PATCH_WEIGHTS] = (float *)grads;
    }
    if (offered == growth->offered) return;
    pthread_mutex_lock(&growth->lock);
    growth->offered = offered;
    pthread_cond_broadcast(&growth->changed);
    pthread_mutex_unlock(&growth->lock);
}

/* Ranks wait for each other in every step; the time of joining begins when all have arrived. */
static int meet(const struct ash_trainer *trainer, struct ash_err *err)
{
    return ash_trainer_is_spare(trainer) ? 0 : ash_group_barrier(trainer->now->group, err);
}

int ash_trainer_send_growth(struct ash_trainer *trainer, struct ash_err *err)
{
    struct ash_growth *growth = trainer->growth;
    uint64_t start_ns;
    int rc;

    if (growth == NULL) return 0;
    ash_trainer_offer_growth(trainer, true);
    rc = meet(trainer, err);
    if (rc < 0) return rc;
    start_ns = ash_clock_ns();
    if (growth->is_running) pthread_join(growth->thread, NULL);
    growth->is_running = false;
    growth->told.held_s += (double)(ash_clock_ns() - start_ns) * 1e-9;
    if (growth->rc < 0 && err != NULL) *err = growth->err;
    return growth->rc;
}

/* The step's update, on the values of the larger mesh: the bits that the owners in the other one get. */
static void replay(struct ash_growth *growth, const struct update_note *note)
{
    const struct ash_stages *stages = &growth->epoch->stages;
    const float *grads = growth->grads.data;
    bool is_rounded = note->is_updated != 0;

    for (size_t c = 0; c < stages->chunk_count; c++)
        stages->chunks[c].state.updates = note->updates - note->is_updated;
    for (size_t i = 0; note->is_updated != 0 && i < growth->need.count; i++) {
        const struct ash_patch *patch = &growth->need.items[i];
        struct ash_optimizer_run run = {.count = (size_t)patch->range.count,
                                        .grads = grads,
                                        .weights = patch->values[ASH_PATCH_WEIGHTS],
                                        .m = patch->values[ASH_PATCH_M],
                                        .v = patch->values[ASH_PATCH_V],
                                        .bf16 = bf16_of(growth, patch),
                                        .is_matrix = ash_model_param(growth->outline, patch->range.param)->is_matrix};

        is_rounded = is_rounded && patch->range.has_moments != 0;
        if (patch->range.has_moments == 0) continue;
        ash_optimizer_update_run(&stages->chunks[patch->chunk].optimizer, &run, note->norm, note->lr);
        grads += patch->range.count;
    }
    for (size_t c = 0; c < stages->chunk_count; c++) {
        stages->chunks[c].state.updates = note->updates;
        stages->chunks[c].state.step = note->step;
        stages->chunks[c].state.is_taken = is_rounded;
    }
    if (stages->chunk_count > 0) stages->chunks[0].state.guard = note->guard;
}

int ash_trainer_update_growth(struct ash_trainer *trainer, struct ash_err *err)
{
    struct ash_growth *growth = trainer->growth;
    const struct ash_pending_step *pending = &trainer->pending;
    struct update_note note = {0};
    uint64_t start_ns;
    int rc;

    if (growth == NULL) return 0;
    rc = meet(trainer, err);
    if (rc < 0) return rc;
    start_ns = ash_clock_ns();
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
    rc = list_missing_grads(growth, &growth->grads_need, err);
    if (rc < 0) return rc;
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
