/* cost: of the ops that take most of the time. */
#include "compute/profile/cost.h"

#include <math.h>

static struct ash_op_cost gemm_cost(const struct ash_gemm_args *args)
{
    double a = (double)args->M * (double)args->K * (double)ash_dtype_bytes(args->a.dtype),
           b = (double)args->K * (double)args->N * (double)ash_dtype_bytes(args->b.dtype),
           c = (double)args->M * (double)args->N *
               (double)((args->c_bf16 != NULL ? sizeof(uint16_t) : sizeof(float)) +
                        (args->accumulate || args->add != NULL ? sizeof(float) : 0));

    return (struct ash_op_cost){a + b + c, 2.0 * (double)args->M * (double)args->N * (double)args->K, args->M, args->N,
                                args->K};
}

static struct ash_op_cost quant_cost(const struct ash_quant_args *args)
{
    double w = (double)ash_dtype_size(args->dtype, args->N * args->K), x = (double)args->M * (double)args->K,
           y = (double)args->M * (double)args->N;

    return (struct ash_op_cost){w + sizeof(float) * (x + y), 2.0 * y * (double)args->K, args->M, args->N, args->K};
}

static struct ash_op_cost project_cost(const struct ash_project_args *args)
{
    struct ash_op_cost cost = {(double)args->M * (double)args->K * sizeof(float), 0, args->M, 0, args->K};

    for (size_t i = 0; i < args->out_count; i++) {
        const struct ash_weight *w = &args->outs[i].w;

        cost.bytes +=
            (double)ash_dtype_size(w->mat.dtype, w->N * args->K) + (double)args->M * (double)w->N * sizeof(float);
        cost.N += w->N;
        cost.flops += 2.0 * (double)args->M * (double)w->N * (double)args->K;
    }
    return cost;
}

/* Keys that the queries of a document see, added up. */
static double pairs_of(const struct ash_attn_args *args, const struct ash_attn_seq *seq)
{
    double all = (double)seq->q_count * ((double)seq->pos + ((double)seq->q_count + 1) / 2);
    double window = args->window > 0 ? (double)seq->q_count * (double)args->window : all;

    return fmin(all, window);
}

static struct ash_op_cost attn_cost(const struct ash_attn_args *args, double products)
{
    double flops = 0;

    for (size_t i = 0; i < args->seq_count; i++)
        flops += products * (double)args->heads * pairs_of(args, &args->seqs[i]) * (double)(args->dim_k + args->dim_v);
    return (struct ash_op_cost){.flops = flops};
}

/* floats: read and written, per element. */
static struct ash_op_cost update_cost(const struct ash_adamw_args *args, size_t floats)
{
    size_t bytes = floats * sizeof(float) + (args->param_bf16 != NULL ? sizeof(uint16_t) : 0), count = 0;

    for (size_t r = 0; r < args->range_count; r++)
        count += args->ranges[r].count;
    return (struct ash_op_cost){.bytes = (double)count * (double)bytes};
}

/* forward: x and y; backward: x, dy and dx. */
static struct ash_op_cost norm_cost(const struct ash_norm_args *args, double passes)
{
    return (struct ash_op_cost){.bytes = passes * sizeof(float) * (double)args->rows * (double)args->groups *
                                         (double)args->cols};
}

struct ash_op_cost ash_op_cost_of(enum ash_op_id id, const void *args)
{
    switch (id) {
    case ASH_OP_matrix_gemm:
        return gemm_cost(args);
    case ASH_OP_matrix_quant_gemm:
        return quant_cost(args);
    case ASH_OP_matrix_project:
        return project_cost(args);
    case ASH_OP_attn_forward:
        return attn_cost(args, 2);
    case ASH_OP_attn_backward:
        return attn_cost(args, 5);
    case ASH_OP_optim_adamw:
        return update_cost(args, 7);
    case ASH_OP_optim_lion:
        return update_cost(args, 5);
    case ASH_OP_norm_rms_forward:
    case ASH_OP_norm_layer_forward:
        return norm_cost(args, 2);
    case ASH_OP_norm_rms_backward:
    case ASH_OP_norm_layer_backward:
        return norm_cost(args, 3);
    default:
        return (struct ash_op_cost){0};
    }
}
