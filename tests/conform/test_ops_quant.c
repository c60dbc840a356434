/* Products with quantised matrices on every backend: the reference's bits on awkward sizes; and the reference itself
 * against sums worked out here, with the promise that a row does not depend on its neighbours. */
#define PRODUCTS_UNDER_TEST PRODUCTS_QUANTISED
#include "conform/ops_harness.h"

#include <float.h>
#include <math.h>

#include "compute/quant_open.h"

static const enum ash_dtype kinds[] = {ASH_Q8_0, ASH_Q4_0, ASH_Q8_W, ASH_Q4_1, ASH_Q5_0,   ASH_Q5_1,   ASH_Q2_K,
                                       ASH_Q3_K, ASH_Q4_K, ASH_Q5_K, ASH_Q6_K, ASH_IQ4_NL, ASH_IQ4_XS, ASH_MXFP4};

static enum ash_dtype draw_kind(struct tape *tape)
{
    return kinds[draw_below(tape, ASH_COUNT(kinds))];
}

/* k of about that many blocks of 32: whole blocks of the type. */
static size_t whole_k(enum ash_dtype dtype, size_t blocks)
{
    size_t block = ash_dtype_block(dtype);

    return (blocks * ASH_QUANT_BLOCK + block - 1) / block * block;
}

/* Where a block has its scale, and perhaps after it a minimum. */
static size_t scale_at(enum ash_dtype dtype)
{
    return dtype == ASH_Q2_K ? 80 : dtype == ASH_Q3_K ? 108 : dtype == ASH_Q6_K ? 208 : 0;
}

#define MX_ONE 127 /* the exponent that is a scale of 1 */

/* A power of two of the half's size; the largest and the smallest if it is none. */
static uint8_t mx_scale(uint16_t half)
{
    int exponent = half >> 10 & 31;

    return exponent == 31 ? 0xff : exponent == 0 ? (uint8_t)(half & 1) : (uint8_t)(MX_ONE + exponent - 15);
}

/* Give the blocks of rows of cols their scales: each its own, or one to the blocks of a group. */
static void set_scale(uint8_t *data, enum ash_dtype dtype, size_t cols, size_t block, uint16_t half)
{
    size_t in_row = block % (cols / ash_dtype_block(dtype)), group = ASH_QUANT_GROUP / ASH_QUANT_BLOCK;

    if (dtype == ASH_Q8_W && in_row % group != 0)
        memcpy(&half, data + (block - in_row % group) * ash_dtype_bytes(dtype), sizeof(half));
    if (dtype == ASH_MXFP4)
        data[block * ash_dtype_bytes(dtype)] = mx_scale(half);
    else
        memcpy(data + block * ash_dtype_bytes(dtype) + scale_at(dtype), &half, sizeof(half));
}

static void set_min(uint8_t *data, enum ash_dtype dtype, size_t block, uint16_t half)
{
    if (ash_quant_has_min(dtype))
        memcpy(data + block * ash_dtype_bytes(dtype) + scale_at(dtype) + sizeof(half), &half, sizeof(half));
}

static uint16_t draw_half(struct tape *tape)
{
    return ash_f32_to_f16(0.01f * (float)ash_rng_normal(tape->seed, 2, tape->drawn++));
}

/* Scales of Q4_0 whose blocks have small sub-scales: in every row, in about half of them, or in none. */
static void draw_small_subscales(struct tape *tape, uint8_t *data, size_t rows, size_t cols)
{
    size_t blocks = cols / ASH_QUANT_BLOCK, kind = draw_below(tape, 3);

    for (size_t row = 0; row < rows; row++) {
        bool small = kind == 0 || (kind == 1 && draw_below(tape, 2) == 0);
        float group_scale = 0.0f;

        for (size_t b = 0; small && b < blocks; b++) {
            int subscale = (int)draw_below(tape, 2 * ASH_QUANT_SUBSCALE_SMALL_MAX + 1) - ASH_QUANT_SUBSCALE_SMALL_MAX;

            if (b % ASH_QUANT_GROUP_BLOCKS == 0) {
                group_scale = (float)(1 + draw_below(tape, 127)) / 65536.0f;
                subscale = ASH_QUANT_SUBSCALE_SMALL_MAX;
            }
            set_scale(data, ASH_Q4_0, cols, row * blocks + b, ash_f32_to_f16((float)subscale * group_scale));
        }
    }
}

