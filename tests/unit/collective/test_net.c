/* Groups over several nodes, each a name here, reached through TCP on loopback: every call in every placement gives the
 * bits of one node, whatever the algorithm. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>

#include "base/bf16.h"
#include "base/rng.h"
#include "collective/host/window.h"
#include "collective/net/net.h"
#include "collective/net/reduce_plan.h"
#include "harness/group_ranks.h"
#include "record/metrics.h"

#define COUNT_MAX ((size_t)70001)
/* A check in a rank: says where it failed and returns from the caller. */
#define CHECK(condition)                                                                                               \
    if (!(condition)) return fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition), 1

/* ---- operands ---------------------------------------------------------------------------------------------------- */

/* Values whose sum depends on the order. */
static void make_operand(enum ash_coll_dtype dtype, size_t rank, size_t part, size_t count, void *out)
{
    for (size_t i = 0; i < count; i++) {
        uint64_t bits = ash_rng_below(part + 7, rank, i, UINT64_MAX);
        double value = (double)(int64_t)bits * 0x1p-50 * (bits % 7 == 0 ? 1000 : 1);

        if (dtype == ASH_COLL_F32) ((float *)out)[i] = (float)value;
        if (dtype == ASH_COLL_F64) ((double *)out)[i] = value;
        if (dtype == ASH_COLL_BF16) ((uint16_t *)out)[i] = ash_f32_to_bf16((float)value);
        if (dtype == ASH_COLL_I64) ((int64_t *)out)[i] = (int64_t)bits;
        if (dtype == ASH_COLL_I32) ((int32_t *)out)[i] = (int32_t)bits;
        if (dtype == ASH_COLL_U8) ((uint8_t *)out)[i] = (uint8_t)bits;
    }
}

/* What every rank must get: parts of all ranks, joined in one place. */
static void expect_sum(const struct ash_shares *shares, size_t size, enum ash_coll_dtype dtype, enum ash_coll_op op,
                       size_t count, void *out)
{
    size_t bytes = count * ash_coll_dtype_bytes(dtype), total = shares->tree.part_count;
    char *all = malloc(total * bytes + 1);
    const void *parts[ASH_TREE_PARTS_MAX];

    for (size_t r = 0; r < size; r++)
        for (size_t p = shares->first[r], i = 0; p < shares->first[r + 1]; p++, i++) {
            parts[p] = all + p * bytes;
            make_operand(dtype, r, i, count, all + p * bytes);
        }
    ash_coll_reduce(dtype, op, &shares->tree, parts, count, out);
    free(all);
}

/* Rank r brings r % 3 + 1 neighbouring leaves of a larger tree, as subtree sums; the last one none,
 * if there are many. */
static void uneven_parts(struct ash_shares *shares, size_t size)
{
    struct ash_range spans[ASH_TREE_PARTS_MAX];
    size_t total = 0, at = 0;

    for (size_t r = 0; r < size; r++)
        total += size > 3 && r == size - 1 ? 0 : r % 3 + 1;
    memset(shares, 0, sizeof(*shares));
    for (size_t r = 0; r < size; r++) {
        size_t own = size > 3 && r == size - 1 ? 0 : r % 3 + 1;
        struct ash_range cover[ASH_TREE_COVER_MAX];
        size_t count = own > 0 ? ash_tree_cover(total, (struct ash_range){at, own}, cover) : 0;

        memcpy(spans + shares->first[r], cover, count * sizeof(*cover));
        shares->first[r + 1] = shares->first[r] + (uint32_t)count;
        at += own;
    }
    if (ash_tree_of_spans(&shares->tree, spans, shares->first[size], total) < 0) shares->tree.part_count = 0;
}

static void even_parts(struct ash_shares *shares, size_t size)
{
    ash_tree_of(&shares->tree, size);
    for (size_t r = 0; r <= size; r++)
        shares->first[r] = (uint32_t)r;
}

/* ---- calls ------------------------------------------------------------------------------------------------------- */

struct buffers {
    char *parts[4], *out, *want;
};

