/* Operands are drawn on the host, by number: near exponents, far ones, denormals, large sums, infinities and NaN. A
 * round is some hundred tiles, a fraction of a second for the models. */
#include "compute/cuda/trial/trial.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/assert.h"
#include "base/bf16.h"
#include "base/hash.h"
#include "base/math.h"
#include "compute/cuda/host/backend_priv.h"
#include "compute/ref/ex2.h"
#include "compute/ref/fp8.h"

#define EX2_CASES (1 << 16)
#define COLUMNS 8

/* A tile of a trial: a [rows, k], b [COLUMNS, k], c [rows, COLUMNS]; an element has bytes. */
struct shape {
    const char *name;
    enum ash_cuda_kernel_id kernel;
    size_t tiles, rows, k, bytes, threads, shared_bytes;
};

#define LINES_BYTES ((64 + COLUMNS) * 128)
static const struct shape shapes[] = {
    [ASH_TRIAL_MMA] = {"bf16 products by mma.sync", ASH_KERNEL_trial_mma, 256, 16, 16, 2, 32, 0},
    [ASH_TRIAL_WGMMA] = {"bf16 products by wgmma", ASH_KERNEL_trial_wgmma, 32, 64, 64, 2, ASH_CUDA_TRIAL_THREADS,
                         LINES_BYTES},
    [ASH_TRIAL_FP8] = {"fp8 products (e4m3) by wgmma", ASH_KERNEL_trial_fp8, 32, 64, 128, 1, ASH_CUDA_TRIAL_THREADS,
                       LINES_BYTES},
    [ASH_TRIAL_EX2] = {"powers of two by ex2.approx", ASH_KERNEL_trial_ex2, 0, 0, 0, 0, 0, 0},
};
_Static_assert(ASH_COUNT(shapes) == ASH_TRIAL_COUNT, "each kind has a shape");

const char *ash_trial_name(enum ash_trial_kind kind)
{
    return shapes[kind].name;
}

bool ash_trial_applies(const struct ash_exec *exec, enum ash_trial_kind kind)
{
    return exec->cuda->has_wgmma || (kind != ASH_TRIAL_WGMMA && kind != ASH_TRIAL_FP8);
}

/* ---- operands ---------------------------------------------------------------------------------------------------- */

/* How the factors of a tile are drawn. */
enum draw { DRAW_NEAR, DRAW_FAR, DRAW_SMALL, DRAW_LARGE_SUM, DRAW_ANY, DRAW_COUNT };

static uint16_t draw_bf16(enum draw how, uint64_t word)
{
    uint16_t sign_and_fraction = (uint16_t)(word & 0x807f), exponent = (uint16_t)(word >> 16 & 255);

    switch (how) {
    case DRAW_NEAR:
    case DRAW_LARGE_SUM:
        exponent = 120 + exponent % 15;
        break;
    case DRAW_FAR:
        exponent = 64 + exponent % 128;
        break;
    case DRAW_SMALL:
        exponent %= 72;
        break;
    default: /* infinities and NaN, but most of the factors are zeros */
        if ((word >> 32 & 7) != 0) return 0;
    }
    return (uint16_t)(sign_and_fraction | exponent << 7);
}

static uint8_t draw_e4m3(enum draw how, uint64_t word)
{
    uint8_t code = (uint8_t)word;

    if (how == DRAW_NEAR) code = (uint8_t)((code & 0x87) | (5 + (word >> 8 & 3)) << 3);
    if (how == DRAW_SMALL) code &= 0x9f;
    return (code & 0x7f) == 0x7f ? (uint8_t)(code - 1) : code; /* no NaN */
}

static float draw_sum(enum draw how, uint64_t word)
{
    uint32_t sign_and_fraction = (uint32_t)word & 0x807fffff, exponent = (uint32_t)(word >> 32 & 255);

    switch (how) {
    case DRAW_NEAR:
        exponent = 116 + exponent % 24;
        break;
    case DRAW_LARGE_SUM:
        exponent = 135 + exponent % 30;
        break;
    case DRAW_SMALL:
        exponent %= 32;
        break;
    case DRAW_FAR:
        exponent = 2 + exponent % 252;
        break;
    default:
        break;
    }
    return ash_f32_from_bits(sign_and_fraction | exponent << 23);
}

/* Every pattern of 32 bits comes once in 2^33 cases; half of them are numbers whose power of two is no constant. */
static float draw_exponent(uint64_t number)
{
    uint32_t bits = (uint32_t)(number / 2) * 2654435761u;

    if (number % 2 == 1) bits = (bits & 0x807fffff) | (104 + (uint32_t)ash_hash_mix(number) % 31) << 23;
    return ash_f32_from_bits(bits);
}

/* ---- comparison ------------------------------------------------------------------------------------------------ */

/* Operands and results of a round on the host, and the device's. */
struct round {
    const struct shape *shape;
    size_t a_bytes, b_bytes, count; /* count: of sums */
    void *a, *b;
    float *c, *d;
    struct ash_cuda_trial op;
};

static void draw_round(struct round *round, uint64_t number)
{
    const struct shape *shape = round->shape;
    size_t per_tile = shape->rows * shape->k, b_tile = COLUMNS * shape->k, sums = shape->rows * COLUMNS;
    uint64_t seed = ash_hash_mix(number + 1) ^ (uint64_t)shape->kernel << 56;

    for (size_t i = 0; i < round->count; i++)
        round->c[i] = shape->tiles == 0   ? draw_exponent(number * EX2_CASES + i)
                      : shape->bytes == 1 ? 0.0f
                                          : draw_sum(i / sums % DRAW_COUNT, ash_hash_mix(seed ^ (i + 1) << 32));
    for (size_t i = 0; i < shape->tiles * (per_tile + b_tile); i++) {
        bool is_a = i < shape->tiles * per_tile;
        size_t at = is_a ? i : i - shape->tiles * per_tile;
        enum draw how = (enum draw)(at / (is_a ? per_tile : b_tile) % DRAW_COUNT);
        uint64_t word = ash_hash_mix(seed + i);

        if (shape->bytes == 1)
            ((uint8_t *)(is_a ? round->a : round->b))[at] = draw_e4m3(how, word);
        else
            ((uint16_t *)(is_a ? round->a : round->b))[at] = draw_bf16(how, word);
    }
}

