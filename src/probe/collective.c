/* Ranks look at the clock together, so that all of them make the same calls however busy the machine is. */
#include "probe/collective.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/math.h"
#include "probe/stream_copy.h"

#define ROUND_S 0.02 /* aim for rounds of so long */
#define ROUND_MAX_S (10 * ROUND_S)
#define ITERATIONS_MAX 20000
#define PIECE_ITERATIONS 500 /* after which ranks look at the clock together */

/* Bytes that each rank brings (all_gather, all_to_all: to each), whole elements. */
static size_t part_bytes(const struct ash_collective_probe *probe)
{
    size_t width = ash_coll_dtype_bytes(probe->dtype);

    return probe->bytes / ash_group_size(probe->group) / width * width;
}

static int run_all_to_all(struct ash_collective_probe *probe, struct ash_err *err)
{
    size_t sizes[ASH_SHARES_RANKS_MAX];

    for (size_t r = 0; r < ash_group_size(probe->group); r++)
        sizes[r] = part_bytes(probe);
    return ash_group_all_to_all(probe->group, probe->call_in, sizes, probe->call_out, sizes, err);
}

static int run_once(struct ash_collective_probe *probe, struct ash_err *err)
{
    enum ash_coll_dtype dtype = probe->dtype;
    size_t width = ash_coll_dtype_bytes(dtype);

    if (probe->window != NULL)
        return ash_group_window_all_reduce(probe->group, &probe->window, &probe->shares, probe->bytes / width, dtype,
                                           ASH_COLL_SUM, err);
    switch (probe->call) {
    case ASH_PROBE_ALL_REDUCE:
        return ash_group_all_reduce(probe->group, probe->call_in, probe->call_out, probe->bytes / width, dtype,
                                    ASH_COLL_SUM, err);
    case ASH_PROBE_REDUCE_SCATTER:
        return ash_group_reduce_scatter(probe->group, probe->call_in, probe->call_out, part_bytes(probe) / width, dtype,
                                        ASH_COLL_SUM, err);
    case ASH_PROBE_ALL_GATHER:
        return ash_group_all_gather(probe->group, probe->call_in, probe->call_out, part_bytes(probe), err);
    case ASH_PROBE_ALL_TO_ALL:
        return run_all_to_all(probe, err);
    case ASH_PROBE_BROADCAST:
        return ash_group_broadcast(probe->group, probe->call_out, probe->bytes, 0, err);
    case ASH_PROBE_BARRIER:
        return ash_group_barrier(probe->group, err);
    case ASH_PROBE_COPY:
        ash_stream_copy(probe->out, probe->in, probe->bytes);
        return 0;
    }
    return 0;
}

/* ---- is it right? ------------------------------------------------------------------------------------------------ */

/* Every byte of a rank's operand depends on the rank, and sums show it (small numbers are exact in every type). */
static int fill(struct ash_collective_probe *probe, struct ash_err *err)
{
    enum ash_coll_dtype dtype = probe->dtype;
    size_t count = probe->bytes / ash_coll_dtype_bytes(dtype), rank = ash_group_rank(probe->group);

    for (size_t i = 0; i < count; i++) {
        size_t value = (i % 7) + rank % 8;

        if (dtype == ASH_COLL_F32) ((float *)(void *)probe->in)[i] = (float)value;
        if (dtype == ASH_COLL_F64) ((double *)(void *)probe->in)[i] = (double)value;
        if (dtype == ASH_COLL_I32) ((int32_t *)(void *)probe->in)[i] = (int32_t)value;
        if (dtype == ASH_COLL_I64) ((int64_t *)(void *)probe->in)[i] = (int64_t)value;
        if (dtype == ASH_COLL_U8) ((uint8_t *)probe->in)[i] = (uint8_t)value;
        if (dtype == ASH_COLL_BF16) ((uint16_t *)(void *)probe->in)[i] = (uint16_t)0x3f80; /* one */
    }
    if (probe->window != NULL)
        memcpy(probe->out, probe->in, probe->bytes);
    else
        memset(probe->out, 0, probe->bytes);
    if (probe->memory == NULL) return 0;
    return ash_group_copy(probe->group, probe->call_in, probe->in, probe->bytes, err) < 0 ||
                   ash_group_copy(probe->group, probe->call_out, probe->out, probe->bytes, err) < 0
               ? -EIO
               : 0;
}