static int reduce_both(struct ash_group *group, struct buffers *buffers, const struct ash_shares *shares, size_t count,
                       enum ash_coll_dtype dtype, enum ash_coll_op op)
{
    size_t rank = ash_group_rank(group), size = ash_group_size(group), width = ash_coll_dtype_bytes(dtype),
           own = shares->first[rank + 1] - shares->first[rank], each = count / size;
    const void *const *parts = (const void *const *)buffers->parts;

    for (size_t i = 0; i < own; i++)
        make_operand(dtype, rank, i, count, buffers->parts[i]);
    expect_sum(shares, size, dtype, op, count, buffers->want);
    CHECK(ash_group_all_reduce_parts(group, parts, shares, buffers->out, count, dtype, op, NULL) == 0);
    CHECK(memcmp(buffers->out, buffers->want, count * width) == 0);
    for (size_t i = 0; i < own; i++)
        make_operand(dtype, rank, i, each * size, buffers->parts[i]);
    expect_sum(shares, size, dtype, op, each * size, buffers->want);
    CHECK(ash_group_reduce_scatter_parts(group, parts, shares, buffers->out, each, dtype, op, NULL) == 0);
    CHECK(memcmp(buffers->out, buffers->want + rank * each * width, each * width) == 0);
    return 0;
}

static int sums(struct ash_group *group, struct buffers *buffers)
{
    static const size_t counts[] = {0, 1, 7, 2000, COUNT_MAX};
    static const struct {
        enum ash_coll_dtype dtype;
        enum ash_coll_op op;
    } kinds[] = {{ASH_COLL_F32, ASH_COLL_SUM}, {ASH_COLL_BF16, ASH_COLL_SUM}, {ASH_COLL_F64, ASH_COLL_SUM},
                 {ASH_COLL_I64, ASH_COLL_SUM}, {ASH_COLL_I32, ASH_COLL_MAX},  {ASH_COLL_U8, ASH_COLL_MIN}};
    struct ash_shares even, uneven;

    even_parts(&even, ash_group_size(group));
    uneven_parts(&uneven, ash_group_size(group));
    CHECK(uneven.tree.part_count > 0);
    for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++)
        for (size_t k = 0; k < (counts[c] == COUNT_MAX ? 2 : sizeof(kinds) / sizeof(kinds[0])); k++) {
            CHECK(reduce_both(group, buffers, &even, counts[c], kinds[k].dtype, kinds[k].op) == 0);
            CHECK(reduce_both(group, buffers, &uneven, counts[c], kinds[k].dtype, kinds[k].op) == 0);
        }
    make_operand(ASH_COLL_F32, ash_group_rank(group), 0, COUNT_MAX, buffers->out); /* in place, without parts */
    expect_sum(&even, ash_group_size(group), ASH_COLL_F32, ASH_COLL_SUM, COUNT_MAX, buffers->want);
    CHECK(ash_group_all_reduce(group, buffers->out, buffers->out, COUNT_MAX, ASH_COLL_F32, ASH_COLL_SUM, NULL) == 0);
    CHECK(memcmp(buffers->out, buffers->want, COUNT_MAX * sizeof(float)) == 0);
    return 0;
}

static int windows(struct ash_group *group, struct buffers *buffers)
{
    size_t rank = ash_group_rank(group), count = 3001;
    struct ash_window *all[3] = {NULL};
    struct ash_shares shares;

    uneven_parts(&shares, ash_group_size(group));
    for (size_t i = 0; i < 3; i++)
        CHECK(ash_group_window_open(group, count * sizeof(float), &all[i], NULL) == 0);
    for (size_t i = 0; i < shares.first[rank + 1] - shares.first[rank]; i++)
        make_operand(ASH_COLL_F32, rank, i, count, ash_window_data(all[i]));
    expect_sum(&shares, ash_group_size(group), ASH_COLL_F32, ASH_COLL_SUM, count, buffers->want);
    CHECK(ash_group_window_all_reduce(group, all, &shares, count, ASH_COLL_F32, ASH_COLL_SUM, NULL) == 0);
    CHECK(memcmp(ash_window_data(all[0]), buffers->want, count * sizeof(float)) == 0);
    for (size_t i = 0; i < 3; i++)
        ash_window_close(all[i]);
    return 0;
}

static uint8_t pattern(size_t rank, size_t at)
{
    return (uint8_t)(rank * 37 + at + (at >> 9));
}