/* rows x cols random blocks: every nibble and byte, scales of both signs. */
static uint8_t *draw_blocks(struct tape *tape, enum ash_dtype dtype, size_t rows, size_t cols)
{
    size_t bytes = ash_dtype_size(dtype, rows * cols);
    uint8_t *data = tape_alloc(tape, bytes);

    for (size_t i = 0; i < bytes; i += sizeof(uint32_t)) {
        uint32_t word = (uint32_t)draw_below(tape, 1ull << 32);

        memcpy(data + i, &word, bytes - i < sizeof(word) ? bytes - i : sizeof(word));
    }
    for (size_t b = 0; b < rows * cols / ash_dtype_block(dtype); b++) {
        set_scale(data, dtype, cols, b, draw_half(tape));
        set_min(data, dtype, b, draw_half(tape));
    }
    if (dtype == ASH_Q4_0) draw_small_subscales(tape, data, rows, cols);
    return data;
}

/* Some blocks of zeros, of ties and of numbers almost too small to divide by. */
static void spoil(struct tape *tape, float *x, size_t count)
{
    for (size_t at = 0; at + ASH_QUANT_BLOCK <= count; at += ASH_QUANT_BLOCK) {
        size_t kind = draw_below(tape, 8);

        for (size_t i = at; i < at + ASH_QUANT_BLOCK; i++) {
            if (kind == 0) x[i] = 0.0f;
            if (kind == 1) x[i] *= FLT_MIN;
            if (kind == 2) x[i] = i == at ? 127.0f : (float)(int)(20.0f * x[i]) + 0.5f;
        }
    }
}

static void run_quant(struct ash_exec *exec, struct tape *tape, size_t M, size_t N, size_t blocks)
{
    struct ash_quant_args args = {.M = M, .N = N};
    size_t mode = draw_below(tape, 3);
    float *x;

    args.dtype = draw_kind(tape);
    args.K = whole_k(args.dtype, blocks);
    args.x_stride = args.K + draw_below(tape, 5);
    args.y_stride = N + draw_below(tape, 5);
    args.x = x = draw_floats(tape, M * args.x_stride + 1, 3.0f);
    spoil(tape, x, M * args.x_stride);
    args.w = draw_blocks(tape, args.dtype, N, args.K);
    args.accumulate = mode == 1;
    args.bias = mode == 2 ? draw_floats(tape, N, 1.0f) : NULL;
    args.y = draw_floats(tape, M * args.y_stride, 1.0f);
    exec->ops->matrix->quant_gemm(exec, &args);
    tape_words(tape, args.y, M * args.y_stride); /* the gaps too: they must not be written */
}

static void scenario_small(struct ash_exec *exec, struct tape *tape)
{
    size_t M = draw_size(tape, 33), N = draw_size(tape, 33);

    run_quant(exec, tape, M, N, draw_below(tape, 6));
}

static void scenario_one_row(struct ash_exec *exec, struct tape *tape)
{
    run_quant(exec, tape, 1, draw_size(tape, 400), 1 + draw_below(tape, 12));
}

static void scenario_many_rows(struct ash_exec *exec, struct tape *tape)
{
    run_quant(exec, tape, draw_size(tape, 193), draw_size(tape, 65), 1 + draw_below(tape, 5));
}

/* ---- projections ------------------------------------------------------------------------------------------------- */

#define PACK_PIECE (2 * ASH_PACK_ROWS) /* rows packed by one call, where packing piece by piece is tried */

