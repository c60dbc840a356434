/* schedule - the learning rate of a step, as a pure function of its number. No libm function whose last bit may differ
 * between machines takes part, so that a run moved to another processor keeps its bits. */
#ifndef ASH_TRAIN_STATE_SCHEDULE_H
#define ASH_TRAIN_STATE_SCHEDULE_H

#include <stdint.h>

enum ash_lr_schedule_kind { ASH_LR_COSINE, ASH_LR_WSD, ASH_LR_CONSTANT };

/* Linear warm-up to peak_lr over warmup_steps, then: cosine down to the last step; or (wsd) level, and over the last
 * decay_steps down by one minus a square root; or level to the end. The low end is final_share * peak_lr. */
struct ash_lr_schedule {
    enum ash_lr_schedule_kind kind;
    uint64_t steps; /* of the whole run */
    uint64_t warmup_steps, decay_steps;
    double peak_lr, final_share;
};

/* The learning rate of step (from 0). A step after the last gets the rate of the last. */
double ash_lr_schedule_at(const struct ash_lr_schedule *schedule, uint64_t step);

#endif
