/* run: faults on purpose, to see them found and overcome (ashlar chaos). Moments that no signal from outside can aim
 * at: a bit of a rank's memory, a point inside a step, one step again and again. */
#include "train/run/run_priv.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/fault_point.h"
#include "base/log.h"

#define CHILDREN_BYTES 8192
#define LOOK_NS 5000000
#define LOOKS_MAX 12000 /* a minute */

void ash_run_take_faults(struct ash_run *run, const struct ash_run_fault_sum *faults)
{
    struct ash_group *group = ash_trainer_group(run->trainer);
    int64_t rank = (int64_t)ash_group_rank(group), ranks = (int64_t)ash_group_size(group), die = faults->die - 1;
    bool stays = run->elastic.change == ASH_ELASTIC_CHANGE_NONE;

    run->faults.flip = stays ? faults->flip : 0;
    if (faults->slow == rank + 1) run->faults.pauses = true;
    if (llabs(faults->err) == rank + 1) ash_trainer_compute_wrongly(run->trainer, faults->err < 0);
    if (faults->doom != 0) run->faults.doomed_step = ash_trainer_state(run->trainer)->step + 1;
    if (die >= 0 && die / ASH_FAULT_POINTS == rank)
        ash_fault_point_arm_later((enum ash_fault_point)(die % ASH_FAULT_POINTS), (unsigned)faults->passes);
    if (die >= 0 && die / ASH_FAULT_POINTS >= ranks) run->faults.newcomer_dies = faults->die;
}

void ash_run_take_death(const struct ash_run *run, int64_t die)
{
    if (die > 0 && (die - 1) / ASH_FAULT_POINTS == (int64_t)ash_group_rank(run->group))
        ash_fault_point_arm((enum ash_fault_point)((die - 1) % ASH_FAULT_POINTS));
}

int ash_run_flip_bit(struct ash_run *run, struct ash_err *err)
{
    struct ash_group *group = ash_trainer_group(run->trainer);
    int64_t flip = run->faults.flip - 1;
    size_t rank = ash_group_rank(group);
    enum ash_trainer_flip which;
    int rc;

    _Static_assert(ASH_RUN_FLIPS == ASH_TRAINER_FLIPS, "a number names both");
    run->faults.flip = 0;
    if (flip < 0 || group == NULL) return 0;
    which = (enum ash_trainer_flip)(flip % ASH_RUN_FLIPS);
    if (which ==
        ASH_TRAINER_FLIP_SENT) { /* later, on every rank: also if one is lost before the others get the request */
        ash_trainer_flip_bit(run->trainer, which);
        return 0;
    }
    rc = ash_group_barrier(group, err); /* node replicas have one memory, and one of them may still hash it */
    if (rc < 0 || flip / ASH_RUN_FLIPS != (int64_t)rank) return rc;
    if (ash_trainer_flip_bit(run->trainer, which))
        ash_log(ASH_LOG_INFO, "rank %zu: a bit of its memory has been changed, as asked", rank);
    return 0;
}

/* ---- a GPU that has failed --------------------------------------------------------------------------------------- */

void ash_run_tell_device(const struct ash_run *run, struct ash_err *cause)
{
    struct ash_err why = {0};

    if (run->trainer == NULL || ash_backend_outcome(run->facts.exec, 0, &why) == 0) return;
    if (run->saves.saved_step == UINT64_MAX)
        ash_err_set(cause, -EIO, "%s; nothing was saved yet", why.text);
    else
        ash_err_set(cause, -EIO,
                    "%s; the newest checkpoint is step %" PRIu64 " in %s: `ashlar train --resume --out %s` continues "
                    "from there",
                    why.text, run->saves.saved_step, run->files.checkpoints, run->opts->dir);
}

/* ---- one step again and again ------------------------------------------------------------------------------------ */

static bool is_zombie(long pid)
{
    char path[64], text[512];
    size_t size;
    FILE *file;
    const char *name_end;

    snprintf(path, sizeof(path), "/proc/%ld/stat", pid);
    file = fopen(path, "r");
    if (file == NULL) return false;
    size = fread(text, 1, sizeof(text) - 1, file);
    fclose(file);
    text[size] = '\0';
    name_end = strrchr(text, ')');
    return name_end != NULL && strncmp(name_end, ") Z", 3) == 0;
}

/* Has a sibling process ended without its launcher having reaped it yet? */
static bool has_unknown_end(void)
{
    char path[64], text[CHILDREN_BYTES];
    bool has_some = false;
    size_t size;
    FILE *file;

    snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)getppid(), (int)getppid());
    file = fopen(path, "r");
    if (file == NULL) return false;
    size = fread(text, 1, sizeof(text) - 1, file);
    fclose(file);
    text[size] = '\0';
    for (char *at = text, *end; !has_some; at = end) {
        long pid = strtol(at, &end, 10);

        if (end == at) break;
        has_some = is_zombie(pid);
    }
    return has_some;
}

/* Stagger exits: the launcher counts simultaneous exits as one failure. The last process survives. */
void ash_run_meet_doom(const struct ash_run *run)
{
    const struct timespec pause = {.tv_nsec = LOOK_NS};
    struct ash_group *group = ash_trainer_group(run->trainer);

    if (run->faults.doomed_step != ash_trainer_state(run->trainer)->step + 1 || group == NULL ||
        ash_group_rank(group) + 1 != ash_group_size(group))
        return;
    for (size_t looks = 0; looks < LOOKS_MAX && has_unknown_end(); looks++)
        nanosleep(&pause, NULL);
    if (!ash_run_is_told(run)) ash_fault_point_arm(ASH_FAULT_FORWARD);
}