/* The weight as the backend wants it, or as it is (a reference packs nothing). */
static struct ash_weight weight_for(struct ash_exec *exec, struct tape *tape, struct ash_weight w, size_t K,
                                    bool pieces)
{
    const struct ash_matrix_ops *matrix = exec->ops->matrix;
    size_t bytes = matrix->packed_bytes != NULL ? matrix->packed_bytes(w.mat.dtype, w.N, K) : 0, step;
    struct ash_weight packed = {.N = w.N, .mat.dtype = w.mat.dtype, .packed = true};
    uint8_t *data;

    if (bytes == 0) return w;
    assert_true(bytes >= ash_dtype_size(w.mat.dtype, w.N * K) * 15 / 16); /* scales may be fewer */
    data = tape_alloc(tape, bytes + ASH_MEMORY_ALIGN);
    data += ASH_MEMORY_ALIGN - (uintptr_t)data % ASH_MEMORY_ALIGN;
    step = pieces ? PACK_PIECE : w.N;
    for (size_t first = 0; first < w.N; first += step)
        matrix->pack(exec, &w, K, first, w.N - first < step ? w.N - first : step, data);
    packed.mat.data = data;
    return packed;
}

/* Scales that make sums vanish, overflow or mean nothing. */
static void spoil_scales(struct tape *tape, uint8_t *w, enum ash_dtype dtype, size_t rows, size_t cols)
{
    static const uint16_t odd[] = {0x0000, 0x8000, 0x0001, 0x83ff, 0x7bff, 0xfbff, 0x7c00, 0x7e00};

    for (size_t b = 0; b < rows * cols / ash_dtype_block(dtype); b++) {
        if (draw_below(tape, 16) == 0) set_scale(w, dtype, cols, b, odd[draw_below(tape, ASH_COUNT(odd))]);
        if (draw_below(tape, 16) == 0) set_min(w, dtype, b, odd[draw_below(tape, ASH_COUNT(odd))]);
    }
}

static void spoil_row(struct tape *tape, float *x, size_t cols)
{
    static const float odd[] = {INFINITY, -INFINITY, NAN, 1e38f, 1e-38f, 1e-45f, -0.0f};
    float size = draw_below(tape, 3) == 0 ? 1e-36f : draw_below(tape, 3) == 0 ? 1e33f : 1.0f;

    for (size_t i = 0; i < cols; i++)
        x[i] *= size;
    if (draw_below(tape, 4) == 0) x[draw_below(tape, cols)] = odd[draw_below(tape, ASH_COUNT(odd))];
}

enum { PLAIN, RESIDUAL, SWIGLU, IN_PLACE, PROJECT_KINDS };

static void run_project(struct ash_exec *exec, struct tape *tape, size_t M, size_t N, size_t blocks, bool wild)
{
    size_t kind = draw_below(tape, PROJECT_KINDS);
    enum ash_dtype dtype = draw_kind(tape);
    struct ash_project_args args = {.M = M, .K = whole_k(dtype, blocks), .norm_eps = 1e-5f};
    bool pack_it = draw_below(tape, 8) != 0, pieces = draw_bool(tape);
    float *x;

    args.x_stride = args.K + draw_below(tape, 5);
    args.x = x = draw_floats(tape, M * args.x_stride + 1, 3.0f);
    spoil(tape, x, M * args.x_stride);
    for (size_t m = 0; wild && m < M; m++)
        spoil_row(tape, x + m * args.x_stride, args.K);
    args.norm = draw_bool(tape) ? draw_floats(tape, args.K, 1.0f) : NULL;
    args.residual = kind == RESIDUAL || kind == IN_PLACE;
    args.swiglu = kind == SWIGLU;
    args.out_count = kind == SWIGLU ? 2 : kind == IN_PLACE ? 1 : 1 + draw_below(tape, ASH_PROJECT_OUTS_MAX);
    if (kind == IN_PLACE) N = args.K;
    for (size_t i = 0; i < args.out_count; i++) {
        struct ash_project_out *out = &args.outs[i];
        size_t rows = i > 0 && kind != SWIGLU ? draw_size(tape, 49) : N;
        uint8_t *w = draw_blocks(tape, dtype, rows, args.K);

        if (wild) spoil_scales(tape, w, dtype, rows, args.K);
        out->w = (struct ash_weight){.N = rows, .mat = {.data = w, .dtype = dtype}};
        if (pack_it) out->w = weight_for(exec, tape, out->w, args.K, pieces);
        out->bias = draw_bool(tape) ? draw_floats(tape, rows, 1.0f) : NULL;
        out->y_stride = rows + draw_below(tape, 5);
        out->y = draw_floats(tape, M * out->y_stride, 1.0f);
        if (kind == IN_PLACE) {
            out->y = x;
            out->y_stride = args.x_stride;
        }
    }
    exec->ops->matrix->project(exec, &args);
    for (size_t i = 0; i < (args.swiglu ? 1 : args.out_count); i++)
        tape_words(tape, args.outs[i].y, (M - 1) * args.outs[i].y_stride + args.outs[i].w.N);
}

