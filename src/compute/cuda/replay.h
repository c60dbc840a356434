/* replay - steps that decode and batches that train, recorded once for their shape and replayed: one call of the driver
 * instead of one for each kernel. */
#ifndef ASH_COMPUTE_CUDA_REPLAY_H
#define ASH_COMPUTE_CUDA_REPLAY_H

#include "compute/ops.h"

/* ash_exec_step_begin on a GPU. */
enum ash_step_way ash_cuda_step_begin(struct ash_exec *exec, const struct ash_exec_step *step);
/* ash_exec_batch_begin on a GPU. */
enum ash_step_way ash_cuda_batch_begin(struct ash_exec *exec, const struct ash_exec_step *batch);
/* Steps and batches that were begun so far, and those of them that were replayed. */
void ash_cuda_replayed(const struct ash_cuda_backend *backend, uint64_t *begun_out, uint64_t *replayed_out);
/* ash_exec_step_end on a GPU. */
bool ash_cuda_step_end(struct ash_exec *exec, enum ash_step_way way);
/* Free what was recorded. */
void ash_cuda_replay_close(struct ash_cuda_backend *backend);

#endif
