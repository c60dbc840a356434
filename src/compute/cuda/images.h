/* images - the compiled kernels that this build carries. Written by cmake/cuda.cmake: one image per .cu file, or none
 * where the build had no nvcc. */
#ifndef ASH_COMPUTE_CUDA_IMAGES_H
#define ASH_COMPUTE_CUDA_IMAGES_H

#include <stddef.h>

struct ash_cuda_image {
    const char *name;          /* of the .cu file */
    const unsigned char *data; /* a fatbin */
};

extern const struct ash_cuda_image ash_cuda_images[]; /* ends with a NULL name */
extern const char ash_cuda_archs[];                   /* what they are compiled for: "90a", "90a 100a" */

#endif
