/* parts - where the time of a step goes, named once for tables, JSON and pictures. */
#ifndef ASH_PLAN_PARTS_H
#define ASH_PLAN_PARTS_H

#include "plan/train/step.h"

struct ash_step_part {
    const char *name; /* "exposed NVLink" */
    const char *key;  /* "nvlink" in JSON */
    const char *text; /* what a step that spends most of its time so is bound by */
    const char *colour;
    double seconds;
};

#define ASH_STEP_PARTS 10

/* The parts of a step that takes checkpoint_s longer because of checkpoints, in the order of a timeline. They add up to
 * time->total + checkpoint_s. */
void ash_step_parts(const struct ash_step_time *time, double checkpoint_s, struct ash_step_part parts[ASH_STEP_PARTS]);
/* What takes the largest share of a step: "matrix products and attention", ... */
const char *ash_step_bound(const struct ash_step_time *time, double checkpoint_s);

#endif