/* Elements of an all-reduced float32 operand that are not the sum; other operations and types are left to the tests. */
static uint64_t count_wrong(const struct ash_collective_probe *probe)
{
    size_t count = probe->bytes / sizeof(float), size = ash_group_size(probe->group), ranks = 0;
    uint64_t wrong = 0;

    if (probe->call != ASH_PROBE_ALL_REDUCE || probe->dtype != ASH_COLL_F32) return 0;
    for (size_t r = 0; r < size; r++)
        ranks += r % 8;
    for (size_t i = 0; i < count; i++)
        wrong += ((const float *)(const void *)probe->out)[i] != (float)(i % 7 * size + ranks);
    return wrong;
}

/* ---- how fast is it? --------------------------------------------------------------------------------------------- */

/* Seconds of a piece of a round, the slowest rank's. */
static int measure_piece(struct ash_collective_probe *probe, int64_t iterations, double *seconds_out,
                         struct ash_err *err)
{
    int rc = ash_group_barrier(probe->group, err);
    uint64_t start_ns = ash_clock_ns();
    double seconds;

    for (int64_t i = 0; i < iterations && rc == 0; i++)
        rc = run_once(probe, err);
    seconds = (double)(ash_clock_ns() - start_ns) * 1e-9;
    if (rc < 0) return rc;
    return ash_group_all_reduce(probe->group, &seconds, seconds_out, 1, ASH_COLL_F64, ASH_COLL_MAX, err);
}

/* Seconds of one call, the mean over a round. Where other programs have taken the cores since the iterations were
 * counted, the round ends early: all ranks see the same times. */
static int measure_round(struct ash_collective_probe *probe, int64_t iterations, double *seconds_out,
                         struct ash_err *err)
{
    double total_s = 0, piece_s = 0;
    int64_t done = 0;

    while (done < iterations && total_s < ROUND_MAX_S) {
        int64_t count = iterations - done < PIECE_ITERATIONS ? iterations - done : PIECE_ITERATIONS;
        int rc = measure_piece(probe, count, &piece_s, err);

        if (rc < 0) return rc;
        total_s += piece_s;
        done += count;
    }
    *seconds_out = total_s / (double)done;
    return 0;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

int ash_collective_probe_time(struct ash_collective_probe *probe, double *seconds_out, struct ash_err *err)
{
    double rounds[ASH_PROBE_ROUNDS_MAX], once = 0;
    int64_t iterations;
    int rc = measure_round(probe, 3, &once, err); /* warm-up; gives the number of calls in a round */

    iterations = (int64_t)(ROUND_S / once);
    iterations = iterations < 2 ? 2 : iterations > ITERATIONS_MAX ? ITERATIONS_MAX : iterations;
    for (size_t i = 0; i < probe->rounds && rc == 0; i++)
        rc = measure_round(probe, iterations, &rounds[i], err);
    if (rc < 0) return rc;
    qsort(rounds, probe->rounds, sizeof(rounds[0]), by_value);
    *seconds_out = rounds[probe->rounds / 2];
    return 0;
}

double ash_collective_probe_bus_factor(const struct ash_collective_probe *probe)
{
    double size = (double)ash_group_size(probe->group);

    if (probe->call == ASH_PROBE_ALL_REDUCE) return 2 * (size - 1) / size;
    return probe->call >= ASH_PROBE_BROADCAST ? 1 : (size - 1) / size;
}

int ash_collective_probe_check(struct ash_collective_probe *probe, uint64_t *wrong_out, struct ash_err *err)
{
    int64_t wrong;
    int rc;

    rc = fill(probe, err);
    if (rc == 0) rc = run_once(probe, err);
    if (rc == 0 && probe->memory != NULL)
        rc = ash_group_copy(probe->group, probe->out, probe->call_out, probe->bytes, err);
    if (rc < 0) return rc;
    wrong = (int64_t)count_wrong(probe);
    rc = ash_group_all_reduce(probe->group, &wrong, &wrong, 1, ASH_COLL_I64, ASH_COLL_SUM, err);
    if (rc == 0) *wrong_out = (uint64_t)wrong;
    return rc;
}

int ash_collective_probe_cost(const struct ash_collective_probe *probe, struct ash_group *group,
                              enum ash_cost_collective call, size_t bytes, double *seconds_out, struct ash_err *err)
{
    static const enum ash_probe_call calls[] = {[ASH_COST_ALL_REDUCE] = ASH_PROBE_ALL_REDUCE,
                                                [ASH_COST_REDUCE_SCATTER] = ASH_PROBE_REDUCE_SCATTER,
                                                [ASH_COST_ALL_GATHER] = ASH_PROBE_ALL_GATHER,
                                                [ASH_COST_BROADCAST] = ASH_PROBE_BROADCAST,
                                                [ASH_COST_ALL_TO_ALL] = ASH_PROBE_ALL_TO_ALL};
    struct ash_collective_probe other = *probe;
    int rc;

