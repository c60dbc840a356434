/* Small-M products with BFMMLA, and the layout of weights that they read fastest. Packed, four rows of a weight lie
 * group by group (4 k) next to each other, so two loads are two operands, and a thread reads several streams of memory
 * in order, which gives the most bandwidth. Mapped (as they lie in a file), pairs of rows become operands in registers,
 * and the reads that jump from row to row are preceded by prefetches in order. Compiled for machines with the
 * instruction. */
#if defined(__aarch64__)

#include "compute/cpu/gemm/gemm_small_m.h"

#include "base/math.h"
#include "base/assert.h"
#include "compute/cpu/gemm/bfmmla_pack.h"

#define PANEL_ROWS ASH_BFMMLA_PANEL
#define PACKED_ROWS 12                      /* of x, if the weights are packed */
#define PAIRS_MAX (PACKED_ROWS / 2)         /* of rows of x */
#define STREAMS_MAX 4                       /* panels read at once, if they are packed */
#define MAPPED_PAIRS (ASH_SMALL_M_ROWS / 2) /* of rows of x, if they are not packed; at most */
#define MAPPED_COLS 16                      /* rows of a weight at once, if they are not */
#define LINE_K 32                           /* k of a cache line of bf16 */
#define AHEAD_BYTES 65536

INLINE float32x4_t multiply(float32x4_t acc, uint16x8_t a, uint16x8_t b)
{
    return vbfmmlaq_f32(acc, vreinterpretq_bf16_u16(a), vreinterpretq_bf16_u16(b));
}

/* Pairs of rows of x that a kernel is compiled for. */
static size_t pairs_of(size_t M)
{
    return M <= 2 ? 1 : M <= 4 ? 2 : M <= 8 ? 4 : PAIRS_MAX;
}

static size_t left_bytes(size_t M, size_t K)
{
    return 2 * pairs_of(M) * ash_round_up(K, GROUP) * sizeof(uint16_t);
}

/* Rows side by side, group by group; a missing row and padding to whole groups are zeros. */
static void prepare(const float *x, size_t M, size_t K, bool round_bf16, void *left)
{
    size_t rows = 2 * pairs_of(M), whole = K / GROUP * GROUP;
    uint16_t *out = left;

    ash_assert(round_bf16 && M <= PACKED_ROWS);
    memset(out, 0, left_bytes(M, K));
    for (size_t m = 0; m < M; m++, x += K) {
        for (size_t k = 0; k < whole; k += GROUP)
            vst1_u16(out + k * rows + m * GROUP, pack_round4(vld1q_f32(x + k)));
        for (size_t k = whole; k < K; k++)
            out[whole * rows + m * GROUP + k - whole] = ash_f32_to_bf16(x[k]);
    }
}

/* Two accumulators, a pair of rows of x by two pairs of rows of w, to their places. */
INLINE void store_pair(const struct ash_small_m *job, size_t pair, size_t at, float32x4_t low, float32x4_t high)
{
    float64x2_t a = vreinterpretq_f64_f32(low), b = vreinterpretq_f64_f32(high);
    float *sums = job->sums + 2 * pair * job->sums_stride + at;

    if (2 * pair < job->M) vst1q_f32(sums, vreinterpretq_f32_f64(vtrn1q_f64(a, b)));
    if (2 * pair + 1 < job->M) vst1q_f32(sums + job->sums_stride, vreinterpretq_f32_f64(vtrn2q_f64(a, b)));
}

/* ---- packed ------------------------------------------------------------------------------------------------------ */

static size_t packed_bytes(size_t N, size_t K)
{
    return ash_round_up(N, PANEL_ROWS) * ash_round_up(K, GROUP) * sizeof(uint16_t);
}

struct packing {
    const struct ash_weight *w;
    size_t K, first, count;
    uint16_t *packed;
};

/* A unit is ASH_PACK_ROWS rows. */
static void pack_units(void *ctx, size_t begin, size_t end, int worker)
{
    const struct packing *op = ctx;
    const struct ash_mat *mat = &op->w->mat;
    size_t first = op->first + begin * ASH_PACK_ROWS, last = op->first + end * ASH_PACK_ROWS;
    struct pack rows = {.data = pack_at(mat->data, mat->dtype, first * mat->col_stride),
                        .dtype = mat->dtype,
                        .line_stride = mat->col_stride,
                        .k_stride = mat->row_stride,
                        .k_count = op->K};

    (void)worker;
    if (last > op->first + op->count) last = op->first + op->count;
    rows.count = last - first;
    pack_block(&rows, op->packed + first * ash_round_up(op->K, GROUP), PANEL_ROWS);
}

static void pack_weight(struct ash_exec *exec, const struct ash_weight *w, size_t K, size_t first, size_t count,
                        void *packed)
{
    struct packing op = {.w = w, .K = K, .first = first, .count = count, .packed = packed};

    ash_assert(first % ASH_PACK_ROWS == 0 && !w->packed);
    ash_workers_run(exec->workers, ash_div_up(count, ASH_PACK_ROWS), 1, pack_units, &op);
}

