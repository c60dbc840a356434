/* trainer: from one epoch to the next. The remaining ranks keep their memory. First they exchange their phases: if one
 * has the norm of the last step, all sums of it are complete, and all ranks finish it; else it is redone. So all are at
 * one step. Then the new mesh is opened empty and an exchange fills it from the rest of the old one. */
#include "train/trainer_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/fault_point.h"
#include "train/recover/exchange.h"
#include "train/recover/shape.h"

void ash_trainer_suspend(struct ash_trainer *trainer)
{
    ash_trainer_end_epoch(trainer, true);
}

/* A process's status when an epoch begins. Plain data. */
struct standing {
    uint32_t has_state, stays_out, is_damaged;
    uint32_t has_grains, drops_grains; /* of the next step: are there sums, and must they not be used? */
    uint32_t place;                    /* in the mesh that its state is of, */
    struct ash_job_mesh mesh;
    uint64_t step, updates;
    double norm;
    uint64_t norm_step; /* see struct ash_pending_step */
    struct ash_guard_stats guard;
};

/* The state agreed by all of them. */
struct settled {
    struct standing now; /* counters of the step that all come to */
    size_t newest;       /* a rank that holds it */
    size_t eligible;     /* ranks that may be in the mesh */
    bool is_whole;       /* the first ranks hold a whole mesh, each in its place, and the others nothing */
    bool has_grains;     /* there are sums of finished grains of the next step, and nothing speaks against them */
};

void ash_trainer_stay_out(struct ash_trainer *trainer, bool stays_out)
{
    trainer->stays_out = stays_out;
}

static struct ash_state *kept_state(const struct ash_trainer *trainer)
{
    return trainer->kept_count > 0 ? &trainer->kept[trainer->kept_count - 1].stages.chunks[0].state : NULL;
}

void ash_trainer_hear_step(struct ash_trainer *trainer, uint64_t step)
{
    const struct ash_state *state = kept_state(trainer);

    ash_assert(ash_trainer_is_spare(trainer));
    if (state != NULL && state->step < step) ash_trainer_drop_kept(trainer);
}

/* May partial sums of grains not be salvaged? In an audit, with injected faults, with an objective that reads every
 * sequence. */
static bool drops_grains(const struct ash_trainer *trainer)
{
    return trainer->damages.count > 0 || trainer->wrong_notes > 0 || trainer->job->recover.audit_every > 0 ||
           trainer->parts.objective != NULL || trainer->parts.prepare != NULL;
}

static struct standing own_standing(const struct ash_trainer *trainer)
{
    const struct ash_state *state = kept_state(trainer);
    struct standing own = {.stays_out = trainer->stays_out,
                           .is_damaged = trainer->damages.count > 0,
                           .has_grains = ash_trainer_has_grains(trainer),
                           .drops_grains = drops_grains(trainer),
                           .norm = trainer->pending.norm,
                           .norm_step = trainer->pending.norm_step};

    if (state == NULL) return own;
    own.has_state = 1;
    own.step = state->step;
    own.updates = state->updates;
    own.guard = state->guard;
    own.mesh = trainer->kept[trainer->kept_count - 1].mesh;
    own.place = (uint32_t)trainer->kept[trainer->kept_count - 1].place;
    return own;
}

/* All ranks' status, by rank; the caller frees *all_out. */
static int share_standing(const struct ash_trainer *trainer, struct ash_group *group, struct standing **all_out,
                          struct ash_err *err)
{
    struct standing own = own_standing(trainer), *all = calloc(ash_group_size(group), sizeof(*all));
    int rc;

    if (all == NULL) return ash_err_set(err, -ENOMEM, "out of memory for %zu ranks", ash_group_size(group));
    rc = ash_group_all_gather(group, &own, all, sizeof(own), err);
    if (rc < 0) {
        free(all);
        return rc;
    }
    *all_out = all;
    return 0;
}

/* Finish the last step, if any rank has its norm. No communication: all inputs are local. */
static void finish_step(struct ash_trainer *trainer, const struct standing *all, size_t ranks,
                        struct ash_recovery *recovery)
{
    struct ash_pending_step *pending = &trainer->pending;
    struct ash_kept_state *kept = trainer->kept_count > 0 ? &trainer->kept[trainer->kept_count - 1] : NULL;
    struct ash_state *state = kept_state(trainer);

