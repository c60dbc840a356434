/* The GPU backend: opens a GPU, loads this build's kernels, lists the ops. */
#include "compute/cuda/backend.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "base/assert.h"
#include "base/math.h"
#include "compute/cuda/host/ahead.h"
#include "compute/cuda/attn/attn_decode.h"
#include "compute/cuda/attn/attn_docs.h"
#include "compute/cuda/gemm/gemm_tma.h"
#include "compute/cuda/gemm/library.h"
#include "compute/cuda/host/backend_priv.h"
#include "compute/cuda/images.h"
#include "compute/cuda/ranks/ranks.h"
#include "compute/cuda/replay.h"

static const struct {
    const char *image, *name;
} kernels[] = {
#define KERNEL(image, name) {#image, #name},
#include "compute/cuda/host/kernels_list.h"
#undef KERNEL
};

bool ash_cuda_backend_built(void)
{
    return ash_cuda_images[0].name != NULL;
}

/* Images of kernels that begin early (ptx/launch.cuh). Those that follow each other share multiprocessors. */
static const char *const early_images[] = {"few", "few_quant", "attn_write", "attn_spans"};

static bool is_early(const char *image)
{
    for (size_t i = 0; i < ASH_COUNT(early_images); i++)
        if (strcmp(early_images[i], image) == 0) return true;
    return false;
}

static int load_kernel(struct ash_cuda_backend *backend, void *module, size_t i, struct ash_err *err)
{
    int rc = ash_cuda_kernel(backend->cuda, module, kernels[i].name, &backend->kernels[i], err);

    if (rc < 0 || !is_early(kernels[i].image)) return rc;
    return ash_cuda_prefer_shared(backend->cuda, backend->kernels[i], err);
}

/* The kernels of one image. */
static int load_image(struct ash_cuda_backend *backend, const struct ash_cuda_image *image, struct ash_err *err)
{
    void *module;
    int rc = ash_cuda_load(backend->cuda, image->data, &module, err);

    for (size_t i = 0; rc == 0 && i < ASH_COUNT(kernels); i++)
        if (strcmp(kernels[i].image, image->name) == 0) rc = load_kernel(backend, module, i, err);
    return rc;
}

static int load_kernels(struct ash_cuda_backend *backend, struct ash_err *err)
{
    for (const struct ash_cuda_image *image = ash_cuda_images; image->name != NULL; image++) {
        int rc = load_image(backend, image, err);

        if (rc < 0) return rc;
    }
    for (size_t i = 0; i < ASH_COUNT(kernels); i++)
        if (backend->kernels[i] == NULL)
            return ash_err_set(err, -ENOENT, "this build has no kernel '%s'", kernels[i].name);
    return 0;
}

bool ash_cuda_backend_is_exact(const struct ash_cuda_facts *facts)
{
    return facts->major == 9 && strstr(ash_cuda_archs, "90a") != NULL;
}

int ash_cuda_backend_open(int index, struct ash_cuda_backend **backend_out, struct ash_err *err)
{
    struct ash_cuda_backend *backend;
    int rc;

    if (!ash_cuda_backend_built())
        return ash_err_set(err, -ENOSYS,
                           "this build has no GPU kernels: build it where nvcc 12.3 or newer is installed, or with "
                           "-DASHLAR_FATBIN");
    backend = calloc(1, sizeof(*backend));
    if (backend == NULL) return ash_err_set(err, -ENOMEM, "compute: out of memory");
    rc = ash_cuda_open(index, &backend->cuda, err);
    if (rc < 0) goto fail;
    backend->has_wgmma = ash_cuda_backend_is_exact(ash_cuda_get_facts(backend->cuda));
    rc = load_kernels(backend, err);
    if (rc < 0) goto fail;
    rc = ash_buffer_init(&backend->results, &ash_memory_cuda, ASH_CUDA_RESULTS_BYTES, "results of GPU ops", err);
    if (rc < 0) goto fail;
    ash_cuda_library_open(backend);
    backend->memory = ash_device_cuda;
    backend->memory.queues = &ash_cuda_rank_queues;
    backend->memory.device = backend;
    *backend_out = backend;
    return 0;

fail:
    ash_cuda_backend_close(backend);
    return rc;
}

void ash_cuda_backend_close(struct ash_cuda_backend *backend)
{
    if (backend == NULL) return;
    if (backend->cuda != NULL) ash_cuda_wait(backend->cuda, NULL);
    ash_cuda_library_close(backend);
    ash_cuda_replay_close(backend);
    ash_cuda_links_close(backend);
    ash_cuda_docs_close(backend);
    ash_cuda_tables_close(backend);
    ash_buffer_fini(&backend->results);
    ash_buffer_fini(&backend->scratch);
    ash_cuda_close(backend->cuda);
    free(backend);
}

int ash_cuda_backend_wait(struct ash_cuda_backend *backend, struct ash_err *err)
{
    return ash_cuda_wait(backend->cuda, err);
}

const struct ash_device_memory *ash_cuda_backend_memory(const struct ash_cuda_backend *backend)
{
    return &backend->memory;
}

size_t ash_cuda_backend_tried(size_t count, size_t k)
{
    return ash_cuda_library_tried(count, k);
}

bool ash_cuda_backend_reads_columns(const struct ash_cuda_backend *backend, size_t M, size_t N)
{
    return ash_cuda_tma_takes(backend,
                              &(struct ash_cuda_gemm_bf16){.a = {.count = M, .k = 1}, .b = {.count = N, .k = 1}});
}

bool ash_cuda_backend_has_library(const struct ash_cuda_backend *backend)
{
    return backend->library != NULL;
}

struct ash_cuda *ash_cuda_backend_device(struct ash_cuda_backend *backend)
{
    return backend->cuda;
}

#define OPS(TABLE, MATRIX)                                                                                             \
    const struct ash_ops TABLE = {                                                                                     \
        .name = "cuda",                                                                                                \
        .reference = &ash_ops_ref_wgmma,                                                                               \
        .takes_bf16 = true,                                                                                            \
        .grow = ash_cuda_grow,                                                                                         \
        .matrix = (MATRIX),                                                                                            \
        .embed = &ash_cuda_embed,                                                                                      \
        .norm = &ash_cuda_norm,                                                                                        \
        .rope = &ash_cuda_rope,                                                                                        \
        .attn = &ash_cuda_attn,                                                                                        \
        .act = &ash_cuda_act,                                                                                          \
        .row = &ash_cuda_row,                                                                                          \
        .loss = &ash_cuda_loss,                                                                                        \
        .route = &ash_cuda_route,                                                                                      \
        .optim = &ash_cuda_optim,                                                                                      \
        .sample = &ash_cuda_sample,                                                                                    \
        .family = &ash_cuda_family,                                                                                    \
    }

OPS(ash_ops_cuda, &ash_cuda_matrix);
OPS(ash_ops_cuda_portable, &ash_cuda_matrix_portable);

const struct ash_ops *ash_cuda_backend_ops(const struct ash_cuda_backend *backend)
{
    return backend->has_wgmma ? &ash_ops_cuda : &ash_ops_cuda_portable;
}
