/* Collectives over values in GPU memory, between processes that share a GPU: every call against the host's, bit by bit,
 * for drawn ranks, parts, sizes, types and operations; and a rank that stops in the middle of one. Skipped without a
 * GPU. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <string.h>

#include "base/rng.h"
#include "collective/host/control.h"
#include "collective/host/device_rounds.h"
#include "compute/backends/backends.h"
#include "compute/ops.h"
#include "harness/local_ranks.h"

#define CALLS 24
#define COUNT_MAX 400000 /* elements: several pieces of the slots here */
#define BYTES_MAX ((size_t)8 * COUNT_MAX)
#define PARTS_MAX 3 /* of a rank */
#define PATIENCE_NS 120000000000ull

/* What a rank works with: the same values on the host and in GPU memory. */
struct bench {
    struct ash_local *local;
    struct ash_exec exec;
    struct ash_device_calls *calls;
    char *host_in[PARTS_MAX], *host_out, *got, *gpu_in[PARTS_MAX], *gpu_out;
    size_t in_bytes;
    uint64_t seed, call;
};

/* The same number on every rank. */
static uint64_t draw(struct bench *bench, uint64_t what, uint64_t below)
{
    return ash_rng_below(bench->seed, bench->call, what, below);
}

static size_t draw_count(struct bench *bench)
{
    static const size_t most[] = {5, 100, 5000, COUNT_MAX};

    return draw(bench, 1, most[draw(bench, 0, 4)] + 1);
}

/* Words that are plain values of every type. */
static void fill(struct bench *bench, size_t part, enum ash_coll_dtype dtype, size_t bytes)
{
    uint8_t *to = (uint8_t *)bench->host_in[part];

    for (size_t i = 0; i < bytes / ash_coll_dtype_bytes(dtype); i++) {
        uint64_t bits = ash_rng_below(bench->seed + 1000 * bench->local->rank + part, bench->call, i, 1u << 24);
        float value = ((float)bits / (1 << 20) - 8.0f) * (1.0f + (float)(i % 7));

        if (dtype == ASH_COLL_F32) ((float *)(void *)to)[i] = value;
        if (dtype == ASH_COLL_F64) ((double *)(void *)to)[i] = value * 1.000000001;
        if (dtype == ASH_COLL_BF16) ((uint16_t *)(void *)to)[i] = (uint16_t)(0x3f00 + (bits & 0x80ff));
        if (dtype == ASH_COLL_I32) ((int32_t *)(void *)to)[i] = (int32_t)(bits << 8);
        if (dtype == ASH_COLL_I64) ((int64_t *)(void *)to)[i] = (int64_t)(bits << 40);
        if (dtype == ASH_COLL_U8) to[i] = (uint8_t)bits;
    }
    assert_int_equal(bench->exec.memory->copy(bench->gpu_in[part], to, bytes), 0);
}

static int compare(struct bench *bench, const char *what, size_t bytes)
{
    if (bytes > 0) assert_int_equal(bench->exec.memory->copy(bench->got, bench->gpu_out, bytes), 0);
    for (size_t i = 0; i < bytes; i++) {
        if (bench->got[i] == bench->host_out[i]) continue;
        fprintf(stderr, "seed %llu, call %llu, rank %zu of %zu: %s of %zu bytes differs at byte %zu\n",
                (unsigned long long)bench->seed, (unsigned long long)bench->call, bench->local->rank,
                bench->local->size, what, bytes, i);
        return 1;
    }
    return 0;
}

/* ---- calls ------------------------------------------------------------------------------------------------------- */

/* Leaves of a tree, some to each rank. */
static void draw_shares(struct bench *bench, struct ash_shares *shares)
{
    uint32_t next = 0;

    for (size_t r = 0; r <= bench->local->size; r++) {
        shares->first[r] = next;
        next += (uint32_t)draw(bench, 10 + r, PARTS_MAX + 1);
    }
    if (shares->first[bench->local->size] == 0)
        for (size_t r = 0; r <= bench->local->size; r++)
            shares->first[r] = (uint32_t)r;
    ash_tree_of(&shares->tree, shares->first[bench->local->size]);
}

