/* norm_bf16 - norms of bf16 models, whose rows and weights' gradients are added by blocks (compute/blocks.h).
 * Forward: warps share a row, each with HELD chunks of columns in registers; where a row is one warp's, a thread
 * block has several rows. Backward: a thread block has a block of rows of a sequence. It walks them in order, the
 * next row on its way, keeps the sums of its columns in registers and writes them once; norm_add_blocks adds these
 * to the gradients. Rows at odd places, and very wide ones, take the kernels `any`, which read everything where it
 * lies. */
#include "compute/cuda/rows/norm_forward.cuh"

/* ---- forward ----------------------------------------------------------------------------------------------------- */

#define FORWARD(NAME, THREADS, HELD, ALONE, LAYER)                                                                     \
    extern "C" __global__ void __launch_bounds__(THREADS) NAME(const __grid_constant__ struct ash_norm_args args)      \
    {                                                                                                                  \
        forward_rows<HELD, ALONE, LAYER>(args);                                                                        \
    }

FORWARD(rms_rows_alone, FORWARD_THREADS, ASH_CUDA_NORM_ALONE_CHUNKS, true, false)
FORWARD(layer_rows_alone, FORWARD_THREADS, ASH_CUDA_NORM_ALONE_CHUNKS, true, true)
FORWARD(rms_rows_shared, 1024, ASH_CUDA_NORM_SHARED_CHUNKS, false, false)
FORWARD(layer_rows_shared, 1024, ASH_CUDA_NORM_SHARED_CHUNKS, false, true)

/* ---- any rows ---------------------------------------------------------------------------------------------------- */

/* The sum over a row of a warp, of a(c) * b(c) or (B false) of a(c); c is a column. */
template <bool B, typename F, typename G> static __device__ inline float any_sum(size_t cols, F a, G b)
{
    float lane = 0.0f;

    for (size_t first = threadIdx.x % WARP * ASH_SUM_BLOCK; first < cols; first += ASH_SUM_LANES * ASH_SUM_BLOCK) {
        float pairs[ASH_SUM_BLOCK / 2];

#pragma unroll
        for (int i = 0; i < ASH_SUM_BLOCK / 2; i++) {
            size_t c = first + 2 * i;
            float a0 = c < cols ? a(c) : 0.0f, a1 = c + 1 < cols ? a(c + 1) : 0.0f;

            if (B)
                pairs[i] = fmaf(a1, c + 1 < cols ? b(c + 1) : 0.0f, a0 * (c < cols ? b(c) : 0.0f));
            else
                pairs[i] = a0 + a1;
        }
        lane = lane + ash_sum_neighbours(pairs, ASH_SUM_BLOCK / 2);
    }
    return fold_warp(lane);
}

extern "C" __global__ void __launch_bounds__(FORWARD_THREADS)
    norm_rows_any(const __grid_constant__ struct ash_cuda_norm op)
{
    const struct ash_norm_args &args = op.args;
    size_t unit = ((size_t)blockIdx.x * FORWARD_THREADS + threadIdx.x) / WARP;
    float mean = 0.0f, rstd;

    if (unit >= args.rows * args.groups) return; /* whole warps */
    const float *x = args.x + place_of(args, args.x_stride, unit);
    size_t at = place_of(args, args.y_stride, unit);
    auto centred = [&](size_t c) { return x[c] - mean; };
    if (op.layer) mean = any_sum<false>(args.cols, centred, centred) / (float)args.cols;
    rstd = 1.0f / sqrtf(any_sum<true>(args.cols, centred, centred) / (float)args.cols + args.eps);
    for (size_t c = threadIdx.x % WARP; c < args.cols; c += WARP) {
        float xhat = (x[c] - mean) * rstd, w = args.weight[c];
        float y = op.layer && args.bias != NULL ? fmaf(xhat, w, args.bias[c]) : xhat * w;

        if (args.y_bf16 != NULL)
            args.y_bf16[at + c] = ash_f32_to_bf16(y);
        else
            args.y[at + c] = y;
    }
    if (threadIdx.x % WARP != 0) return;
    if (args.rstd != NULL) args.rstd[unit] = rstd;
    if (op.layer && args.mean != NULL) args.mean[unit] = mean;
}

/* ---- backward ---------------------------------------------------------------------------------------------------- */

/* The units (row, group) of this thread block's block of rows. */
struct units {
    size_t first, end;
};

static __device__ inline struct units own_units(const struct ash_norm_args &args)
{
    struct ash_seq_rows rows = ash_norm_seq_rows(&args);
    struct ash_row_block block = ash_row_block(&rows, blockIdx.x);
    struct units units = {block.first * args.groups, (block.first + block.count) * args.groups};

    return units;
}

