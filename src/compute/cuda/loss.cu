/* loss - cross-entropy: the loss of a row of logits and, in place, its gradient. Half a warp owns a row. */
#include "compute/cuda/device.cuh"

extern "C" __global__ void cross_entropy(struct ash_cuda_loss op)
{
    size_t r = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) / ASH_LANES;
    int l = threadIdx.x % ASH_LANES;
    bool real = r < op.rows;
    int32_t target = real ? op.targets[r] : -1;
    float *x = op.logits + (real ? r : 0) * op.vocab, max = -INFINITY, lane = 0.0f, sum, at_target;

    for (size_t v = l; target >= 0 && v < op.vocab; v += ASH_LANES)
        max = x[v] > max ? x[v] : max;
    max = max_lanes(max);
    for (size_t v = l; target >= 0 && v < op.vocab; v += ASH_LANES)
        lane = lane + ash_expf(x[v] - max);
    sum = fold_lanes(lane);
    at_target = target >= 0 ? x[target] : 0.0f;
    __syncwarp();
    if (!real) return;
    if (l == 0) op.loss[r] = target >= 0 ? ash_logf(sum) - (at_target - max) : 0.0f;
    if (op.scale == 0.0f) return;
    for (size_t v = l; v < op.vocab; v += ASH_LANES) {
        float value = target >= 0 ? ash_expf(x[v] - max) * (op.scale / sum) : 0.0f;

        x[v] = target >= 0 && v == (size_t)target ? value - op.scale : value;
    }
}

/* ---- a vocabulary that is sharded -------------------------------------------------------------------------------- */

static __device__ inline float *target_of(const struct ash_loss_part &part, size_t r)
{
    size_t column = (size_t)part.targets[r] - part.first; /* of another part: beyond this one's */

    return column < part.cols ? part.logits + r * part.cols + column : NULL;
}

extern "C" __global__ void loss_part_top(struct ash_loss_part part)
{
    size_t r = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) / ASH_LANES;
    int l = threadIdx.x % ASH_LANES;
    bool counts = r < part.rows && part.targets[r] >= 0;
    float max = -INFINITY, *top = part.top + 2 * r;

    for (size_t v = l; counts && v < part.cols; v += ASH_LANES) {
        float x = part.logits[r * part.cols + v];

        max = x > max ? x : max;
    }
    max = max_lanes(max);
    if (r >= part.rows || l != 0) return;
    if (part.start) {
        top[0] = -INFINITY;
        top[1] = 0.0f;
    }
    if (!counts) return;
    top[0] = max > top[0] ? max : top[0];
    if (target_of(part, r) != NULL) top[1] = *target_of(part, r);
}

extern "C" __global__ void loss_part_sum(struct ash_loss_part part)
{
    size_t r = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) / ASH_LANES;
    int l = threadIdx.x % ASH_LANES;
    float lane;

    if (r >= part.rows) return;
    lane = part.start ? 0.0f : part.lanes[r * ASH_LANES + l];
    for (size_t v = l; part.targets[r] >= 0 && v < part.cols; v += ASH_LANES) {
        float e = ash_expf(part.logits[r * part.cols + v] - part.top[2 * r]);

        lane = lane + e;
        if (part.scale != 0.0f) part.logits[r * part.cols + v] = e;
    }
    part.lanes[r * ASH_LANES + l] = lane;
}

extern "C" __global__ void loss_part_end(struct ash_loss_part part)
{
    size_t r = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) / ASH_LANES;
    int l = threadIdx.x % ASH_LANES;
    bool real = r < part.rows, counts = real && part.targets[r] >= 0;
    float sum = fold_lanes(real ? part.lanes[r * ASH_LANES + l] : 0.0f);

    if (!real) return;
    if (l == 0) part.loss[r] = counts ? ash_logf(sum) - (part.top[2 * r + 1] - part.top[2 * r]) : 0.0f;
    if (part.scale == 0.0f) return;
    for (size_t v = l; v < part.cols; v += ASH_LANES) {
        float *x = part.logits + r * part.cols + v;
        float value = counts ? *x * (part.scale / sum) : 0.0f;

        *x = counts && x == target_of(part, r) ? value - part.scale : value;
    }
}
