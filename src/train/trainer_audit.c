/* trainer: does every machine compute the same bits? In steps that recover.audit_every names, ranks first compute the
 * gradients of their neighbours' grains, then their own; before the update the bits are compared. If they differ, a
 * third rank's result decides which one is wrong. That rank notifies the others, and the step is redone. */
#include "train/trainer_priv.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/math.h"
#include "train/recover/grain_audit.h"

bool ash_trainer_audits(const struct ash_trainer *trainer, uint64_t step)
{
    int64_t every = trainer->job->recover.audit_every;

    return every > 0 && step % (uint64_t)every == 0 && ash_group_size(trainer->now->group) > 1;
}

/* Rounds of a step, at most, of any rank. */
static size_t most_rounds(const struct ash_trainer *trainer)
{
    const struct ash_mesh *mesh = &trainer->now->mesh;
    size_t blocks = mesh->size[ASH_MESH_DP] * mesh->size[ASH_MESH_EP];

    return ash_div_up(ash_div_up((size_t)trainer->job->train.grains, blocks), mesh->size[ASH_MESH_FSDP]);
}

int ash_trainer_begin_sums(struct ash_trainer *trainer, enum ash_audit_try which, struct ash_leaf_sums **sums_out,
                           struct ash_err *err)
{
    struct ash_leaf_sums *sums = &trainer->audit[which];
    size_t rounds = most_rounds(trainer);
    uint64_t *room = realloc(sums->sums, rounds * sizeof(*room));

    ash_assert(which < ASH_COUNT(trainer->audit));
    if (room == NULL) return ash_err_set(err, -ENOMEM, "out of memory for the checksums of %zu grains", rounds);
    memset(room, 0, rounds * sizeof(*room));
    *sums = (struct ash_leaf_sums){.sums = room, .rounds = rounds, .wrong_notes = trainer->wrong_notes};
    if (trainer->wrong_notes != UINT64_MAX) trainer->wrong_notes = 0;
    *sums_out = sums;
    return 0;
}

void ash_trainer_free_sums(struct ash_trainer *trainer)
{
    for (size_t i = 0; i < ASH_AUDIT_TRIES; i++)
        free(trainer->audit[i].sums);
}

/* The gradients of other ranks' grains; only their checksums are kept. */
static int compute_others(struct ash_trainer *trainer, uint64_t step, enum ash_audit_try which, struct ash_err *err)
{
    uint64_t slots = (uint64_t)trainer->job->train.global_batch;
    struct ash_feed_slice whole = {
        .source = &trainer->train, .step = step - 1, .slots_per_step = slots, .count = slots};
    struct ash_stages_task task = {.source = &trainer->train,
                                   .objective = trainer->parts.objective,
                                   .teacher = trainer->parts.teacher,
                                   .shift = (size_t)which};
    uint64_t targets = ash_feed_count(&whole);
    int rc = ash_trainer_begin_sums(trainer, which, &task.sums, err);

    task.scale = targets > 0 ? (float)(1.0 / (double)targets) : 0.0f;
    return rc < 0 ? rc : ash_stages_train(&trainer->now->stages, &task, step - 1, trainer->losses, err);
}

int ash_trainer_begin_audit(struct ash_trainer *trainer, uint64_t step, struct ash_err *err)
{
    return ash_trainer_audits(trainer, step) ? compute_others(trainer, step, ASH_AUDIT_REPEATED, err) : 0;
}

/* Which columns have grains in which rounds; the caller frees has_grain. */
static int describe_grains(const struct ash_trainer *trainer, struct ash_grain_audit *audit_out, struct ash_err *err)
{
    const size_t *size = trainer->now->mesh.size;
    struct ash_grain_audit audit = {.inners = size[ASH_MESH_TP] * size[ASH_MESH_CP] * size[ASH_MESH_EP],
                                    .columns = size[ASH_MESH_FSDP] * size[ASH_MESH_DP],
                                    .stages = size[ASH_MESH_PP],
                                    .rounds = most_rounds(trainer)};
    bool *has_grain = calloc(audit.columns * audit.rounds, sizeof(*has_grain));

    if (has_grain == NULL) return ash_err_set(err, -ENOMEM, "out of memory for an audit");
    for (size_t column = 0; column < audit.columns; column++)
        for (size_t round = 0; round < audit.rounds; round++) {
            bool has = true;

            for (size_t ep = 0; ep < size[ASH_MESH_EP]; ep++)
                has = has && ash_stages_grain(&trainer->now->stages, column, ep, round) != SIZE_MAX;
            has_grain[column * audit.rounds + round] = has;
        }
    audit.has_grain = has_grain;
    *audit_out = audit;
    return 0;
}