/* One panel of each of some streams, which lie step panels apart, for pairs pairs of rows of x. */
INLINE void packed_panels(const struct ash_small_m *job, size_t pairs, size_t streams, size_t panel, size_t step)
{
    const uint16_t *x = job->left, *w[STREAMS_MAX];
    size_t k_padded = ash_round_up(job->K, GROUP), groups = k_padded / GROUP, at = 0;
    float32x4_t acc[STREAMS_MAX][PAIRS_MAX][2];

    UNROLL
    for (size_t s = 0; s < streams; s++) {
        w[s] = (const uint16_t *)job->w->mat.data + (job->first + (panel + s * step) * PANEL_ROWS) * k_padded;
        UNROLL for (size_t i = 0; i < pairs; i++) acc[s][i][0] = acc[s][i][1] = vdupq_n_f32(0.0f);
    }
    _Pragma("GCC unroll 2") for (size_t g = 0; g < groups; g++, x += 2 * pairs * GROUP, at += PANEL_ROWS * GROUP)
    {
        uint16x8_t low[STREAMS_MAX], high[STREAMS_MAX];

        UNROLL
        for (size_t s = 0; s < streams; s++) {
            low[s] = vld1q_u16(w[s] + at);
            high[s] = vld1q_u16(w[s] + at + 2 * GROUP);
        }
        UNROLL
        for (size_t i = 0; i < pairs; i++) {
            uint16x8_t left = vld1q_u16(x + 2 * i * GROUP);

            UNROLL
            for (size_t s = 0; s < streams; s++) {
                acc[s][i][0] = multiply(acc[s][i][0], left, low[s]);
                acc[s][i][1] = multiply(acc[s][i][1], left, high[s]);
            }
        }
    }
    UNROLL
    for (size_t s = 0; s < streams; s++)
        UNROLL for (size_t i = 0; i < pairs; i++)
            store_pair(job, i, (panel + s * step) * PANEL_ROWS, acc[s][i][0], acc[s][i][1]);
}

INLINE void packed_sums(const struct ash_small_m *job, size_t pairs, size_t streams)
{
    const struct ash_small_m local = *job; /* sums may alias it as far as the compiler knows */
    size_t panels = ash_div_up(job->count, PANEL_ROWS), step = panels / streams;

    for (size_t p = 0; p < step; p++)
        packed_panels(&local, pairs, streams, p, step);
    for (size_t p = streams * step; p < panels; p++)
        packed_panels(&local, pairs, 1, p, 0);
}

/* ---- as they lie in a file --------------------------------------------------------------------------------------- */

/* A group of two rows from k on; zeros from the rows' ends on. */
INLINE uint16x8_t mapped_tail(const void *first, const void *second, enum ash_dtype dtype, size_t k, size_t K)
{
    uint16_t pair[2 * GROUP] = {0};

    for (size_t i = 0; i < GROUP && k + i < K; i++) {
        pair[i] = pack_load1(first, dtype, k + i);
        pair[GROUP + i] = pack_load1(second, dtype, k + i);
    }
    return vld1q_u16(pair);
}

/* One line of two rows: LINE_K of their k from k on. */
INLINE void mapped_line(const void *first, const void *second, enum ash_dtype dtype, size_t k, const uint16_t *x,
                        size_t pairs, size_t stride, float32x4_t *acc)
{
    UNROLL
    for (size_t u = 0; u < LINE_K; u += 2 * GROUP, x += 4 * pairs * GROUP) {
        uint64x2_t a = vreinterpretq_u64_u16(pack_load8(first, dtype, k + u));
        uint64x2_t b = vreinterpretq_u64_u16(pack_load8(second, dtype, k + u));
        uint16x8_t now = vreinterpretq_u16_u64(vtrn1q_u64(a, b)), next = vreinterpretq_u16_u64(vtrn2q_u64(a, b));

        UNROLL
        for (size_t i = 0; i < pairs; i++) {
            acc[i * stride] = multiply(acc[i * stride], vld1q_u16(x + 2 * i * GROUP), now);
            acc[i * stride] = multiply(acc[i * stride], vld1q_u16(x + 2 * (pairs + i) * GROUP), next);
        }
    }
}

/* One line of 2 * cols rows, for MAPPED_PAIRS pairs of rows of x: a part of x stays in registers for all of them. */
INLINE void mapped_lines(const void *const *w, enum ash_dtype dtype, size_t k, const uint16_t *x, size_t pairs,
                         size_t cols, float32x4_t *acc)
{
    for (size_t u = 0; u < LINE_K; u += 2 * GROUP, x += 4 * pairs * GROUP) {
        uint16x8_t left[2 * MAPPED_PAIRS];

        UNROLL
        for (size_t i = 0; i < 2 * pairs; i++)
            left[i] = vld1q_u16(x + 2 * i * GROUP);
        UNROLL
        for (size_t j = 0; j < cols; j++) {
            uint64x2_t a = vreinterpretq_u64_u16(pack_load8(w[2 * j], dtype, k + u));
            uint64x2_t b = vreinterpretq_u64_u16(pack_load8(w[2 * j + 1], dtype, k + u));
            uint16x8_t now = vreinterpretq_u16_u64(vtrn1q_u64(a, b)), next = vreinterpretq_u16_u64(vtrn2q_u64(a, b));

            UNROLL
            for (size_t i = 0; i < pairs; i++)
                acc[i * cols + j] = multiply(acc[i * cols + j], left[i], now);
            UNROLL
            for (size_t i = 0; i < pairs; i++)
                acc[i * cols + j] = multiply(acc[i * cols + j], left[pairs + i], next);
        }
    }
}

