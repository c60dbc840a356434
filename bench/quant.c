/* quant ROWS ROUNDS SIZE...: products with packed quantised weights. Square ones compared with the peak of the
 * int8 instruction; and one row by a matrix that no cache holds (decoding) compared with the read bandwidth.
 * All measured in turn. */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/cores.h"
#include "base/rng.h"
#include "compute/ops.h"
#include "lib/bandwidth.h"
#include "lib/peak.h"
#include "lib/row.h"
#include "lib/team.h"

#define MEASURE_NS 60000000ull /* repeat a product for so long */
#define SIZE_MAX_N 16384
#define ONE_ROW_K 2048
#define ONE_ROW_BYTES ((size_t)256 << 20) /* of weights */
#define SCALE_BITS 0x2000                 /* 0.0078125 as IEEE half */
#define Q6_K_SCALE 208                    /* where a block has it; others begin with it */
#define KINDS 6

static const enum ash_dtype dtypes[KINDS] = {ASH_Q8_0, ASH_Q4_0, ASH_Q8_W, ASH_Q4_K, ASH_Q5_K, ASH_Q6_K};
static const char *const names[KINDS] = {"q8", "q4", "q8w", "q4_k", "q5_k", "q6_k"};

struct bench {
    struct ash_exec exec;
    struct bench_bandwidth bandwidth;
    const char *rows;
    size_t rounds;
};

/* A product: x[M, K], and w[N, K] packed where the backend packs. */
struct product {
    size_t M, N, K;
    struct ash_buffer x, y, w;
    struct ash_weight weight;
};

static void product_fini(struct product *product)
{
    ash_buffer_fini(&product->x);
    ash_buffer_fini(&product->y);
    ash_buffer_fini(&product->w);
}

/* Random bytes with one scale for all blocks, packed. */
static int weight_init(struct bench *bench, struct product *product, enum ash_dtype dtype, struct ash_err *err)
{
    const struct ash_matrix_ops *matrix = bench->exec.ops->matrix;
    size_t bytes = ash_dtype_size(dtype, product->N * product->K), block_bytes = ash_dtype_bytes(dtype), packed;
    struct ash_buffer plain = {0};
    int rc = ash_buffer_init(&plain, &ash_memory_host, bytes, "weights", err);

    if (rc < 0) return rc;
    for (size_t i = 0; i < bytes; i++)
        ((uint8_t *)plain.data)[i] = (uint8_t)(ash_rng_u64(1, 2, i / 8) >> 8 * (i % 8));
    for (size_t at = 0; at < bytes; at += block_bytes)
        *(uint16_t *)(void *)((char *)plain.data + at + (dtype == ASH_Q6_K ? Q6_K_SCALE : 0)) = SCALE_BITS;
    product->weight = (struct ash_weight){.N = product->N, .mat = {.data = plain.data, .dtype = dtype}};
    packed = matrix->packed_bytes != NULL ? matrix->packed_bytes(dtype, product->N, product->K) : 0;
    if (packed == 0) {
        product->w = plain;
        return 0;
    }
    rc = ash_buffer_init(&product->w, &ash_memory_host, packed, "packed weights", err);
    if (rc == 0) matrix->pack(&bench->exec, &product->weight, product->K, 0, product->N, product->w.data);
    ash_buffer_fini(&plain);
    product->weight.mat.data = product->w.data;
    product->weight.packed = true;
    return rc;
}

static int product_init(struct bench *bench, struct product *product, enum ash_dtype dtype, size_t M, size_t N,
                        size_t K)
{
    struct ash_err err = {0};
    int rc;

    *product = (struct product){.M = M, .N = N, .K = K};
    rc = ash_buffer_init(&product->x, &ash_memory_host, M * K * sizeof(float), "inputs", &err);
    if (rc == 0) rc = ash_buffer_init(&product->y, &ash_memory_host, M * N * sizeof(float), "outputs", &err);
    if (rc == 0) rc = weight_init(bench, product, dtype, &err);
    if (rc < 0) {
        fprintf(stderr, "quant: %s\n", err.text);
        product_fini(product);
        return rc;
    }
    for (size_t i = 0; i < M * K; i++)
        ((float *)product->x.data)[i] = (float)ash_rng_uniform(1, 0, i) - 0.5f;
    return 0;
}

static void run(struct bench *bench, const struct product *product)
{
    struct ash_project_args args = {
        .M = product->M,
        .K = product->K,
        .x = product->x.data,
        .x_stride = product->K,
        .out_count = 1,
        .outs = {{.w = product->weight, .y = product->y.data, .y_stride = product->N}},
    };

    bench->exec.ops->matrix->project(&bench->exec, &args);
}

/* Products per second, repeated for MEASURE_NS after one that is not counted. */
static double measure(struct bench *bench, const struct product *product)
{
    uint64_t start, took = 0;
    size_t count = 0;

    bench_settle();
    run(bench, product);
    start = ash_clock_ns();
    while (took < MEASURE_NS) {
        run(bench, product);
        took = ash_clock_ns() - start;
        count++;
    }
    return (double)count / (double)took * 1e9;
}

