/* memory: the sizes of a run's buffers, from the same functions that those who allocate them ask, and an allowance for
 * the rest, which does not grow with the model. */
#include "train/memory.h"

#include "train/grains.h"

#define PROGRAM_BYTES ((size_t)7 << 20) /* code, libraries, tokenizer, log, the pages of the data that are read */
#define THREAD_BYTES ((size_t)1 << 20)  /* stack and packed blocks of matrices */

static size_t state_bytes(const struct ash_model *model, bool bf16)
{
    size_t per_weight = 3 * sizeof(float) + (bf16 ? sizeof(uint16_t) : 0);

    return ash_model_size(model) * per_weight;
}

int ash_train_memory(const struct ash_model *model, const struct ash_job *job, int threads, size_t rank, size_t size,
                     struct ash_train_memory *memory_out, struct ash_err *err)
{
    struct ash_pass_opts pass_opts = ash_job_pass_opts(job);
    struct ash_train_memory memory = {0};
    int rc = ash_pass_measure(model, &pass_opts, &memory.activations, err);

    if (rc < 0) return rc;
    memory.state = state_bytes(model, job->train.precision == ASH_PRECISION_BF16);
    memory.gradients =
        ash_grains_buffers((size_t)job->train.grains, rank, size) * ash_model_grad_size(model) * sizeof(float);
    memory.program = PROGRAM_BYTES + (size_t)threads * THREAD_BYTES;
    *memory_out = memory;
    return 0;
}

size_t ash_train_memory_total(const struct ash_train_memory *memory)
{
    return memory->state + memory->gradients + memory->activations + memory->program;
}
