/* kernels - what makes a stand-in of the CUDA driver compute: memory, images and queued work. Without it kernels do
 * nothing. tests/emulate has one. */
#ifndef TEST_STANDIN_KERNELS_H
#define TEST_STANDIN_KERNELS_H

#include <stddef.h>
#include <stdint.h>
#include "infra/device/cuda_driver.h"

struct standin_kernels {
    void *(*alloc)(size_t size_bytes);
    void (*free)(void *ptr);
    size_t (*alloc_bytes)(void *ptr);
    /* Memory that was mapped otherwise. */
    void (*add_memory)(const void *base, size_t size_bytes);
    void (*remove_memory)(const void *base);
    void *(*load)(const void *image); /* NULL: there is no such image */
    void *(*find)(void *module, const char *name);
    /* Work: at once, or between begin and end recorded. Returns 0, or -1 where a kernel failed. */
    int (*launch)(const struct ash_cuda_launch_config *config, void *function, void **args);
    /* A launch with its arguments, for later; run_held does it, once. */
    void *(*hold)(const struct ash_cuda_launch_config *config, void *function, void **args);
    int (*run_held)(void *held);
    int (*copy)(uint64_t dst, uint64_t src, size_t size_bytes);
    int (*set8)(uint64_t dst, unsigned char value, size_t size_bytes);
    void (*begin)(void);
    void *(*end)(void);
    int (*run)(void *recorded);
    const char *(*failure)(void); /* why a kernel failed, or NULL */
    /* cuTensorMapEncodeTiled; -1: no such map. */
    int (*map_encode)(void *out, int type, unsigned rank, void *data, const uint64_t *sizes, const uint64_t *strides,
                      const unsigned *box, int swizzle);
};

extern const struct standin_kernels standin_kernels __attribute__((weak));

#endif