static int reduce(struct bench *bench, bool scatters, struct ash_err *err)
{
    enum ash_coll_dtype dtype = (enum ash_coll_dtype)draw(bench, 3, 6);
    enum ash_coll_op op = (enum ash_coll_op)draw(bench, 4, 3);
    size_t count = draw_count(bench), ranks = scatters ? bench->local->size : 1;
    const void *host[PARTS_MAX], *gpu[PARTS_MAX];
    struct ash_shares shares;
    int rc;

    if (scatters) count /= ranks;
    draw_shares(bench, &shares);
    for (size_t i = 0; i < PARTS_MAX; i++) {
        fill(bench, i, dtype, ranks * count * ash_coll_dtype_bytes(dtype));
        host[i] = bench->host_in[i];
        gpu[i] = bench->gpu_in[i];
    }
    rc = (scatters ? ash_local_reduce_scatter_parts
                   : ash_local_all_reduce_parts)(bench->local, host, &shares, bench->host_out, count, dtype, op, err);
    if (rc == 0)
        rc = (scatters ? ash_device_reduce_scatter : ash_device_all_reduce)(
            bench->calls, &(struct ash_device_reduction){gpu, &shares, bench->gpu_out, count, dtype, op}, err);
    return rc < 0 ? rc
                  : compare(bench, scatters ? "reduce-scatter" : "all-reduce", count * ash_coll_dtype_bytes(dtype));
}

static int gather(struct bench *bench, struct ash_err *err)
{
    size_t bytes = draw_count(bench);
    int rc;

    fill(bench, 0, ASH_COLL_U8, bytes);
    rc = ash_local_all_gather(bench->local, bench->host_in[0], bench->host_out, bytes, err);
    if (rc == 0) rc = ash_device_all_gather(bench->calls, bench->gpu_in[0], bench->gpu_out, bytes, err);
    return rc < 0 ? rc : compare(bench, "all-gather", bench->local->size * bytes);
}

static int broadcast(struct bench *bench, struct ash_err *err)
{
    size_t bytes = draw_count(bench), root = draw(bench, 5, bench->local->size);
    int rc;

    fill(bench, 0, ASH_COLL_U8, bytes);
    memcpy(bench->host_out, bench->host_in[0], bytes);
    assert_int_equal(bench->exec.memory->copy(bench->gpu_out, bench->host_in[0], bytes), 0);
    rc = ash_local_broadcast(bench->local, bench->host_out, bytes, root, err);
    if (rc == 0) rc = ash_device_broadcast(bench->calls, bench->gpu_out, bytes, root, err);
    return rc < 0 ? rc : compare(bench, "broadcast", bytes);
}

static int all_to_all(struct bench *bench, struct ash_err *err)
{
    size_t size = bench->local->size, rank = bench->local->rank, most = draw_count(bench), sent = 0, received = 0;
    size_t sends[ASH_LOCAL_RANKS_MAX], receives[ASH_LOCAL_RANKS_MAX];
    int rc;

    for (size_t r = 0; r < size; r++) {
        sends[r] = draw(bench, 100 + rank * size + r, most + 1);
        receives[r] = draw(bench, 100 + r * size + rank, most + 1);
        sent += sends[r];
        received += receives[r];
    }
    fill(bench, 0, ASH_COLL_U8, sent);
    rc = ash_local_all_to_all(bench->local, bench->host_in[0], sends, bench->host_out, receives, err);
    if (rc == 0) rc = ash_device_all_to_all(bench->calls, bench->gpu_in[0], sends, bench->gpu_out, receives, err);
    return rc < 0 ? rc : compare(bench, "all-to-all", received);
}

static int make_call(struct bench *bench, struct ash_err *err)
{
    switch (draw(bench, 2, 6)) {
    case 0:
    case 1:
        return reduce(bench, false, err);
    case 2:
        return reduce(bench, true, err);
    case 3:
        return gather(bench, err);
    case 4:
        return broadcast(bench, err);
    default:
        return all_to_all(bench, err);
    }
}

/* ---- ranks ------------------------------------------------------------------------------------------------------- */

static int open_bench(struct bench *bench, struct ash_local *local, struct ash_err *err)
{
    int rc = ash_exec_init(&bench->exec, "cuda", 1, err);

    if (rc < 0) return rc;
    bench->local = local;
    bench->in_bytes = BYTES_MAX;
    for (size_t i = 0; i < PARTS_MAX; i++) {
        bench->host_in[i] = malloc(BYTES_MAX);
        bench->gpu_in[i] = bench->exec.memory->alloc(BYTES_MAX);
        if (bench->host_in[i] == NULL || bench->gpu_in[i] == NULL) return -ENOMEM;
    }
    bench->host_out = malloc(BYTES_MAX);
    bench->got = malloc(BYTES_MAX);
    bench->gpu_out = bench->exec.memory->alloc(BYTES_MAX);
    if (bench->host_out == NULL || bench->got == NULL || bench->gpu_out == NULL) return -ENOMEM;
    return ash_device_calls_open(local, ash_backend_device_memory(&bench->exec), &bench->calls, err);
}

static void close_bench(struct bench *bench)
{
    ash_device_calls_close(bench->calls);
    for (size_t i = 0; i < PARTS_MAX; i++) {
        free(bench->host_in[i]);
        if (bench->gpu_in[i] != NULL) bench->exec.memory->free(bench->gpu_in[i], BYTES_MAX);
    }
    if (bench->gpu_out != NULL) bench->exec.memory->free(bench->gpu_out, BYTES_MAX);
    free(bench->host_out);
    free(bench->got);
    ash_exec_fini(&bench->exec);
}