/* What a thread has of a row: HELD times four columns of x, dy (rounded) and dx before. */
template <int HELD> struct back_row {
    float4 x[HELD], old[HELD];
    uint2 dy[HELD];
    float mean, rstd;
};

template <int HELD, bool LAYER>
static __device__ inline void read_row(const struct ash_norm_args &args, size_t unit, unsigned first,
                                       struct back_row<HELD> *row)
{
    size_t x_at = place_of(args, args.x_stride, unit), y_at = place_of(args, args.y_stride, unit);

#pragma unroll
    for (int i = 0; i < HELD; i++) {
        unsigned c = first + i * CHUNK_COLS;

        row->x[i] = row->old[i] = ZERO4;
        row->dy[i] = make_uint2(0, 0);
        if (c >= args.cols) continue;
        row->x[i] = *(const float4 *)(args.x + x_at + c);
        if (args.dx_add) row->old[i] = *(const float4 *)(args.dx + x_at + c);
        row->dy[i] = args.dy_bf16 != NULL ? *(const uint2 *)(args.dy_bf16 + y_at + c)
                                          : round_four(*(const float4 *)(args.dy + y_at + c));
    }
    row->rstd = args.rstd[unit];
    row->mean = LAYER ? args.mean[unit] : 0.0f;
}

/* A thread's sums over its block of rows, and weights. */
template <int HELD> struct back_sums {
    float4 weight[HELD], bias[HELD], w[HELD];
};

template <bool LAYER> static __device__ inline float4 normalise(float4 x, float mean, float rstd)
{
    if (LAYER) x = make_float4(x.x - mean, x.y - mean, x.z - mean, x.w - mean);
    return make_float4(x.x * rstd, x.y * rstd, x.z * rstd, x.w * rstd);
}

static __device__ inline float4 multiply(float4 a, float4 b)
{
    return make_float4(a.x * b.x, a.y * b.y, a.z * b.z, a.w * b.w);
}

/* The row's block sums into shared memory, and its columns into the sums over rows. */
template <int HELD, bool LAYER>
static __device__ inline void add_row(unsigned cols, unsigned first, const struct back_row<HELD> &row,
                                      struct back_sums<HELD> *sums, float *dots, float *gs)
{
#pragma unroll
    for (int i = 0; i < HELD; i++) {
        unsigned c = first + i * CHUNK_COLS;
        float4 dy = widen_four(row.dy[i]), g = multiply(dy, sums->w[i]);
        float4 xhat = c < cols ? normalise<LAYER>(row.x[i], row.mean, row.rstd) : ZERO4, *weight = &sums->weight[i];
        float dot = block_sum(four_dot(g, xhat)), sum = LAYER ? block_sum(four_sum(g)) : 0.0f;

        if (threadIdx.x % 4 == 0) {
            dots[c / ASH_SUM_BLOCK] = dot;
            if (LAYER) gs[c / ASH_SUM_BLOCK] = sum;
        }
        *weight = make_float4(fmaf(dy.x, xhat.x, weight->x), fmaf(dy.y, xhat.y, weight->y),
                              fmaf(dy.z, xhat.z, weight->z), fmaf(dy.w, xhat.w, weight->w));
        if (!LAYER) continue;
        float4 *bias = &sums->bias[i];
        *bias = make_float4(bias->x + dy.x, bias->y + dy.y, bias->z + dy.z, bias->w + dy.w);
    }
}

template <bool LAYER>
static __device__ inline float input_grad(float xhat, float g, float mean_g, float mean_dot, float rstd)
{
    return fmaf(-xhat, mean_dot, LAYER ? g - mean_g : g) * rstd;
}

template <int HELD, bool LAYER>
static __device__ inline void put_row(const struct ash_norm_args &args, size_t unit, unsigned first,
                                      const struct back_row<HELD> &row, const struct back_sums<HELD> &sums,
                                      float mean_g, float mean_dot)
{
    float *dx = args.dx + place_of(args, args.x_stride, unit);

#pragma unroll
    for (int i = 0; i < HELD; i++) {
        unsigned c = first + i * CHUNK_COLS;
        float4 g = multiply(widen_four(row.dy[i]), sums.w[i]), xhat = normalise<LAYER>(row.x[i], row.mean, row.rstd);
        float4 out = make_float4(input_grad<LAYER>(xhat.x, g.x, mean_g, mean_dot, row.rstd),
                                 input_grad<LAYER>(xhat.y, g.y, mean_g, mean_dot, row.rstd),
                                 input_grad<LAYER>(xhat.z, g.z, mean_g, mean_dot, row.rstd),
                                 input_grad<LAYER>(xhat.w, g.w, mean_g, mean_dot, row.rstd));

        if (c >= args.cols) continue;
        if (args.dx_add)
            out = make_float4(row.old[i].x + out.x, row.old[i].y + out.y, row.old[i].z + out.z, row.old[i].w + out.w);
        *(float4 *)(dx + c) = out;
        if (args.dx_bf16 != NULL) *(uint2 *)(args.dx_bf16 + unit * args.cols + c) = round_four(out);
    }
}

