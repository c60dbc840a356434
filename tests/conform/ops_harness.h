/* What the conformance tests of the ops share: a scenario draws its shapes and inputs from a seed, runs ops on an exec
 * and puts every output on a tape. The tapes of all backends and thread counts must carry the same bits as the
 * reference's. */
#ifndef TEST_OPS_HARNESS_H
#define TEST_OPS_HARNESS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>
#include "unit/long_form.h"
#include "unit/sanitized.h"
#include "base/assert.h"
#include "base/bf16.h"
#include "base/math.h"
#include "base/rng.h"
#include "compute/ops.h"
#include "conform/guarded.h"
#include "infra/device/cuda.h"

#define TAPE_BLOCKS_MAX 256
#ifndef EMULATED
#define EMULATED 0 /* 1: a GPU's kernels run on the host, slowly (tests/emulate): fewer cases, and it alone */
#endif

/* Outputs in order, the memory that the scenario works in, and its source of random numbers. */
struct tape {
    struct ash_exec *exec; /* whose ops write them */
    bool pinned;           /* the memory is of the kind that a GPU sees too */
    uint32_t *words;
    size_t count, capacity;
    void *blocks[TAPE_BLOCKS_MAX];
    size_t block_count;
    uint64_t seed, drawn;
};

typedef void (*scenario_fn)(struct ash_exec *exec, struct tape *tape);

static inline void tape_init(struct tape *tape, struct ash_exec *exec, uint64_t seed)
{
    memset(tape, 0, sizeof(*tape));
    tape->exec = exec;
    tape->pinned = exec->cuda != NULL;
    tape->seed = seed;
}

static inline void tape_fini(struct tape *tape)
{
    for (size_t b = 0; b < tape->block_count; b++)
        if (tape->pinned)
            ash_memory_pinned.free(tape->blocks[b], 0);
        else
            free(tape->blocks[b]);
    free(tape->words);
}

/* Wait until what the exec was asked for can be read. */
static inline void tape_wait(struct tape *tape)
{
    struct ash_err err = {0};

    if (ash_exec_wait(tape->exec, &err) != 0) fail_msg("%s", err.text);
}

/* Exactly size_bytes from malloc, so that a sanitizer sees a read past the end; for a GPU, memory that it and the host
 * both see. Freed with the tape. */
static inline void *tape_alloc(struct tape *tape, size_t size_bytes)
{
    void *block = tape->pinned ? ash_memory_pinned.alloc(size_bytes) : malloc(size_bytes);

    assert_non_null(block);
    assert_true(tape->block_count < TAPE_BLOCKS_MAX);
    tape->blocks[tape->block_count++] = block;
    return block;
}

static inline void tape_words(struct tape *tape, const void *words, size_t count)
{
    tape_wait(tape);
    if (tape->count + count > tape->capacity) {
        tape->capacity = 2 * (tape->count + count);
        tape->words = realloc(tape->words, tape->capacity * sizeof(*tape->words));
        assert_non_null(tape->words);
    }
    if (count > 0) memcpy(tape->words + tape->count, words, count * sizeof(*tape->words));
    tape->count += count;
}

static inline size_t draw_below(struct tape *tape, size_t bound)
{
    return (size_t)ash_rng_below(tape->seed, 1, tape->drawn++, bound);
}

static inline bool draw_bool(struct tape *tape)
{
    return draw_below(tape, 2) == 1;
}

/* One of the sizes at which tiles, vectors and blocks begin and end. */
static inline size_t draw_size(struct tape *tape, size_t max)
{
    static const size_t sizes[] = {1,  2,  3,  4,  5,  7,  8,  9,  11, 12,  13,  15,  16,  17,  23,  24,  25,  31,
                                   32, 33, 47, 48, 49, 63, 64, 65, 96, 100, 127, 128, 129, 193, 256, 257, 300, 400};
    size_t size;

    do {
        size = sizes[draw_below(tape, ASH_COUNT(sizes))];
    } while (size > max);
    return size;
}

static inline float *draw_floats(struct tape *tape, size_t count, float scale)
{
    float *x = tape_alloc(tape, count * sizeof(*x));
    double normals[256];

    for (size_t done = 0, now; done < count; done += now, tape->drawn += now) {
        now = count - done < ASH_COUNT(normals) ? count - done : ASH_COUNT(normals);
        ash_rng_normals(tape->seed, 2, tape->drawn, normals, now);
        for (size_t i = 0; i < now; i++)
            x[done + i] = scale * (float)normals[i];
    }
    return x;
}

