/* Calls that are started: they overlap with their owner's work, in order, in every kind; what goes wrong
 * comes out of wait. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>

#include "base/assert.h"
#include "collective/call.h"
#include "collective/channel.h"
#include "collective/host/window.h"
#include "harness/group_ranks.h"

#define PATIENCE_S 60
#define RANKS 8

static int run_with(size_t size, int (*run)(struct ash_group *, struct shared *, const void *))
{
    return run_job(&(struct job){.size = size, .silent_s = PATIENCE_S, .call_s = PATIENCE_S, .run = run});
}

/* ---- every kind -------------------------------------------------------------------------------------------------- */

#define COUNT 40000

struct buffers {
    int32_t in[COUNT], sum[COUNT], part[COUNT], sum_of_parts[COUNT], part_of_parts[COUNT], all[RANKS * COUNT],
        cast[COUNT], pairs[COUNT], back[COUNT], next[COUNT];
    size_t sizes[RANKS];
};

/* Element i of what rank r brings. */
static int32_t element(size_t r, size_t i)
{
    return (int32_t)(r * 1000003 + i * 7);
}

static int check_results(const struct buffers *b, size_t rank, size_t size)
{
    size_t share = COUNT / size;

    for (size_t i = 0; i < COUNT; i++) {
        int32_t sum = 0;

        for (size_t r = 0; r < size; r++)
            sum += element(r, i);
        if (b->sum[i] != sum || b->sum_of_parts[i] != sum) return 1;
        if (i / share == rank && (b->part[i % share] != sum || b->part_of_parts[i % share] != sum)) return 2;
        if (b->cast[i] != element(size - 1, i)) return 3;
        for (size_t r = 0; r < size; r++)
            if (b->all[r * COUNT + i] != element(r, i)) return 4;
        if (i / share < size && b->back[i] != element(i / share, rank * share + i % share)) return 5;
        if (size > 1 && b->next[i] != element((rank + size - 1) % size, i)) return 6;
    }
    return 0;
}

/* One part from each rank. */
static struct ash_shares even_shares(size_t size)
{
    struct ash_shares shares = {.first = {0}};

    ash_tree_of(&shares.tree, size);
    for (size_t r = 0; r <= size; r++)
        shares.first[r] = (uint32_t)r;
    return shares;
}

/* One of each at once; they are waited for backwards. The ring of messages is longer than its channels hold. */
static int every_kind(struct ash_group *group, struct shared *shared, const void *arg)
{
    size_t rank = ash_group_rank(group), size = ash_group_size(group), share = COUNT / size, count = 0;
    struct buffers *b = calloc(1, sizeof(*b));
    const void *const parts[] = {b->in};
    struct ash_shares shares = even_shares(size);
    struct ash_call *calls[10] = {NULL};
    char *large = malloc(6000000), *got = malloc(6000000);
    int rc = 0, bad;

    (void)shared;
    (void)arg;
    memset(large, (int)rank, 6000000);
    for (size_t i = 0; i < COUNT; i++)
        b->in[i] = b->pairs[i] = b->cast[i] = element(rank, i);
    for (size_t r = 0; r < size; r++)
        b->sizes[r] = share * sizeof(int32_t);
    rc |= ash_group_all_reduce_start(group, b->in, b->sum, COUNT, ASH_COLL_I32, ASH_COLL_SUM, &calls[count++], NULL);
    rc |= ash_group_all_reduce_parts_start(group, parts, &shares, b->sum_of_parts, COUNT, ASH_COLL_I32, ASH_COLL_SUM,
                                           &calls[count++], NULL);
    rc |= ash_group_reduce_scatter_parts_start(group, parts, &shares, b->part_of_parts, share, ASH_COLL_I32,
                                               ASH_COLL_SUM, &calls[count++], NULL);
    if (size > 1) {
        rc |= ash_group_send_start(group, (rank + 1) % size, large, 6000000, &calls[count++], NULL);
        rc |= ash_group_recv_start(group, (rank + size - 1) % size, got, 6000000, &calls[count++], NULL);
        rc |= ash_group_recv_start(group, (rank + size - 1) % size, b->next, sizeof(b->next), &calls[count++], NULL);
        rc |= ash_group_send(group, (rank + 1) % size, b->in, sizeof(b->in), NULL); /* after what was started */
    }
    rc |= ash_group_all_gather_start(group, b->in, b->all, sizeof(b->in), &calls[count++], NULL);
    rc |= ash_group_reduce_scatter(group, b->in, b->part, share, ASH_COLL_I32, ASH_COLL_SUM, NULL); /* in their order */
    rc |= ash_group_broadcast(group, b->cast, sizeof(b->cast), size - 1, NULL);
    rc |= ash_group_all_to_all_start(group, b->pairs, b->sizes, b->back, b->sizes, &calls[count++], NULL);
    while (count > 0)
        rc |= ash_call_wait(calls[--count], NULL);
    bad = rc != 0 ? 10 : check_results(b, rank, size);
    for (size_t i = 0; size > 1 && i < 6000000; i++)
        if (got[i] != (char)((rank + size - 1) % size)) bad = 11;
    free(large);
    free(got);
    free(b);
    return bad;
}