    if (kept == NULL || pending->phase < ASH_PHASE_SUMMED) goto out;
    for (size_t r = 0; pending->phase == ASH_PHASE_SUMMED && r < ranks; r++) {
        if (all[r].norm_step != state->step + 1) continue;
        pending->norm = all[r].norm;
        pending->norm_step = all[r].norm_step;
        ash_trainer_finish_update(trainer, kept);
    }
    if (pending->phase != ASH_PHASE_UPDATED) goto out;
    /* node replicas: their shared memory has the updates of all of them; those of lost ones may be incomplete */
    if (pending->is_updated && state->mates > 0)
        ash_stages_update_alone(&kept->stages, pending->norm, ash_lr_schedule_at(&trainer->schedule, state->step));
    recovery->finished = pending->step;
    ash_stages_count_step(&kept->stages, pending->is_updated);
    recovery->has_finished = true;

out:
    pending->phase = ASH_PHASE_NONE;
}

/* The rank with the newest step. SIZE_MAX: no rank has a state. */
static size_t newest(const struct standing *all, size_t ranks)
{
    size_t best = SIZE_MAX;

    for (size_t r = 0; r < ranks; r++)
        if (all[r].has_state != 0 && (best == SIZE_MAX || all[r].step > all[best].step)) best = r;
    return best;
}

/* Where this rank is among those that may be in the mesh, and how many they are. */
static void find_place(struct ash_trainer *trainer, const struct ash_group *group, const struct standing *all,
                       struct settled *settled)
{
    size_t rank = ash_group_rank(group), before = 0;

    for (size_t r = 0; r < ash_group_size(group); r++) {
        settled->eligible += all[r].stays_out == 0;
        before += r < rank && all[r].stays_out == 0;
    }
    trainer->now->place = all[rank].stays_out == 0 ? before : SIZE_MAX;
}

/* Can the previous mesh continue, while ranks beyond it receive the state? */
static bool is_whole(const struct standing *all, size_t ranks, const struct standing *now)
{
    size_t mesh_ranks = now->has_state != 0 ? ash_shape_ranks(&now->mesh) : 0;
    bool whole = mesh_ranks > 0 && mesh_ranks < ranks;

    for (size_t r = 0; whole && r < ranks; r++) {
        bool is_part = all[r].has_state != 0 && all[r].step == now->step && all[r].place == r &&
                       memcmp(&all[r].mesh, &now->mesh, sizeof(now->mesh)) == 0;

        whole = all[r].stays_out == 0 && all[r].is_damaged == 0 && (r < mesh_ranks ? is_part : all[r].has_state == 0);
    }
    return whole;
}

static bool are_grains_left(const struct standing *all, size_t ranks)
{
    bool some = false, dropped = false;

    for (size_t r = 0; r < ranks; r++) {
        some = some || all[r].has_grains != 0;
        dropped = dropped || all[r].drops_grains != 0;
    }
    return some && !dropped;
}

/* Bring all ranks to one step. */
static int settle_step(struct ash_trainer *trainer, struct ash_group *group, struct settled *settled,
                       struct ash_recovery *recovery, struct ash_err *err)
{
    size_t ranks = ash_group_size(group), best;
    struct standing *all = NULL;
    int rc = share_standing(trainer, group, &all, err);

    if (rc < 0) return rc;
    finish_step(trainer, all, ranks, recovery);
    free(all);
    rc = share_standing(trainer, group, &all, err);
    if (rc < 0) return rc;
    best = newest(all, ranks);
    for (size_t r = 0; best != SIZE_MAX && r < ranks; r++)
        recovery->has_newcomers =
            recovery->has_newcomers || all[r].has_state == 0 || all[r].step < all[best].step; /* a spare's is older */
    find_place(trainer, group, all, settled);
    if (best == SIZE_MAX)
        rc = ash_err_set(err, -ENODATA, "no process that is left holds any state");
    else
        settled->now = all[best];
    settled->is_whole = rc == 0 && is_whole(all, ranks, &settled->now);
    settled->has_grains = are_grains_left(all, ranks);
    settled->newest = best;
    free(all);
    return rc;
}

/* Joining ranks get the wanted mesh: their settings may leave it to the number of ranks at the start. Then their job is
 * compared with the others'. */
static int admit_newcomers(struct ash_trainer *trainer, struct ash_group *group, const struct settled *settled,
                           struct ash_err *err)
{
    int rc = ash_group_broadcast(group, &trainer->asked.mesh, sizeof(trainer->asked.mesh), settled->newest, err);

    return rc < 0 ? rc : ash_trainer_check_agreement(trainer, group, "weights", NULL, err);
}

/* Parts of the old mesh that are parts of the new one, too, stay where they are: the new mesh takes over their memory.
 * From then on its values are there, whatever happens to the group. */
