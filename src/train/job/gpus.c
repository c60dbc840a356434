/* gpus: a job's settings, for the ranks' GPUs. */
#include "train/job/gpus.h"

#include "base/assert.h"
#include "parallel/gpus.h"

int ash_gpus_choose(const struct ash_job *job, struct ash_group *group, const char *cpu_reason,
                    struct ash_backend_choice *choice_out, struct ash_err *err)
{
    const struct ash_gpus_sharing sharing = {.per_gpu = (size_t)job->runtime.ranks_per_gpu,
                                             .backend_word = "runtime.backend=",
                                             .per_gpu_word = "runtime.ranks_per_gpu="};

    ash_job_choose_backend(job, cpu_reason, choice_out);
    return group == NULL || ash_group_size(group) == 1 ? 0 : ash_gpus_share(&sharing, group, choice_out, err);
}

void ash_gpus_choose_joining(const struct ash_job *job, size_t here, struct ash_backend_choice *choice_out)
{
    ash_assert(here > 0);
    ash_job_choose_backend(job, NULL, choice_out);
    ash_gpus_take((size_t)job->runtime.ranks_per_gpu, here - 1, choice_out);
}