static void test_every_kind(void **state)
{
    (void)state;
    assert_int_equal(run_with(1, every_kind), 0);
    assert_int_equal(run_with(2, every_kind), 0);
    assert_int_equal(run_with(3, every_kind), 0);
}

/* ---- overlap with work ------------------------------------------------------------------------------------------- */

static int with_work_and_without(struct ash_group *group, struct shared *shared, const void *arg)
{
    struct ash_call_counts before = ash_call_get_counts(), after;
    struct ash_call *call = NULL;
    int32_t value = 1;
    int rc = 0;

    (void)shared;
    (void)arg;
    for (int i = 0; rc == 0 && i < 3; i++) {
        rc = ash_group_all_reduce_start(group, &value, &value, 1, ASH_COLL_I32, ASH_COLL_SUM, &call, NULL);
        if (i > 0) ash_call_note_work();
        if (rc == 0) rc = ash_call_wait(call, NULL);
    }
    after = ash_call_get_counts();
    return rc != 0 ? 1 : after.overlapped - before.overlapped != 2 || after.exposed - before.exposed != 1 ? 2 : 0;
}

static void test_work_is_counted(void **state)
{
    (void)state;
    assert_int_equal(run_with(1, with_work_and_without), 0);
}

/* ---- order ------------------------------------------------------------------------------------------------------- */

#define CHAIN 60

/* Each call reads what the one before it wrote: sums of sums, that rank 1 replaces by a message from rank 0 in between,
 * and sums in a window. */
static int chain(struct ash_group *group, struct shared *shared, const void *arg)
{
    size_t rank = ash_group_rank(group), size = ash_group_size(group), count = 0;
    struct ash_call *calls[3 * CHAIN] = {NULL};
    struct ash_window *window = NULL;
    struct ash_shares shares = even_shares(size);
    int64_t value = (int64_t)rank, want = 1; /* 0 + 1, then doubled */
    float *cell;
    int rc = 0;

    (void)shared;
    (void)arg;
    if (ash_group_window_open(group, 4096, &window, NULL) != 0) return 1;
    cell = ash_window_data(window);
    *cell = 1;
    for (size_t i = 0; i < CHAIN && rc == 0; i++) {
        rc = ash_group_all_reduce_start(group, &value, &value, 1, ASH_COLL_I64, ASH_COLL_SUM, &calls[count++], NULL);
        if (rank == 0)
            rc |= ash_group_send_start(group, 1, &value, sizeof(value), &calls[count++], NULL);
        else
            rc |= ash_group_recv_start(group, 0, &value, sizeof(value), &calls[count++], NULL);
        rc |= ash_group_window_all_reduce(group, &window, &shares, 1, ASH_COLL_F32, ASH_COLL_SUM, NULL);
        want *= i == 0 ? 1 : 2;
    }
    while (count > 0)
        rc |= ash_call_wait(calls[--count], NULL);
    rc |= ash_group_barrier(group, NULL); /* no rank leaves while others write to its window */
    rc = rc != 0 ? 2 : value != want ? 3 : *cell != (float)((uint64_t)1 << CHAIN) ? 4 : 0;
    ash_window_close(window);
    return rc;
}

static void test_chain(void **state)
{
    (void)state;
    assert_int_equal(run_with(2, chain), 0);
}