static float bf16_chain(float sum, const uint16_t *a, const uint16_t *b, size_t k)
{
    float left[ASH_WGMMA_GROUP], right[ASH_WGMMA_GROUP];

    for (size_t first = 0; first < k; first += ASH_WGMMA_GROUP) {
        for (size_t i = 0; i < ASH_WGMMA_GROUP; i++) {
            left[i] = ash_bf16_to_f32(a[first + i]);
            right[i] = ash_bf16_to_f32(b[first + i]);
        }
        sum = ash_wgmma_step(sum, left, right);
    }
    return sum;
}

/* Result i, by the host's model. */
static float model_of(const struct round *round, size_t i)
{
    const struct shape *shape = round->shape;
    size_t line, column;

    if (shape->tiles == 0) return ash_ex2(round->c[i]);
    line = i / COLUMNS * shape->k;
    column = (i / (shape->rows * COLUMNS) * COLUMNS + i % COLUMNS) * shape->k;
    if (shape->bytes == 2)
        return bf16_chain(round->c[i], (const uint16_t *)round->a + line, (const uint16_t *)round->b + column,
                          shape->k);
    float sum = round->c[i];

    for (size_t k = 0; k < shape->k; k += ASH_FP8_GROUP)
        sum = ash_fp8_step(sum, (const uint8_t *)round->a + line + k, (const uint8_t *)round->b + column + k);
    return sum;
}

static void compare(const struct round *round, struct ash_trial *trial)
{
    for (size_t i = 0; i < round->count; i++) {
        float want = model_of(round, i);

        trial->cases++;
        if (ash_f32_bits(want) == ash_f32_bits(round->d[i])) continue;
        if (trial->differing++ == 0)
            snprintf(trial->first, sizeof(trial->first), "round %" PRIu64 ", case %zu: %08x instead of %08x",
                     trial->rounds, i, ash_f32_bits(round->d[i]), ash_f32_bits(want));
    }
}

/* ---- a round ----------------------------------------------------------------------------------------------------- */

/* Room for a round, here and in a buffer of the device. */
static int open_round(struct round *round, struct ash_buffer *device, struct ash_err *err)
{
    size_t sums_bytes = round->count * sizeof(float);
    int rc = ash_buffer_init(device, &ash_memory_cuda, round->a_bytes + round->b_bytes + 2 * sums_bytes,
                             "a trial's operands", err);

    if (rc < 0) return rc;
    round->a = calloc(1, round->a_bytes + round->b_bytes + 2 * sums_bytes);
    if (round->a == NULL) return ash_err_set(err, -ENOMEM, "no memory for a trial");
    round->b = (char *)round->a + round->a_bytes;
    round->c = (float *)(void *)((char *)round->b + round->b_bytes);
    round->d = round->c + round->count;
    round->op = (struct ash_cuda_trial){
        .a = device->data,
        .b = (char *)device->data + round->a_bytes,
        .c = (const float *)(void *)((char *)device->data + round->a_bytes + round->b_bytes),
        .d = (float *)(void *)((char *)device->data + round->a_bytes + round->b_bytes + sums_bytes),
        .count = round->shape->tiles > 0 ? round->shape->tiles : round->count};
    return 0;
}

static int run_round(struct ash_exec *exec, struct round *round, struct ash_err *err)
{
    const struct shape *shape = round->shape;
    struct ash_cuda_grid grid =
        shape->tiles == 0
            ? ash_cuda_grid_elements(round->count)
            : (struct ash_cuda_grid){
                  .x = shape->tiles, .y = 1, .threads = shape->threads, .shared_bytes = shape->shared_bytes};
    int rc = ash_exec_upload(exec, (void *)(uintptr_t)round->op.a, round->a,
                             round->a_bytes + round->b_bytes + round->count * sizeof(float));

    if (rc == 0) ash_cuda_run(exec, shape->kernel, grid, &round->op);
    if (rc == 0) rc = ash_exec_wait(exec, err);
    return rc < 0 ? rc : exec->memory->copy(round->d, round->op.d, round->count * sizeof(float));
}

int ash_trial_round(struct ash_exec *exec, enum ash_trial_kind kind, struct ash_trial *trial, struct ash_err *err)
{
    const struct shape *shape = &shapes[kind];
    struct round round = {.shape = shape,
                          .a_bytes = shape->tiles * shape->rows * shape->k * shape->bytes,
                          .b_bytes = shape->tiles * COLUMNS * shape->k * shape->bytes,
                          .count = shape->tiles > 0 ? shape->tiles * shape->rows * COLUMNS : EX2_CASES};
    struct ash_buffer device = {0};
    int rc;

    ash_assert(exec->cuda != NULL && kind < ASH_TRIAL_COUNT);
    rc = open_round(&round, &device, err);
    if (rc == 0) {
        draw_round(&round, trial->rounds);
        rc = run_round(exec, &round, err);
    }
    if (rc == 0) {
        compare(&round, trial);
        trial->rounds++;
    }
    free(round.a);
    ash_buffer_fini(&device);
    return rc;
}