static double largest(const double *values, size_t count)
{
    double top = 0;

    for (size_t i = 0; i < count; i++)
        top = values[i] > top ? values[i] : top;
    return top;
}

/* The ceiling is the largest of its measurements: whatever disturbs one makes it smaller. */
static int bench_square(struct bench *bench, size_t n)
{
    const char *instruction = bench_peak_instruction(BENCH_PEAK_INT8);
    char name[64], peer[64];
    int rc = 0;

    snprintf(peer, sizeof(peer), "%s peak, measured", instruction != NULL ? instruction : "no");
    for (int kind = 0; kind < KINDS && rc == 0; kind++) {
        double ours[BENCH_ROUNDS_MAX], peaks[BENCH_ROUNDS_MAX];
        struct product product;

        if (product_init(bench, &product, dtypes[kind], n, n, n) < 0) return -1;
        for (size_t round = 0; round < bench->rounds; round++) {
            ours[round] = 2e-9 * (double)n * (double)n * (double)n * measure(bench, &product);
            bench_settle();
            peaks[round] = bench_peak_gops(BENCH_PEAK_INT8, ash_cores_usable());
        }
        snprintf(name, sizeof(name), "gemm/%s-%zu", names[kind], n);
        rc = bench_row_add(bench->rows, &(struct bench_row){.name = name,
                                                            .unit = "GOP/s",
                                                            .ours = bench_median(ours, bench->rounds),
                                                            .peer = instruction != NULL ? peer : NULL,
                                                            .peer_value = largest(peaks, bench->rounds),
                                                            .goal = 0.70});
        product_fini(&product);
    }
    return rc;
}

/* M rows by a matrix from memory. M = 1 is decoding one sequence; the others have no goal of their own. */
static int bench_rows(struct bench *bench, int kind, size_t M)
{
    size_t row_bytes = ash_dtype_size(dtypes[kind], ONE_ROW_K), N = ONE_ROW_BYTES / row_bytes;
    double ours[BENCH_ROUNDS_MAX], reads[BENCH_ROUNDS_MAX];
    struct product product;
    char name[64];
    int rc;

    if (product_init(bench, &product, dtypes[kind], M, N, ONE_ROW_K) < 0) return -1;
    for (size_t round = 0; round < bench->rounds; round++) {
        ours[round] = 1e-9 * (double)(N * row_bytes) * measure(bench, &product);
        bench_settle();
        reads[round] = bench_bandwidth_read(&bench->bandwidth, ash_cores_usable());
    }
    if (M == 1)
        snprintf(name, sizeof(name), "gemv/%s", names[kind]);
    else
        snprintf(name, sizeof(name), "gemv/%s-%zurows", names[kind], M);
    rc = bench_row_add(bench->rows, &(struct bench_row){.name = name,
                                                        .unit = "GB/s",
                                                        .ours = bench_median(ours, bench->rounds),
                                                        .peer = "read bandwidth, measured",
                                                        .peer_value = largest(reads, bench->rounds),
                                                        .goal = M == 1 ? 0.85 : 0});
    product_fini(&product);
    return rc;
}

static int run_all(struct bench *bench, int count, char **sizes)
{
    static const size_t rows[] = {1, 2, 4, 8};
    int rc = 0;

    for (int i = 0; i < count && rc == 0; i++) {
        long size = strtol(sizes[i], NULL, 10);

        if (size < ASH_QUANT_BLOCK || size > SIZE_MAX_N || size % ASH_QUANT_BLOCK != 0) {
            fprintf(stderr, "quant: '%s' is not a multiple of %d up to %d\n", sizes[i], ASH_QUANT_BLOCK, SIZE_MAX_N);
            return -1;
        }
        rc = bench_square(bench, (size_t)size);
    }
    for (int kind = 0; count == 0 && kind < KINDS && rc == 0; kind++)
        for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]) && rc == 0; i++)
            rc = bench_rows(bench, kind, rows[i]);
    return rc;
}

int main(int argc, char **argv)
{
    struct bench bench = {.rows = argc > 1 ? argv[1] : NULL};
    struct ash_err err = {0};
    long rounds = argc > 2 ? strtol(argv[2], NULL, 10) : 0;
    int rc;

    if (rounds < 1 || rounds > BENCH_ROUNDS_MAX) {
        fprintf(stderr, "usage: quant ROWS ROUNDS (1 to %d) [SIZE...]; without a size: one row by a large matrix\n",
                BENCH_ROUNDS_MAX);
        return 2;
    }
    bench.rounds = (size_t)rounds;
    rc = ash_exec_init(&bench.exec, NULL, 0, &err);
    if (rc == 0) rc = bench_bandwidth_init(&bench.bandwidth, &err);
    if (rc < 0)
        fprintf(stderr, "quant: %s\n", err.text);
    else
        rc = run_all(&bench, argc - 3, argv + 3);
    bench_bandwidth_fini(&bench.bandwidth);
    ash_exec_fini(&bench.exec);
    return rc < 0;
}