/* The owner continues while a call waits for the others; its own channels work meanwhile. */
static int overlapped(struct ash_group *group, struct shared *shared, const void *arg)
{
    size_t rank = ash_group_rank(group);
    struct ash_channel *there = NULL, *back = NULL;
    struct ash_call *call = NULL;
    int64_t value = 1, sum = 0, token = 0;
    int rc;

    (void)shared;
    (void)arg;
    if (ash_channel_open(group, 0, 1, 8, 2, &there, NULL) != 0 || ash_channel_open(group, 1, 0, 8, 2, &back, NULL) != 0)
        return 1;
    if (rank == 0 && ash_group_all_reduce_start(group, &value, &sum, 1, ASH_COLL_I64, ASH_COLL_SUM, &call, NULL) != 0)
        return 2;
    for (int64_t i = 0; i < 500; i++) { /* until the last token comes, rank 1 cannot have made the call */
        if (rank == 0 && ash_call_done(call)) return 4;
        rc = rank == 0 ? ash_channel_send(there, &i, sizeof(i), NULL)
                       : ash_channel_recv(there, &token, sizeof(token), NULL);
        if (rc == 0 && rank == 1) rc = token == i ? ash_channel_send(back, &token, sizeof(token), NULL) : 1;
        if (rc == 0 && rank == 0) rc = ash_channel_recv(back, &token, sizeof(token), NULL) != 0 || token != i;
        if (rc != 0) return 3;
    }
    if (rank == 1 && ash_group_all_reduce(group, &value, &sum, 1, ASH_COLL_I64, ASH_COLL_SUM, NULL) != 0) return 5;
    if (rank == 0 && (ash_call_wait(call, NULL) != 0 || sum != 2)) return 6;
    ash_channel_close(there);
    ash_channel_close(back);
    return sum != 2;
}

static void test_beside(void **state)
{
    (void)state;
    assert_int_equal(run_with(2, overlapped), 0);
}

/* ---- when it goes wrong ------------------------------------------------------------------------------------------ */

/* Rank 1 makes another call; all that was started ends with the same sentence, and so does everything after. */
static int disagree(struct ash_group *group, struct shared *shared, const void *arg)
{
    static float data[1000];
    struct ash_call *calls[5] = {NULL};
    struct ash_err err = {0};

    (void)shared;
    (void)arg;
    for (size_t i = 0; i < 5; i++)
        if (ash_group_all_reduce_start(group, data, data, i == 2 && ash_group_rank(group) == 1 ? 999 : 1000,
                                       ASH_COLL_F32, ASH_COLL_SUM, &calls[i], NULL) != 0)
            return 1;
    for (size_t i = 0; i < 5; i++) {
        int rc = ash_call_wait(calls[i], &err);

        if (i < 2 ? rc != 0 : rc != -EPROTO) return 2;
    }
    if (strstr(err.text, "rank 1") == NULL || strstr(err.text, "3996") == NULL) return 3;
    return ash_group_barrier(group, &err) == -EPROTO ? 0 : 4;
}

static void test_disagree(void **state)
{
    (void)state;
    assert_int_equal(run_with(2, disagree), 0);
    assert_int_equal(run_with(3, disagree), 0);
}

/* A group may be closed before what was started on it has been waited for. */
static int close_first(const struct job *job, struct shared *shared, size_t rank, int port)
{
    struct ash_launch_env env = {.rank = rank, .size = job->size, .host = "127.0.0.1", .port = port, .job = 7};
    struct ash_group_opts opts = {.join_timeout = 120, .silent_timeout = PATIENCE_S, .call_timeout = PATIENCE_S};
    struct ash_group *group = NULL;
    struct ash_call *call = NULL;
    int64_t sum = (int64_t)rank;

    (void)shared;
    if (ash_group_open(&env, &opts, &group, NULL) != 0) return 1;
    if (ash_group_all_reduce_start(group, &sum, &sum, 1, ASH_COLL_I64, ASH_COLL_SUM, &call, NULL) != 0) return 2;
    ash_group_close(group);
    return !ash_call_done(call) || ash_call_wait(call, NULL) != 0 || sum != 1;
}

static void test_close_first(void **state)
{
    const struct job job = {.size = 2};
    int port = 0, reserved = ash_socket_reserve(&port, NULL), bad = 0;
    pid_t pids[2];

    (void)state;
    fflush(NULL);
    for (size_t r = 0; r < 2; r++)
        if ((pids[r] = fork()) == 0) _exit(close_first(&job, NULL, r, port));
    for (size_t r = 0; r < 2; r++) {
        int status = 0;

        waitpid(pids[r], &status, 0);
        bad += !WIFEXITED(status) || WEXITSTATUS(status) != 0;
    }
    close(reserved);
    assert_int_equal(bad, 0);
    assert_int_equal(ash_call_wait(NULL, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_kind), cmocka_unit_test(test_chain),       cmocka_unit_test(test_beside),
        cmocka_unit_test(test_disagree),   cmocka_unit_test(test_close_first), cmocka_unit_test(test_work_is_counted),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