static void take_kept(struct ash_trainer *trainer, uint64_t step)
{
    for (size_t i = 0; i < trainer->kept_count; i++) {
        struct ash_kept_state *kept = &trainer->kept[i];

        if (kept->stages.chunks[0].state.step != step) continue;
        if (!ash_trainer_is_spare(trainer) && !trainer->now->has_values && !kept->is_taken &&
            ash_stages_take(&trainer->now->stages, &kept->stages))
            trainer->now->has_values = kept->is_taken = true;
        /* without values the new epoch would be dropped, with the copies that it has taken */
        if (trainer->now->has_values) ash_copies_take(&trainer->now->copies, &kept->copies);
    }
}

/* The same for the values that the new mesh has already. */
static int list_taken(const struct ash_trainer *trainer, struct ash_patches *have, struct ash_err *err)
{
    int rc =
        trainer->now->has_values ? ash_patches_add_stages(have, &trainer->now->stages, trainer->outline, true, err) : 0;

    return rc < 0 ? rc : ash_copies_add_patches(&trainer->now->copies, true, have, err);
}

/* This process's ranges of that step that are not corrupted. damages: of all ranks. */
static int list_kept(const struct ash_trainer *trainer, uint64_t step, const struct ash_damages *damages,
                     struct ash_patches *have, struct ash_err *err)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < trainer->kept_count; i++) {
        const struct ash_kept_state *kept = &trainer->kept[i];
        size_t from = have->count;

        if (kept->stages.chunks[0].state.step != step) continue;
        if (!kept->is_taken) rc = ash_patches_add_stages(have, &kept->stages, trainer->outline, true, err);
        ash_trainer_drop_damaged(trainer, trainer->root, damages, have, from, false);
        from = have->count;
        if (rc == 0) rc = ash_copies_add_patches(&kept->copies, true, have, err);
        ash_trainer_drop_damaged(trainer, trainer->root, damages, have, from, true);
    }
    return rc;
}

/* The ranges to receive: none if they were taken over; with_copies: before anything else, copies too. */
static int list_needed(const struct ash_trainer *trainer, bool with_copies, struct ash_patches *need,
                       struct ash_err *err)
{
    int rc = ash_trainer_is_spare(trainer) || trainer->now->has_values
                 ? 0
                 : ash_patches_add_stages(need, &trainer->now->stages, trainer->outline, false, err);

    return rc < 0 || !with_copies ? rc : ash_copies_add_patches(&trainer->now->copies, false, need, err);
}

static bool has_damages(const struct ash_damages *all, size_t ranks)
{
    bool some = false;

    for (size_t r = 0; r < ranks; r++)
        some = some || all[r].count > 0;
    return some;
}

/* Copies are filled later (trainer_refill.c), unless ranks are about to leave with their shards, or have corrupted
 * ones. */
static int fill(struct ash_trainer *trainer, const struct settled *settled, struct ash_recovery *recovery,
                struct ash_err *err)
{
    const struct standing *now = &settled->now;
    struct ash_patches have = {0}, need = {0};
    const struct ash_exchange_sides sides = {.have = &have, .need = &need};
    struct ash_exchange_counts counts = {0};
    struct ash_damages *damages = calloc(ash_group_size(trainer->root), sizeof(*damages));
    bool is_damaged, with_copies;
    int rc = damages != NULL ? ash_group_all_gather(trainer->root, &trainer->damages, damages, sizeof(*damages), err)
                             : ash_err_set(err, -ENOMEM, "out of memory for %zu ranks", ash_group_size(trainer->root));

    is_damaged = rc == 0 && has_damages(damages, ash_group_size(trainer->root));
    with_copies = is_damaged || settled->eligible < ash_group_size(trainer->root);
    if (rc == 0 && !is_damaged) take_kept(trainer, now->step);
    if (rc == 0) rc = list_taken(trainer, &have, err);
    if (rc == 0) rc = list_kept(trainer, now->step, damages, &have, err);
    free(damages);
    if (rc == 0) rc = list_needed(trainer, with_copies, &need, err);
    if (rc == 0) rc = ash_exchange_run(trainer->root, trainer->outline, &sides, &counts, err);
    ash_patches_fini(&have);
    ash_patches_fini(&need);
    if (rc < 0) return rc;
    recovery->moved_bytes = counts.moved_bytes;
    recovery->repeated = counts.repeated;
    recovery->damaged_from = counts.damaged_from;
    recovery->damaged_to = counts.damaged_to;
    for (size_t i = 0; i < trainer->now->stages.chunk_count; i++) {
        trainer->now->stages.chunks[i].state.step = now->step;
        trainer->now->stages.chunks[i].state.updates = now->updates;
    }
    if (trainer->now->stages.chunk_count > 0) trainer->now->stages.chunks[0].state.guard = now->guard;
    trainer->now->has_values = true;
    trainer->now->are_copies_new = !with_copies;
    if (with_copies) ash_copies_set_filled(&trainer->now->copies);
    return 0;
}

