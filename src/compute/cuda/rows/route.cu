/* route - expert routing: scores of a token over experts, the best few of them, their weights, and the gradient of
 * those. A warp owns a row. */
#include "compute/cuda/tile/device.cuh"

#define NORM_FLOOR 1e-20f /* added to the sum of sigmoid weights before dividing, as deepseek does */

struct room {
    float score[ASH_ROUTE_EXPERTS_MAX], choice[ASH_ROUTE_EXPERTS_MAX], group[ASH_ROUTE_EXPERTS_MAX];
    float dscore[ASH_ROUTE_CHOICES_MAX];
    bool taken[ASH_ROUTE_EXPERTS_MAX], kept[ASH_ROUTE_EXPERTS_MAX];
};

/* Both halves of the warp add up the same lanes: fold_lanes needs all threads. */
static __device__ inline void score_row(const struct ash_route_args &args, const float *logits, float *score)
{
    int lane = threadIdx.x, l = lane % ASH_LANES;
    float max = -INFINITY, part = 0.0f, sum;

    if (args.sigmoid) {
        for (size_t e = lane; e < args.experts; e += WARP)
            score[e] = ash_sigmoidf(logits[e]);
        __syncwarp();
        return;
    }
    for (size_t e = l; e < args.experts; e += ASH_LANES)
        max = logits[e] > max ? logits[e] : max;
    max = max_lanes(max);
    for (size_t e = l; e < args.experts; e += ASH_LANES)
        part = part + ash_expf(logits[e] - max);
    sum = fold_lanes(part);
    for (size_t e = lane; e < args.experts; e += WARP)
        score[e] = ash_expf(logits[e] - max) / sum;
    __syncwarp();
}

/* Is a at index i to be taken rather than b at index j? NaN loses to everything, ties go to the lower index. */
static __device__ inline bool better(float a, size_t i, float b, size_t j)
{
    bool a_nan = a != a, b_nan = b != b;

    if (a_nan != b_nan) return b_nan;
    if (!a_nan && a != b) return a > b;
    return i < j;
}

/* The best of x[0..count) that is not yet taken; the whole warp learns and marks it. */
static __device__ inline size_t take_best(const float *x, size_t count, bool *taken)
{
    unsigned long long best = count;
    float value = 0.0f;

    for (size_t n = threadIdx.x; n < count; n += WARP)
        if (!taken[n] && (best == count || better(x[n], n, value, best))) {
            best = n;
            value = x[n];
        }
    for (int half = WARP / 2; half > 0; half /= 2) {
        unsigned long long other = __shfl_xor_sync(0xffffffffu, best, half);
        float other_value = __shfl_xor_sync(0xffffffffu, value, half);

        if (other != count && (best == count || better(other_value, other, value, best))) {
            best = other;
            value = other_value;
        }
    }
    __syncwarp();
    if (threadIdx.x == 0) taken[best] = true;
    __syncwarp();
    return best;
}

static __device__ inline void clear(bool *flags, size_t count)
{
    for (size_t n = threadIdx.x; n < count; n += WARP)
        flags[n] = false;
    __syncwarp();
}

/* Choice scores of experts outside the best groups become 0. */
static __device__ inline void mask_groups(const struct ash_route_args &args, struct room *room)
{
    size_t size = args.experts / args.groups;

    for (size_t g = 0; g < args.groups; g++) {
        const float *choice = room->choice + g * size;
        float best;

        clear(room->taken, size);
        best = choice[take_best(choice, size, room->taken)];
        if (size > 1) best = best + choice[take_best(choice, size, room->taken)];
        if (threadIdx.x == 0) room->group[g] = best;
        __syncwarp();
    }
    clear(room->kept, args.groups);
    for (size_t n = 0; n < args.top_groups; n++)
        take_best(room->group, args.groups, room->kept);
    for (size_t e = threadIdx.x; e < args.experts; e += WARP)
        if (!room->kept[e / size]) room->choice[e] = 0.0f;
    __syncwarp();
}

/* What the chosen scores are divided by. */
static __device__ inline float weight_sum(const struct ash_route_args &args, const float *score, const int32_t *index)
{
    float part = 0.0f;

    for (size_t s = threadIdx.x % ASH_LANES; s < args.choices; s += ASH_LANES)
        part = part + score[index[s]];
    part = fold_lanes(part);
    return args.normalize ? part + (args.sigmoid ? NORM_FLOOR : 0.0f) : 1.0f;
}

