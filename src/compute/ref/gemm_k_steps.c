/* Products of bf16 whose sums grow by steps of several k, as an instruction adds them: shared by the references of such
 * instructions. */
#include "compute/ref/ref_priv.h"

#include "base/assert.h"
#include "compute/gemm_parts.h"

#define STEP_MIN_ELEMENTS 64 /* outputs that share a thread */

struct steps {
    const struct ash_gemm_args *args;
    size_t group;
    ash_ref_step_fn step;
};

/* Up to one group of elements of a line as bf16 values; zeros beyond its end. */
static void read_group(const struct ash_mat *mat, size_t first, size_t stride, size_t count, size_t group, float *out)
{
    for (size_t i = 0; i < group; i++)
        out[i] = i < count ? ash_bf16_round(ref_read(mat->data, mat->dtype, first + i * stride)) : 0.0f;
}

static void steps_elements(void *ctx, size_t begin, size_t end, int worker)
{
    const struct steps *op = ctx;
    const struct ash_gemm_args *args = op->args;
    const struct ash_mat *left = &args->a, *right = &args->b;

    (void)worker;
    for (size_t unit = begin; unit < end; unit++) {
        size_t m = unit / args->N, n = unit % args->N;
        float sum = args->accumulate ? args->c[m * args->c_stride + n] : 0.0f;

        for (size_t k = 0; k < args->K; k += op->group) {
            float a[ASH_K_GROUP], b[ASH_K_GROUP];

            read_group(left, m * left->row_stride + k * left->col_stride, left->col_stride, args->K - k, op->group, a);
            read_group(right, k * right->row_stride + n * right->col_stride, right->row_stride, args->K - k, op->group,
                       b);
            sum = op->step(sum, a, b);
        }
        ash_ref_gemm_put(args, m, n, sum);
    }
}

void ash_ref_gemm_steps(struct ash_exec *exec, const struct ash_gemm_args *args, size_t group, ash_ref_step_fn step)
{
    struct steps op = {args, group, step};

    ash_assert(ASH_K_GROUP % group == 0);
    if (!args->round_bf16 || args->cut_anywhere || args->fp8 != ASH_FP8_OFF) {
        ash_ref_gemm(exec, args);
        return;
    }
    ash_gemm_check(args);
    ash_workers_run(exec->workers, args->M * args->N, STEP_MIN_ELEMENTS, steps_elements, &op);
}
