/* gemm ROWS ROUNDS SIZE...: square matrix products as models have them (activations by weights stored [out, in]), in
 * float32 and with operands rounded to bf16, compared with OpenBLAS and with the peak of the instruction, all measured
 * in turn. OpenBLAS is opened at run time: nothing of ours links to it. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/bf16.h"
#include "base/clock.h"
#include "base/cores.h"
#include "base/rng.h"
#include "compute/ops.h"
#include "infra/memory.h"
#include "lib/peak.h"
#include "lib/row.h"
#include "lib/team.h"

#define MEASURE_NS 60000000ull /* repeat a product for so long */
#define SIZE_MAX_N 16384

/* The part of the CBLAS interface that is needed here; its enumerations are constants of that interface. */
typedef void (*sgemm_fn)(int order, int trans_a, int trans_b, int m, int n, int k, float alpha, const float *a, int lda,
                         const float *b, int ldb, float beta, float *c, int ldc);
enum { CBLAS_ROW_MAJOR = 101, CBLAS_NO_TRANS = 111, CBLAS_TRANS = 112 };

struct peer {
    sgemm_fn sgemm; /* NULL: not installed */
    char name[128];
};

struct bench {
    struct ash_exec exec;
    struct peer peer;
    const char *rows;
    size_t rounds;
    size_t size;
    struct ash_buffer buffer;
    float *a, *b, *c; /* [size, size], in buffer */
    uint16_t *b_bf16;
    double ceiling[2]; /* the largest peak seen so far: float32, bf16 */
};

enum { OURS_F32, OURS_BF16, THEIRS, PEAK_F32, PEAK_BF16, FIGURES };

static void peer_open(struct peer *peer, int threads)
{
    void *lib = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
    void (*set_threads)(int) = NULL;
    char *(*core)(void) = NULL;

    if (lib == NULL) return;
    *(void **)&peer->sgemm = dlsym(lib, "cblas_sgemm");
    *(void **)&set_threads = dlsym(lib, "openblas_set_num_threads");
    *(void **)&core = dlsym(lib, "openblas_get_corename");
    if (set_threads != NULL) set_threads(threads);
    snprintf(peer->name, sizeof(peer->name), "OpenBLAS sgemm (%s)", core != NULL ? core() : "unknown core");
}

/* ---- one product ------------------------------------------------------------------------------------------------- */

static void run_ours(struct bench *bench, bool bf16)
{
    size_t n = bench->size;
    struct ash_gemm_args args = {
        .M = n,
        .N = n,
        .K = n,
        .a = {bench->a, ASH_F32, n, 1},
        .b = {bf16 ? (const void *)bench->b_bf16 : bench->b, bf16 ? ASH_BF16 : ASH_F32, 1, n},
        .c = bench->c,
        .c_stride = n,
        .round_bf16 = bf16,
    };

    bench->exec.ops->matrix->gemm(&bench->exec, &args);
}

static void run_theirs(struct bench *bench)
{
    int n = (int)bench->size;

    bench->peer.sgemm(CBLAS_ROW_MAJOR, CBLAS_NO_TRANS, CBLAS_TRANS, n, n, n, 1.0f, bench->a, n, bench->b, n, 0.0f,
                      bench->c, n);
}

static void run_product(struct bench *bench, int figure)
{
    if (figure == THEIRS)
        run_theirs(bench);
    else
        run_ours(bench, figure == OURS_BF16);
}

/* 1e9 operations per second of products repeated for MEASURE_NS, after one that is not counted. */
static double measure_product(struct bench *bench, int figure)
{
    double n = (double)bench->size;
    uint64_t start, took = 0;
    size_t count = 0;

    if (figure == THEIRS && bench->peer.sgemm == NULL) return 0;
    bench_settle();
    run_product(bench, figure);
    start = ash_clock_ns();
    while (took < MEASURE_NS) {
        run_product(bench, figure);
        took = ash_clock_ns() - start;
        count++;
    }
    return 2 * n * n * n * (double)count / (double)took;
}