static void scenario_project_small_m(struct ash_exec *exec, struct tape *tape)
{
    static const size_t blocks[] = {1, 3, 64};
    size_t M = 1 + draw_below(tape, 17), N = draw_size(tape, 65), count = blocks[draw_below(tape, ASH_COUNT(blocks))];

    run_project(exec, tape, M, count == 64 ? 1 + draw_below(tape, 24) : N, count, false);
}

static void scenario_project_gemv(struct ash_exec *exec, struct tape *tape)
{
    run_project(exec, tape, 1, draw_size(tape, 400), 1 + draw_below(tape, 8), false);
}

/* As a layer decodes: whole groups of k, rows at 16-byte borders, types that kernels for few rows take. */
static void scenario_project_decode(struct ash_exec *exec, struct tape *tape)
{
    static const enum ash_dtype dtypes[] = {ASH_Q8_0, ASH_Q8_W, ASH_Q4_0};
    enum ash_dtype dtype = dtypes[draw_below(tape, ASH_COUNT(dtypes))];
    size_t kind = draw_below(tape, IN_PLACE), N = draw_size(tape, 193);
    struct ash_project_args args = {
        .M = 1 + draw_below(tape, 5), .K = ASH_QUANT_GROUP * (1 + draw_below(tape, 5)), .norm_eps = 1e-5f};
    float *x;

    if (draw_below(tape, 8) == 0) { /* so many outputs that every multiprocessor of a GPU has several */
        N = 2000 + draw_below(tape, 3000);
        args.M = 1;
        args.K = ASH_QUANT_GROUP;
    }
    args.x_stride = args.K + 4 * draw_below(tape, 2);
    args.x = x = draw_floats(tape, args.M * args.x_stride, 3.0f);
    if (draw_below(tape, 4) == 0) spoil_row(tape, x, args.K);
    args.norm = draw_bool(tape) ? draw_floats(tape, args.K, 1.0f) : NULL;
    args.round_bf16 = draw_bool(tape);
    args.residual = kind == RESIDUAL;
    args.swiglu = kind == SWIGLU;
    args.out_count = kind == SWIGLU ? 2 : 1 + draw_below(tape, ASH_PROJECT_OUTS_MAX);
    for (size_t i = 0; i < args.out_count; i++) {
        struct ash_project_out *out = &args.outs[i];
        size_t rows = i > 0 && kind != SWIGLU ? draw_size(tape, 49) : N;
        uint8_t *w = draw_blocks(tape, dtype, rows, args.K);

        if (draw_below(tape, 4) == 0) spoil_scales(tape, w, dtype, rows, args.K);
        out->w = (struct ash_weight){.N = rows, .mat = {.data = w, .dtype = dtype}};
        out->bias = draw_bool(tape) ? draw_floats(tape, rows, 1.0f) : NULL;
        out->y_stride = rows + draw_below(tape, 5);
        out->y = draw_floats(tape, args.M * out->y_stride, 1.0f);
    }
    exec->ops->matrix->project(exec, &args);
    for (size_t i = 0; i < (args.swiglu ? 1 : args.out_count); i++)
        tape_words(tape, args.outs[i].y, args.M * args.outs[i].y_stride);
}

