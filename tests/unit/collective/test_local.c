/* Collectives through shared memory: every call against what one process computes, for 1 to 9 ranks and sizes around
 * every limit; and what happens when ranks disagree or are silent. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <string.h>

#include "base/bf16.h"
#include "base/rng.h"
#include "collective/host/control.h"
#include "collective/host/window.h"
#include "harness/local_ranks.h"

#define SMALL_PIECE 65536 /* so that a few megabytes are many pieces */
#define PATIENCE_NS 120000000000ull
#define RANKS_MOST 9
#define LEAVES_MAX 24

static const size_t counts[] = {0, 1, 3, 12, 13, 1024, 1025, 16384, 16385, 100003};

/* Element i of rank r's operand: small integers where rounding would hide an error, fractions where order matters. */
static void fill(enum ash_coll_dtype dtype, size_t rank, size_t count, void *out)
{
    for (size_t i = 0; i < count; i++) {
        uint64_t bits = ash_rng_below(7, rank, i, 1u << 30);
        float value = ((float)bits / (1 << 20) - 512.0f) * (1.0f + (float)(i % 7));

        switch (dtype) {
        case ASH_COLL_F32:
            ((float *)out)[i] = value;
            break;
        case ASH_COLL_F64:
            ((double *)out)[i] = value * 1.000000001;
            break;
        case ASH_COLL_BF16:
            ((uint16_t *)out)[i] = ash_f32_to_bf16(value);
            break;
        case ASH_COLL_I32:
            ((int32_t *)out)[i] = (int32_t)(bits * 8);
            break;
        case ASH_COLL_I64:
            ((int64_t *)out)[i] = (int64_t)(bits << 34);
            break;
        case ASH_COLL_U8:
            ((uint8_t *)out)[i] = (uint8_t)bits;
            break;
        }
    }
}

/* The join of all ranks' operands, written as the definition reads: left half, right half. */
static double tree(enum ash_coll_dtype dtype, enum ash_coll_op op, char *const *parts, size_t first, size_t size,
                   size_t i)
{
    size_t left = 1;
    double a, b;

    if (size == 1) {
        if (dtype == ASH_COLL_F32) return ((float *)(void *)parts[first])[i];
        if (dtype == ASH_COLL_BF16) return ash_bf16_to_f32(((uint16_t *)(void *)parts[first])[i]);
        if (dtype == ASH_COLL_F64) return ((double *)(void *)parts[first])[i];
        if (dtype == ASH_COLL_I32) return ((int32_t *)(void *)parts[first])[i];
        return ((uint8_t *)parts[first])[i];
    }
    while (2 * left < size)
        left *= 2;
    a = tree(dtype, op, parts, first, left, i);
    b = tree(dtype, op, parts, first + left, size - left, i);
    if (op == ASH_COLL_MAX) return a < b ? b : a;
    if (op == ASH_COLL_MIN) return b < a ? b : a;
    if (dtype == ASH_COLL_F32 || dtype == ASH_COLL_BF16) return (float)a + (float)b;
    if (dtype == ASH_COLL_I32) return (int32_t)((uint32_t)(int32_t)a + (uint32_t)(int32_t)b);
    if (dtype == ASH_COLL_U8) return (uint8_t)((int)a + (int)b);
    return a + b;
}

static bool same(enum ash_coll_dtype dtype, const void *got, size_t i, double want)
{
    if (dtype == ASH_COLL_F32) return ((const float *)got)[i] == (float)want;
    if (dtype == ASH_COLL_BF16) return ((const uint16_t *)got)[i] == ash_f32_to_bf16((float)want);
    if (dtype == ASH_COLL_F64) return ((const double *)got)[i] == want;
    if (dtype == ASH_COLL_I32) return ((const int32_t *)got)[i] == (int32_t)want;
    return ((const uint8_t *)got)[i] == (uint8_t)want;
}

/* Operands of ranks, or of leaves: made once before there are processes, which read them and work on copies. */
static char *operands[ASH_COLL_U8 + 1][LEAVES_MAX];

static int make_operands(void **state)
{
    const size_t most = counts[sizeof(counts) / sizeof(counts[0]) - 1];

    (void)state;
    for (size_t r = 0; r < LEAVES_MAX; r++)
        for (enum ash_coll_dtype dtype = ASH_COLL_F32; dtype <= ASH_COLL_U8; dtype++) {
            size_t count = dtype == ASH_COLL_F32 && r < RANKS_MOST ? most * RANKS_MOST : most;

            operands[dtype][r] = malloc(count * ash_coll_dtype_bytes(dtype));
            if (operands[dtype][r] == NULL) return -1;
            fill(dtype, r, count, operands[dtype][r]);
        }
    return 0;
}

