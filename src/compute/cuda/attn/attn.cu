/* attn - attention forward: blocks of ASH_ATTN_BLOCK keys counted from position 0, one running maximum per query row.
 * A thread block owns ATTN_ROWS query rows of one head; half a warp owns a row, so that its threads are the row's lanes
 * and each carries every 16th column of the output. */
#include "compute/cuda/attn/attn.cuh"

/* V_EACH columns of the output for each thread. */
template <int V_EACH> static __device__ inline void forward_tile(const struct ash_cuda_attn &args)
{
    DYNAMIC_SHARED(float, shared, 4);
    struct ash_cuda_attn_tile tile = args.tiles[blockIdx.x];
    struct ash_cuda_attn_seq seq = args.seqs[tile.seq];
    size_t h = blockIdx.y, g = h / (args.heads / args.kv_heads),
           wide = args.dim_k > args.dim_v ? args.dim_k : args.dim_v;
    float *kv = shared, *q = kv + ASH_ATTN_BLOCK * (wide + 1), *p = q + ATTN_ROWS * (args.dim_k + 1);
    int r = threadIdx.x / ASH_LANES, l = threadIdx.x % ASH_LANES;
    bool real = r < tile.count;
    struct keys seen = visible_keys(args, seq.pos + tile.first + (real ? r : 0));
    struct keys first_row = visible_keys(args, seq.pos + tile.first);
    size_t end = seq.pos + tile.first + tile.count; /* keys that the last row sees */
    float max = -INFINITY, sum = 0.0f, acc[V_EACH];

    for (int i = 0; i < V_EACH; i++)
        acc[i] = 0.0f;
    load_rows(args.q, args.q_stride, seq.q_row + tile.first, h * args.dim_k, args.dim_k, tile.count, q);
    for (size_t base = first_row.begin / ASH_ATTN_BLOCK * ASH_ATTN_BLOCK; base < end; base += ASH_ATTN_BLOCK) {
        struct keys keys = keys_within(seen, base, ASH_ATTN_BLOCK);
        bool any = real && keys.begin < keys.end;
        float score[ASH_ATTN_BLOCK / ASH_LANES], now = max, alpha, lane = 0.0f;

        __syncthreads();
        load_keys(args, seq, g, base, end, ASH_ATTN_BLOCK, kv);
        __syncthreads();
#pragma unroll
        for (int i = 0; i < ASH_ATTN_BLOCK / ASH_LANES; i++) {
            size_t j = base + l + i * ASH_LANES;

            score[i] = 0.0f;
            if (!any || j < keys.begin || j >= keys.end) continue;
            score[i] = score_of(args, q + r * (args.dim_k + 1), kv + (j - base) * (args.dim_k + 1));
            now = score[i] > now ? score[i] : now;
        }
        now = max_lanes(now);
        alpha = ash_expf(max - now);
#pragma unroll
        for (int i = 0; i < ASH_ATTN_BLOCK / ASH_LANES; i++) {
            size_t j = base + l + i * ASH_LANES;
            float e = any && j >= keys.begin && j < keys.end ? ash_expf(score[i] - now) : 0.0f;

            lane = lane + e;
            p[r * ASH_ATTN_BLOCK + l + i * ASH_LANES] = e;
        }
        lane = fold_lanes(lane);
        __syncthreads();
        load_values(args, seq, g, base, end, ASH_ATTN_BLOCK, kv);
        __syncthreads();
        if (!any) continue;
        max = now;
        sum = fmaf(sum, alpha, lane);
#pragma unroll
        for (int i = 0; i < V_EACH; i++)
            acc[i] = acc[i] * alpha;
        for (size_t j = keys.begin; j < keys.end; j++) {
            float weight = p[r * ASH_ATTN_BLOCK + j - base];
            const float *v = kv + (j - base) * (args.dim_v + 1);

#pragma unroll
            for (int i = 0; i < V_EACH; i++)
                if (l + i * ASH_LANES < args.dim_v) acc[i] = fmaf(weight, v[l + i * ASH_LANES], acc[i]);
        }
    }
    if (!real) return;
    for (int i = 0; i < V_EACH; i++)
        if (l + i * ASH_LANES < args.dim_v)
            args.out[(seq.q_row + tile.first + r) * args.out_stride + h * args.dim_v + l + i * ASH_LANES] =
                acc[i] / sum;
    if (args.lse != NULL && l == 0) args.lse[(seq.q_row + tile.first + r) * args.heads + h] = max + ash_logf(sum);
}

#define FORWARD(NAME, V_EACH)                                                                                          \
    extern "C" __global__ void __launch_bounds__(ATTN_THREADS) NAME(const __grid_constant__ struct ash_cuda_attn args) \
    {                                                                                                                  \
        forward_tile<V_EACH>(args);                                                                                    \
    }

FORWARD(attn_forward_64, 4)
FORWARD(attn_forward_128, 8)
FORWARD(attn_forward_256, 16)
FORWARD(attn_forward_512, 32)