static int run_calls(struct ash_local *local, struct meeting *meeting, const void *arg)
{
    struct bench bench = {.seed = *(const uint64_t *)arg};
    struct ash_err err = {0};
    int rc = open_bench(&bench, local, &err);

    (void)meeting;
    if (rc == 0) bench.calls->slot_bytes_most = (size_t)1 << 20;
    for (bench.call = 0; rc == 0 && bench.call < CALLS; bench.call++)
        rc = make_call(&bench, &err);
    if (rc != 0) fprintf(stderr, "rank %zu: %d (%s)\n", local->rank, rc, err.text);
    if (rc == 0) rc = ash_local_barrier(local, &err);
    close_bench(&bench);
    return rc;
}

/* In another process: a driver that is open does not survive a fork. */
static bool has_gpu(void)
{
    struct ash_exec exec;
    int status = 1;
    pid_t pid = fork();

    if (pid == 0) _exit(ash_exec_init(&exec, "cuda", 1, NULL) == 0 ? 0 : 1);
    return waitpid(pid, &status, 0) == pid && status == 0;
}

static void test_calls_have_the_hosts_bits(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 6; seed++) {
        struct local_ranks ranks = {2 + seed % 3, PATIENCE_NS, run_calls, &seed, NULL};

        assert_int_equal(run_local_ranks(&ranks, NULL), 0);
    }
}

/* Rank 1 comes to the call, and does nothing in it. */
static int run_stop(struct ash_local *local, struct meeting *meeting, const void *arg)
{
    struct bench bench = {.seed = 1};
    struct ash_err err = {0};
    const void *parts[] = {NULL};
    int rc = open_bench(&bench, local, &err);
    uint8_t common = 0;

    (void)arg;
    parts[0] = bench.gpu_in[0];
    for (int i = 0; rc == 0 && i < 2; i++) { /* the first has windows made */
        rc = ash_local_agree(local, (struct ash_coll_call){.kind = ASH_CALL_ALL_REDUCE, .size_bytes = 4096}, 1, &common,
                             &err);
        if (rc == 0 && i == 1) ash_local_set_limits(local, (struct ash_wait_limits){.timeout_ns = 300000000});
        if (rc == 0 && !(i == 1 && local->rank == 1))
            rc = ash_device_all_reduce(
                bench.calls,
                &(struct ash_device_reduction){parts, &local->even, bench.gpu_out, 1024, ASH_COLL_F32, ASH_COLL_SUM},
                &err);
    }
    ranks_barrier(&meeting->arrived, local->size);
    close_bench(&bench);
    if (local->rank == 1) return rc;
    if (rc != -ETIMEDOUT || strstr(err.text, "for rank 1, which has stopped in the middle of it") == NULL) {
        fprintf(stderr, "rank %zu: %d (%s)\n", local->rank, rc, err.text);
        return 1;
    }
    return 0;
}

static void test_a_rank_that_stops_is_named(void **state)
{
    struct local_ranks ranks = {3, PATIENCE_NS, run_stop, NULL, NULL};

    (void)state;
    assert_int_equal(run_local_ranks(&ranks, NULL), 0);
}

/* Memory that cannot be given to others: all ranks say so, and none waits. */
static int run_without(struct ash_local *local, struct meeting *meeting, const void *arg)
{
    struct bench bench = {.seed = 1};
    struct ash_err err = {0};
    int rc;

    (void)arg;
    (void)meeting;
    if (local->rank == 1) setenv("STANDIN_NO_SHARING", "1", 1);
    rc = open_bench(&bench, local, &err);
    if (rc == 0) rc = ash_device_broadcast(bench.calls, bench.gpu_out, 100, 0, &err);
    if (rc == -ENOTSUP) rc = ash_local_barrier(local, &err) == 0 ? -ENOTSUP : -EIO;
    close_bench(&bench);
    if (rc == -ENOTSUP) return 0;
    fprintf(stderr, "rank %zu: %d (%s)\n", local->rank, rc, err.text);
    return 1;
}

static void test_a_driver_without_sharing(void **state)
{
    struct local_ranks ranks = {3, PATIENCE_NS, run_without, NULL, NULL};

    (void)state;
#ifndef EMULATED
    skip(); /* a driver has it */
#endif
    assert_int_equal(run_local_ranks(&ranks, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_calls_have_the_hosts_bits),
        cmocka_unit_test(test_a_rank_that_stops_is_named),
        cmocka_unit_test(test_a_driver_without_sharing),
    };

    if (!has_gpu()) {
        printf("no GPU: skipped\n");
        return 0;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