static void paint(char *data, size_t rank, size_t size)
{
    for (size_t i = 0; i < size; i++)
        data[i] = (char)pattern(rank, i);
}

static bool painted(const char *data, size_t rank, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if ((uint8_t)data[i] != pattern(rank, i)) return false;
    return true;
}

static int gathers(struct ash_group *group, struct buffers *buffers)
{
    static const size_t sizes[] = {0, 1, 5000, 90003};
    size_t rank = ash_group_rank(group), size = ash_group_size(group);

    for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
        size_t bytes = sizes[s];

        paint(buffers->parts[0], rank, bytes);
        CHECK(ash_group_all_gather(group, buffers->parts[0], buffers->out, bytes, NULL) == 0);
        for (size_t r = 0; r < size; r++)
            CHECK(painted(buffers->out + r * bytes, r, bytes));
        for (size_t root = 0; root < size; root++) {
            paint(buffers->out, rank == root ? root : root + 100, bytes);
            CHECK(ash_group_broadcast(group, buffers->out, bytes, root, NULL) == 0);
            CHECK(painted(buffers->out, root, bytes));
        }
    }
    return 0;
}

/* What rank a sends to rank b, in several patterns: as it comes, the same to all, nothing, from one alone, to one
 * alone. */
enum { MIXED, EVEN, NOTHING, FROM_ONE, TO_ONE, PATTERNS };

static size_t pair_bytes(size_t pattern, size_t a, size_t b)
{
    switch (pattern) {
    case MIXED:
        return (a + 2 * b) % 4 == 0 ? 0 : (a + b) % 3 == 0 ? 70000 + 17 * a : 100 * a + b;
    case EVEN:
        return 4093;
    case FROM_ONE:
        return a == 1 ? 66000 + b : 0;
    case TO_ONE:
        return b == 2 ? 65000 + a : 0;
    default:
        return 0;
    }
}

static int exchange(struct ash_group *group, struct buffers *buffers, size_t pattern)
{
    size_t rank = ash_group_rank(group), size = ash_group_size(group), send[GROUP_RANKS_MAX], receive[GROUP_RANKS_MAX],
           at = 0;

    for (size_t r = 0; r < size; r++) {
        send[r] = pair_bytes(pattern, rank, r);
        receive[r] = pair_bytes(pattern, r, rank);
        paint(buffers->parts[0] + at, 10 * rank + r, send[r]);
        at += send[r];
    }
    CHECK(ash_group_all_to_all(group, buffers->parts[0], send, buffers->out, receive, NULL) == 0);
    at = 0;
    for (size_t r = 0; r < size; r++) {
        CHECK(painted(buffers->out + at, 10 * r + rank, receive[r]));
        at += receive[r];
    }
    return 0;
}

static int pairs(struct ash_group *group, struct buffers *buffers)
{
    for (size_t pattern = MIXED; pattern < PATTERNS; pattern++)
        CHECK(exchange(group, buffers, pattern) == 0);
    return 0;
}

static int all_calls(struct ash_group *group)
{
    struct buffers buffers = {.out = malloc(8 * COUNT_MAX), .want = malloc(8 * COUNT_MAX)};
    int rc;

    for (size_t i = 0; i < 4; i++)
        buffers.parts[i] = malloc(8 * COUNT_MAX);
    rc = sums(group, &buffers);
    if (rc == 0) rc = windows(group, &buffers);
    if (rc == 0) rc = gathers(group, &buffers);
    if (rc == 0) rc = pairs(group, &buffers);
    if (rc == 0) rc = ash_group_barrier(group, NULL);
    for (size_t i = 0; i < 4; i++)
        free(buffers.parts[i]);
    free(buffers.want);
    free(buffers.out);
    return rc;
}

/* The group of all ranks, and parts of it that lie across nodes or inside of one. */
static int everything(struct ash_group *group, struct shared *shared, const void *arg)
{
    size_t rank = ash_group_rank(group), size = ash_group_size(group);
    struct ash_group *part = NULL;
    struct ash_err err = {0};

    (void)shared;
    (void)arg;
    CHECK(all_calls(group) == 0);
    CHECK(ash_group_split(group, rank == 1 ? -1 : (int64_t)(rank % 2), -(int64_t)rank, &part, &err) == 0);
    CHECK((part == NULL) == (rank == 1));
    if (part != NULL) {
        int64_t sum = (int64_t)rank, want = 0;

        for (size_t r = rank % 2; r < size; r += 2)
            want += r == 1 ? 0 : (int64_t)r;
        CHECK(ash_group_all_reduce(part, &sum, &sum, 1, ASH_COLL_I64, ASH_COLL_SUM, NULL) == 0 && sum == want);
    }
    ash_group_close(part);
    return ash_group_barrier(group, NULL) != 0;
}