/* Shared memory has the row's block sums twice, so that a row's are read while the next one's are written. */
template <int HELD, bool LAYER> static __device__ inline void backward_block(const struct ash_cuda_norm &op)
{
    constexpr bool AHEAD = HELD == 2; /* else there are no registers for the next row */
    DYNAMIC_SHARED(float, blocks, 16);
    const struct ash_norm_args &args = op.args;
    struct units units = own_units(args);
    unsigned first = threadIdx.x / WARP * HELD * CHUNK_COLS + threadIdx.x % WARP * 4, cols = (unsigned)args.cols;
    unsigned room = blockDim.x / WARP * HELD * CHUNK_BLOCKS, count = (cols + ASH_SUM_BLOCK - 1) / ASH_SUM_BLOCK;
    struct back_row<HELD> row, next;
    struct back_sums<HELD> sums;

#pragma unroll
    for (int i = 0; i < HELD; i++) {
        unsigned c = first + i * CHUNK_COLS;

        sums.weight[i] = sums.bias[i] = ZERO4;
        sums.w[i] = c < cols ? *(const float4 *)(args.weight + c) : ZERO4;
    }
    if (AHEAD) read_row<HELD, LAYER>(args, units.first, first, &row);
    for (size_t unit = units.first; unit < units.end; unit++) {
        float *dots = blocks + unit % 2 * 2 * room, *gs = dots + room, mean_dot, mean_g;

        read_row<HELD, LAYER>(args, AHEAD && unit + 1 < units.end ? unit + 1 : unit, first, AHEAD ? &next : &row);
        add_row<HELD, LAYER>(cols, first, row, &sums, dots, gs);
        __syncthreads();
        mean_dot = sum_blocks(dots, count) / (float)args.cols;
        mean_g = LAYER ? sum_blocks(gs, count) / (float)args.cols : 0.0f;
        put_row<HELD, LAYER>(args, unit, first, row, sums, mean_g, mean_dot);
        if (AHEAD) row = next;
    }
#pragma unroll
    for (int i = 0; i < HELD; i++) {
        unsigned c = first + i * CHUNK_COLS;
        float *to = op.parts + blockIdx.x * args.cols + c;

        if (c >= cols || op.parts == NULL) continue;
        *(float4 *)to = sums.weight[i];
        if (LAYER) *(float4 *)(to + gridDim.x * args.cols) = sums.bias[i];
    }
}

#define BACKWARD(NAME, HELD, LAYER)                                                                                    \
    extern "C" __global__ void __launch_bounds__(ASH_CUDA_NORM_BACK_THREADS)                                           \
        NAME(const __grid_constant__ struct ash_cuda_norm op)                                                          \
    {                                                                                                                  \
        backward_block<HELD, LAYER>(op);                                                                               \
    }

BACKWARD(rms_back_2, 2, false)
BACKWARD(rms_back_4, 4, false)
BACKWARD(layer_back_2, 2, true)
BACKWARD(layer_back_4, 4, true)

/* ---- any rows, backward ------------------------------------------------------------------------------------------ */

static __device__ inline float read_dy(const struct ash_norm_args &args, size_t at)
{
    return args.dy_bf16 != NULL ? ash_bf16_to_f32(args.dy_bf16[at]) : ash_bf16_round(args.dy[at]);
}

