/* memory: the sizes of a run's buffers, from their owners, and an allowance for the rest, which does not grow with the
 * model. */
#include "train/memory.h"

#define PROGRAM_BYTES ((size_t)7 << 20) /* code, libraries, tokenizer, log, the pages of the data that are read */
#define THREAD_BYTES ((size_t)1 << 20)  /* stack and packed blocks of matrices */

void ash_train_memory_measure(const struct ash_stages *stages, struct ash_train_memory *memory_out)
{
    size_t threads = (size_t)ash_workers_count(stages->exec->workers);
    size_t scratch = threads * THREAD_BYTES + ash_exec_broadcast_bytes(stages->exec);
    struct ash_train_memory memory = {.program = PROGRAM_BYTES + scratch};

    for (size_t i = 0; i < stages->chunk_count; i++) {
        const struct ash_stage *stage = &stages->chunks[i];
        memory.state += ash_state_bytes(&stage->state);
        memory.gradients +=
            ash_grains_bytes(&stage->grains) + ash_grains_bytes(&stage->experts) + ash_fsdp_bytes(&stage->fsdp);
        for (size_t s = 0; s < stage->slot_count; s++)
            memory.activations += ash_pass_bytes(stage->slots[s].pass);
    }
    *memory_out = memory;
}

size_t ash_train_memory_total(const struct ash_train_memory *memory)
{
    return memory->state + memory->gradients + memory->activations + memory->program;
}
