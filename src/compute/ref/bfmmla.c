/* The reference of backends that multiply bf16 with BFMMLA: the reference backend but for those products. It runs
 * everywhere, so any machine can check, slowly, what an arm64 one computed. */
#include "compute/ref/bfmmla.h"

#include "base/assert.h"
#include "compute/ref/ref_priv.h"

#define GEMM_MIN_ELEMENTS 64 /* outputs that share a thread */

/* Up to four elements of a line as bf16 values; zeros beyond its end. */
static void read_group(const struct ash_mat *mat, size_t first, size_t step, size_t count, float out[BFMMLA_GROUP])
{
    for (size_t i = 0; i < BFMMLA_GROUP; i++)
        out[i] = i < count ? ash_bf16_round(ref_read(mat->data, mat->dtype, first + i * step)) : 0.0f;
}

static void gemm_elements(void *ctx, size_t begin, size_t end, int worker)
{
    const struct ash_gemm_args *args = ctx;

    (void)worker;
    for (size_t unit = begin; unit < end; unit++) {
        size_t m = unit / args->N, n = unit % args->N;
        float *c = &args->c[m * args->c_stride + n];
        float sum = args->accumulate ? *c : 0.0f;

        for (size_t k = 0; k < args->K; k += BFMMLA_GROUP) {
            float a[BFMMLA_GROUP], b[BFMMLA_GROUP];

            read_group(&args->a, m * args->a.row_stride + k * args->a.col_stride, args->a.col_stride, args->K - k, a);
            read_group(&args->b, k * args->b.row_stride + n * args->b.col_stride, args->b.row_stride, args->K - k, b);
            sum = bfmmla_step(sum, a, b);
        }
        *c = args->bias != NULL ? sum + args->bias[n] : sum;
    }
}

static void gemm(struct ash_exec *exec, const struct ash_gemm_args *args)
{
    if (!args->round_bf16 || args->cut_anywhere) {
        ash_ref_gemm(exec, args);
        return;
    }
    ash_assert(args->bias == NULL || !args->accumulate);
    ash_workers_run(exec->workers, args->M * args->N, GEMM_MIN_ELEMENTS, gemm_elements, (void *)args);
}

static const struct ash_matrix_ops bfmmla_matrix = {
    .gemm = gemm, .quant_gemm = ash_ref_quant_gemm, .project = ash_ref_project, .column_sum = ash_ref_column_sum};

const struct ash_ops ash_ops_ref_bfmmla = {
    .name = "ref-bfmmla",
    .reference = &ash_ops_ref_bfmmla,
    .matrix = &bfmmla_matrix,
    .embed = &ash_ref_embed,
    .norm = &ash_ref_norm,
    .rope = &ash_ref_rope,
    .attn = &ash_ref_attn,
    .act = &ash_ref_act,
    .row = &ash_ref_row,
    .loss = &ash_ref_loss,
    .route = &ash_ref_route,
    .optim = &ash_ref_optim,
};