/* A thread block has a block of rows: first its threads add columns, then its warps do rows. */
extern "C" __global__ void __launch_bounds__(FORWARD_THREADS)
    norm_back_any(const __grid_constant__ struct ash_cuda_norm op)
{
    const struct ash_norm_args &args = op.args;
    struct units units = own_units(args);
    bool layer = op.layer;

    for (size_t c = threadIdx.x; op.parts != NULL && c < args.cols; c += FORWARD_THREADS) {
        float weight = 0.0f, bias = 0.0f;

        for (size_t unit = units.first; unit < units.end; unit++) {
            float x = args.x[place_of(args, args.x_stride, unit) + c];
            float dy = read_dy(args, place_of(args, args.y_stride, unit) + c);

            weight = fmaf(dy, (layer ? x - args.mean[unit] : x) * args.rstd[unit], weight);
            bias = bias + dy;
        }
        op.parts[blockIdx.x * args.cols + c] = weight;
        if (layer) op.parts[(gridDim.x + blockIdx.x) * args.cols + c] = bias;
    }
    __syncthreads(); /* dx may be dy */
    for (size_t unit = units.first + threadIdx.x / WARP; unit < units.end; unit += FORWARD_THREADS / WARP) {
        size_t x_at = place_of(args, args.x_stride, unit), y_at = place_of(args, args.y_stride, unit);
        float mean = layer ? args.mean[unit] : 0.0f, rstd = args.rstd[unit], mean_g = 0.0f, mean_dot;
        auto xhat = [&](size_t c) { return (layer ? args.x[x_at + c] - mean : args.x[x_at + c]) * rstd; };
        auto g = [&](size_t c) { return read_dy(args, y_at + c) * args.weight[c]; };

        mean_dot = any_sum<true>(args.cols, g, xhat) / (float)args.cols;
        if (layer) mean_g = any_sum<false>(args.cols, g, g) / (float)args.cols;
        __syncwarp();
        for (size_t c = threadIdx.x % WARP; c < args.cols; c += WARP) {
            float out = layer ? input_grad<true>(xhat(c), g(c), mean_g, mean_dot, rstd)
                              : input_grad<false>(xhat(c), g(c), mean_g, mean_dot, rstd);

            out = args.dx_add ? args.dx[x_at + c] + out : out;
            args.dx[x_at + c] = out;
            if (args.dx_bf16 != NULL) args.dx_bf16[unit * args.cols + c] = ash_f32_to_bf16(out);
        }
    }
}

/* ---- sums of blocks ---------------------------------------------------------------------------------------------- */

#define ADD_ROWS ASH_CUDA_ADD_BLOCKS_ROWS
#define ADD_THREADS ASH_CUDA_ADD_BLOCKS_THREADS

/* to[c] = to[c] + parts[0, c] + parts[1, c] + ...: a warp's width of columns. All warps bring parts, one adds. */
extern "C" __global__ void __launch_bounds__(ADD_THREADS)
    add_blocks(const __grid_constant__ struct ash_cuda_add_blocks op)
{
    __shared__ float tile[ADD_ROWS][WARP];
    unsigned warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    size_t c = (size_t)blockIdx.x * WARP + lane;
    const float *parts = op.parts + blockIdx.y * op.count * op.cols;
    float *to = blockIdx.y == 0 ? op.first : op.second, sum;

    if (to == NULL) return;
    sum = c < op.cols && warp == 0 ? to[c] : 0.0f;
    for (size_t done = 0; done < op.count; done += ADD_ROWS) {
        float mine[ADD_ROWS * WARP / ADD_THREADS];

#pragma unroll
        for (int i = 0; i < ADD_ROWS * WARP / ADD_THREADS; i++) {
            size_t row = done + i * (ADD_THREADS / WARP) + warp;

            mine[i] = row < op.count && c < op.cols ? parts[row * op.cols + c] : 0.0f;
        }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < ADD_ROWS * WARP / ADD_THREADS; i++)
            tile[i * (ADD_THREADS / WARP) + warp][lane] = mine[i];
        __syncthreads();
        if (warp == 0) {
            unsigned rows = op.count - done < ADD_ROWS ? (unsigned)(op.count - done) : ADD_ROWS;

#pragma unroll 16
            for (unsigned r = 0; r < rows; r++)
                sum = sum + tile[r][lane];
        }
    }
    if (c < op.cols && warp == 0) to[c] = sum;
}

/* parts[block, c]: the sum over a block of rows of a column. */
extern "C" __global__ void __launch_bounds__(ASH_CUDA_COLUMN_THREADS)
    column_blocks(const __grid_constant__ struct ash_cuda_column_blocks op)
{
    const struct ash_column_sum_args &args = op.args;
    struct ash_seq_rows rows = {args.rows, args.seq_rows, 0};
    struct ash_row_block block = ash_row_block(&rows, blockIdx.x);
    size_t c = (size_t)blockIdx.y * ASH_CUDA_COLUMN_THREADS + threadIdx.x;
    float sum = 0.0f;

    if (c >= args.cols) return;
#pragma unroll 8
    for (size_t r = block.first; r < block.first + block.count; r++)
        sum = sum + args.x[r * args.stride + c];
    op.parts[blockIdx.x * args.cols + c] = sum;
}
