/* The launch of gemm_tma.cu: where its operands lie, and as many thread blocks as stay on the GPU. */
#include "compute/cuda/gemm/gemm_tma.h"

#include <string.h>
#include "base/assert.h"
#include "base/math.h"
#include "compute/cuda/gemm/few.h"
#include "compute/cuda/gemm/rows_of_x.h"

#define CLUSTER ASH_CUDA_GEMM_TMA_CLUSTER
#define CHUNK 8 /* values of 16 bytes */
#define WIDE ((size_t)256)
#define NARROW ((size_t)128)

/* ---- tiles ------------------------------------------------------------------------------------------------------- */

/* Clusters that run at the same time. */
static size_t places_of(const struct ash_cuda_backend *backend)
{
    return ash_max((size_t)ash_cuda_get_facts(backend->cuda)->sm_count / CLUSTER, 1);
}

static size_t m_pairs_of(size_t M)
{
    return ash_div_up(M, (size_t)ASH_CUDA_GEMM_TMA_M * CLUSTER);
}

/* Rounds in which clusters make tiles of which n_tiles lie beside each other. */
static size_t rounds_of(const struct ash_cuda_backend *backend, size_t M, size_t n_tiles)
{
    return ash_div_up(m_pairs_of(M) * n_tiles, places_of(backend));
}

/* Are there enough tiles, the narrow ones? */
static bool has_enough(const struct ash_cuda_backend *backend, size_t M, size_t narrow_tiles)
{
    return 4 * m_pairs_of(M) * narrow_tiles >= places_of(backend);
}

/* Columns of a tile: a narrow one costs a little more than half of a wide one. */
static size_t choose_tile(const struct ash_cuda_backend *backend, size_t M, size_t wide_tiles, size_t narrow_tiles)
{
    return 20 * rounds_of(backend, M, wide_tiles) <= 11 * rounds_of(backend, M, narrow_tiles) ? WIDE : NARROW;
}

bool ash_cuda_tma_takes(const struct ash_cuda_backend *backend, const struct ash_cuda_gemm_bf16 *op)
{
    return backend->has_wgmma && op->a.k > 0 && has_enough(backend, op->a.count, ash_div_up(op->b.count, NARROW));
}

/* A map of an operand that comes in boxes of `lines` lines: lines of k, or k lines of its columns. */
static struct ash_cuda_tensor_map map_of(struct ash_exec *exec, const struct ash_cuda_lines *of, size_t lines)
{
    struct ash_cuda_bf16_rows rows = {.data = of->data, .stride = of->stride};
    struct ash_cuda_tensor_map map = {0};

    rows.rows = of->columns ? of->k : of->count;
    rows.cols = of->columns ? of->count : of->k;
    ash_cuda_map_rows(exec->cuda->cuda, &rows, of->columns ? ASH_CUDA_GEMM_TMA_K : lines, &map);
    return map;
}

/* Add an output, in tiles of `width` columns. */
static void add_out(struct ash_exec *exec, struct ash_cuda_gemm_tma *args, int i, const struct ash_cuda_gemm_bf16 *out,
                    size_t tile, size_t width)
{
    args->b[i] = map_of(exec, &out->b, tile / CLUSTER);
    args->outs[i] = *out;
    args->first[i] = args->n_tiles;
    args->n_tiles += (uint32_t)ash_div_up(out->b.count, width);
}

/* Zeros everywhere, also between members: arguments are compared and looked through as bytes. */
static void begin(struct ash_exec *exec, struct ash_cuda_gemm_tma *args, const struct ash_cuda_lines *a)
{
    memset(args, 0, sizeof(*args));
    for (int i = 0; i < ASH_CUDA_GEMM_TMA_OUTS; i++)
        args->first[i] = UINT32_MAX;
    args->a = map_of(exec, a, ASH_CUDA_GEMM_TMA_M);
    args->m_pairs = (uint32_t)m_pairs_of(a->count);
    args->k_tiles = (uint32_t)ash_div_up(a->k, ASH_CUDA_GEMM_TMA_K);
}

static void run(struct ash_exec *exec, enum ash_cuda_kernel_id id, const struct ash_cuda_gemm_tma *args, size_t tile)
{
    size_t clusters = ash_min(places_of(exec->cuda), (size_t)args->m_pairs * args->n_tiles);

    ash_cuda_run(exec, id,
                 (struct ash_cuda_grid){.x = clusters * CLUSTER,
                                        .y = 1,
                                        .threads = ASH_CUDA_GEMM_TMA_THREADS,
                                        .shared_bytes = ASH_CUDA_GEMM_TMA_BYTES(tile)},
                 args);
}

