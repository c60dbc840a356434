/* trainer: peer replicas that a new mesh lacks are filled while its first step runs, on a thread and in the group of
 * the copies. The state does not change before that step's update, which waits for it. The memory of the previous mesh
 * stays until the norm is known, so until all ranks have their copies: a loss in between loses no data. */
#include "train/trainer_priv.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/thread.h"
#include "train/recover/exchange.h"

struct ash_refill {
    pthread_t thread;
    struct ash_group *group; /* of the mesh's ranks: the copies' lane; this thread's until it ends */
    const struct ash_model *outline;
    struct ash_patches have, need;
    struct ash_exchange_counts counts;
    int rc;
    struct ash_err err;
};

static void *run_refill(void *arg)
{
    struct ash_refill *refill = arg;

    const struct ash_exchange_sides sides = {.have = &refill->have, .need = &refill->need};

    refill->rc = ash_exchange_run(refill->group, refill->outline, &sides, &refill->counts, &refill->err);
    return NULL;
}

static void free_refill(struct ash_refill *refill)
{
    if (refill == NULL) return;
    ash_patches_fini(&refill->have);
    ash_patches_fini(&refill->need);
    free(refill);
}

bool ash_trainer_needs_refill(const struct ash_trainer *trainer)
{
    return trainer->now->are_copies_new && trainer->now->copies.group != NULL;
}

int ash_trainer_begin_refill(struct ash_trainer *trainer, struct ash_err *err)
{
    struct ash_refill *refill;
    int rc;

    if (!ash_trainer_needs_refill(trainer) || trainer->refill != NULL) return 0;
    refill = calloc(1, sizeof(*refill));
    if (refill == NULL) return ash_err_set(err, -ENOMEM, "out of memory");
    refill->outline = trainer->outline;
    rc = ash_copies_open_lane(&trainer->now->copies, err);
    refill->group = trainer->now->copies.lane;
    if (rc == 0) rc = ash_patches_add_stages(&refill->have, &trainer->now->stages, trainer->outline, true, err);
    if (rc == 0) rc = ash_copies_add_patches(&trainer->now->copies, true, &refill->have, err);
    if (rc == 0) rc = ash_copies_add_patches(&trainer->now->copies, false, &refill->need, err);
    if (rc == 0) {
        rc = ash_thread_start(&refill->thread, run_refill, refill);
        if (rc < 0) ash_err_set(err, rc, "no thread can be started to fill copies");
    }
    if (rc < 0) {
        free_refill(refill);
        return rc;
    }
    trainer->refill = refill;
    return 0;
}

int ash_trainer_end_refill(struct ash_trainer *trainer, struct ash_err *err)
{
    struct ash_refill *refill = trainer->refill;
    int rc;

    if (refill == NULL) return 0;
    pthread_join(refill->thread, NULL);
    trainer->refill = NULL;
    rc = refill->rc;
    if (rc < 0 && err != NULL) *err = refill->err;
    if (refill->counts.repeated > 0) trainer->refilled = refill->counts;
    free_refill(refill);
    if (rc < 0) return rc;
    trainer->now->are_copies_new = false;
    ash_copies_set_filled(&trainer->now->copies);
    return 0;
}

int ash_trainer_fill_copies(struct ash_trainer *trainer, struct ash_err *err)
{
    int rc = ash_trainer_begin_refill(trainer, err);

    return rc < 0 ? rc : ash_trainer_end_refill(trainer, err);
}
