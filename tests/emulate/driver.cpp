/* What the stand-in driver (tests/standin/libcuda.c) computes with: images are shared libraries beside this one, made
 * of one .cu file each; work runs when it is enqueued, or is recorded. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "emulate/emulator.h"
extern "C" {
#include "standin/kernels.h"
}

struct function {
    const struct emu_image *image;
    const struct emu_kernel *kernel;
};

/* A piece of recorded work. */
struct work {
    std::function<int()> run;
};

static std::vector<struct work> *recording; /* NULL: work runs at once */

static void *load(const void *image)
{
    Dl_info own;
    std::string path;
    void *library;

    if (dladdr((const void *)load, &own) == 0) return NULL;
    path = own.dli_fname;
    path = path.substr(0, path.rfind('/') + 1) + (const char *)image + ".so";
    library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        fprintf(stderr, "emulator: %s\n", dlerror());
        return NULL;
    }
    return dlsym(library, "emu_image");
}

static void *find(void *module, const char *name)
{
    const struct emu_image *image = (const struct emu_image *)module;

    for (size_t i = 0; i < image->count; i++)
        if (strcmp(image->kernels[i].name, name) == 0) return new function{image, &image->kernels[i]};
    return NULL;
}

static int run_or_record(std::function<int()> run)
{
    if (recording == NULL) return run();
    recording->push_back({std::move(run)});
    return 0;
}

/* Is it an address of the host's own memory? Not if its lower half is a small number, whose upper half is padding. */
static bool is_of_host(uintptr_t word)
{
    unsigned char is_resident;
    uintptr_t page = word & ~(uintptr_t)4095;

    return (uint32_t)word >= 65536 && !emu_memory_holds(word) && mincore((void *)page, 1, &is_resident) == 0;
}

/* A GPU cannot follow a pointer to the host's memory, but kernels can here. */
static bool has_host_pointer(const struct emu_kernel *kernel, const void *args)
{
    for (size_t at = 0; at + sizeof(uintptr_t) <= kernel->args_bytes; at += sizeof(uintptr_t)) {
        uintptr_t word;

        memcpy(&word, (const char *)args + at, sizeof(word));
        if (!is_of_host(word)) continue;
        fprintf(stderr, "emulator: %s: the pointer at byte %zu of its arguments is to memory of the host\n",
                kernel->name, at);
        return true;
    }
    return false;
}

static std::function<int()> *make_launch(const struct ash_cuda_launch_config *config, void *of, void **args)
{
    struct function function = *(struct function *)of;
    struct emu_grid grid = {{config->grid_x, config->grid_y, config->grid_z},
                            config->block_x * config->block_y * config->block_z,
                            config->shared_bytes};
    if (has_host_pointer(function.kernel, args[0])) return new std::function<int()>([]() { return -1; });
    /* Arguments may have structs at borders of 64 bytes. */
    std::shared_ptr<void> copy(aligned_alloc(128, (function.kernel->args_bytes + 127) / 128 * 128), free);

    memcpy(copy.get(), args[0], function.kernel->args_bytes);
    return new std::function<int()>(
        [=]() { return emu_launch(function.image, function.kernel, grid, copy.get()); });
}

static int launch(const struct ash_cuda_launch_config *config, void *of, void **args)
{
    std::unique_ptr<std::function<int()>> run(make_launch(config, of, args));

    return run_or_record(*run);
}

static void *hold(const struct ash_cuda_launch_config *config, void *of, void **args)
{
    return make_launch(config, of, args);
}

static int run_held(void *held)
{
    std::unique_ptr<std::function<int()>> run((std::function<int()> *)held);

    return (*run)();
}

static int copy(uint64_t dst, uint64_t src, size_t size_bytes)
{
    return run_or_record([=]() {
        memmove((void *)(uintptr_t)dst, (const void *)(uintptr_t)src, size_bytes);
        return 0;
    });
}

static int set8(uint64_t dst, unsigned char value, size_t size_bytes)
{
    return run_or_record([=]() {
        memset((void *)(uintptr_t)dst, value, size_bytes);
        return 0;
    });
}

static void begin(void)
{
    recording = new std::vector<struct work>();
}

static void *end(void)
{
    std::vector<struct work> *recorded = recording;

    recording = NULL;
    return recorded;
}

static int run(void *recorded)
{
    for (struct work &work : *(std::vector<struct work> *)recorded)
        if (work.run() != 0) return -1;
    return 0;
}

static const char *failure(void)
{
    return emu_run.has_failed ? emu_run.failure.c_str() : NULL;
}

const struct standin_kernels standin_kernels = {
    emu_alloc, emu_free, emu_alloc_bytes, emu_memory_add, emu_memory_remove, load, find, launch, hold,
    run_held,  copy,     set8,            begin,          end,               run,  failure, emu_map_encode};