/* 2 * cols rows of w from row on; where there are fewer, the last is computed again and not used. */
INLINE void mapped_rows(const struct ash_small_m *job, enum ash_dtype dtype, size_t pairs, size_t cols, size_t row)
{
    const struct ash_mat *mat = &job->w->mat;
    const uint16_t *x = job->left;
    const void *w[MAPPED_COLS];
    const char *ahead;
    float32x4_t acc[MAPPED_PAIRS * MAPPED_COLS / 2];
    size_t k = 0, bytes = ash_dtype_bytes(dtype);

    UNROLL
    for (size_t j = 0; j < 2 * cols; j++) {
        size_t at = row + j < job->count ? row + j : job->count - 1;

        w[j] = pack_at(mat->data, dtype, (job->first + at) * mat->col_stride);
    }
    ahead = (const char *)w[0] + AHEAD_BYTES;
    UNROLL
    for (size_t i = 0; i < pairs * cols; i++)
        acc[i] = vdupq_n_f32(0.0f);
    for (; k + LINE_K <= job->K; k += LINE_K, x += 2 * pairs * LINE_K, ahead += 2 * cols * LINE_K * bytes) {
        UNROLL
        for (size_t j = 0; j < cols; j++) {
            UNROLL for (size_t l = 0; l < 2 * LINE_K * bytes;
                        l += 64) __asm__ volatile("prfm pldl2keep, [%0]" ::"r"(ahead + 2 * j * LINE_K * bytes + l));
            if (pairs < MAPPED_PAIRS) mapped_line(w[2 * j], w[2 * j + 1], dtype, k, x, pairs, cols, acc + j);
        }
        if (pairs == MAPPED_PAIRS) mapped_lines(w, dtype, k, x, pairs, cols, acc);
    }
    for (; k < job->K; k += GROUP, x += 2 * pairs * GROUP)
        UNROLL for (size_t j = 0; j < cols; j++)
        {
            uint16x8_t right = mapped_tail(w[2 * j], w[2 * j + 1], dtype, k, job->K);

            UNROLL for (size_t i = 0; i < pairs; i++) acc[i * cols + j] =
                multiply(acc[i * cols + j], vld1q_u16(x + 2 * i * GROUP), right);
        }
    UNROLL
    for (size_t i = 0; i < pairs; i++)
        UNROLL for (size_t j = 0; j < cols; j += 2)
            store_pair(job, i, row + 2 * j, acc[i * cols + j], acc[i * cols + j + 1]);
}

INLINE void mapped_sums(const struct ash_small_m *job, enum ash_dtype dtype)
{
    const struct ash_small_m local = *job;
    size_t pairs = pairs_of(job->M);

    for (size_t row = 0; row < job->count; row += pairs == 1 ? MAPPED_COLS : MAPPED_COLS / 2)
        if (pairs == 1)
            mapped_rows(&local, dtype, 1, MAPPED_COLS / 2, row);
        else if (pairs == 2)
            mapped_rows(&local, dtype, 2, MAPPED_COLS / 4, row);
        else
            mapped_rows(&local, dtype, MAPPED_PAIRS, MAPPED_COLS / 4, row);
}

static void sums(const struct ash_small_m *job)
{
    size_t pairs = pairs_of(job->M);

    if (job->w->packed && pairs == 1)
        packed_sums(job, 1, 4);
    else if (job->w->packed && pairs == 2)
        packed_sums(job, 2, 4);
    else if (job->w->packed && pairs == 4)
        packed_sums(job, 4, 3);
    else if (job->w->packed)
        packed_sums(job, PAIRS_MAX, 2);
    else if (job->w->mat.dtype == ASH_BF16)
        mapped_sums(job, ASH_BF16);
    else if (job->w->mat.dtype == ASH_F16)
        mapped_sums(job, ASH_F16);
    else
        mapped_sums(job, ASH_F32);
}

const struct ash_small_m_kernel ash_small_m_bfmmla = {.group_rows = ASH_SMALL_M_ROWS,
                                                      .packed_rows = PACKED_ROWS,
                                                      .groups_max = 4,
                                                      .left_bytes = left_bytes,
                                                      .prepare = prepare,
                                                      .sums = sums,
                                                      .packed_gemm = ash_gemm_bfmmla_packed,
                                                      .packed_bytes = packed_bytes,
                                                      .pack = pack_weight};

#endif
