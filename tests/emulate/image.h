/* image - how a .cu file's kernels are registered. cmake/emulate.cmake writes a file that includes the .cu file and ends
 * with this: EMU_KERNELS is the list of its kernels. */
#ifndef TEST_EMULATE_IMAGE_H
#define TEST_EMULATE_IMAGE_H

#include "emulate/cuda.h"

/* A thread block's static shared memory is this image's thread-local memory, of which there is some. */
static void *emu_anchor(void)
{
    static __thread unsigned char anchor __attribute__((aligned(128)));

    return &anchor;
}

#define EMU_SECTION(size)                                                                                              \
    extern const char __start_emu_cluster_##size[] __attribute__((weak, visibility("hidden")));                        \
    extern const char __stop_emu_cluster_##size[] __attribute__((weak, visibility("hidden")));
EMU_SECTION(2)
EMU_SECTION(4)
EMU_SECTION(8)
EMU_SECTION(16)

#define EMU_IS_IN(at, size) ((at) >= __start_emu_cluster_##size && (at) < __stop_emu_cluster_##size)

template <typename Args>
static struct emu_kernel emu_make_kernel(const char *name, void (*kernel)(Args), void (*call)(const void *))
{
    const char *at = (const char *)kernel;
    unsigned cluster = EMU_IS_IN(at, 2) ? 2 : EMU_IS_IN(at, 4) ? 4 : EMU_IS_IN(at, 8) ? 8 : EMU_IS_IN(at, 16) ? 16 : 1;

    return {name, sizeof(Args), call, cluster};
}

template <typename Args> static const Args &emu_args_of(void (*)(Args), const void *args)
{
    return *(const Args *)args;
}

#define EMU_KERNEL(name) emu_make_kernel(#name, name, [](const void *args) { name(emu_args_of(name, args)); }),

static const struct emu_kernel emu_kernels[] = {EMU_KERNELS};

extern "C" __attribute__((visibility("default"))) const struct emu_image emu_image;
const struct emu_image emu_image = {emu_kernels, sizeof(emu_kernels) / sizeof(emu_kernels[0]), emu_anchor};

#endif
