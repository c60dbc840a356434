/* The trainer's memory by formula: state, partial sums of gradients, activations by recomputation, the program. */
#include "plan/own_memory.h"

#include <math.h>

#define FLOAT_BYTES 4.0
#define PIECE_BYTES 67108864.0 /* of logits that are made at once */
#define PIECE_ROWS_MIN 16.0
#define PROGRAM_BYTES 7340032.0
#define THREAD_BYTES 1048576.0

/* Floats that a row keeps per layer, and shares between layers. */
static void row_floats(const struct ash_shape *s, enum ash_own_recompute recompute, double *kept_out,
                       double *shared_out)
{
    double a = s->heads * s->head_dim, q = a + 2 * s->kv_heads * s->head_dim, c = s->hidden, w = s->gated ? 3 : 2;
    double sparse = s->sparse_layers / s->layers;
    /* the mean layer's width: experts count by the rows that visit them */
    double f = (1 - sparse) * s->ffn + sparse * (s->choices * s->expert_ffn + s->shared_ffn);
    double routed = sparse * 2 * s->choices * c; /* rows as the experts see them, and what they return */

    if (recompute == ASH_OWN_NONE) {
        *kept_out = 4 * c + q + a + w * f + routed;
        *shared_out = 0;
    } else if (recompute == ASH_OWN_SELECTIVE) {
        *kept_out = 2 * c + q + a + (w - 1) * f + routed;
        *shared_out = 2 * c + f;
    } else {
        *kept_out = c;
        *shared_out = 3 * c + q + a + w * f + routed;
    }
}

static double activation_bytes(const struct ash_shape *s, const struct ash_own_run *run)
{
    double rows = run->micro_batch * run->seq_tokens, kept, shared, width;
    double a = s->heads * s->head_dim, q = a + 2 * s->kv_heads * s->head_dim, w = s->gated ? 3 : 2;
    double most = fmax(PIECE_ROWS_MIN, floor(PIECE_BYTES / (FLOAT_BYTES * s->vocab)));
    double piece = PIECE_ROWS_MIN * ceil(rows / ceil(rows / most) / PIECE_ROWS_MIN);
    double back;

    row_floats(s, run->recompute, &kept, &shared);
    width = s->dense_layers > 0 ? s->ffn : s->choices * s->expert_ffn + s->shared_ffn;
    back = rows * (shared + a + q + w * width); /* logits lie in the same place, before */
    return FLOAT_BYTES * (rows * (s->layers * kept + 5 * s->hidden) + fmax(back, piece * s->vocab));
}

bool ash_own_memory_of(const struct ash_shape *shape, const struct ash_own_run *run, struct ash_own_memory *memory_out)
{
    double params = ash_shape_params(shape), summed = params + (shape->tied ? shape->hidden * shape->vocab : 0);
    struct ash_own_memory memory;

    if (shape->kv_rank > 0 || shape->ssm_layers > 0) return false;
    memory.state = params * (run->bf16 ? 14 : 12);
    memory.gradients = FLOAT_BYTES * summed * (floor(log2(fmax(1, run->grains))) + 1);
    memory.activations = activation_bytes(shape, run);
    memory.program = PROGRAM_BYTES + run->threads * THREAD_BYTES;
    memory.total = memory.state + memory.gradients + memory.activations + memory.program;
    *memory_out = memory;
    return true;
}
