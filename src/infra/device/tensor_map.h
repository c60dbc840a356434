/* tensor_map - what tells a GPU's copy engine how a matrix lies in memory (CUtensorMap). Plain C that both compilers
 * read: kernels get maps in their arguments. */
#ifndef ASH_INFRA_DEVICE_TENSOR_MAP_H
#define ASH_INFRA_DEVICE_TENSOR_MAP_H

struct ash_cuda_tensor_map {
    unsigned char bytes[128];
} __attribute__((aligned(64)));

#endif