static int free_operands(void **state)
{
    (void)state;
    for (size_t r = 0; r < LEAVES_MAX; r++)
        for (enum ash_coll_dtype dtype = ASH_COLL_F32; dtype <= ASH_COLL_U8; dtype++)
            free(operands[dtype][r]);
    return 0;
}

/* A rank's operand in memory that ends where it ends. */
static char *copy_operand(enum ash_coll_dtype dtype, size_t rank, size_t count)
{
    size_t bytes = count * ash_coll_dtype_bytes(dtype);
    char *copy = malloc(bytes + 1);

    if (bytes > 0) memcpy(copy, operands[dtype][rank], bytes);
    return copy;
}

static int check_all_reduce(struct ash_local *local, enum ash_coll_dtype dtype, enum ash_coll_op op, size_t count,
                            bool in_place)
{
    char *own = copy_operand(dtype, local->rank, count);
    char *out = in_place ? own : malloc(count * ash_coll_dtype_bytes(dtype) + 1);
    struct ash_err err = {0};
    int rc = ash_local_all_reduce(local, own, out, count, dtype, op, &err), bad = 0;

    for (size_t i = 0; rc == 0 && i < count; i += 1 + i / 64)
        if (!same(dtype, out, i, tree(dtype, op, operands[dtype], 0, local->size, i))) bad = 1;
    if (!in_place) free(out);
    free(own);
    return rc != 0 ? rc : bad;
}

static const struct ash_cost shares_always = {
    .intra_node = {[ASH_COST_ONE_SHOT] = {.latency_s = 1, .bytes_per_s = 1},
                   [ASH_COST_TWO_SHOT] = {.latency_s = 0, .bytes_per_s = 1e15}}};

static int all_reduces(struct ash_local *local, struct meeting *meeting, const void *arg)
{
    static const enum ash_coll_dtype dtypes[] = {ASH_COLL_F32, ASH_COLL_BF16, ASH_COLL_F64, ASH_COLL_I32, ASH_COLL_U8};

    (void)meeting;
    (void)arg;
    local->piece_bytes = SMALL_PIECE;
    for (size_t d = 0; d < sizeof(dtypes) / sizeof(dtypes[0]); d++)
        for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
            enum ash_coll_op op = (enum ash_coll_op)((c + d) % 3);

            ash_local_set_cost(local, c % 2 == 0 ? &ash_cost_default : &shares_always);
            if (check_all_reduce(local, dtypes[d], ASH_COLL_SUM, counts[c], c % 2 == 0) != 0) return 1;
            if (check_all_reduce(local, dtypes[d], op, counts[c], c % 2 == 1) != 0) return 2;
        }
    return 0;
}

static void test_all_reduce(void **state)
{
    (void)state;
    for (size_t size = 1; size <= RANKS_MOST; size++)
        assert_int_equal(
            run_local_ranks(&(struct local_ranks){.size = size, .timeout_ns = PATIENCE_NS, .run = all_reduces}, NULL),
            0);
}

static int check_reduce_scatter(struct ash_local *local, size_t count)
{
    char *own = copy_operand(ASH_COLL_F32, local->rank, count * local->size);
    float *out = malloc(count * sizeof(*out) + 1);
    int rc = ash_local_reduce_scatter(local, own, out, count, ASH_COLL_F32, ASH_COLL_SUM, NULL), bad = 0;

    for (size_t i = 0; rc == 0 && i < count; i += 1 + i / 64)
        if (!same(ASH_COLL_F32, out, i,
                  tree(ASH_COLL_F32, ASH_COLL_SUM, operands[ASH_COLL_F32], 0, local->size, local->rank * count + i)))
            bad = 1;
    free(out);
    free(own);
    return rc != 0 ? rc : bad;
}

static int check_all_gather(struct ash_local *local, size_t bytes)
{
    char *own = copy_operand(ASH_COLL_U8, local->rank, bytes), *out = malloc(bytes * local->size + 1);
    int rc = ash_local_all_gather(local, own, out, bytes, NULL), bad = 0;

    for (size_t r = 0; rc == 0 && r < local->size; r++)
        if (memcmp(out + r * bytes, operands[ASH_COLL_U8][r], bytes) != 0) bad = 1;
    free(out);
    free(own);
    return rc != 0 ? rc : bad;
}