/* Normal numbers stored as dtype (F32, BF16 or F16). */
static inline void *draw_dtype(struct tape *tape, enum ash_dtype dtype, size_t count, float scale)
{
    float *x = draw_floats(tape, count, scale);
    uint16_t *narrow;

    if (dtype == ASH_F32) return x;
    narrow = tape_alloc(tape, count * sizeof(*narrow));
    for (size_t i = 0; i < count; i++)
        narrow[i] = dtype == ASH_BF16 ? ash_f32_to_bf16(x[i]) : ash_f32_to_f16(x[i]);
    return narrow;
}

static inline int32_t *draw_ids(struct tape *tape, size_t count, size_t bound)
{
    int32_t *ids = tape_alloc(tape, count * sizeof(*ids));

    for (size_t i = 0; i < count; i++)
        ids[i] = (int32_t)draw_below(tape, bound);
    return ids;
}

static inline bool is_nan_word(uint32_t word)
{
    return (word & 0x7fffffffu) > 0x7f800000u;
}

/* The same words. Any NaN equals any NaN: machines, and vectors and scalars of one, differ in the sign of the one they
 * make. */
static inline bool same_words(const uint32_t *a, const uint32_t *b, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (a[i] != b[i] && !(is_nan_word(a[i]) && is_nan_word(b[i]))) return false;
    return true;
}

static inline void assert_floats_equal(const float *a, const float *b, size_t count)
{
    assert_true(same_words((const uint32_t *)a, (const uint32_t *)b, count));
}

/* Fail at the first word that differs. */
static inline void compare_tapes(const struct tape *got, const struct tape *want, const char *name, int threads)
{
    assert_int_equal(got->count, want->count);
    for (size_t i = 0; i < got->count; i++) {
        float a, b;

        if (same_words(got->words + i, want->words + i, 1)) continue;
        memcpy(&a, &got->words[i], sizeof(a));
        memcpy(&b, &want->words[i], sizeof(b));
        fail_msg("%s with %d threads, seed %llu: word %zu of %zu is %08x (%.9g), the reference has %08x (%.9g)", name,
                 threads, (unsigned long long)want->seed, i, got->count, got->words[i], (double)a, want->words[i],
                 (double)b);
    }
}

/* Packed in two pieces, where this backend packs at all. */
static inline void pack_weight(struct ash_exec *exec, struct tape *tape, struct ash_weight *w, size_t K)
{
    const struct ash_matrix_ops *matrix = exec->ops->matrix;
    size_t bytes = matrix->packed_bytes != NULL ? matrix->packed_bytes(w->mat.dtype, w->N, K) : 0;
    size_t half = w->N / 2 / ASH_PACK_ROWS * ASH_PACK_ROWS;
    uint8_t *room;

    if (bytes == 0) return;
    room = tape_alloc(tape, bytes + ASH_MEMORY_ALIGN);
    room += ASH_MEMORY_ALIGN - (uintptr_t)room % ASH_MEMORY_ALIGN;
    if (half > 0) matrix->pack(exec, w, K, 0, half, room);
    matrix->pack(exec, w, K, half, w->N - half, room);
    w->mat.data = room;
    w->packed = true;
}

static inline void exec_init(struct ash_exec *exec, const char *backend, int threads)
{
    struct ash_err err = {0};

    if (ash_exec_init(exec, backend, threads, &err) != 0) fail_msg("%s", err.text);
}

/* What of a backend's ops a test uses. Some backends differ in their matrix products only, and references in those of
 * bf16: the others would be the same code again. A test that uses fewer says so before it includes this. */
#define PRODUCTS_ALL 0
#define PRODUCTS_QUANTISED 1
#define PRODUCTS_NONE 2
#ifndef PRODUCTS_UNDER_TEST
#define PRODUCTS_UNDER_TEST PRODUCTS_ALL
#endif

static inline bool same_products(const struct ash_ops *a, const struct ash_ops *b)
{
    if (a->matrix == b->matrix || PRODUCTS_UNDER_TEST == PRODUCTS_NONE) return true;
    return PRODUCTS_UNDER_TEST == PRODUCTS_QUANTISED && a->reference == a && b->reference == b &&
           a->matrix->quant_gemm == b->matrix->quant_gemm && a->matrix->project == b->matrix->project;
}

/* Is everything that this test uses of a and of b the same code? */
static inline bool same_ops(const struct ash_ops *a, const struct ash_ops *b)
{
    return a->embed == b->embed && a->norm == b->norm && a->rope == b->rope && a->attn == b->attn && a->act == b->act &&
           a->row == b->row && a->loss == b->loss && a->route == b->route && a->optim == b->optim &&
           a->sample == b->sample && same_products(a, b);
}

#define BACKENDS_MAX 16
#define THREAD_COUNTS 4 /* of execs: 1, 2, 3 and 5 threads */