/* More rows than are quantised together, more k than a block of it. */
static void scenario_project_large_m(struct ash_exec *exec, struct tape *tape)
{
    if (draw_bool(tape))
        run_project(exec, tape, 380 + draw_below(tape, 20), draw_size(tape, 25), 1 + draw_below(tape, 3), false);
    else
        run_project(exec, tape, 9 + draw_below(tape, 40), draw_size(tape, 129), 30 + draw_below(tape, 6), false);
}

/* The last round has a single row, where rounds are of 384: it has no streams of its own. */
static void scenario_project_last(struct ash_exec *exec, struct tape *tape)
{
    run_project(exec, tape, 31 * 384 + 1, 65 + draw_below(tape, 64), 1, false);
}

/* Prepared x of 384 rows and 1024 k is a whole number of pages: what a kernel reads after it is another page. */
static void scenario_project_edge(struct ash_exec *exec, struct tape *tape)
{
    enum ash_dtype dtype = draw_kind(tape);
    size_t M = 384, N = 1 + draw_below(tape, 9), K = 4 * ASH_QUANT_GROUP;
    struct ash_weight w = {.N = N, .mat = {.data = draw_blocks(tape, dtype, N, K), .dtype = dtype}};
    struct ash_project_args args = {.M = M, .K = K, .x = draw_floats(tape, M * K, 1.0f), .x_stride = K, .out_count = 1};

    args.outs[0] = (struct ash_project_out){
        .w = weight_for(exec, tape, w, K, false), .y = draw_floats(tape, M * N, 1.0f), .y_stride = N};
    exec->ops->matrix->project(exec, &args);
    tape_words(tape, args.outs[0].y, M * N);
}

static void scenario_project_wild(struct ash_exec *exec, struct tape *tape)
{
    size_t M = 1 + draw_below(tape, 17), N = draw_size(tape, 65);

    run_project(exec, tape, M, N, 1 + draw_below(tape, 4), true);
}

static void scenario_gather(struct ash_exec *exec, struct tape *tape)
{
    enum ash_dtype dtype = draw_kind(tape);
    size_t vocab = draw_size(tape, 65), rows = draw_size(tape, 33), cols = whole_k(dtype, 1 + draw_below(tape, 12));
    uint8_t *table = draw_blocks(tape, dtype, vocab, cols);
    float *out = draw_floats(tape, rows * cols, 1.0f);

    exec->ops->embed->gather(exec, &(struct ash_embed_args){.table = table,
                                                            .dtype = dtype,
                                                            .cols = cols,
                                                            .rows = rows,
                                                            .ids = draw_ids(tape, rows, vocab),
                                                            .add = draw_bool(tape),
                                                            .out = out});
    tape_words(tape, out, rows * cols);
}

static void test_quant_gemm(void **state)
{
    (void)state;
    check_scenario(scenario_small, 270);
    check_scenario(scenario_one_row, 60);
    check_scenario(scenario_many_rows, 40);
}

static void test_project(void **state)
{
    (void)state;
    check_scenario(scenario_project_small_m, 120);
    check_scenario(scenario_project_gemv, 80);
    check_scenario(scenario_project_large_m, few_or_many(6, 16));
    if (!EMULATED) check_scenario(scenario_project_last, few_or_many(1, 2)); /* a GPU has no such rounds */
    check_scenario(scenario_project_edge, few_or_many(4, 24));
    check_scenario(scenario_project_wild, 180);
    check_scenario(scenario_project_decode, 32);
}

static void test_gather(void **state)
{
    (void)state;
    check_scenario(scenario_gather, 60);
}

/* One block, by hand: element i of w is i - 8 (low nibbles) and 7 - i (high), with a scale of which the group scale of
 * Q4_0 is a power of two; x is 127 times a one-hot. */