static int check_broadcast(struct ash_local *local, size_t bytes, size_t root)
{
    char *own = copy_operand(ASH_COLL_U8, local->rank, bytes);
    int rc = ash_local_broadcast(local, own, bytes, root, NULL), bad = 0;

    if (rc == 0 && memcmp(own, operands[ASH_COLL_U8][root], bytes) != 0) bad = 1;
    free(own);
    return rc != 0 ? rc : bad;
}

/* Bytes that rank a sends to rank b: some nothing, some a lot. */
static size_t pair_bytes(size_t a, size_t b, size_t scale)
{
    return (a * 7 + b * 3) % 5 * scale + (a + b) % 3;
}

static int check_all_to_all(struct ash_local *local, size_t scale)
{
    size_t send[ASH_LOCAL_RANKS_MAX], recv[ASH_LOCAL_RANKS_MAX], in_bytes = 0, out_bytes = 0, at = 0;
    char *in, *out;
    int rc, bad = 0;

    for (size_t r = 0; r < local->size; r++) {
        in_bytes += send[r] = pair_bytes(local->rank, r, scale);
        out_bytes += recv[r] = pair_bytes(r, local->rank, scale);
    }
    in = malloc(in_bytes + 1);
    out = malloc(out_bytes + 1);
    for (size_t r = 0; r < local->size; at += send[r], r++)
        memset(in + at, (int)(local->rank * 16 + r), send[r]);
    rc = ash_local_all_to_all(local, in, send, out, recv, NULL);
    at = 0;
    for (size_t r = 0; rc == 0 && r < local->size; r++)
        for (size_t i = 0; i < recv[r]; i++, at++)
            if ((unsigned char)out[at] != (unsigned char)(r * 16 + local->rank)) bad = 1;
    free(in);
    free(out);
    return rc != 0 ? rc : bad;
}

static int moves(struct ash_local *local, struct meeting *meeting, const void *arg)
{
    (void)meeting;
    (void)arg;
    local->piece_bytes = SMALL_PIECE;
    for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
        if (check_reduce_scatter(local, counts[c]) != 0) return 1;
        if (check_all_gather(local, counts[c]) != 0) return 2;
        if (check_broadcast(local, counts[c], c % local->size) != 0) return 3;
        if (check_all_to_all(local, counts[c] / 4) != 0) return 4;
        if (ash_local_barrier(local, NULL) != 0) return 5;
    }
    return 0;
}

static void test_moves(void **state)
{
    (void)state;
    for (size_t size = 1; size <= RANKS_MOST; size++)
        assert_int_equal(
            run_local_ranks(&(struct local_ranks){.size = size, .timeout_ns = PATIENCE_NS, .run = moves}, NULL), 0);
}

/* ---- parts of a larger tree -------------------------------------------------------------------------------------- */

/* Leaves of rank r when `leaves` are split as evenly as can be. */
static struct ash_range even_range(size_t leaves, size_t size, size_t r)
{
    size_t first = leaves * r / size;

    return (struct ash_range){first, leaves * (r + 1) / size - first};
}

/* Who sums up which subtrees by itself. */
static struct ash_shares shares_of(size_t leaves, size_t size)
{
    struct ash_range spans[ASH_TREE_PARTS_MAX];
    struct ash_shares shares = {.first = {0}};

    for (size_t r = 0; r < size; r++)
        shares.first[r + 1] =
            shares.first[r] + (uint32_t)ash_tree_cover(leaves, even_range(leaves, size, r), spans + shares.first[r]);
    assert_int_equal(ash_tree_of_spans(&shares.tree, spans, shares.first[size], leaves), 0);
    return shares;
}