void ash_cuda_tma_gemm(struct ash_exec *exec, const struct ash_cuda_gemm_bf16 *op)
{
    /* [is narrow][how many of both lie as columns: b first] */
    static const enum ash_cuda_kernel_id kernels[2][3] = {
        {ASH_KERNEL_gemm_tma_rows_rows, ASH_KERNEL_gemm_tma_rows_columns, ASH_KERNEL_gemm_tma_columns_columns},
        {ASH_KERNEL_gemm_tma_rows_rows_128, ASH_KERNEL_gemm_tma_rows_columns_128,
         ASH_KERNEL_gemm_tma_columns_columns_128}};
    size_t N = op->b.count, tile = choose_tile(exec->cuda, op->a.count, ash_div_up(N, WIDE), ash_div_up(N, NARROW));
    struct ash_cuda_gemm_tma args;

    ash_assert(op->a.k == op->b.k && op->a.columns <= op->b.columns);
    begin(exec, &args, &op->a);
    add_out(exec, &args, 0, op, tile, tile);
    run(exec, kernels[tile == NARROW][op->a.columns + op->b.columns], &args, tile);
}

/* ---- several products of one input ------------------------------------------------------------------------------- */

static bool takes_x(const struct ash_project_args *args)
{
    bool is_bf16 = args->x_bf16 != NULL;
    uintptr_t x = is_bf16 ? (uintptr_t)args->x_bf16 : (uintptr_t)args->x;

    return args->round_bf16 && args->M > ASH_CUDA_BATCH_ROWS && args->K > 0 && args->K % CHUNK == 0 && x % 16 == 0 &&
           args->x_stride % (is_bf16 ? CHUNK : 4) == 0;
}

/* Tiles of all outputs that lie beside each other. */
static size_t n_tiles_of(const struct ash_project_args *args, size_t width)
{
    size_t tiles = 0;

    for (size_t i = 0; i < (args->swiglu ? 1 : args->out_count); i++)
        tiles += ash_div_up(args->outs[i].w.N, width);
    return tiles;
}

bool ash_cuda_tma_project(struct ash_exec *exec, const struct ash_project_args *args)
{
    struct ash_cuda_rows_of_x rows = {args->x, args->x_bf16, args->x_stride, args->norm, args->norm_eps};
    struct ash_cuda_few_out outs[ASH_PROJECT_OUTS_MAX];
    struct ash_cuda_lines a = {.count = args->M, .k = args->K};
    struct ash_cuda_gemm_tma op;
    size_t tile, width;

    if (!exec->cuda->has_wgmma || args->out_count < 2 || args->out_count > ASH_CUDA_GEMM_TMA_OUTS || !takes_x(args) ||
        !ash_cuda_few_outs(args, outs) || !has_enough(exec->cuda, args->M, n_tiles_of(args, NARROW)))
        return false;
    tile = args->swiglu ? WIDE : choose_tile(exec->cuda, args->M, n_tiles_of(args, WIDE), n_tiles_of(args, NARROW));
    width = args->swiglu ? tile / 2 : tile;
    a.data = ash_cuda_bf16_rows_of(exec, &rows, args->M, args->K, &a.stride);
    begin(exec, &op, &a);
    for (size_t i = 0; i < args->out_count; i++) {
        struct ash_cuda_gemm_bf16 out = {.a = a,
                                         .b = {outs[i].w, outs[i].N, args->K, outs[i].stride, 0},
                                         .c = outs[i].y,
                                         .c_stride = outs[i].y_stride,
                                         .bias = outs[i].bias,
                                         .add = args->residual ? outs[i].y : NULL,
                                         .add_stride = outs[i].y_stride};

        add_out(exec, &op, (int)i, &out, tile, width);
    }
    if (args->swiglu) op.n_tiles = op.first[1], op.first[1] = UINT32_MAX; /* up's tiles are gate's */
    run(exec,
        args->swiglu     ? ASH_KERNEL_gemm_tma_gated
        : tile == NARROW ? ASH_KERNEL_gemm_tma_rows_rows_128
                         : ASH_KERNEL_gemm_tma_rows_rows,
        &op, tile);
    return true;
}
