/* The deep checks: every core computes the same products, whose bits are known beforehand, and every stretch of memory
 * is written and read back. Integers have one right answer on every machine: a wrong bit names the core or the
 * address. */
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/thread.h"
#include "observe/check/check.h"

#define SIDE 192 /* of the matrices: three of them fit a core's second cache */
#define CORES_MAX 1024
#define MEMORY_SHARE 0.2 /* of free memory */
#define MEMORY_BYTES_MAX ((size_t)4 << 30)
#define MEMORY_BYTES_S 1e9 /* of --seconds: a short check stays short */
#define BLOCK_WORDS 4096

struct core {
    int number;
    const struct ash_check_opts *opts;
    uint64_t *memory; /* this core's part */
    size_t words;
    size_t rounds, wrong, wrong_row, wrong_column;
    size_t passes, bad_words, bad_word;
    uint64_t bad_bits;
    bool is_pinned;
};

/* ---- products ---------------------------------------------------------------------------------------------------- */

/* Elements of the factors: small whole numbers, so that sums of products are exact in float32 whatever their order. */
static float element(uint64_t seed, size_t row, size_t column)
{
    return (float)(int)(ash_hash_mix(seed ^ ((uint64_t)row << 32 | column)) % 31) - 15.0f;
}

/* c = a b in float32, in the plain order. noinline: every core runs these instructions. */
__attribute__((noinline)) static void multiply(const float *a, const float *b, float *c)
{
    for (size_t i = 0; i < SIDE; i++) {
        for (size_t j = 0; j < SIDE; j++)
            c[i * SIDE + j] = 0;
        for (size_t k = 0; k < SIDE; k++) {
            float factor = a[i * SIDE + k];

            for (size_t j = 0; j < SIDE; j++)
                c[i * SIDE + j] += factor * b[k * SIDE + j];
        }
    }
}

/* The same with integers, another unit of the core: the known answer. */
__attribute__((noinline)) static void multiply_integers(const float *a, const float *b, int32_t *c)
{
    for (size_t i = 0; i < SIDE; i++)
        for (size_t j = 0; j < SIDE; j++) {
            int32_t sum = 0;

            for (size_t k = 0; k < SIDE; k++)
                sum += (int32_t)a[i * SIDE + k] * (int32_t)b[k * SIDE + j];
            c[i * SIDE + j] = sum;
        }
}

static void compare_product(struct core *core, const float *c, const int32_t *known)
{
    for (size_t i = 0; i < SIDE * SIDE; i++) {
        if (c[i] == (float)known[i]) continue;
        core->wrong++;
        core->wrong_row = i / SIDE;
        core->wrong_column = i % SIDE;
    }
}