/* Every rank sums its own leaves as far as the tree allows; together that must be the tree over all leaves. */
static int check_parts(struct ash_local *local, size_t leaves, size_t count, bool scatter)
{
    struct ash_shares shares = shares_of(leaves, local->size);
    size_t whole = scatter ? count * local->size : count, at = scatter ? local->rank * count : 0;
    struct ash_range spans[ASH_TREE_COVER_MAX];
    size_t part_count = ash_tree_cover(leaves, even_range(leaves, local->size, local->rank), spans);
    float *sums[ASH_TREE_COVER_MAX], *out = malloc(count * sizeof(*out) + 1);
    int rc, bad = 0;

    for (size_t p = 0; p < part_count; p++) {
        sums[p] = malloc(whole * sizeof(float) + 1);
        for (size_t i = 0; i < whole; i++)
            sums[p][i] =
                (float)tree(ASH_COLL_F32, ASH_COLL_SUM, operands[ASH_COLL_F32], spans[p].first, spans[p].count, i);
    }
    rc = scatter ? ash_local_reduce_scatter_parts(local, (const void *const *)sums, &shares, out, count, ASH_COLL_F32,
                                                  ASH_COLL_SUM, NULL)
                 : ash_local_all_reduce_parts(local, (const void *const *)sums, &shares, out, count, ASH_COLL_F32,
                                              ASH_COLL_SUM, NULL);
    for (size_t i = 0; rc == 0 && i < count; i += 1 + i / 16)
        if (!same(ASH_COLL_F32, out, i, tree(ASH_COLL_F32, ASH_COLL_SUM, operands[ASH_COLL_F32], 0, leaves, at + i)))
            bad = 1;
    for (size_t p = 0; p < part_count; p++)
        free(sums[p]);
    free(out);
    return rc != 0 ? rc : bad;
}

/* The same in windows: the result is in the first window of all; or of each rank's part, in two runs, in its own. */
static int check_windows(struct ash_local *local, size_t leaves, size_t count, bool apart)
{
    size_t begin = apart ? count * local->rank / local->size : 0,
           end = apart ? count * (local->rank + 1) / local->size : count, third = (end - begin) / 3;
    const struct ash_range runs[] = {{begin + third, end - begin - third}, {begin, third}};
    struct ash_shares shares = shares_of(leaves, local->size);
    struct ash_window *windows[ASH_TREE_COVER_MAX] = {NULL};
    struct ash_range spans[ASH_TREE_COVER_MAX];
    size_t part_count = ash_tree_cover(leaves, even_range(leaves, local->size, local->rank), spans),
           most = ash_shares_most(&shares, local->size);
    int rc = 0, bad = 0;

    for (size_t w = 0; w < most && rc == 0; w++)
        rc = ash_window_open(local, count * sizeof(float), &windows[w], NULL);
    for (size_t p = 0; p < part_count && rc == 0; p++)
        for (size_t i = 0; i < count; i++)
            ((float *)ash_window_data(windows[p]))[i] =
                (float)tree(ASH_COLL_F32, ASH_COLL_SUM, operands[ASH_COLL_F32], spans[p].first, spans[p].count, i);
    if (rc == 0 && apart)
        rc = ash_window_reduce(windows, &shares, count, runs, 2, ASH_COLL_F32, ASH_COLL_SUM, NULL);
    else if (rc == 0)
        rc = ash_window_all_reduce(windows, &shares, count, ASH_COLL_F32, ASH_COLL_SUM, NULL);
    for (size_t i = begin; rc == 0 && i < end; i += 1 + (i - begin) / 16)
        if (!same(ASH_COLL_F32, ash_window_data(windows[0]), i,
                  tree(ASH_COLL_F32, ASH_COLL_SUM, operands[ASH_COLL_F32], 0, leaves, i)))
            bad = 1;
    if (rc == 0) rc = ash_local_barrier(local, NULL);
    for (size_t w = 0; w < most; w++)
        ash_window_close(windows[w]);
    return rc != 0 ? rc : bad;
}

static int parts(struct ash_local *local, struct meeting *meeting, const void *arg)
{
    (void)meeting;
    (void)arg;
    local->piece_bytes = SMALL_PIECE;
    for (size_t leaves = local->size; leaves <= LEAVES_MAX; leaves += 1 + leaves / 4)
        for (size_t c = 0; c < 3; c++) {
            static const size_t sizes[] = {5, 700, 9000};

            if (check_parts(local, leaves, sizes[c], false) != 0) return (int)leaves;
            if (check_parts(local, leaves, sizes[c], true) != 0) return 100 + (int)leaves;
            if (check_windows(local, leaves, sizes[c], false) != 0) return 200 + (int)leaves;
            if (check_windows(local, leaves, sizes[c], true) != 0) return 300 + (int)leaves;
        }
    return 0;
}

static void test_parts(void **state)
{
    (void)state;
    for (size_t size = 1; size <= 7; size++)
        assert_int_equal(
            run_local_ranks(&(struct local_ranks){.size = size, .timeout_ns = PATIENCE_NS, .run = parts}, NULL), 0);
}

/* ---- counters of windows ----------------------------------------------------------------------------------------- */

#define TURNS 300