/* All have finished earlier calls: the end of a group may overtake the last bytes of a call. */
static bool meet(struct shared *shared, size_t rank, size_t size)
{
    uint64_t deadline_ns = ash_clock_ns() + 20000000000u;
    bool all = false;

    atomic_store(&shared->calls[rank], 1);
    while (!all && ash_clock_ns() < deadline_ns) {
        all = true;
        for (size_t r = 0; r < size; r++)
            all = all && atomic_load(&shared->calls[r]) == 1;
        if (!all) usleep(500);
    }
    return all;
}

/* A cost model by which all calls go this way. */
static struct ash_cost only(enum ash_cost_inter_node way)
{
    struct ash_cost cost = ash_cost_default;

    for (enum ash_cost_collective call = ASH_COST_ALL_REDUCE; call < ASH_COST_COLLECTIVES; call++)
        for (enum ash_cost_inter_node w = ASH_COST_FLAT; w < ASH_COST_INTER_NODE_COUNT; w++)
            cost.inter_node[call][w] = (struct ash_cost_line){.latency_s = w == way ? 0 : 1, .bytes_per_s = 1e15};
    return cost;
}

/* All-to-alls of which each rank thinks that another way is the cheapest: each node goes one, and all understand. */
static int ways_of_pairs(struct ash_group *group, struct shared *shared, const void *arg)
{
    struct buffers buffers = {.out = malloc(16 * COUNT_MAX), .parts = {malloc(16 * COUNT_MAX)}};
    size_t rank = ash_group_rank(group), wrong[GROUP_RANKS_MAX];
    struct ash_err err = {0};

    (void)arg;
    for (unsigned turn = 0; turn < 4; turn++) {
        struct ash_cost cost = only((rank * (turn + 1) / 2 + turn) % 2 == 0 ? ASH_COST_FLAT : ASH_COST_HIERARCHICAL);

        ash_group_set_cost(group, &cost);
        CHECK(pairs(group, &buffers) == 0);
    }
    CHECK(meet(shared, rank, ash_group_size(group)));
    for (size_t r = 0; r < ash_group_size(group); r++)
        wrong[r] = rank == 1 && r != 1 ? 8 : 4;
    CHECK(ash_group_all_to_all(group, buffers.parts[0], wrong, buffers.out, wrong, &err) == -EPROTO);
    CHECK(strstr(err.text, "rank 1") != NULL && strstr(err.text, "expects") != NULL);
    free(buffers.parts[0]);
    free(buffers.out);
    return 0;
}

/* Every way gives the same bits; ranks whose models differ do not go different ways. */
static int every_way(struct ash_group *group, struct shared *shared, const void *arg)
{
    static const size_t counts[] = {1, 2000, COUNT_MAX};
    size_t rank = ash_group_rank(group), size = ash_group_size(group);
    float *data = malloc(COUNT_MAX * sizeof(*data)), *want = malloc(COUNT_MAX * sizeof(*want));
    struct ash_cost cost;
    struct ash_shares even;
    struct ash_err err = {0};

    (void)arg;
    even_parts(&even, size);
    for (enum ash_cost_inter_node way = ASH_COST_FLAT; way < ASH_COST_INTER_NODE_COUNT; way++)
        for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
            cost = only(way);
            ash_group_set_cost(group, &cost);
            make_operand(ASH_COLL_F32, rank, 0, counts[c], data);
            expect_sum(&even, size, ASH_COLL_F32, ASH_COLL_SUM, counts[c], want);
            CHECK(ash_group_all_reduce(group, data, data, counts[c], ASH_COLL_F32, ASH_COLL_SUM, NULL) == 0);
            CHECK(memcmp(data, want, counts[c] * sizeof(*data)) == 0);
        }
    CHECK(meet(shared, rank, size));
    cost = only(rank == 0 ? ASH_COST_FLAT : ASH_COST_HIERARCHICAL);
    ash_group_set_cost(group, &cost);
    CHECK(ash_group_all_reduce(group, data, data, 1, ASH_COLL_F32, ASH_COLL_SUM, &err) == -EPROTO);
    CHECK(strstr(err.text, "group.algorithm") != NULL);
    free(want);
    free(data);
    return 0;
}

