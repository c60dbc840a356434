/* attn_bf16 - attention forward with tensor cores: blocks of ASH_ATTN_BLOCK keys counted from position 0, as
 * ref/attn_wgmma.c says. A warp owns 16 query rows of one head. Its sums of scores become probabilities where they are,
 * and these the left operand of the product with values. */
#include "compute/cuda/attn/attn_bf16.cuh"

static_assert(GROUP_KEYS == ASH_ATTN_BLOCK, "a tile of keys is a block of the softmax");

/* What a thread carries of its two rows (lane / 4 and 8 more) from block to block. */
struct running {
    float max[2], sum[2];
};

/* Products of a block become probabilities; alpha gets what older sums are multiplied by. ahead: see seen_in_tile, of
 * this thread's first row. */
template <bool IS_MASKED, bool IS_FAST>
static __device__ inline void soften(const struct ash_cuda_attn &args, int ahead, float s[GROUP_KEYS / 8][4],
                                     struct running *run, float alpha[2])
{
    int q = threadIdx.x % 4;
    float scale2 = args.scale * ASH_LOG2E;

#pragma unroll
    for (int half = 0; half < 2; half++) {
        struct seen_keys seen = seen_in_tile(args, ahead + half * 8);
        bool any = !IS_MASKED || seen.begin < seen.end;
        float now = run->max[half], lanes[4] = {0.0f, 0.0f, 0.0f, 0.0f}, off, a, b;

#pragma unroll
        for (int n = 0; n < GROUP_KEYS / 8; n++)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                int j = n * 8 + q * 2 + e;
                float product = s[n][half * 2 + e];

                if ((!IS_MASKED || (j >= seen.begin && j < seen.end)) && product > now) now = product;
            }
#pragma unroll
        for (int step = 1; step < 4; step *= 2) {
            float other = __shfl_xor_sync(0xffffffffu, now, step);

            now = other > now ? other : now;
        }
        off = -(now * scale2);
        alpha[half] = any ? exp2_softmax<IS_FAST>(fmaf(run->max[half], scale2, off)) : 1.0f;
#pragma unroll
        for (int n = 0; n < GROUP_KEYS / 8; n++)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                int j = n * 8 + q * 2 + e;
                float p = exp2_softmax<IS_FAST>(fmaf(s[n][half * 2 + e], scale2, off));

                if (IS_MASKED && !(j >= seen.begin && j < seen.end)) p = 0.0f;
                s[n][half * 2 + e] = p;
                lanes[n % 2 * 2 + e] = lanes[n % 2 * 2 + e] + p;
            }
        /* ash_lanes_fold: l with l + 8, + 4, + 2, + 1. This thread has lanes 2q, 2q + 1 and those 8 above. */
        a = lanes[0] + lanes[2];
        b = lanes[1] + lanes[3];
        a = a + __shfl_xor_sync(0xffffffffu, a, 2);
        b = b + __shfl_xor_sync(0xffffffffu, b, 2);
        a = a + __shfl_xor_sync(0xffffffffu, a, 1);
        b = b + __shfl_xor_sync(0xffffffffu, b, 1);
        if (!any) continue;
        run->max[half] = now;
        run->sum[half] = fmaf(run->sum[half], alpha[half], a + b);
    }
}

/* A warp's sums of one tile of keys: scores, probabilities, and these times COLS columns of values. ahead: of the
 * warp's first row. */
template <int DIM, int COLS, bool IS_FAST>
static __device__ inline void add_tile(const struct ash_cuda_attn &args, const struct shared_tile &q,
                                       const struct shared_tile &k, const struct shared_tile &v, int cols, int ahead,
                                       struct running *run, float acc[COLS / 8][4])
{
    int row = threadIdx.x % WARP / 4;
    float s[GROUP_KEYS / 8][4], alpha[2];

    multiply_rows<GROUP_KEYS, DIM>(q, threadIdx.x / WARP * 16, k, padded<DIM>(args.dim_k), s);
    if (ahead >= GROUP_KEYS && args.window == 0) /* all of the warp's rows see all of these keys */
        soften<false, IS_FAST>(args, ahead + row, s, run, alpha);
    else
        soften<true, IS_FAST>(args, ahead + row, s, run, alpha);
#pragma unroll
    for (int n = 0; n < COLS / 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            acc[n][e] = acc[n][e] * alpha[e / 2];
    multiply_columns<GROUP_KEYS, COLS>(s, v, 0, cols, acc);
}

/* Write what a warp has summed up of its rows, of which `left` are real. */
template <int COLS>
static __device__ inline void put_rows(const struct ash_cuda_attn &args, size_t row0, int left, size_t h, size_t column,
                                       int cols, const struct running &run, const float acc[COLS / 8][4])
{
    int lane = threadIdx.x % WARP;

#pragma unroll
    for (int half = 0; half < 2; half++) {
        int r = lane / 4 + half * 8;
        size_t at = (row0 + r) * args.out_stride + h * args.dim_v + column;

        if (r >= left) continue;
#pragma unroll
        for (int n = 0; n < COLS / 8; n++)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                int d = n * 8 + lane % 4 * 2 + e;
                float value = acc[n][half * 2 + e] / run.sum[half];

                if (d >= cols) continue;
                args.out[at + d] = value;
                if (args.out_bf16 != NULL) args.out_bf16[at + d] = ash_f32_to_bf16(value);
            }
        if (args.lse != NULL && lane % 4 == 0 && column == 0)
            args.lse[(row0 + r) * args.heads + h] = fmaf(run.max[half], args.scale, ash_logf(run.sum[half]));
    }
}