/* A backend, and its reference with what that computed. */
struct contest {
    struct ash_exec exec, ref;
    size_t first; /* the contest whose reference has the same ops: it runs for all of them */
    struct tape want;
};

/* The names of the backends of this machine that this test can tell apart, up to NULL. */
static inline const char *const *backends_under_test(void)
{
    static const char *names[BACKENDS_MAX + 1];
    static struct ash_exec gpu; /* stays open: opening one takes long */
    const struct ash_ops *found[BACKENDS_MAX];
    size_t count = 0;

    if (names[0] != NULL) return names;
    if (EMULATED) { /* the others are the subject of the same test without the emulator */
        exec_init(&gpu, "cuda", 1);
        names[0] = "cuda";
        return names;
    }
    for (const char *const *name = ash_exec_backends(); *name != NULL; name++) {
        struct ash_exec exec;
        size_t i = 0;

        exec_init(&exec, *name, 1);
        while (i < count && !same_ops(found[i], exec.ops))
            i++;
        assert_true(i < BACKENDS_MAX);
        if (i == count) {
            found[count] = exec.ops;
            names[count++] = *name;
        }
        ash_exec_fini(&exec);
    }
    if (ash_exec_init(&gpu, "cuda", 1, NULL) == 0) names[count++] = "cuda";
    names[count] = NULL;
    return names;
}

static inline size_t contests_open(struct contest *list, int threads)
{
    size_t count = 0;

    for (const char *const *name = backends_under_test(); *name != NULL; name++) {
        struct contest *c = &list[count];

        exec_init(&c->exec, *name, threads);
        if (PRODUCTS_UNDER_TEST == PRODUCTS_NONE && c->exec.ops->reference == c->exec.ops && count > 0) {
            ash_exec_fini(&c->exec); /* a slow reference against itself, where its own products are not the subject */
            continue;
        }
        count++;
        if (c->exec.memory == &ash_memory_host) c->exec.memory = &guarded_memory; /* scratch is allocated later */
        exec_init(&c->ref, c->exec.ops->reference->name, 1);
        for (c->first = 0; !same_ops(list[c->first].ref.ops, c->ref.ops);)
            c->first++;
    }
    return count;
}

static inline void run_contests(struct contest *list, size_t count, scenario_fn scenario, uint64_t seed, int threads)
{
    for (size_t i = 0; i < count; i++) {
        struct contest *c = &list[i];
        struct tape got;

        tape_init(&c->want, &c->ref, seed);
        if (c->first == i) scenario(&c->ref, &c->want);
        tape_init(&got, &c->exec, seed);
        scenario(&c->exec, &got);
        compare_tapes(&got, &list[c->first].want, c->exec.ops->name, threads);
        tape_fini(&got);
    }
    for (size_t i = 0; i < count; i++)
        tape_fini(&list[i].want);
}

/* On emulated kernels a scenario ends after so many seconds of processor time: EMULATE_SECONDS, or 1; in the short form
 * 0.3. */
static inline bool is_long(clock_t began)
{
    const char *text = getenv("EMULATE_SECONDS");
    double usual_s = is_long_form() ? 1.0 : 0.3;

    return EMULATED && (double)(clock() - began) > (text != NULL ? atof(text) : usual_s) * CLOCKS_PER_SEC;
}

/* Of so many seeds a sanitizer runs a tenth, and the short form a quarter of that; each number of threads has one. */
static inline uint64_t seeds_to_run(uint64_t seeds)
{
    uint64_t share = (SANITIZED ? 10 : 1) * (is_long_form() || EMULATED ? 1 : 4), run = (seeds + share - 1) / share;

    return ash_min(seeds, ash_max(run, THREAD_COUNTS));
}

/* Every backend of this machine, with 1 to 5 threads, against its reference with one, for seeds [0, seeds) or the first
 * of them. */
static inline void check_scenario(scenario_fn scenario, uint64_t seeds)
{
    static const int threads[THREAD_COUNTS] = {1, 2, 3, 5};
    struct contest list[BACKENDS_MAX];
    clock_t began = clock();

    seeds = seeds_to_run(seeds);
    for (size_t t = 0; t < (EMULATED ? 1 : THREAD_COUNTS); t++) {
        size_t count = contests_open(list, threads[t]);

        for (uint64_t seed = t; seed < seeds && !is_long(began); seed += EMULATED ? 1 : THREAD_COUNTS)
            run_contests(list, count, scenario, seed, threads[t]);
        for (size_t i = 0; i < count; i++) {
            ash_exec_fini(&list[i].ref);
            ash_exec_fini(&list[i].exec);
        }
    }
}

#endif
