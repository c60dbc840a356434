/* attn_write - what comes before attention over pages: a row's queries and keys are rotated, and its keys and values go
 * to their page of the cache. */
#include "compute/cuda/ptx/launch.cuh"
#include "compute/cuda/tile/device.cuh"

/* The document of a row. */
static __device__ inline const struct ash_cuda_attn_seq *find_seq(const struct ash_cuda_kv_write &op, size_t row)
{
    size_t low = 0, high = op.seq_count;

    while (high - low > 1) {
        size_t middle = (low + high) / 2;

        if (op.seqs[middle].q_row <= row)
            low = middle;
        else
            high = middle;
    }
    return &op.seqs[low];
}

static __device__ inline void put_page(const struct ash_cuda_kv_write &op, char *page, size_t element, float value)
{
    if (op.kv_dtype == ASH_BF16)
        ((uint16_t *)page)[element] = ash_f32_to_bf16(value);
    else
        ((float *)page)[element] = value;
}

/* Where element d of a head of a row goes: a query back, keys to a column of their page, values to a row. */
struct kv_place {
    float *q;
    char *page;
    size_t first, step;
};

static __device__ inline void put_element(const struct ash_cuda_kv_write &op, const struct kv_place &to, size_t d,
                                          float value)
{
    if (to.q != NULL)
        to.q[d] = op.round_bf16 ? ash_bf16_round(value) : value;
    else
        put_page(op, to.page, to.first + d * to.step, value);
}

/* A warp owns a head of a row: all of it is read before any of it is written. */
extern "C" __global__ void __launch_bounds__(256) attn_kv_write(const __grid_constant__ struct ash_cuda_kv_write op)
{
    size_t unit = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) / WARP, heads = op.heads + 2 * op.kv_heads;
    size_t row = unit / heads, h = unit % heads, lane = threadIdx.x % WARP, dim = op.dim, half, position;
    constexpr int EACH_MAX = ASH_ATTN_HEAD_MAX / WARP;
    struct kv_place to = {NULL, NULL, 0, 1};
    float x[EACH_MAX], partner[EACH_MAX], *at;
    const struct ash_cuda_attn_seq *seq;
    bool is_pairs = op.interleaved_in != 0;

    early_begin();
    if (row >= op.rows) {
        early_wait();
        return;
    }
    at = op.q + row * op.q_stride + h * dim;
    seq = find_seq(op, row);
    position = seq->pos + row - seq->q_row;
    half = h < op.heads + op.kv_heads ? op.dims / 2 : 0;
    if (h < op.heads) {
        to.q = at;
    } else {
        bool is_key = h < op.heads + op.kv_heads;
        size_t g = h - op.heads - (is_key ? 0 : op.kv_heads), slot = position % ASH_ATTN_BLOCK;

        to.page = (char *)op.pool + seq->pages[position / ASH_ATTN_BLOCK] * op.page_bytes;
        to.first = is_key ? op.k_page + g * dim * ASH_ATTN_BLOCK + slot : op.v_page + (g * ASH_ATTN_BLOCK + slot) * dim;
        to.step = is_key ? ASH_ATTN_BLOCK : 1;
    }
    early_wait(); /* the tables were there before the kernel before this one began; what it makes was not */
#pragma unroll
    for (int n = 0; n < EACH_MAX; n++) {
        size_t d = lane + (size_t)n * WARP;

        if (d >= dim) break;
        /* what dim d of the result is made of: the first of its pair, then the second */
        if (d < 2 * half) {
            size_t i = d < half ? d : d - half;

            x[n] = at[is_pairs ? 2 * i : i];
            partner[n] = at[is_pairs ? 2 * i + 1 : i + half];
            if (op.round_bf16) x[n] = ash_bf16_round(x[n]), partner[n] = ash_bf16_round(partner[n]);
        } else {
            x[n] = at[d];
        }
    }
    __syncwarp();
#pragma unroll
    for (int n = 0; n < EACH_MAX; n++) {
        size_t d = lane + (size_t)n * WARP;
        float value = x[n];

        if (d >= dim) break;
        if (d < 2 * half) {
            size_t i = d < half ? d : d - half, angle = (size_t)op.positions[row] * half + i;
            float cosine = op.cos[angle], sine = op.sin[angle];

            value = d < half ? fmaf(x[n], cosine, -(partner[n] * sine)) : fmaf(partner[n], cosine, x[n] * sine);
        }
        put_element(op, to, d, value);
    }
}