/* Products until the time is over. The answer is computed once, on this core's integer units. */
static int check_products(struct core *core)
{
    float *a = malloc(3 * SIDE * SIDE * sizeof(*a));
    int32_t *known = malloc(SIDE * SIDE * sizeof(*known));
    uint64_t end_ns = ash_clock_ns() + (uint64_t)(core->opts->deep_seconds * 1e9);
    int rc = a != NULL && known != NULL ? 0 : -ENOMEM;

    for (size_t i = 0; rc == 0 && i < SIDE; i++)
        for (size_t j = 0; j < SIDE; j++) {
            a[i * SIDE + j] = element(1, i, j);
            a[SIDE * SIDE + i * SIDE + j] = element(2, i, j);
        }
    if (rc == 0) multiply_integers(a, a + SIDE * SIDE, known);
    do {
        if (rc < 0) break;
        multiply(a, a + SIDE * SIDE, a + 2 * SIDE * SIDE);
        if (core->number == core->opts->fault_core && core->rounds == 0) {
            uint32_t bits;

            memcpy(&bits, &a[2 * SIDE * SIDE + 777], sizeof(bits));
            bits ^= 1u << 12;
            memcpy(&a[2 * SIDE * SIDE + 777], &bits, sizeof(bits));
        }
        compare_product(core, a + 2 * SIDE * SIDE, known);
        core->rounds++;
    } while (ash_clock_ns() < end_ns);
    free(a);
    free(known);
    return rc;
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

static uint64_t pattern(size_t word, size_t pass)
{
    static const uint64_t plain[] = {0, UINT64_MAX, 0x5555555555555555u, 0xaaaaaaaaaaaaaaaau};

    return pass < 4 ? plain[pass] : ash_hash_mix(word ^ pass << 48);
}

/* Write patterns over this core's part and read them back, as often as there is time, once at least. */
static void check_memory(struct core *core)
{
    uint64_t end_ns = ash_clock_ns() + (uint64_t)(core->opts->deep_seconds * 1e9);

    do {
        size_t pass = core->passes % 6;

        for (size_t i = 0; i < core->words; i++)
            core->memory[i] = pattern(i, pass);
        for (size_t i = 0; i < core->words; i++) {
            uint64_t found = ((volatile uint64_t *)core->memory)[i];

            if (found == pattern(i, pass)) continue;
            core->bad_words++;
            core->bad_word = i;
            core->bad_bits |= found ^ pattern(i, pass);
        }
        core->passes++;
    } while (ash_clock_ns() < end_ns);
}

static void *core_main(void *arg)
{
    struct core *core = arg;
    cpu_set_t set;

    CPU_ZERO(&set);
    CPU_SET((size_t)core->number, &set);
    core->is_pinned = sched_setaffinity(0, sizeof(set), &set) == 0;
    if (check_products(core) < 0) return NULL;
    if (core->memory != NULL) check_memory(core);
    return NULL;
}

/* ---- all cores --------------------------------------------------------------------------------------------------- */

static void report_cores(const struct core *cores, size_t count, struct ash_check_report *report)
{
    size_t rounds = 0, wrong = 0, passes = 0, bad = 0, bytes = 0;

    for (size_t i = 0; i < count; i++) {
        const struct core *core = &cores[i];

        rounds += core->rounds;
        passes += core->passes;
        bytes += core->words * sizeof(uint64_t);
        if (core->wrong > 0)
            ash_check_add(report, "products", ASH_GRADE_BAD, "the known bits",
                          "core %d: %zu wrong elements in %zu products, the last at row %zu, column %zu", core->number,
                          core->wrong, core->rounds, core->wrong_row, core->wrong_column);
        if (core->bad_words > 0)
            ash_check_add(report, "memory", ASH_GRADE_BAD, "what was written", "core %d: %zu words wrong, bits %016llx",
                          core->number, core->bad_words, (unsigned long long)core->bad_bits);
        wrong += core->wrong;
        bad += core->bad_words;
    }
    if (wrong == 0)
        ash_check_add(report, "products", ASH_GRADE_GOOD, "the known bits",
                      "%zu of %d x %d on %zu cores, every bit as known", rounds, SIDE, SIDE, count);
    if (bad == 0)
        ash_check_add(report, "memory", bytes > 0 ? ASH_GRADE_GOOD : ASH_GRADE_SKIPPED, "what was written",
                      "%.3g GB, %zu passes, every bit came back", (double)bytes * 1e-9, passes);
}

/* As much as a core or two write and read in that time. */
static size_t memory_bytes(double seconds)
{
    long pages = sysconf(_SC_AVPHYS_PAGES), page = sysconf(_SC_PAGESIZE);

    if (pages <= 0 || page <= 0) return 0;
    return (size_t)fmin(fmin((double)pages * (double)page * MEMORY_SHARE, (double)MEMORY_BYTES_MAX),
                        seconds * MEMORY_BYTES_S);
}

/* Cores that this process may use. */
static size_t list_cores(int *numbers)
{
    cpu_set_t set;
    size_t count = 0;

    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof(set), &set) < 0) return 0;
    for (int i = 0; i < CORES_MAX && count < CORES_MAX; i++)
        if (CPU_ISSET((size_t)i, &set)) numbers[count++] = i;
    return count;
}

void ash_check_deep(const struct ash_check_opts *opts, struct ash_check_report *report)
{
    static int numbers[CORES_MAX];
    uint64_t start_ns = ash_clock_ns();
    size_t count = list_cores(numbers), bytes = memory_bytes(opts->deep_seconds), started = 0;
    struct core *cores = calloc(count + 1, sizeof(*cores));
    pthread_t *threads = calloc(count + 1, sizeof(*threads));
    uint64_t *memory =
        bytes > 0 ? mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) : MAP_FAILED;

    for (size_t i = 0; cores != NULL && threads != NULL && i < count; i++) {
        size_t words = bytes / sizeof(uint64_t) / count / BLOCK_WORDS * BLOCK_WORDS;

        cores[i] = (struct core){.number = numbers[i], .opts = opts};
        if (memory != MAP_FAILED) {
            ash_assert((i + 1) * words * sizeof(uint64_t) <= bytes); /* no two cores share a word */
            cores[i].memory = memory + i * words;
            cores[i].words = words;
        }
        if (ash_thread_start(&threads[i], core_main, &cores[i]) < 0) break;
        started++;
    }
    for (size_t i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
    if (started > 0)
        report_cores(cores, started, report);
    else
        ash_check_add(report, "products", ASH_GRADE_SKIPPED, "", "no thread could be started");
    if (memory != MAP_FAILED) munmap(memory, bytes);
    free(cores);
    free(threads);
    report->seconds += (double)(ash_clock_ns() - start_ns) * 1e-9;
}