static void test_layout(void **state)
{
    uint8_t q4[18], q8[34];
    float scale4 = ASH_QUANT_SUBSCALE_SMALL_MAX / 256.0f, scale8 = 0.375f;
    uint16_t half4 = ash_f32_to_f16(scale4), half8 = ash_f32_to_f16(scale8);

    (void)state;
    memcpy(q4, &half4, sizeof(half4));
    memcpy(q8, &half8, sizeof(half8));
    for (int i = 0; i < 16; i++) {
        q4[2 + i] = (uint8_t)(i | (15 - i) << 4);
        q8[2 + i] = (uint8_t)(int8_t)(i - 8);
        q8[18 + i] = (uint8_t)(int8_t)(7 - i);
    }
    for (const char *const *name = backends_under_test(); *name != NULL; name++) {
        struct ash_exec exec;
        struct tape tape;
        float *x, *y;
        uint8_t *w4, *w8;

        exec_init(&exec, *name, 1);
        tape_init(&tape, &exec, 0);
        x = draw_floats(&tape, 32, 1.0f);
        y = draw_floats(&tape, 2, 1.0f);
        w4 = memcpy(tape_alloc(&tape, sizeof(q4)), q4, sizeof(q4));
        w8 = memcpy(tape_alloc(&tape, sizeof(q8)), q8, sizeof(q8));
        for (int hot = 0; hot < 32; hot++) {
            float want = 127.0f * (float)(hot < 16 ? hot - 8 : 7 - (hot - 16));
            struct ash_quant_args args = {.M = 1, .N = 1, .K = 32, .x = x, .w = w4, .dtype = ASH_Q4_0, .y = y};

            memset(x, 0, 32 * sizeof(*x));
            x[hot] = 127.0f;
            exec.ops->matrix->quant_gemm(&exec, &args);
            args.w = w8;
            args.dtype = ASH_Q8_0;
            args.y = y + 1;
            exec.ops->matrix->quant_gemm(&exec, &args);
            tape_wait(&tape);
            assert_true(y[0] == scale4 * want && y[1] == scale8 * want);
        }
        ash_exec_fini(&exec);
        tape_fini(&tape);
    }
}

/* A group whose blocks have scales of different sizes and signs, all integer multiples of one: block b of w is 1 at
 * its element b, and only block `hot` of x is not 0. */
static void check_subscales(const int *subscales)
{
    enum { BLOCKS = ASH_QUANT_GROUP_BLOCKS };
    uint8_t w[BLOCKS * 18];

    memset(w, 0x88, sizeof(w)); /* zeros */
    for (size_t b = 0; b < BLOCKS; b++) {
        uint16_t half = ash_f32_to_f16((float)subscales[b] / 512.0f);

        memcpy(w + b * 18, &half, sizeof(half));
        w[b * 18 + sizeof(half) + b]++;
    }
    for (const char *const *name = backends_under_test(); *name != NULL; name++) {
        struct ash_exec exec;
        struct tape tape;
        float *x, *y;
        uint8_t *blocks;

        exec_init(&exec, *name, 1);
        tape_init(&tape, &exec, 0);
        x = draw_floats(&tape, ASH_QUANT_GROUP, 1.0f);
        y = draw_floats(&tape, 1, 1.0f);
        blocks = memcpy(tape_alloc(&tape, sizeof(w)), w, sizeof(w));
        for (size_t hot = 0; hot < BLOCKS; hot++) {
            struct ash_quant_args args = {
                .M = 1, .N = 1, .K = ASH_QUANT_GROUP, .x = x, .w = blocks, .dtype = ASH_Q4_0, .y = y};

            memset(x, 0, ASH_QUANT_GROUP * sizeof(*x));
            x[hot * ASH_QUANT_BLOCK + hot] = 127.0f;
            exec.ops->matrix->quant_gemm(&exec, &args);
            tape_wait(&tape);
            assert_true(*y == 127.0f * (float)subscales[hot] / 512.0f);
        }
        ash_exec_fini(&exec);
        tape_fini(&tape);
    }
}

