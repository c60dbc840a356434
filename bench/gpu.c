/* gpu - how fast the GPU's ops are on the shapes of real models: one line of JSON per measurement, with what
 * the op must at least read and write (bytes) and compute (operations). Inputs are drawn; the median of several
 * timed runs counts. usage: build/bench/gpu [PATTERN]      prints {"op": ..., "shape": ..., "ms": ...,
 * "tflops": ..., "gb_s": ...} */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/assert.h"
#include "base/bf16.h"
#include "base/rng.h"
#include "compute/cuda/backend.h"
#include "compute/ops.h"
#include "infra/device/cuda.h"

#define WARM_UPS 3
#define ROUNDS 9
#define BUFFERS_MAX 16
#define DRAWN ((size_t)1 << 20) /* values that are drawn; larger buffers repeat them */

/* One measured op: run enqueues it once. */
struct work {
    struct ash_exec *exec;
    void *buffers[BUFFERS_MAX];
    size_t buffer_count;
    const struct shape *shape;
    bool round_bf16;
};

struct shape {
    const char *name;
    size_t M, N, K; /* rows, outputs, inputs; for attention: documents, heads, tokens; for row ops: rows, -, columns */
};

/* Device memory of count values of dtype (F32 or BF16), drawn from a normal distribution. */
static void *draw(struct work *work, enum ash_dtype dtype, size_t count)
{
    size_t bytes = ash_dtype_bytes(dtype), drawn = count < DRAWN ? count : DRAWN;
    double *normals = malloc(drawn * sizeof(*normals));
    char *host = malloc(drawn * bytes), *device = ash_memory_cuda.alloc(count * bytes);

    ash_assert(normals != NULL && host != NULL && device != NULL && work->buffer_count < BUFFERS_MAX);
    ash_rng_normals(1, work->buffer_count, 0, normals, drawn);
    for (size_t i = 0; i < drawn; i++) {
        float value = (float)normals[i];
        uint16_t half = ash_f32_to_bf16(value);

        memcpy(host + i * bytes, dtype == ASH_F32 ? (void *)&value : (void *)&half, bytes);
    }
    for (size_t at = 0; at < count; at += drawn)
        ash_memory_cuda.copy(device + at * bytes, host, (count - at < drawn ? count - at : drawn) * bytes);
    free(normals);
    free(host);
    work->buffers[work->buffer_count++] = device;
    return device;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* The median time of one run, in milliseconds. */
static double measure(struct work *work, void (*run)(struct work *work))
{
    struct ash_cuda *cuda = ash_cuda_backend_device(work->exec->cuda);
    struct ash_err err = {0};
    double ms[ROUNDS];

    for (int i = 0; i < WARM_UPS; i++)
        run(work);
    for (int i = 0; i < ROUNDS; i++) {
        ash_cuda_mark(cuda, 0);
        run(work);
        ash_cuda_mark(cuda, 1);
        ms[i] = ash_cuda_mark_ms(cuda, 0, 1);
    }
    if (ash_exec_wait(work->exec, &err) < 0) {
        fprintf(stderr, "gpu: %s\n", err.text);
        exit(1);
    }
    qsort(ms, ROUNDS, sizeof(*ms), by_value);
    for (size_t i = 0; i < work->buffer_count; i++)
        ash_memory_cuda.free(work->buffers[i], 0);
    return ms[ROUNDS / 2];
}

static void print_row(const char *op, const struct shape *shape, double ms, double operations, double bytes)
{
    printf(
        "{\"op\": \"%s\", \"name\": \"%s\", \"shape\": [%zu, %zu, %zu], \"ms\": %.4f, \"tflops\": %.1f, \"gb_s\": %.0f}\n",
        op, shape->name, shape->M, shape->N, shape->K, ms, operations / ms / 1e9, bytes / ms / 1e6);
    fflush(stdout);
}

/* ---- products ---------------------------------------------------------------------------------------------------- */

static const struct shape products[] = {
    {"162M qkv", 32768, 2304, 768},  {"162M up", 32768, 3072, 768},    {"162M down", 32768, 768, 3072},
    {"1.5B qkv", 16384, 6144, 2048}, {"1.5B up", 16384, 16384, 2048},  {"1.5B down", 16384, 2048, 8192},
    {"8B decode 1", 1, 4096, 4096},  {"8B decode 64", 64, 4096, 4096}, {"8B decode 256", 256, 28672, 4096},
    {"square", 4096, 4096, 4096},
};

/* Forward: x [M, K] and w [N, K]; of one dtype each. */
static void run_forward(struct work *work, enum ash_dtype x_dtype, enum ash_dtype w_dtype, bool round_bf16)
{
    const struct shape *s = work->shape;
    struct ash_gemm_args args = {.M = s->M,
                                 .N = s->N,
                                 .K = s->K,
                                 .a = {work->buffers[0], x_dtype, s->K, 1},
                                 .b = {work->buffers[1], w_dtype, 1, s->K},
                                 .c = work->buffers[2],
                                 .c_stride = s->N,
                                 .round_bf16 = round_bf16};

    work->exec->ops->matrix->gemm(work->exec, &args);
}

static void run_f32(struct work *work)
{
    run_forward(work, ASH_F32, ASH_F32, false);
}

static void run_bf16(struct work *work)
{
    run_forward(work, ASH_BF16, ASH_BF16, true);
}

static void run_rounded(struct work *work)
{
    run_forward(work, ASH_F32, ASH_BF16, true);
}

/* The gradient of w: dy^T x, a sum over rows that continues from the values there. */
static void run_wgrad(struct work *work)
{
    const struct shape *s = work->shape;
    struct ash_gemm_args args = {.M = s->N,
                                 .N = s->K,
                                 .K = s->M,
                                 .a = {work->buffers[2], ASH_F32, 1, s->N},
                                 .b = {work->buffers[0], ASH_F32, s->K, 1},
                                 .c = work->buffers[1],
                                 .c_stride = s->K,
                                 .accumulate = true,
                                 .round_bf16 = true};

    work->exec->ops->matrix->gemm(work->exec, &args);
}

static const struct product_kind {
    const char *op;
    enum ash_dtype x, w;
    void (*run)(struct work *work);
} product_kinds[] = {
    {"gemm_f32", ASH_F32, ASH_F32, run_f32},
    {"gemm_bf16", ASH_BF16, ASH_BF16, run_bf16},
    {"gemm_bf16_from_f32", ASH_F32, ASH_BF16, run_rounded},
    {"wgrad_bf16_from_f32", ASH_F32, ASH_F32, run_wgrad},
};

static void measure_products(struct ash_exec *exec, const struct product_kind *kind)
{
    for (size_t i = 0; i < ASH_COUNT(products); i++) {
        const struct shape *s = &products[i];
        struct work work = {.exec = exec, .shape = s};
        double bytes = (double)(s->M * s->K * ash_dtype_bytes(kind->x) + s->N * s->K * ash_dtype_bytes(kind->w) +
                                s->M * s->N * sizeof(float));

        draw(&work, kind->x, s->M * s->K);
        draw(&work, kind->w, s->N * s->K);
        draw(&work, ASH_F32, s->M * s->N);
        print_row(kind->op, s, measure(&work, kind->run), 2.0 * (double)s->M * (double)s->N * (double)s->K, bytes);
    }
}

/* ---- attention --------------------------------------------------------------------------------------------------- */

static const struct shape documents[] = {{"162M", 32, 12, 1024}, {"1.5B", 4, 16, 4096}};

#define HEAD_DIM 64
#define DOCUMENTS_MAX 64

static void run_attention(struct work *work, bool backward)
{
    const struct shape *s = work->shape;
    size_t row = s->N * HEAD_DIM;
    struct ash_attn_seq seqs[DOCUMENTS_MAX];
    struct ash_attn_args args = {.heads = s->N,
                                 .kv_heads = s->N,
                                 .dim_k = HEAD_DIM,
                                 .dim_v = HEAD_DIM,
                                 .scale = 0.125f,
                                 .round_bf16 = work->round_bf16,
                                 .kv_dtype = ASH_F32,
                                 .q_stride = row,
                                 .k_stride = row,
                                 .v_stride = row,
                                 .out_stride = row,
                                 .q = work->buffers[0],
                                 .out = work->buffers[3],
                                 .lse = work->buffers[4],
                                 .seqs = seqs,
                                 .seq_count = s->M,
                                 .dout = work->buffers[5],
                                 .dq = work->buffers[6]};

    for (size_t d = 0; d < s->M; d++)
        seqs[d] = (struct ash_attn_seq){.q_row = d * s->K,
                                        .q_count = s->K,
                                        .k = (float *)work->buffers[1] + d * s->K * row,
                                        .v = (float *)work->buffers[2] + d * s->K * row,
                                        .dk = (float *)work->buffers[7] + d * s->K * row,
                                        .dv = (float *)work->buffers[8] + d * s->K * row};
    if (backward)
        work->exec->ops->attn->backward(work->exec, &args);
    else
        work->exec->ops->attn->forward(work->exec, &args);
}

static void run_attn_forward(struct work *work)
{
    run_attention(work, false);
}

static void run_attn_backward(struct work *work)
{
    run_attention(work, true);
}

static void measure_attention(struct ash_exec *exec, const char *op, bool backward, bool round_bf16)
{
    for (size_t i = 0; i < ASH_COUNT(documents); i++) {
        const struct shape *s = &documents[i];
        struct work work = {.exec = exec, .shape = s, .round_bf16 = round_bf16};
        size_t values = s->M * s->K * s->N * HEAD_DIM;
        double operations = (backward ? 5.0 : 2.0) * (double)values * (double)s->K; /* causal: half of all pairs */

        for (int b = 0; b < 9; b++)
            draw(&work, ASH_F32, b == 4 ? s->M * s->K * s->N : values);
        run_attn_forward(&work); /* backward reads its log-sums */
        print_row(op, s, measure(&work, backward ? run_attn_backward : run_attn_forward), operations,
                  (backward ? 8.0 : 4.0) * (double)values * sizeof(float));
    }
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

static const struct shape rows[] = {{"162M", 32768, 0, 768}, {"1.5B", 16384, 0, 2048}};

static struct ash_norm_args norm_args(const struct work *work)
{
    const struct shape *s = work->shape;

    return (struct ash_norm_args){.rows = s->M,
                                  .groups = 1,
                                  .cols = s->K,
                                  .x_stride = s->K,
                                  .y_stride = s->K,
                                  .x = work->buffers[0],
                                  .weight = work->buffers[2],
                                  .eps = 1e-5f};
}

static void run_rms(struct work *work)
{
    struct ash_norm_args args = norm_args(work);

    args.y = work->buffers[1];
    work->exec->ops->norm->rms_forward(work->exec, &args);
}

/* With its weight's gradient, as a residual stream has it. */
static void run_rms_backward(struct work *work)
{
    struct ash_norm_args args = norm_args(work);

    args.rstd = work->buffers[3];
    args.dy = work->buffers[1];
    args.dx = work->buffers[4];
    args.dx_add = true;
    args.dweight = work->buffers[2];
    work->exec->ops->norm->rms_backward(work->exec, &args);
}

static void run_adamw(struct work *work)
{
    const struct shape *s = work->shape;
    const struct ash_adamw_range all = {.count = s->M * s->K, .weight_decay = 0.1f};
    struct ash_adamw_args args = {.ranges = &all,
                                  .range_count = 1,
                                  .param = work->buffers[0],
                                  .m = work->buffers[1],
                                  .v = work->buffers[3],
                                  .param_out = work->buffers[0],
                                  .m_out = work->buffers[1],
                                  .v_out = work->buffers[3],
                                  .grad = work->buffers[4],
                                  .grad_scale = 1.0f,
                                  .lr = 1e-3f,
                                  .beta1 = 0.9f,
                                  .beta2 = 0.95f,
                                  .eps = 1e-8f,
                                  .correction1 = 0.1f,
                                  .correction2 = 0.05f};

    work->exec->ops->optim->adamw(work->exec, &args);
}

static void measure_rows(struct ash_exec *exec, const char *op, void (*run)(struct work *work), double floats_moved)
{
    for (size_t i = 0; i < ASH_COUNT(rows); i++) {
        const struct shape *s = &rows[i];
        struct work work = {.exec = exec, .shape = s};

        for (int b = 0; b < 5; b++)
            draw(&work, ASH_F32, s->M * s->K);
        print_row(op, s, measure(&work, run), 0.0, floats_moved * (double)(s->M * s->K) * sizeof(float));
    }
}

static bool wanted(const char *pattern, const char *op)
{
    return pattern == NULL || strstr(op, pattern) != NULL;
}

int main(int argc, char **argv)
{
    const char *pattern = argc > 1 ? argv[1] : NULL;
    struct ash_exec exec;
    struct ash_err err = {0};

    if (ash_exec_init(&exec, "cuda", 1, &err) < 0) {
        fprintf(stderr, "gpu: %s\n", err.text);
        return 77;
    }
    for (size_t i = 0; i < ASH_COUNT(product_kinds); i++)
        if (wanted(pattern, product_kinds[i].op)) measure_products(&exec, &product_kinds[i]);
    if (wanted(pattern, "attn_forward_f32")) measure_attention(&exec, "attn_forward_f32", false, false);
    if (wanted(pattern, "attn_backward_f32")) measure_attention(&exec, "attn_backward_f32", true, false);
    if (wanted(pattern, "attn_forward_bf16")) measure_attention(&exec, "attn_forward_bf16", false, true);
    if (wanted(pattern, "attn_backward_bf16")) measure_attention(&exec, "attn_backward_bf16", true, true);
    if (wanted(pattern, "rms_forward")) measure_rows(&exec, "rms_forward", run_rms, 2.0);
    if (wanted(pattern, "rms_backward")) measure_rows(&exec, "rms_backward", run_rms_backward, 4.0);
    if (wanted(pattern, "adamw")) measure_rows(&exec, "adamw", run_adamw, 7.0);
    ash_exec_fini(&exec);
    return 0;
}