static double measure(struct bench *bench, int figure)
{
    if (figure < PEAK_F32) return measure_product(bench, figure);
    bench_settle();
    return bench_peak_gops(figure == PEAK_F32 ? BENCH_PEAK_F32 : BENCH_PEAK_BF16, ash_cores_usable());
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

static int add_row(const struct bench *bench, const char *kind, const char *what, double ours, const char *peer,
                   double peer_value, double goal)
{
    char name[64];

    snprintf(name, sizeof(name), "gemm/%s-%zu%s", kind, bench->size, what);
    return bench_row_add(
        bench->rows,
        &(struct bench_row){
            .name = name, .unit = "GFLOP/s", .ours = ours, .peer = peer, .peer_value = peer_value, .goal = goal});
}

static int add_rows(const struct bench *bench, const double medians[FIGURES])
{
    int rc = 0;

    for (int bf16 = 0; bf16 < 2 && rc == 0; bf16++) {
        const char *instruction = bench_peak_instruction(bf16 ? BENCH_PEAK_BF16 : BENCH_PEAK_F32);
        const char *kind = bf16 ? "bf16" : "f32";
        double ours = medians[bf16 ? OURS_BF16 : OURS_F32], peak = medians[bf16 ? PEAK_BF16 : PEAK_F32];
        char text[64];
        snprintf(text, sizeof(text), "%s peak, measured", instruction != NULL ? instruction : "no");
        rc = add_row(bench, kind, "", ours, bench->peer.sgemm != NULL ? bench->peer.name : NULL, medians[THEIRS], 0);
        if (rc == 0 && instruction != NULL) rc = add_row(bench, kind, "-peak", ours, text, peak, 0.85);
    }
    return rc;
}

static int bench_size(struct bench *bench)
{
    double values[FIGURES][BENCH_ROUNDS_MAX], medians[FIGURES];

    for (size_t round = 0; round < bench->rounds; round++)
        for (int figure = 0; figure < FIGURES; figure++)
            values[figure][round] = measure(bench, figure);
    for (int figure = 0; figure < FIGURES; figure++)
        medians[figure] = bench_median(values[figure], bench->rounds);
    /* a peak is a ceiling: whatever disturbs a measurement of it makes it smaller and a share of it larger */
    for (int kind = 0; kind < 2; kind++) {
        for (size_t round = 0; round < bench->rounds; round++)
            if (values[PEAK_F32 + kind][round] > bench->ceiling[kind])
                bench->ceiling[kind] = values[PEAK_F32 + kind][round];
        medians[PEAK_F32 + kind] = bench->ceiling[kind];
    }
    return add_rows(bench, medians);
}

static void matrices_free(struct bench *bench)
{
    ash_buffer_fini(&bench->buffer);
}

/* In memory as a model's: huge pages where the system has them. */
static int matrices_alloc(struct bench *bench)
{
    size_t count = bench->size * bench->size;
    struct ash_err err = {0};

    if (ash_buffer_init(&bench->buffer, &ash_memory_host, count * (3 * sizeof(float) + sizeof(uint16_t)), "matrices",
                        &err) < 0) {
        fprintf(stderr, "gemm: %s\n", err.text);
        return -1;
    }
    bench->a = bench->buffer.data;
    bench->b = bench->a + count;
    bench->c = bench->b + count;
    bench->b_bf16 = (uint16_t *)(bench->c + count);
    for (size_t i = 0; i < count; i++) {
        bench->a[i] = (float)ash_rng_uniform(1, 0, i) - 0.5f;
        bench->b[i] = (float)ash_rng_uniform(1, 1, i) - 0.5f;
        bench->b_bf16[i] = ash_f32_to_bf16(bench->b[i]);
    }
    return 0;
}

static int run_sizes(struct bench *bench, int count, char **sizes)
{
    for (int i = 0; i < count; i++) {
        long size = strtol(sizes[i], NULL, 10);
        int rc;
        if (size < 16 || size > SIZE_MAX_N || size % 16 != 0) {
            fprintf(stderr, "gemm: '%s' is not a multiple of 16 up to %d\n", sizes[i], SIZE_MAX_N);
            return -1;
        }
        bench->size = (size_t)size;
        rc = matrices_alloc(bench);
        if (rc == 0) rc = bench_size(bench);
        matrices_free(bench);
        if (rc < 0) return rc;
    }
    return 0;
}

int main(int argc, char **argv)
{
    struct bench bench = {.rows = argc > 1 ? argv[1] : NULL};
    struct ash_err err = {0};
    long rounds = argc > 3 ? strtol(argv[2], NULL, 10) : 0;
    int rc;

    if (rounds < 1 || rounds > BENCH_ROUNDS_MAX) {
        fprintf(stderr, "usage: gemm ROWS ROUNDS (1 to %d) SIZE...\n", BENCH_ROUNDS_MAX);
        return 2;
    }
    if (ash_exec_init(&bench.exec, NULL, 0, &err) < 0) {
        fprintf(stderr, "gemm: %s\n", err.text);
        return 1;
    }
    bench.rounds = (size_t)rounds;
    peer_open(&bench.peer, ash_cores_usable());
    rc = run_sizes(&bench, argc - 3, argv + 3);
    ash_exec_fini(&bench.exec);
    return rc < 0;
}