/* Any dims, keys and values wherever they are. A thread block computes COLS columns of the output. */
template <int WARPS, int COLS> static __device__ inline void forward_tile(const struct ash_cuda_attn &args)
{
    DYNAMIC_SHARED(unsigned char, room, 16);
    unsigned char *at = room;
    struct ash_cuda_attn_tile tile = args.tiles[gridDim.x - 1 - blockIdx.x]; /* the longest first */
    struct ash_cuda_attn_seq seq = args.seqs[tile.seq];
    size_t h = blockIdx.y, g = h / (args.heads / args.kv_heads), column = (size_t)blockIdx.z * COLS;
    int wide = padded<0>(args.dim_k), cols = args.dim_v - column < COLS ? (int)(args.dim_v - column) : COLS;
    struct shared_tile q = take_tile(&at, WARPS * 16, wide), k = take_tile(&at, GROUP_KEYS, wide),
                       v = take_tile(&at, GROUP_KEYS, COLS);
    int row0 = threadIdx.x / WARP * 16;
    size_t first = seq.pos + tile.first, end = first + tile.count; /* positions; keys that the last row sees */
    struct running run = {{-INFINITY, -INFINITY}, {0.0f, 0.0f}};
    float acc[COLS / 8][4] = {};

    fill_queries(args, seq.q_row + tile.first, h, WARPS * 16, (int)tile.count, q);
    for (size_t base = visible_keys(args, first).begin / GROUP_KEYS * GROUP_KEYS; base < end; base += GROUP_KEYS) {
        __syncthreads();
        fill_keys<0>(args, seq, true, g, base, end, 0, wide, k);
        fill_keys<0>(args, seq, false, g, base, end, column, COLS, v);
        __syncthreads();
        if (base <= first + row0 + 15) /* else after all that this warp's rows see */
            add_tile<0, COLS, false>(args, q, k, v, cols, (int)(first + row0 + 1 - base), &run, acc);
    }
    put_rows<COLS>(args, seq.q_row + tile.first + row0, (int)tile.count - row0, h, column, cols, run, acc);
}

/* Heads of DIM dims that were copied as bf16: the next tile of keys is on its way while one is computed. */
template <int WARPS, int DIM, bool IS_FAST>
static __device__ inline void forward_copied(const struct ash_cuda_attn &args)
{
    DYNAMIC_SHARED(unsigned char, room, 16);
    unsigned char *at = room;
    struct ash_cuda_attn_tile tile = args.tiles[gridDim.x - 1 - blockIdx.x];
    struct ash_cuda_attn_seq seq = args.seqs[tile.seq];
    size_t row = seq.q_row + tile.first, kv_first = seq.kv_first, h = blockIdx.y, g = h / (args.heads / args.kv_heads);
    struct shared_tile q = take_tile(&at, WARPS * 16, DIM), k = take_tile(&at, 2 * GROUP_KEYS, DIM),
                       v = take_tile(&at, 2 * GROUP_KEYS, DIM);
    int row0 = threadIdx.x / WARP * 16, first = (int)(seq.pos + tile.first), end = first + (int)tile.count, now = 0;
    int base = (int)(visible_keys(args, first).begin / GROUP_KEYS * GROUP_KEYS);
    struct running run = {{-INFINITY, -INFINITY}, {0.0f, 0.0f}};
    float acc[DIM / 8][4] = {};

    copy_rows<DIM>(query_rows_at(args, h, row), WARPS * 16, (int)tile.count, q);
    copy_rows<DIM>(key_rows_at(args, args.k_copy, g, kv_first + base), GROUP_KEYS, end - base, k);
    copy_rows<DIM>(key_rows_at(args, args.v_copy, g, kv_first + base), GROUP_KEYS, end - base, v);
    commit_copies();
    for (; base < end; base += GROUP_KEYS, now = 1 - now) {
        int next = base + GROUP_KEYS;

        wait_copies();
        __syncthreads(); /* this tile is there, and nobody reads the one before it any more */
        if (next < end) {
            copy_rows<DIM>(key_rows_at(args, args.k_copy, g, kv_first + next), GROUP_KEYS, end - next,
                           turn_of(k, GROUP_KEYS, 1 - now));
            copy_rows<DIM>(key_rows_at(args, args.v_copy, g, kv_first + next), GROUP_KEYS, end - next,
                           turn_of(v, GROUP_KEYS, 1 - now));
            commit_copies();
        }
        if (base <= first + row0 + 15)
            add_tile<DIM, DIM, IS_FAST>(args, q, turn_of(k, GROUP_KEYS, now), turn_of(v, GROUP_KEYS, now), DIM,
                                        first + row0 + 1 - base, &run, acc);
    }
    put_rows<DIM>(args, row + row0, (int)tile.count - row0, h, 0, DIM, run, acc);
}

