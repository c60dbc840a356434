/* distill - how far rows of logits are from a teacher's and, in place, the gradient. A block per row: all threads
 * compute a tile of terms, then a thread per lane adds them up in float64. */
#include "compute/cuda/tile/device.cuh"

#define THREADS ASH_CUDA_DISTILL_THREADS
#define TILE 1024 /* terms that exist at once */

/* A distribution: what all of its columns share. */
struct side {
    float sharpness, max, log_sum;
};

/* What the threads of a block share. */
struct shared {
    float terms[2][TILE];
    double lanes[2][ASH_LANES];
    float tops[THREADS];
};

static __device__ inline float log_probability(const struct side &side, float x)
{
    return (x * side.sharpness - side.max) - side.log_sum;
}

/* The largest value of the row. Comparisons only, so no order; a NaN never wins. */
static __device__ inline float max_row(struct shared *shared, const float *x, size_t cols)
{
    float max = -INFINITY;

    for (size_t v = threadIdx.x; v < cols; v += THREADS)
        max = x[v] > max ? x[v] : max;
    __syncthreads(); /* the last one has been read */
    shared->tops[threadIdx.x] = max;
    __syncthreads();
    for (int i = 0; i < THREADS; i++)
        max = shared->tops[i] > max ? shared->tops[i] : max;
    return max;
}

/* Add the tile's terms of one sum or two to its lanes. */
static __device__ inline void add_tile(struct shared *shared, int sums, size_t left, double *lane)
{
    int count = left < TILE ? (int)left : TILE;

    __syncthreads();
    if ((int)threadIdx.x < sums * ASH_LANES)
        for (int i = threadIdx.x % ASH_LANES; i < count; i += ASH_LANES)
            *lane = *lane + (double)shared->terms[threadIdx.x / ASH_LANES][i];
    __syncthreads();
}

/* Fold the lanes of one sum or two; every thread gets them. */
static __device__ inline void fold(struct shared *shared, int sums, double lane, double *totals)
{
    if ((int)threadIdx.x < sums * ASH_LANES) shared->lanes[threadIdx.x / ASH_LANES][threadIdx.x % ASH_LANES] = lane;
    __syncthreads();
    for (int s = 0; s < sums; s++) {
        double folded[ASH_LANES];

        for (int l = 0; l < ASH_LANES; l++)
            folded[l] = shared->lanes[s][l];
        for (int half = ASH_LANES / 2; half > 0; half /= 2)
            for (int l = 0; l < half; l++)
                folded[l] = folded[l] + folded[l + half];
        totals[s] = folded[0];
    }
}

static __device__ inline struct side side_of(struct shared *shared, const float *x, size_t cols, float sharpness)
{
    struct side side = {sharpness, max_row(shared, x, cols) * sharpness, 0.0f};
    double lane = 0.0, total;

    for (size_t first = 0; first < cols; first += TILE) {
        for (size_t i = threadIdx.x; i < TILE && first + i < cols; i += THREADS)
            shared->terms[0][i] = ash_expf(x[first + i] * sharpness - side.max);
        add_tile(shared, 1, cols - first, &lane);
    }
    fold(shared, 1, lane, &total);
    side.log_sum = ash_logf((float)total);
    return side;
}

/* One row. */
struct row {
    float *x;
    const float *teacher;
    struct side student_side, teacher_side;
    float beta, log_rest, log_beta; /* of 1 - beta and beta */
    double student_sum;             /* of p * log(p / m) */
};

/* A column: logarithms of p, q and m. */
struct column {
    float p, q, m;
};

static __device__ inline struct column column_of(const struct row &row, size_t v)
{
    struct column column = {log_probability(row.student_side, row.x[v]),
                            log_probability(row.teacher_side, row.teacher[v]), 0.0f};
    float a = column.p + row.log_rest, b = column.q + row.log_beta, high = a > b ? a : b, low = a > b ? b : a;

    if (row.beta == 0.0f || row.beta == 1.0f)
        column.m = row.beta == 0.0f ? column.p : column.q;
    else
        column.m = high + ash_logf(1.0f + ash_expf(low - high));
    return column;
}

static __device__ inline float term(float log_p, float log_m)
{
    float p = ash_expf(log_p);

    return p > 0.0f ? p * (log_p - log_m) : 0.0f;
}

/* The divergence; row gets the sum that its gradient needs. */
static __device__ inline double sum_row(struct shared *shared, struct row *row, size_t cols)
{
    double lane = 0.0, totals[2], beta = (double)row->beta;

    for (size_t first = 0; first < cols; first += TILE) {
        for (size_t i = threadIdx.x; i < TILE && first + i < cols; i += THREADS) {
            struct column column = column_of(*row, first + i);

            shared->terms[0][i] = term(column.p, column.m);
            shared->terms[1][i] = term(column.q, column.m);
        }
        add_tile(shared, 2, cols - first, &lane);
    }
    fold(shared, 2, lane, totals);
    row->student_sum = totals[0];
    if (beta == 0.0) return totals[1];
    return beta == 1.0 ? totals[0] : beta * totals[1] + (1.0 - beta) * totals[0];
}

/* Logits become gradients. */
static __device__ inline void grad_row(const struct ash_distill_args &args, const struct row &row,
                                       const struct side &hard, size_t target)
{
    float mean = (float)row.student_sum, hard_scale = args.scale * args.target_weight;
    float factor = args.scale * args.sharpness * (row.beta == 1.0f ? 1.0f : 1.0f - row.beta);

    for (size_t v = threadIdx.x; v < args.cols; v += THREADS) {
        struct column column = column_of(row, v);
        float p = ash_expf(column.p), x = row.x[v], gradient;

        if (row.beta == 0.0f)
            gradient = p - ash_expf(column.q);
        else
            gradient = p > 0.0f ? p * ((column.p - column.m) - mean) : 0.0f;
        gradient = gradient * factor;
        if (args.target_weight != 0.0f) {
            gradient = gradient + ash_expf(log_probability(hard, x)) * hard_scale;
            if (v == target) gradient = gradient - hard_scale;
        }
        row.x[v] = gradient;
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) distill(struct ash_distill_args args)
{
    __shared__ struct shared shared;
    size_t r = blockIdx.x;
    int32_t target = args.targets[r];
    struct row row = {args.logits + r * args.cols, args.teacher + r * args.cols};
    struct side hard = {0.0f, 0.0f, 0.0f};
    double at_target = 0.0, loss;

    if (target < 0) {
        for (size_t v = threadIdx.x; v < args.cols; v += THREADS)
            row.x[v] = 0.0f;
        if (threadIdx.x == 0) args.loss[r] = 0.0f;
        return;
    }
    row.beta = args.beta;
    row.log_rest = ash_logf(1.0f - args.beta);
    row.log_beta = ash_logf(args.beta);
    row.student_side = side_of(&shared, row.x, args.cols, args.sharpness);
    row.teacher_side = side_of(&shared, row.teacher, args.cols, args.sharpness);
    if (args.target_weight != 0.0f) {
        hard = side_of(&shared, row.x, args.cols, 1.0f);
        at_target = (double)log_probability(hard, row.x[target]);
    }
    loss = sum_row(&shared, &row, args.cols);
    if (threadIdx.x == 0) args.loss[r] = (float)(loss - (double)args.target_weight * at_target);
    grad_row(args, row, hard, (size_t)target); /* all have read the target's logit: sum_row waits */
}
