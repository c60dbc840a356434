/* own_memory - what Ashlar's own trainer takes on a CPU, from sizes alone: the formula of docs/memory.md, before a
 * model folder or a job exists. Tests hold it to what the trainer says and takes. */
#ifndef ASH_PLAN_OWN_MEMORY_H
#define ASH_PLAN_OWN_MEMORY_H

#include "plan/shape.h"

enum ash_own_recompute { ASH_OWN_NONE, ASH_OWN_SELECTIVE, ASH_OWN_FULL };

struct ash_own_run {
    double seq_tokens, micro_batch, grains, threads;
    bool bf16;
    enum ash_own_recompute recompute;
};

struct ash_own_memory {
    double state, gradients, activations, program, total; /* bytes */
};

/* One process that trains the whole model. Latent attention and state-space layers are not in the formula: false, and
 * memory_out is untouched. */
bool ash_own_memory_of(const struct ash_shape *shape, const struct ash_own_run *run, struct ash_own_memory *memory_out);

#endif
