/* The emulator finds planted mistakes in some schedule of a few, finds none where there is none, and multiplies as
 * ref/wgmma.h says. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>
#include "base/bf16.h"
#include "base/rng.h"
#include "compute/ref/wgmma.h"
#include "emulate/planted.h"
#include "infra/device/cuda.h"

#define SEEDS 12

enum outcome { RIGHT, WRONG, REFUSED };

/* Runs a kernel of one block on an emulated GPU of its own, as a failed launch is the last of a process. */
struct planted {
    const char *name;
    size_t threads, shared_bytes;
    enum outcome (*run)(struct ash_cuda *cuda, void *kernel, const struct planted *planted, int mode);
    const char *says; /* what a failure must say, or NULL */
};

static enum outcome launch(struct ash_cuda *cuda, void *kernel, const struct planted *planted, const void *args)
{
    struct ash_cuda_grid grid = {.x = 1, .y = 1, .threads = planted->threads, .shared_bytes = planted->shared_bytes};
    struct ash_err err = {0};

    ash_cuda_launch(cuda, kernel, planted->name, grid, args);
    if (ash_cuda_wait(cuda, &err) == 0) return RIGHT;
    if (planted->says != NULL && strstr(err.text, planted->says) == NULL) _exit(100);
    return REFUSED;
}

static enum outcome run_ring(struct ash_cuda *cuda, void *kernel, const struct planted *planted, int mode)
{
    float *tiles = ash_memory_pinned.alloc(PLANTED_TILES * PLANTED_FLOATS * sizeof(float)),
          *sums = ash_memory_pinned.alloc(PLANTED_FLOATS / 2 * sizeof(float));
    struct planted_ring_args args = {tiles, sums, mode};
    enum outcome outcome;

    for (int i = 0; i < PLANTED_TILES * PLANTED_FLOATS; i++)
        tiles[i] = (float)(i * 7 % 64 + i / 64);
    outcome = launch(cuda, kernel, planted, &args);
    for (int lane = 0; lane < PLANTED_FLOATS / 2 && outcome == RIGHT; lane++) {
        float want = 0.0f;

        for (int t = 0; t < PLANTED_TILES; t++)
            want += tiles[t * PLANTED_FLOATS + lane] + tiles[t * PLANTED_FLOATS + lane + PLANTED_FLOATS / 2];
        if (!(sums[lane] == want)) outcome = WRONG;
    }
    return outcome;
}

/* Every kind of float: near 1, far apart, denormals, zeros, and sometimes an infinity or NaN. */
static uint16_t draw_bf16(uint64_t *drawn, bool is_wild)
{
    uint32_t bits = (uint32_t)ash_rng_below(3, 1, (*drawn)++, 65536), kind = (uint32_t)ash_rng_below(3, 2, *drawn, 40);

    if (is_wild && kind == 0) return (uint16_t)bits;
    if (kind < 4) return (uint16_t)(bits & 0x807f);
    if (kind < 6) return (uint16_t)(bits & 0x8000);
    return (uint16_t)((bits & 0x807f) | (kind < 20 ? 120 + bits % 16 : 64 + bits % 128) << 7);
}

static enum outcome compare_sums(const struct planted_product_args *args, const float start[64][8])
{
    for (int m = 0; m < 64; m++)
        for (int n = 0; n < 8; n++) {
            float a[16], b[16], want, got = args->sums[m * 8 + n];

            for (int k = 0; k < 16; k++) {
                a[k] = ash_bf16_to_f32(args->a[m * 16 + k]);
                b[k] = ash_bf16_to_f32(args->b[n * 16 + k]);
            }
            want = ash_wgmma_step(start[m][n], a, b);
            if (ash_f32_bits(want) != ash_f32_bits(got)) return WRONG;
        }
    return RIGHT;
}

static enum outcome run_product(struct ash_cuda *cuda, void *kernel, const struct planted *planted, int mode)
{
    uint16_t *a = ash_memory_pinned.alloc(64 * 16 * sizeof(*a)), *b = ash_memory_pinned.alloc(8 * 16 * sizeof(*b));
    float *sums = ash_memory_pinned.alloc(64 * 8 * sizeof(*sums)), start[64][8];
    struct planted_product_args args = {a, b, sums, mode};
    uint64_t drawn = 0;

    for (int round = 0; round < (mode == PRODUCT_RIGHT ? 20 : 1); round++) {
        enum outcome outcome;

        for (int i = 0; i < 64 * 16; i++)
            a[i] = draw_bf16(&drawn, mode == PRODUCT_RIGHT && round % 4 == 3);
        for (int i = 0; i < 8 * 16; i++)
            b[i] = draw_bf16(&drawn, mode == PRODUCT_RIGHT && round % 4 == 3);
        for (int i = 0; i < 64 * 8; i++)
            sums[i] = start[i / 8][i % 8] = ash_bf16_to_f32(draw_bf16(&drawn, false));
        outcome = launch(cuda, kernel, planted, &args);
        if (outcome == RIGHT) outcome = compare_sums(&args, (const float(*)[8])start);
        if (outcome != RIGHT) return outcome;
    }
    return RIGHT;
}

static enum outcome run_apart(const struct planted *planted, int mode, int seed)
{
    int status = -1;
    pid_t child;

    fflush(NULL);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct ash_cuda *cuda;
        struct ash_err err = {0};
        void *module, *kernel;
        char text[32];

        snprintf(text, sizeof(text), "%d", seed);
        setenv("EMULATE_SEED", text, 1);
        if (ash_cuda_open(0, &cuda, &err) < 0 || ash_cuda_load(cuda, "planted", &module, &err) < 0 ||
            ash_cuda_kernel(cuda, module, planted->name, &kernel, &err) < 0) {
            fprintf(stderr, "%s\n", err.text);
            _exit(101);
        }
        _exit(planted->run(cuda, kernel, planted, mode));
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) <= REFUSED);
    return (enum outcome)WEXITSTATUS(status);
}

/* How many of SEEDS schedules show it. */
static int count_found(const struct planted *planted, int mode)
{
    int found = 0;

    for (int seed = 1; seed <= SEEDS; seed++)
        found += run_apart(planted, mode, seed) != RIGHT;
    return found;
}

static const struct planted ring = {"planted_ring", 64, 0, run_ring, NULL};
static const struct planted product = {"planted_product", 128, 64 * 128 + 8 * 128 + 1024, run_product, NULL};

static void test_right(void **state)
{
    (void)state;
    assert_int_equal(count_found(&ring, RING_RIGHT), 0);
    assert_int_equal(count_found(&product, PRODUCT_RIGHT), 0);
}

static void test_mistakes(void **state)
{
    (void)state;
    for (int mode = RING_RIGHT + 1; mode < RING_MODES; mode++)
        assert_true(count_found(&ring, mode) >= SEEDS / 4);
    for (int mode = PRODUCT_RIGHT + 1; mode < PRODUCT_MODES; mode++)
        assert_true(count_found(&product, mode) >= SEEDS / 4);
}

/* It says who waits for what. */
static void test_deadlock(void **state)
{
    struct planted dead = ring;

    (void)state;
    dead.says = "deadlock";
    for (int seed = 1; seed <= SEEDS; seed++)
        assert_int_equal(run_apart(&dead, RING_NO_ARRIVAL, seed), REFUSED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_right),
        cmocka_unit_test(test_mistakes),
        cmocka_unit_test(test_deadlock),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