/* The value of a counter of this process, by how its line begins. */
static double counter(const char *line)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    const char *at;
    double value;

    ash_metrics_write(out);
    fclose(out);
    at = strstr(text, line);
    value = at != NULL ? strtod(at + strlen(line), NULL) : 0;
    free(text);
    return value;
}

/* Counters tell what stayed inside a node from what crossed: the same bytes cross in both ways, bundled by those who
 * have read them inside. Two nodes of two ranks. */
static int counted_pairs(struct ash_group *group, struct shared *shared, const void *arg)
{
    static const char inside[] = "ashlar_all_to_all_bytes_total{path=\"intra_node\"}",
                      across[] = "ashlar_all_to_all_bytes_total{path=\"inter_node\"}";
    struct buffers buffers = {.out = malloc(8 * COUNT_MAX), .parts = {malloc(8 * COUNT_MAX)}};
    const bool *bundled = arg;
    double each = (double)pair_bytes(EVEN, 0, 1), words = *bundled ? 3 * sizeof(uint64_t) : 0;

    (void)shared;
    CHECK(exchange(group, &buffers, EVEN) == 0);
    CHECK(counter(inside) == (*bundled ? 2 : 1) * each);
    CHECK(counter(across) == 2 * each + words);
    free(buffers.parts[0]);
    free(buffers.out);
    return ash_group_barrier(group, NULL) != 0;
}

static void run_placement(const char *nodes, int algorithm)
{
    struct job job = {
        .size = strlen(nodes), .silent_s = 20, .call_s = 20, .run = everything, .nodes = nodes, .algorithm = algorithm};

    print_message("nodes %s\n", nodes);
    assert_int_equal(run_job(&job), 0);
}

static void test_hierarchical(void **state)
{
    (void)state;
    run_placement("aabb", ASH_NET_HIERARCHICAL);
    run_placement("abab", ASH_NET_HIERARCHICAL);
    run_placement("aaab", ASH_NET_AUTO);
    run_placement("abcac", ASH_NET_HIERARCHICAL);
}

static void test_flat(void **state)
{
    (void)state;
    run_placement("aabb", ASH_NET_FLAT);
}

static void test_ways(void **state)
{
    static const char *const placements[] = {"aabb", "abcac"};

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct job job = {
            .size = strlen(placements[i]), .silent_s = 20, .call_s = 20, .run = every_way, .nodes = placements[i]};

        assert_int_equal(run_job(&job), 0);
    }
}

static void test_ways_of_pairs(void **state)
{
    /* the last one: more than a stage holds at once, where one rank sends all */
    static const char *const placements[] = {"aabb", "abcac", "aaaabbc", "aaaaaaabbbbb"};

    (void)state;
    for (size_t i = 0; i < 4; i++) {
        struct job job = {
            .size = strlen(placements[i]), .silent_s = 20, .call_s = 20, .run = ways_of_pairs, .nodes = placements[i]};

        assert_int_equal(run_job(&job), 0);
    }
}

static void test_counters(void **state)
{
    (void)state;
    for (int flat = 0; flat < 2; flat++) {
        const bool bundled = flat == 0;
        struct job job = {.size = 4,
                          .silent_s = 20,
                          .call_s = 20,
                          .run = counted_pairs,
                          .arg = &bundled,
                          .nodes = "aabb",
                          .algorithm = flat ? ASH_NET_FLAT : ASH_NET_HIERARCHICAL};

        assert_int_equal(run_job(&job), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_hierarchical), cmocka_unit_test(test_flat),
                                       cmocka_unit_test(test_ways), cmocka_unit_test(test_ways_of_pairs),
                                       cmocka_unit_test(test_counters)};

    if (!start_network()) return 0; /* nothing to test without libfabric */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