/* A page of one kv head's keys and values as bf16 rows: tile.first counts a document's pages, tile.count its keys. Keys
 * are columns in a page, so they pass through shared memory. */
extern "C" __global__ void __launch_bounds__(256) attn_unpage(const __grid_constant__ struct ash_cuda_attn args)
{
    __shared__ uint16_t keys[ASH_ATTN_BLOCK][ASH_CUDA_ATTN_COPIED_MAX + 2];
    struct ash_cuda_attn_tile tile = args.tiles[blockIdx.x];
    struct ash_cuda_attn_seq seq = args.seqs[tile.seq];
    size_t g = blockIdx.y, first = (size_t)tile.first * ASH_ATTN_BLOCK;
    size_t to = g * args.kv_head + (seq.kv_first + first) * args.kv_row;
    int dim = (int)args.dim_k, pairs = dim / 2;

    for (int i = threadIdx.x; i < dim * ASH_ATTN_BLOCK; i += blockDim.x) {
        int d = i / ASH_ATTN_BLOCK, j = i % ASH_ATTN_BLOCK;

        if (j < (int)tile.count) keys[j][d] = ash_f32_to_bf16(read_key(args, seq, first + j, g, d));
    }
    __syncthreads();
    for (int i = threadIdx.x; i < (int)tile.count * pairs; i += blockDim.x) {
        int j = i / pairs, d = i % pairs * 2;
        size_t at = to + j * args.kv_row + d;

        *(uint32_t *)((uint16_t *)args.k_copy + at) = keys[j][d] | (uint32_t)keys[j][d + 1] << 16;
        *(uint32_t *)((uint16_t *)args.v_copy + at) =
            pack_bf16(read_value(args, seq, first + j, g, d), read_value(args, seq, first + j, g, d + 1));
    }
}

/* Float32 heads as bf16 copies, [heads, rows, dim]: blockIdx.y counts the heads of q, k, v and dout in turn, from
 * first_copy on. */
extern "C" __global__ void __launch_bounds__(256) attn_copy(const __grid_constant__ struct ash_cuda_attn args)
{
    struct ash_cuda_attn_tile tile = args.tiles[blockIdx.x];
    struct ash_cuda_attn_seq seq = args.seqs[tile.seq];
    size_t y = blockIdx.y + args.first_copy, head = y, row = seq.q_row + tile.first, dim = args.dim_k;
    size_t stride = args.q_stride;
    const float *from = args.q + row * stride;
    uint16_t *to = args.copies;

    if (y >= args.heads + 2 * args.kv_heads) {
        head = y - args.heads - 2 * args.kv_heads;
        stride = args.out_stride;
        from = args.dout + row * stride;
        to = args.dout_copy;
    } else if (y >= args.heads) {
        bool is_key = y < args.heads + args.kv_heads;

        head = is_key ? y - args.heads : y - args.heads - args.kv_heads;
        stride = is_key ? args.k_stride : args.v_stride;
        from = (const float *)(is_key ? seq.k : seq.v) + tile.first * stride;
        to = args.copies + (args.heads + (is_key ? 0 : args.kv_heads)) * args.rows * dim;
    }
    from += head * dim;
    to += (head * args.rows + row) * dim;
    for (int i = threadIdx.x; i < tile.count * (int)dim / 2; i += blockDim.x) {
        int r = i * 2 / (int)dim, d = i * 2 % (int)dim;

        *(uint32_t *)(to + i * 2) = pack_bf16(from[r * stride + d], from[r * stride + d + 1]);
    }
}

#define COPIED(DIM, ARITHMETIC, IS_FAST, BLOCKS)                                                                       \
    extern "C" __global__ void __launch_bounds__(ASH_CUDA_ATTN_WARPS *WARP, BLOCKS)                                    \
        attn_##ARITHMETIC##_forward_##DIM(const __grid_constant__ struct ash_cuda_attn args)                           \
    {                                                                                                                  \
        forward_copied<ASH_CUDA_ATTN_WARPS, DIM, IS_FAST>(args);                                                       \
    }

COPIED(64, bf16, false, 2)
COPIED(128, bf16, false, 1)
COPIED(64, fast, true, 2)
COPIED(128, fast, true, 1)

extern "C" __global__ void __launch_bounds__(ASH_CUDA_ATTN_WARPS_ANY *WARP, 1)
    attn_bf16_forward_any(const __grid_constant__ struct ash_cuda_attn args)
{
    forward_tile<ASH_CUDA_ATTN_WARPS_ANY, ASH_CUDA_ATTN_COLS>(args);
}