/* A number in the first rank's memory that all add to in turn, as the counters say. */
static int take_turns(struct ash_local *local, struct meeting *meeting, const void *arg)
{
    struct ash_window *window = NULL;
    size_t before = (local->rank + local->size - 1) % local->size;
    uint64_t *number;
    int rc = ash_window_open(local, sizeof(*number), &window, NULL);

    (void)meeting;
    (void)arg;
    if (rc < 0) return 1;
    number = ash_window_data_of(window, 0);
    for (uint64_t turn = 1; turn <= TURNS; turn++) {
        if (ash_window_wait(window, before, 1, local->rank == 0 ? turn - 1 : turn, NULL) < 0) return 2;
        if (*number != (turn - 1) * local->size + local->rank) return 3;
        ++*number;
        ash_window_signal(window, 1, turn);
    }
    rc = ash_local_barrier(local, NULL);
    ash_window_close(window);
    return rc;
}

static void test_counters(void **state)
{
    (void)state;
    for (size_t size = 1; size <= 3; size++)
        assert_int_equal(
            run_local_ranks(&(struct local_ranks){.size = size, .timeout_ns = PATIENCE_NS, .run = take_turns}, NULL),
            0);
}

/* Each shows the others its neighbour's memory. */
static int show_neighbours(struct ash_local *local, struct meeting *meeting, const void *arg)
{
    struct ash_window *window = NULL, *shown = NULL;
    size_t neighbour = (local->rank + 1) % local->size;
    int rc = ash_window_open(local, sizeof(size_t), &window, NULL);

    (void)meeting;
    (void)arg;
    if (rc < 0 || ash_window_show(local, window, neighbour, &shown, NULL) < 0) return 1;
    *(size_t *)ash_window_data(window) = 100 + local->rank;
    if (ash_local_barrier(local, NULL) < 0) return 2;
    for (size_t r = 0; r < local->size; r++)
        if (*(const size_t *)ash_window_data_of(shown, r) != 100 + (r + 1) % local->size) return 3;
    ash_window_close(shown);
    rc = ash_local_barrier(local, NULL);
    ash_window_close(window);
    return rc;
}

static void test_shown(void **state)
{
    (void)state;
    for (size_t size = 1; size <= 3; size++)
        assert_int_equal(
            run_local_ranks(&(struct local_ranks){.size = size, .timeout_ns = PATIENCE_NS, .run = show_neighbours},
                            NULL),
            0);
}

/* How many ranks do not end as they should, beyond those that may, with the shortest patience that a busy machine lets
 * them have: where it does not run a rank for longer, another one is given up. */
static int run_impatient(struct local_ranks job, int may)
{
    int bad = run_local_ranks(&job, NULL);

    for (job.timeout_ns *= 5; bad > may && job.timeout_ns < PATIENCE_NS; job.timeout_ns *= 5)
        bad = run_local_ranks(&job, NULL);
    return bad > may ? bad : 0;
}

/* Rank 1 says nothing: it leaves, or stays until the other has given up. */
static int wait_in_vain(struct ash_local *local, struct meeting *meeting, const void *arg)
{
    const bool leaves = *(const bool *)arg;
    struct ash_window *window = NULL;
    struct ash_err err = {0};
    int rc = ash_window_open(local, 8, &window, NULL);

    if (rc < 0) return 1;
    while (local->rank == 1 && !leaves && atomic_load(&meeting->word[0]) == 0)
        usleep(1000);
    if (local->rank == 0) {
        rc = ash_window_wait(window, 1, 0, 1, &err);
        atomic_store(&meeting->word[0], 1);
        rc = rc == (leaves ? -EPROTO : -ETIMEDOUT) && strstr(err.text, "for rank 1") != NULL &&
                     ash_local_failed_rank(local) == 1
                 ? 0
                 : 2;
    }
    ash_window_close(window);
    return rc;
}

static void test_counters_in_vain(void **state)
{
    (void)state;
    for (int leaves = 0; leaves < 2; leaves++) {
        const bool arg = leaves;
        struct local_ranks job = {.size = 2, .timeout_ns = 300000000ull, .run = wait_in_vain, .arg = &arg};

        assert_int_equal(run_impatient(job, 0), 0);
    }
}

/* ---- when it goes wrong ------------------------------------------------------------------------------------------ */

enum wrong { OTHER_KIND, OTHER_SIZE, OTHER_DTYPE, OTHER_ROOT, TINY_AND_LARGE, NOTHING };

