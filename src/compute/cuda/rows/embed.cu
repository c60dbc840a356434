/* embed - rows of a table by token id, and the gradient back into the table. */
#include "compute/cuda/quant/quant_types.cuh"

static __device__ inline float table_read(const void *table, int dtype, size_t index)
{
    size_t block_bytes = dtype == ASH_Q4_0 ? 18 : 34, at = index % ASH_QUANT_BLOCK;
    const uint8_t *block;
    int q;

    if (is_open(dtype)) {
        block = (const uint8_t *)table + index / file_block(dtype) * file_block_bytes(dtype);
        return open_value(block, dtype, (int)(index % file_block(dtype)));
    }
    if (dtype != ASH_Q8_0 && dtype != ASH_Q8_W && dtype != ASH_Q4_0) return read_element(table, dtype, index);
    block = (const uint8_t *)table + index / ASH_QUANT_BLOCK * block_bytes;
    if (dtype == ASH_Q4_0)
        q = at < 16 ? (block[2 + at] & 15) - 8 : (block[2 + at - 16] >> 4) - 8;
    else
        q = (int8_t)block[2 + at];
    return __half2float(*(const __half *)block) * (float)q;
}

extern "C" __global__ void embed_gather(struct ash_cuda_embed op)
{
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < op.rows * op.cols;
         i += (size_t)gridDim.x * blockDim.x) {
        float value = table_read(op.table, op.dtype, (size_t)op.ids[i / op.cols] * op.cols + i % op.cols);

        op.out[i] = op.add ? op.out[i] + value : value;
    }
}

/* ---- rows sorted by id ------------------------------------------------------------------------------------------- */

#define SORT_WARPS (ASH_CUDA_EMBED_SORT_THREADS / WARP)
#define DIGIT_BITS 8
#define DIGITS (1 << DIGIT_BITS)
#define ALL_LANES 0xffffffffu

/* Each warp has neighbouring positions of the sorted rows: [first, end). */
static __device__ inline void own_positions(size_t rows, size_t *first, size_t *end)
{
    size_t each = (rows + SORT_WARPS - 1) / SORT_WARPS;

    *first = min(threadIdx.x / WARP * each, rows);
    *end = min(*first + each, rows);
}

/* A digit of this lane's id; which lanes of the warp have the same one (0: this lane has none). */
struct digit {
    int value, row;
    unsigned same;
};

static __device__ inline struct digit digit_at(const struct ash_cuda_embed &op, const int32_t *from, int shift,
                                               size_t position, size_t end)
{
    bool inside = position < end;
    unsigned there = __ballot_sync(ALL_LANES, inside);
    struct digit digit = {0, 0, 0};

    if (!inside) return digit;
    digit.row = from != NULL ? from[position] : (int)position;
    digit.value = op.ids[digit.row] >> shift & (DIGITS - 1);
    digit.same = __match_any_sync(there, digit.value);
    return digit;
}

/* Is this lane the first with its digit? */
static __device__ inline bool is_first(const struct digit &digit)
{
    return digit.same != 0 && __ffs((int)digit.same) - 1 == (int)(threadIdx.x % WARP);
}

static __device__ inline void count_digits(const struct ash_cuda_embed &op, const int32_t *from, int shift,
                                           unsigned counts[DIGITS])
{
    size_t first, end;

    own_positions(op.rows, &first, &end);
    for (int d = threadIdx.x % WARP; d < DIGITS; d += WARP)
        counts[d] = 0;
    __syncwarp();
    for (size_t base = first; base < end; base += WARP) {
        struct digit digit = digit_at(op, from, shift, base + threadIdx.x % WARP, end);

        if (is_first(digit)) counts[digit.value] += __popc(digit.same);
        __syncwarp();
    }
}

/* The sum of value over the threads before this one. */
static __device__ inline unsigned sum_before(unsigned value)
{
    __shared__ unsigned sums[SORT_WARPS];
    unsigned all = value, before = 0;

    for (int step = 1; step < WARP; step *= 2) {
        unsigned other = __shfl_up_sync(ALL_LANES, all, step);

        if ((int)(threadIdx.x % WARP) >= step) all += other;
    }
    __syncthreads(); /* what was here last time has been read */
    if (threadIdx.x % WARP == WARP - 1) sums[threadIdx.x / WARP] = all;
    __syncthreads();
    for (unsigned w = 0; w < threadIdx.x / WARP; w++)
        before += sums[w];
    return before + all - value;
}

/* From how many rows a warp has of a digit to where the first of them goes: digits ascend, of one digit warps do. */
static __device__ inline void place_digits(unsigned counts[SORT_WARPS][DIGITS])
{
    const int each = SORT_WARPS * DIGITS / ASH_CUDA_EMBED_SORT_THREADS;
    unsigned sum = 0, next;

    for (int i = threadIdx.x * each; i < (int)(threadIdx.x + 1) * each; i++)
        sum += counts[i % SORT_WARPS][i / SORT_WARPS];
    next = sum_before(sum);
    for (int i = threadIdx.x * each; i < (int)(threadIdx.x + 1) * each; i++) {
        unsigned count = counts[i % SORT_WARPS][i / SORT_WARPS];

        counts[i % SORT_WARPS][i / SORT_WARPS] = next;
        next += count;
    }
}