static void test_subscales(void **state)
{
    static const int many[] = {ASH_QUANT_SUBSCALE_MAX, 3, -20, 0, 126, -127, 1, 77},
                     small[] = {-15, 3, 0, 14, 15, 1, -7, -1};

    (void)state;
    check_subscales(many);
    check_subscales(small);
}

/* Small sub-scales are found where they are exact, and nowhere else. */
static void test_small_subscales(void **state)
{
    static const struct {
        float scales[3];
        float group_scale;
        int32_t subscales[3];
    } cases[] = {
        {{15, -4, 1}, 1, {15, -4, 1}},
        {{-15, 0, 7}, 1, {-15, 0, 7}},
        {{0.9375f, 0.5f, 0.0625f}, 0.0625f, {15, 8, 1}},
        {{30, 2, 1}, 30 / 127.0f, {127, 8, 4}}, /* 1 is half a step of 15 */
        {{14, 7, 1}, 14 / 127.0f, {127, 64, 9}},
        {{15, 4.0078125f, 1}, 15 / 127.0f, {127, 34, 8}},
        {{0, 0, 0}, 0, {0, 0, 0}},
        {{5, 0, 0}, 5 / 15.0f, {15, 0, 0}},
    };

    (void)state;
    for (size_t i = 0; i < ASH_COUNT(cases); i++) {
        uint8_t blocks[3 * 18] = {0};
        int32_t subscales[3];

        for (size_t b = 0; b < 3; b++) {
            uint16_t half = ash_f32_to_f16(cases[i].scales[b]);

            memcpy(blocks + b * 18, &half, sizeof(half));
        }
        assert_true(ash_quant_subscales(blocks, 3, ASH_Q4_0, subscales) == cases[i].group_scale);
        assert_memory_equal(subscales, cases[i].subscales, sizeof(subscales));
    }
}

/* Blocks of Q8_0 do not know each other: each of x has its own size and each of w its own scale, powers of two far
 * apart, so the sum is exact to its last bit, whichever of them are there. */
static void test_blocks_apart(void **state)
{
    enum { BLOCKS = 9, K = BLOCKS * ASH_QUANT_BLOCK, M = 7, N = 9 };
    uint8_t w[N][BLOCKS * 34];
    float x[M][K];

    (void)state;
    for (size_t i = 0; i < (size_t)N * BLOCKS; i++) {
        uint16_t half = ash_f32_to_f16(ldexpf(1.0f, -(int)(i % 5)));
        uint8_t *block = &w[i / BLOCKS][i % BLOCKS * 34];

        memset(block, 0, 34);
        memcpy(block, &half, sizeof(half));
        block[sizeof(half) + i % 32] = (uint8_t)(1 + i % 3);
    }
    for (size_t i = 0; i < M * K; i++) /* of each block, the largest is 127 times a power of two */
        x[i / K][i % K] = ldexpf(i % 32 == 5 ? 127.0f : (float)(i % 100), (int)(i % K / 32 + i / K) % 4 - 8);
    for (const char *const *name = backends_under_test(); *name != NULL; name++) {
        struct ash_quant_args args = {.M = M, .N = N, .K = K, .x_stride = K, .dtype = ASH_Q8_0, .y_stride = N};
        struct ash_exec exec;
        struct tape tape;

        exec_init(&exec, *name, 1);
        tape_init(&tape, &exec, 0);
        args.x = memcpy(tape_alloc(&tape, sizeof(x)), x, sizeof(x));
        args.w = memcpy(tape_alloc(&tape, sizeof(w)), w, sizeof(w));
        args.y = tape_alloc(&tape, M * N * sizeof(float));
        exec.ops->matrix->quant_gemm(&exec, &args);
        tape_wait(&tape);
        for (size_t i = 0; i < (size_t)M * N; i++) {
            float want = 0.0f;

            for (size_t b = 0; b < BLOCKS; b++) {
                size_t at = i % N * BLOCKS + b;

                want += ldexpf(x[i / N][b * 32 + at % 32] * (float)(1 + at % 3), -(int)(at % 5));
            }
            assert_true(args.y[i] == want);
        }
        ash_exec_fini(&exec);
        tape_fini(&tape);
    }
}

