/* cuda_priv - between the files of a GPU's memories. */
#ifndef ASH_INFRA_DEVICE_CUDA_PRIV_H
#define ASH_INFRA_DEVICE_CUDA_PRIV_H

#include "infra/device/cuda_driver.h"

/* The driver, for memory of the GPU that this thread has taken, or else of the one that was opened last. */
const struct ash_cuda_driver *ash_cuda_memory_driver(void);

#endif