extern "C" __global__ void __launch_bounds__(WARP) route_forward(struct ash_route_args args)
{
    __shared__ struct room room;
    size_t r = blockIdx.x;
    int32_t *index = args.index + r * args.choices;
    float sum;

    score_row(args, args.logits + r * args.experts, room.score);
    for (size_t e = threadIdx.x; e < args.experts; e += WARP)
        room.choice[e] = args.choice_bias != NULL ? room.score[e] + args.choice_bias[e] : room.score[e];
    __syncwarp();
    if (args.groups > 1) mask_groups(args, &room);
    clear(room.taken, args.experts);
    for (size_t s = 0; s < args.choices; s++) {
        size_t best = take_best(room.choice, args.experts, room.taken);

        if (threadIdx.x == 0) index[s] = (int32_t)best;
    }
    __syncwarp();
    sum = weight_sum(args, room.score, index);
    for (size_t s = threadIdx.x; s < args.choices; s += WARP)
        args.weight[r * args.choices + s] = room.score[index[s]] / sum * args.scale;
}

extern "C" __global__ void __launch_bounds__(WARP) route_backward(struct ash_route_args args)
{
    __shared__ struct room room;
    size_t r = blockIdx.x;
    const int32_t *index = args.index + r * args.choices;
    const float *dweight = args.dweight + r * args.choices;
    float *dlogits = args.dlogits + r * args.experts, sum, part = 0.0f, mean = 0.0f, dot;

    score_row(args, args.logits + r * args.experts, room.score);
    sum = weight_sum(args, room.score, index);
    for (size_t s = threadIdx.x % ASH_LANES; s < args.choices; s += ASH_LANES)
        part = fmaf(dweight[s], room.score[index[s]], part);
    part = fold_lanes(part);
    if (args.normalize) mean = part / sum;
    for (size_t s = threadIdx.x; s < args.choices; s += WARP)
        room.dscore[s] = (dweight[s] - mean) / sum * args.scale;
    for (size_t e = threadIdx.x; e < args.experts; e += WARP)
        room.choice[e] = 0.0f;
    __syncwarp();
    for (size_t s = threadIdx.x; s < args.choices; s += WARP)
        room.choice[index[s]] = room.dscore[s];
    part = 0.0f;
    for (size_t s = threadIdx.x % ASH_LANES; s < args.choices; s += ASH_LANES)
        part = fmaf(room.dscore[s], room.score[index[s]], part);
    dot = fold_lanes(part);
    __syncwarp();
    for (size_t e = threadIdx.x; e < args.experts; e += WARP) {
        float score = room.score[e];

        dlogits[e] = args.sigmoid ? room.choice[e] * (score * (1.0f - score)) : score * (room.choice[e] - dot);
    }
}

/* A counting sort that keeps the order of pairs: a thread owns an expert and walks all pairs. */
extern "C" __global__ void __launch_bounds__(ASH_ROUTE_EXPERTS_MAX) route_group(struct ash_cuda_group op)
{
    __shared__ uint64_t start[ASH_ROUTE_EXPERTS_MAX + 1];
    size_t e = threadIdx.x, pairs = op.rows * op.choices;
    uint64_t count = 0, at;

    for (size_t i = 0; e < op.experts && i < pairs; i++)
        count += (size_t)op.index[i] == e;
    if (e < op.experts) start[e + 1] = count;
    __syncthreads();
    if (e == 0) {
        start[0] = 0;
        for (size_t n = 0; n < op.experts; n++)
            start[n + 1] += start[n];
        for (size_t n = 0; n <= op.experts; n++) {
            op.offsets[n] = start[n];
            if (op.starts != NULL) op.starts[n] = (int32_t)start[n];
        }
    }
    __syncthreads();
    if (e >= op.experts) return;
    at = start[e];
    for (size_t i = 0; i < pairs; i++) {
        if ((size_t)op.index[i] != e) continue;
        op.order[at] = (int32_t)(i / op.choices);
        op.flat[at] = (int32_t)i;
        op.where[i] = (int32_t)at++;
    }
}