/* A row of a batch is the row alone, and near the product of the unquantised row with the weights. */
static void test_rows_alone(void **state)
{
    enum { M = 67, N = 37, K_MAX = 512 };

    (void)state;
    for (const char *const *name = backends_under_test(); *name != NULL; name++) {
        for (size_t kind = 0; kind < ASH_COUNT(kinds); kind++) {
            struct ash_exec exec;
            struct tape tape;
            float *x, *all, *alone, *wide;
            size_t K = ash_dtype_block(kinds[kind]) == ASH_QUANT_BLOCK ? 416 : K_MAX;
            struct ash_quant_args args = {.M = M, .N = N, .K = K, .x_stride = K, .y_stride = N};

            exec_init(&exec, *name, 2);
            tape_init(&tape, &exec, 9);
            args.dtype = kinds[kind];
            args.x = x = draw_floats(&tape, M * K, 1.0f);
            args.w = draw_blocks(&tape, args.dtype, N, K);
            args.y = all = draw_floats(&tape, (size_t)M * N, 1.0f);
            alone = draw_floats(&tape, (size_t)M * N, 1.0f);
            exec.ops->matrix->quant_gemm(&exec, &args);
            args.M = 1;
            for (size_t m = 0; m < M; m += EMULATED ? 13 : 1) {
                args.x = x + m * K;
                args.y = alone + m * N;
                exec.ops->matrix->quant_gemm(&exec, &args);
                tape_wait(&tape);
                assert_memory_equal(all + m * N, args.y, N * sizeof(*all));
            }
            wide = tape_alloc(&tape, K * sizeof(*wide));
            exec.ops->embed->gather(&exec, &(struct ash_embed_args){.table = args.w,
                                                                    .dtype = args.dtype,
                                                                    .cols = K,
                                                                    .rows = 1,
                                                                    .ids = draw_ids(&tape, 1, 1),
                                                                    .out = wide});
            tape_wait(&tape);
            double sum = 0, size = 0;
            for (size_t k = 0; k < K; k++) {
                sum += (double)x[k] * (double)wide[k];
                size += fabs((double)x[k] * (double)wide[k]);
            }
            assert_true(fabs(sum - (double)all[0]) < 0.02 * size);
            ash_exec_fini(&exec);
            tape_fini(&tape);
        }
    }
}

/* An infinity or NaN in x makes the row NaN, and only that row. */
static void test_not_finite(void **state)
{
    static const float bad[] = {NAN, -NAN, INFINITY, -INFINITY};

    (void)state;
    for (const char *const *name = backends_under_test(); *name != NULL; name++) {
        struct ash_exec exec;
        struct tape tape;

        exec_init(&exec, *name, 1);
        tape_init(&tape, &exec, 0);
        for (size_t i = 0; i < ASH_COUNT(bad); i++) {
            float *x = tape_alloc(&tape, 3 * 64 * sizeof(*x)), *y = tape_alloc(&tape, 3 * sizeof(*y));
            struct ash_quant_args args = {
                .M = 3, .N = 1, .K = 64, .x = x, .x_stride = 64, .dtype = ASH_Q8_0, .y = y, .y_stride = 1};

            args.w = memset(tape_alloc(&tape, 68), 0, 68);
            memset(x, 0, 3 * 64 * sizeof(*x));
            x[64 + 7] = bad[i];
            exec.ops->matrix->quant_gemm(&exec, &args);
            tape_wait(&tape);
            assert_true(y[0] == 0.0f && isnan(y[1]) && y[2] == 0.0f);
        }
        ash_exec_fini(&exec);
        tape_fini(&tape);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_quant_gemm),   cmocka_unit_test(test_project),    cmocka_unit_test(test_gather),
        cmocka_unit_test(test_layout),       cmocka_unit_test(test_subscales),  cmocka_unit_test(test_small_subscales),
        cmocka_unit_test(test_blocks_apart), cmocka_unit_test(test_rows_alone), cmocka_unit_test(test_not_finite),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