/* After one good call, rank 1 makes another one than the rest. */
static int disagree(struct ash_local *local, struct meeting *meeting, const void *arg)
{
    static char data[1 << 20], out[4 << 20];
    const enum wrong wrong = *(const enum wrong *)arg;
    bool odd = local->rank == 1;
    struct ash_err err = {0};
    int rc = ash_local_barrier(local, &err);

    (void)meeting;
    if (rc != 0) return 1;
    if (wrong == OTHER_KIND)
        rc = odd ? ash_local_barrier(local, &err)
                 : ash_local_all_reduce(local, data, out, 100000, ASH_COLL_F32, ASH_COLL_SUM, &err);
    if (wrong == OTHER_SIZE) rc = ash_local_all_gather(local, data, out, odd ? 1 << 20 : 1 << 19, &err);
    if (wrong == OTHER_DTYPE)
        rc = ash_local_all_reduce(local, data, out, 4, odd ? ASH_COLL_I32 : ASH_COLL_F32, ASH_COLL_SUM, &err);
    if (wrong == OTHER_ROOT) rc = ash_local_broadcast(local, data, 100000, odd, &err);
    if (wrong == TINY_AND_LARGE)
        rc = ash_local_all_reduce(local, data, out, odd ? 1 : 1000, ASH_COLL_F32, ASH_COLL_SUM, &err);
    if (wrong == NOTHING) rc = ash_local_broadcast(local, data, odd ? 0 : 100000, 0, &err);
    if (rc != -EPROTO || strstr(err.text, "call 2") == NULL || strstr(err.text, "rank 1") == NULL) return 2;
    return ash_local_barrier(local, &err) == -EPROTO ? 0 : 3; /* the group stays broken */
}

static void test_disagree(void **state)
{
    (void)state;
    for (enum wrong wrong = OTHER_KIND; wrong <= NOTHING; wrong++)
        for (size_t size = 2; size <= 3; size++) {
            /* a third rank may see rank 1 or time out after the first two have left: two ranks are the sharp case */
            struct local_ranks job = {.size = size, .timeout_ns = 2000000000ull, .run = disagree, .arg = &wrong};
            assert_int_equal(run_impatient(job, size == 2 ? 0 : 1), 0);
        }
}

static int stay_away(struct ash_local *local, struct meeting *meeting, const void *arg)
{
    struct ash_err err = {0};
    float data[4] = {0};
    int rc = ash_local_barrier(local, &err);

    (void)arg;
    if (rc != 0) atomic_fetch_add(&meeting->word[0], 1);
    if (rc != 0) return 1;
    if (local->rank == 2) { /* silent until the others have given up */
        while (atomic_load(&meeting->word[0]) < local->size - 1)
            usleep(1000);
        return 0;
    }
    rc = ash_local_all_reduce(local, data, data, 4, ASH_COLL_F32, ASH_COLL_SUM, &err);
    atomic_fetch_add(&meeting->word[0], 1);
    return rc == -ETIMEDOUT && ash_local_failed_rank(local) == 2 && strstr(err.text, "rank 2") != NULL ? 0 : 2;
}

static void test_silent(void **state)
{
    struct local_ranks job = {.size = 4, .timeout_ns = 300000000ull, .run = stay_away};

    (void)state;
    assert_int_equal(run_impatient(job, 0), 0);
}

static int give_up(struct ash_local *local, struct meeting *meeting, const void *arg)
{
    struct ash_err err = {0};

    (void)meeting;
    (void)arg;
    if (local->rank == 1) return 0; /* leaves without a word */
    ash_local_fail(local, -ECONNRESET, 1, "rank 1 on host x died", NULL);
    return ash_local_barrier(local, &err) == -ECONNRESET && strstr(err.text, "host x") != NULL &&
                   ash_local_failed_rank(local) == 1
               ? 0
               : 1;
}

static void test_break(void **state)
{
    (void)state;
    assert_int_equal(run_local_ranks(&(struct local_ranks){.size = 2, .timeout_ns = PATIENCE_NS, .run = give_up}, NULL),
                     0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_reduce), cmocka_unit_test(test_moves),  cmocka_unit_test(test_parts),
        cmocka_unit_test(test_disagree),   cmocka_unit_test(test_silent), cmocka_unit_test(test_break),
        cmocka_unit_test(test_counters),   cmocka_unit_test(test_shown),  cmocka_unit_test(test_counters_in_vain),
    };

    return cmocka_run_group_tests(tests, make_operands, free_operands);
}
