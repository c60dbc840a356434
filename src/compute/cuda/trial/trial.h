/* trial - does this GPU compute as the host's models say? Its own instructions, one by one, on drawn operands: what no
 * compiler and no library stands between. */
#ifndef ASH_COMPUTE_CUDA_TRIAL_H
#define ASH_COMPUTE_CUDA_TRIAL_H

#include <stdint.h>
#include "ashlar/err.h"
#include "compute/ops.h"

enum ash_trial_kind { ASH_TRIAL_MMA, ASH_TRIAL_WGMMA, ASH_TRIAL_FP8, ASH_TRIAL_EX2, ASH_TRIAL_COUNT };

/* All rounds so far. Zeroed by the caller before the first. */
struct ash_trial {
    uint64_t rounds, cases, differing; /* cases: results that were compared */
    char first[96];                    /* the first case that differs: operands' place, result, the model's */
};

/* "bf16 products by mma.sync": static. */
const char *ash_trial_name(enum ash_trial_kind kind);
/* Has this GPU the instruction? exec has one. */
bool ash_trial_applies(const struct ash_exec *exec, enum ash_trial_kind kind);
/* One more round of cases, others each time. It applies to
 * exec. Returns 0, -ENOMEM or -EIO. Owner thread of exec. */
int ash_trial_round(struct ash_exec *exec, enum ash_trial_kind kind, struct ash_trial *trial, struct ash_err *err);

#endif