/* All ranks' sums of a try [ranks, rounds]. */
static int gather(struct ash_trainer *trainer, enum ash_audit_try which, uint64_t *all, struct ash_err *err)
{
    const struct ash_leaf_sums *sums = &trainer->audit[which];

    return ash_group_all_gather(trainer->now->group, sums->sums, all, sums->rounds * sizeof(*all), err);
}

/* This rank is, or may be, wrong; or others are, and will abort. */
static int answer(struct ash_trainer *trainer, const struct ash_grain_audit *audit,
                  const struct ash_grain_verdict *verdict, struct ash_err *err)
{
    size_t column = ash_grain_audit_column(audit, ash_group_rank(trainer->now->group));
    size_t grain = ash_stages_grain(&trainer->now->stages, verdict->column, 0, verdict->round);
    bool is_alone = audit->inners * audit->stages == 1;
    int rc;

    for (size_t i = 0; i < verdict->wrong_count; i++)
        if (verdict->wrong[i] == column)
            return ash_err_set(err, -EILSEQ, "its results%s are wrong: grain %zu of step %" PRIu64 "%s",
                               verdict->wrong_count > 1 ? ", or those of the rank that has repeated them,"
                               : is_alone               ? ""
                                                        : ", or those of ranks that compute with it,",
                               grain, trainer->pending.step.step,
                               audit->columns > 1 ? " has other bits elsewhere"
                                                  : " has other bits when it is repeated");
    rc = ash_group_barrier(trainer->now->group, err); /* until the one that is wrong ends the epoch */
    return rc < 0 ? rc : ash_err_set(err, -ECONNRESET, "a rank computes wrongly and has not said so");
}

/* A third opinion. all: [tries, ranks, rounds]. */
static int find_wrong(struct ash_trainer *trainer, const struct ash_grain_audit *audit,
                      struct ash_grain_verdict *verdict, uint64_t *all, struct ash_err *err)
{
    size_t size = ash_grain_audit_ranks(audit) * audit->rounds;
    uint64_t *third = all + ASH_AUDIT_THIRD * size;
    int rc = compute_others(trainer, trainer->pending.step.step, ASH_AUDIT_THIRD, err);

    if (rc == 0) rc = gather(trainer, ASH_AUDIT_THIRD, third, err);
    if (rc < 0) return rc;
    ash_grain_audit_judge(audit, all, all + ASH_AUDIT_REPEATED * size, third, verdict);
    return answer(trainer, audit, verdict, err);
}

int ash_trainer_end_audit(struct ash_trainer *trainer, struct ash_err *err)
{
    struct ash_grain_audit audit = {0};
    struct ash_grain_verdict verdict = {0};
    uint64_t *all = NULL;
    size_t size;
    int rc;

    if (!ash_trainer_audits(trainer, trainer->pending.step.step)) return 0;
    rc = describe_grains(trainer, &audit, err);
    if (rc < 0) return rc;
    size = ash_grain_audit_ranks(&audit) * audit.rounds;
    all = malloc(ASH_AUDIT_TRIES * size * sizeof(*all));
    if (all == NULL) rc = ash_err_set(err, -ENOMEM, "out of memory for the checksums of an audit");
    if (rc == 0) rc = gather(trainer, ASH_AUDIT_OWN, all, err);
    if (rc == 0) rc = gather(trainer, ASH_AUDIT_REPEATED, all + ASH_AUDIT_REPEATED * size, err);
    if (rc == 0) verdict = ash_grain_audit_compare(&audit, all, all + ASH_AUDIT_REPEATED * size);
    if (rc == 0 && verdict.differs) rc = find_wrong(trainer, &audit, &verdict, all, err);
    free(all);
    free((void *)(uintptr_t)audit.has_grain);
    return rc;
}

void ash_trainer_compute_wrongly(struct ash_trainer *trainer, bool stays)
{
    trainer->wrong_notes = stays ? UINT64_MAX : 1;
}
