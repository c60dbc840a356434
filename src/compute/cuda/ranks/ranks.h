/* ranks - what calls between ranks do on an NVIDIA GPU: infra/device_queue.h, with sums by kernels of this build. */
#ifndef ASH_COMPUTE_CUDA_RANKS_H
#define ASH_COMPUTE_CUDA_RANKS_H

#include "infra/device_queue.h"

/* The device of these is a struct ash_cuda_backend, which outlives its queues. */
extern const struct ash_device_queue_ops ash_cuda_rank_queues;

#endif