/* From here on the old mesh is needed only where the new one has no copies yet. */
int ash_trainer_take_up(struct ash_trainer *trainer, struct ash_err *err)
{
    int rc = ash_group_barrier(trainer->root, err);
    bool is_needed;

    if (rc < 0) return rc;
    is_needed = ash_trainer_is_spare(trainer) ? trainer->now->are_copies_new : ash_trainer_needs_refill(trainer);
    if (!is_needed) ash_trainer_drop_kept(trainer);
    return ash_trainer_is_spare(trainer) ? 0 : ash_stages_renew(&trainer->now->stages, err);
}

/* The layout that is wanted now. If the previous mesh can continue, it does, and the wanted one, if it is larger,
 * follows when joining ranks have received the state (trainer_grow.c). */
static int choose_mesh(struct ash_trainer *trainer, const struct settled *settled, struct ash_job_mesh *wanted,
                       bool *grows_out, struct ash_err *err)
{
    int rc = ash_shape_choose(trainer->job, &trainer->config, settled->eligible, wanted, err);

    if (rc < 0) return rc;
    *grows_out = settled->is_whole && ash_shape_ranks(wanted) > ash_shape_ranks(&settled->now.mesh) &&
                 trainer->parts.prepare == NULL;
    trainer->now->job.mesh = *grows_out ? settled->now.mesh : *wanted;
    return 0;
}

int ash_trainer_resume(struct ash_trainer *trainer, struct ash_group *group, struct ash_recovery *recovery_out,
                       struct ash_err *err)
{
    struct ash_recovery recovery = {0};
    struct ash_stages_source source = {.config = &trainer->config, .is_blank = true};
    struct settled settled = {0};
    struct ash_job_mesh wanted;
    uint64_t start_ns = ash_clock_ns();
    bool grows = false;
    int rc;

    ash_assert(group != NULL && trainer->root == NULL);
    rc = settle_step(trainer, group, &settled, &recovery, err);
    recovery_out->has_finished = recovery.has_finished;
    recovery_out->finished = recovery.finished;
    ash_fault_point_meet(ASH_FAULT_TRANSFER);
    if (rc == 0 && recovery.has_newcomers) rc = admit_newcomers(trainer, group, &settled, err);
    if (rc == 0) rc = choose_mesh(trainer, &settled, &wanted, &grows, err);
    if (rc < 0) return rc;
    recovery.settle_s = (double)(ash_clock_ns() - start_ns) * 1e-9;
    start_ns = ash_clock_ns();
    rc = ash_trainer_begin_epoch(trainer, group, &source, err);
    recovery.open_s = (double)(ash_clock_ns() - start_ns) * 1e-9;
    start_ns = ash_clock_ns();
    if (rc == 0) rc = fill(trainer, &settled, &recovery, err);
    if (rc == 0 && settled.has_grains && !grows)
        rc = ash_trainer_keep_grains(trainer, settled.now.step, &recovery, err);
    if (rc == 0) rc = ash_trainer_take_up(trainer, err);
    if (rc == 0 && grows) rc = ash_trainer_open_growth(trainer, &wanted, err);
    if (rc < 0) return rc;
    recovery.transfer_s = (double)(ash_clock_ns() - start_ns) * 1e-9;
    recovery.step = settled.now.step;
    *recovery_out = recovery;
    return 0;
}

int ash_trainer_restart(struct ash_trainer *trainer, struct ash_group *group, bool is_blank, struct ash_err *err)
{
    const char *dir = trainer->from.data;
    struct ash_stages_source source = {.dir = dir, .config = &trainer->config, .is_blank = is_blank};
    int rc;

    ash_trainer_end_epoch(trainer, false);
    ash_trainer_drop_kept(trainer);
    trainer->pending = (struct ash_pending_step){0};
    trainer->now->place = ash_group_rank(group);
    rc = group == NULL
             ? 0
             : ash_shape_choose(trainer->job, &trainer->config, ash_group_size(group), &trainer->now->job.mesh, err);
    if (rc < 0) return rc;
    rc = ash_trainer_begin_epoch(trainer, group, &source, err);
    trainer->now->has_values = rc == 0;
    return rc;
}
