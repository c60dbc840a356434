/* foresee - estimate of a job's device memory before any of it is allocated, and settings that take less:
 * docs/memory.md. */
#ifndef ASH_TRAIN_FORESEE_H
#define ASH_TRAIN_FORESEE_H

#include "train/memory.h"

/* A job as it would be opened: see ash_stages_open. All borrowed. */
struct ash_foresee_opts {
    const struct ash_job *job;
    struct ash_exec *exec;
    struct ash_mesh *mesh;
    const struct ash_model_config *config;
};

/* By kind, into *memory_out, and all together into memory_out->device. Returns 0 or an error of ash_stages_open. */
int ash_train_foresee(const struct ash_foresee_opts *opts, struct ash_train_memory *memory_out, struct ash_err *err);
/* Does it fit into free_bytes? Returns 0, or -ENOMEM with a sentence: bytes needed, bytes free, and settings with which
 * it would fit. */
int ash_train_foresee_room(const struct ash_foresee_opts *opts, size_t free_bytes, struct ash_train_memory *memory_out,
                           struct ash_err *err);

#endif