    ash_assert((size_t)call < ASH_COUNT(calls));
    other.group = group;
    other.call = calls[call];
    other.bytes = bytes;
    rc = fill(&other, err);
    return rc < 0 ? rc : ash_collective_probe_time(&other, seconds_out, err);
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

/* What calls work on: the operands on the host, or as many bytes in memory. */
static int open_operands(struct ash_collective_probe *probe, size_t whole, struct ash_err *err)
{
    const struct ash_memory_ops *ops = probe->memory != NULL ? probe->memory->ops : NULL;

    probe->out = aligned_alloc(4096, whole);
    if (probe->out == NULL) return ash_err_set(err, -ENOMEM, "out of memory for %zu bytes", whole);
    probe->call_in = ops != NULL ? ops->alloc(whole) : probe->in;
    probe->call_out = ops != NULL ? ops->alloc(whole) : probe->out;
    if (probe->call_in != NULL && probe->call_out != NULL) return 0;
    return ash_err_set(err, -ENOMEM, "no room for two operands of %zu bytes in the memory of '%s'", whole, ops->name);
}

/* Operands in memory of this process, or results in a window, to which the operand is copied before each check. */
int ash_collective_probe_init(struct ash_collective_probe *probe, size_t max_bytes, bool in_window, struct ash_err *err)
{
    size_t whole = ash_round_up(max_bytes, 4096), size = ash_group_size(probe->group);
    int rc;

    ash_assert(probe->rounds >= 1 && probe->rounds <= ASH_PROBE_ROUNDS_MAX);
    probe->whole_bytes = whole;
    probe->in = aligned_alloc(4096, whole);
    if (probe->in == NULL) return ash_err_set(err, -ENOMEM, "out of memory for %zu bytes", whole);
    if (!in_window || probe->call != ASH_PROBE_ALL_REDUCE) return open_operands(probe, whole, err);
    ash_tree_of(&probe->shares.tree, size);
    for (size_t r = 0; r <= size; r++)
        probe->shares.first[r] = (uint32_t)r;
    rc = ash_group_window_open(probe->group, whole, &probe->window, err);
    if (rc < 0) return rc;
    probe->call_in = probe->in;
    probe->call_out = probe->out = ash_window_data(probe->window);
    return 0;
}

void ash_collective_probe_fini(struct ash_collective_probe *probe)
{
    if (probe->memory != NULL && probe->call_in != NULL) probe->memory->ops->free(probe->call_in, probe->whole_bytes);
    if (probe->memory != NULL && probe->call_out != NULL) probe->memory->ops->free(probe->call_out, probe->whole_bytes);
    if (probe->window == NULL) free(probe->out);
    ash_window_close(probe->window);
    free(probe->in);
}

const char *ash_probe_call_name(enum ash_probe_call call)
{
    static const char *const names[] = {[ASH_PROBE_ALL_REDUCE] = "all_reduce",
                                        [ASH_PROBE_REDUCE_SCATTER] = "reduce_scatter",
                                        [ASH_PROBE_ALL_GATHER] = "all_gather",
                                        [ASH_PROBE_ALL_TO_ALL] = "all_to_all",
                                        [ASH_PROBE_BROADCAST] = "broadcast",
                                        [ASH_PROBE_BARRIER] = "barrier",
                                        [ASH_PROBE_COPY] = "copy"};

    ash_assert((size_t)call < ASH_COUNT(names));
    return names[call];
}