static __device__ inline void move_rows(const struct ash_cuda_embed &op, const int32_t *from, int shift,
                                        unsigned places[DIGITS], int32_t *to)
{
    size_t first, end;
    int lane = threadIdx.x % WARP;

    own_positions(op.rows, &first, &end);
    for (size_t base = first; base < end; base += WARP) {
        struct digit digit = digit_at(op, from, shift, base + lane, end);

        if (digit.same != 0) to[places[digit.value] + __popc(digit.same & ((1u << lane) - 1))] = digit.row;
        __syncwarp();
        if (is_first(digit)) places[digit.value] += __popc(digit.same);
        __syncwarp();
    }
}

/* Write where each id begins, and how many there are. */
static __device__ inline void find_starts(const struct ash_cuda_embed &op)
{
    size_t first = op.rows * threadIdx.x / ASH_CUDA_EMBED_SORT_THREADS,
           end = op.rows * (threadIdx.x + 1) / ASH_CUDA_EMBED_SORT_THREADS;
    unsigned count = 0, next;

    for (size_t p = first; p < end; p++)
        count += p == 0 || op.ids[op.order[p]] != op.ids[op.order[p - 1]];
    next = sum_before(count);
    for (size_t p = first; p < end; p++)
        if (p == 0 || op.ids[op.order[p]] != op.ids[op.order[p - 1]]) op.starts[next++] = (int32_t)p;
    if (threadIdx.x != ASH_CUDA_EMBED_SORT_THREADS - 1) return;
    op.starts[next] = (int32_t)op.rows;
    *op.count = (int32_t)next;
}

/* How many digits the largest id has. */
static __device__ inline int count_passes(const struct ash_cuda_embed &op)
{
    int32_t top = 0;
    int passes = 1;

    for (size_t r = threadIdx.x; r < op.rows; r += ASH_CUDA_EMBED_SORT_THREADS)
        top = max(top, op.ids[r]);
    while (passes * DIGIT_BITS < 32 && __syncthreads_or(top >> passes * DIGIT_BITS != 0))
        passes++;
    return passes;
}

/* One thread block sorts rows by their ids, digit by digit from the lowest; rows of one id stay in order. */
extern "C" __global__ void __launch_bounds__(ASH_CUDA_EMBED_SORT_THREADS) embed_sort(struct ash_cuda_embed op)
{
    __shared__ unsigned counts[SORT_WARPS][DIGITS];
    int passes = count_passes(op);
    const int32_t *from = NULL;

    for (int pass = 0; pass < passes; pass++) {
        int32_t *to = (passes - pass) % 2 == 1 ? op.order : op.spare; /* the last one: order */

        count_digits(op, from, pass * DIGIT_BITS, counts[threadIdx.x / WARP]);
        __syncthreads();
        place_digits(counts);
        __syncthreads();
        move_rows(op, from, pass * DIGIT_BITS, counts[threadIdx.x / WARP], to);
        __syncthreads();
        from = to;
    }
    find_starts(op);
}

/* ---- their gradients --------------------------------------------------------------------------------------------- */

#define COLS_EACH (ASH_CUDA_EMBED_COLS / WARP) /* of a lane, WARP apart */
#define BATCH 8                                /* rows on their way at once */

/* A warp adds the rows of an id, ascending, to ASH_CUDA_EMBED_COLS columns from c0 on: a lane has COLS_EACH of them. */
static __device__ inline void add_rows(const struct ash_cuda_embed &op, int first, int end, size_t c0)
{
    int lane = threadIdx.x % WARP, cols = (int)min(op.cols - c0, (size_t)ASH_CUDA_EMBED_COLS) - lane;
    float *to = op.dtable + (size_t)op.ids[op.order[first]] * op.cols + c0 + lane;
    const float *grad = op.grad + c0 + lane;
    float sum[COLS_EACH];

#pragma unroll
    for (int i = 0; i < COLS_EACH; i++)
        sum[i] = i * WARP < cols ? to[i * WARP] : 0.0f;
    for (int base = first; base < end; base += BATCH) {
        int row = base + lane < end ? op.order[base + lane] : 0;
        float rows[BATCH][COLS_EACH];

#pragma unroll
        for (int n = 0; n < BATCH; n++) {
            const float *from = grad + (size_t)__shfl_sync(ALL_LANES, row, n) * op.cols;

#pragma unroll
            for (int i = 0; i < COLS_EACH; i++)
                rows[n][i] = base + n < end && i * WARP < cols ? from[i * WARP] : 0.0f;
        }
#pragma unroll
        for (int n = 0; n < BATCH; n++)
#pragma unroll
            for (int i = 0; i < COLS_EACH; i++)
                if (base + n < end) sum[i] = sum[i] + rows[n][i];
    }
#pragma unroll
    for (int i = 0; i < COLS_EACH; i++)
        if (i * WARP < cols) to[i * WARP] = sum[i];
}

/* After embed_sort. */
extern "C" __global__ void __launch_bounds__(ASH_CUDA_EMBED_ADD_THREADS) embed_scatter_add(struct ash_cuda_embed op)
{
    const unsigned warps = ASH_CUDA_EMBED_ADD_THREADS / WARP;
    unsigned parts = (unsigned)((op.cols + ASH_CUDA_EMBED_COLS - 1) / ASH_CUDA_EMBED_COLS), all = *op.count * parts;

    for (unsigned i = blockIdx.x * warps + threadIdx.x / WARP; i < all; i += gridDim.x * warps)
        add_rows(op, op.starts[i / parts], op.starts[i / parts + 1], (size_t)(i % parts) * ASH_CUDA_EMBED_COLS);
}
