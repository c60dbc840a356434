/* Channels and messages between processes: what is sent arrives, in order, at any size; and what one end hears when the
 * other disagrees, is late, dies, leaves or gives up. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>

#include "base/assert.h"
#include "base/hash.h"
#include "collective/channel.h"
#include "harness/group_ranks.h"

#define PATIENCE_S 120

/* ---- what is sent arrives ---------------------------------------------------------------------------------------- */

/* Words of eight bytes, the last one cut. */
static void fill_message(uint64_t number, size_t bytes, void *out)
{
    for (size_t i = 0; i < bytes; i += sizeof(uint64_t)) {
        uint64_t word = ash_hash_mix(number * 1000003 + i);

        memcpy((uint8_t *)out + i, &word, bytes - i < sizeof(word) ? bytes - i : sizeof(word));
    }
}

static int is_message(uint64_t number, size_t bytes, const void *got)
{
    for (size_t i = 0; i < bytes; i += sizeof(uint64_t)) {
        uint64_t word = ash_hash_mix(number * 1000003 + i);

        if (memcmp((const uint8_t *)got + i, &word, bytes - i < sizeof(word) ? bytes - i : sizeof(word)) != 0) return 0;
    }
    return 1;
}

struct shape {
    size_t slot_bytes, slots;
    uint64_t messages;
};

static size_t size_of(const struct shape *shape, uint64_t number)
{
    return ash_hash_mix(number) % (shape->slot_bytes + 1);
}

static int produce(struct ash_channel *channel, const struct shape *shape)
{
    for (uint64_t i = 0; i < shape->messages; i++) {
        void *slot = ash_channel_fill(channel, NULL);

        if (slot == NULL || (uintptr_t)slot % 64 != 0) return 10;
        if (ash_channel_fill(channel, NULL) != slot) return 11; /* the same until it is posted */
        fill_message(i, size_of(shape, i), slot);
        if (ash_channel_post(channel, size_of(shape, i), NULL) != 0) return 12;
    }
    return 0;
}

/* Holds as many messages as there are slots, at times, before it releases them. */
static int consume(struct ash_channel *channel, const struct shape *shape)
{
    size_t held = 0;

    for (uint64_t i = 0; i < shape->messages; i++) {
        size_t bytes = 0;
        const void *data = ash_channel_take(channel, &bytes, NULL);

        if (data == NULL || bytes != size_of(shape, i) || !is_message(i, bytes, data)) return 20;
        if (++held < 1 + i % shape->slots) continue;
        for (; held > 0; held--)
            ash_channel_release(channel);
    }
    for (; held > 0; held--)
        ash_channel_release(channel);
    return 0;
}

/* Every rank sends to the next and receives from the one before, in turns of a few messages. */
static int ring(struct ash_group *group, struct shared *shared, const void *arg)
{
    static const struct shape shapes[] = {{1, 1, 200}, {64, 2, 300}, {1000, 3, 300}, {70000, 5, 40}};
    size_t rank = ash_group_rank(group), size = ash_group_size(group);
    struct ash_channel *to = NULL, *from = NULL;
    int rc = 0;

    (void)shared;
    (void)arg;
    for (size_t s = 0; s < 4 && rc == 0; s++) {
        const struct shape *shape = &shapes[s];

        if (ash_channel_open(group, rank, (rank + 1) % size, shape->slot_bytes, shape->slots, &to, NULL) != 0) return 1;
        if (ash_channel_open(group, (rank + size - 1) % size, rank, shape->slot_bytes, shape->slots, &from, NULL) != 0)
            return 2;
        rc = rank % 2 == 0 ? produce(to, shape) : consume(from, shape);
        if (rc == 0) rc = rank % 2 == 0 ? consume(from, shape) : produce(to, shape);
        ash_channel_close(to);
        ash_channel_close(from);
    }
    return rc;
}

static void test_ring(void **state)
{
    (void)state;
    for (size_t size = 2; size <= 4; size += 2)
        assert_int_equal(
            run_job(&(struct job){.size = size, .silent_s = PATIENCE_S, .call_s = PATIENCE_S, .run = ring}), 0);
}

/* More channels than may wait, opened by the sender long before the receiver, in both directions; then all are used. */
static int many_channels(struct ash_group *group, struct shared *shared, const void *arg)
{
    enum { COUNT = 20 };
    struct ash_channel *channels[COUNT] = {NULL};
    bool sends = ash_group_rank(group) == 0;
    int bad = 0;

    (void)shared;
    (void)arg;
    for (size_t i = 0; i < COUNT; i++)
        if (ash_channel_open(group, 0, 1, 8 * (i + 1), 1 + i % 3, &channels[i], NULL) != 0) return 1;
    for (uint64_t i = 0; i < COUNT; i++) {
        uint64_t value = sends ? i * i : 0;
        int rc = sends ? ash_channel_send(channels[i], &value, sizeof(value), NULL)
                       : ash_channel_recv(channels[i], &value, sizeof(value), NULL);

        if (rc != 0 || value != i * i) bad = 2;
    }
    for (size_t i = 0; i < COUNT; i++)
        ash_channel_close(channels[i]);
    return bad;
}

static void test_many_channels(void **state)
{
    (void)state;
    assert_int_equal(
        run_job(&(struct job){.size = 2, .silent_s = PATIENCE_S, .call_s = PATIENCE_S, .run = many_channels}), 0);
}

/* Posted messages outlive the sender's end; then the receiver hears that it is closed. */
static int close_early(struct ash_group *group, struct shared *shared, const void *arg)
{
    struct ash_channel *channel = NULL;
    struct ash_err err = {0};
    char got[300];
    int rc;

    (void)shared;
    (void)arg;
    if (ash_channel_open(group, 0, 1, 100, 4, &channel, NULL) != 0) return 1;
    if (ash_group_rank(group) == 0) {
        rc = ash_channel_send(channel, "a message that is still there when its sender has gone ..........", 66, NULL);
        ash_channel_close(channel);
        return rc != 0 || ash_group_barrier(group, NULL) != 0;
    }
    if (ash_group_barrier(group, NULL) != 0) return 2; /* it is closed by now */
    if (ash_channel_recv(channel, got, 66, NULL) != 0 || memcmp(got, "a message", 9) != 0) return 3;
    rc = ash_channel_recv(channel, got, 1, &err);
    if (rc != -EPIPE || strstr(err.text, "rank 0") == NULL) return 4;
    ash_channel_close(channel);
    return 0;
}

static void test_close_early(void **state)
{
    (void)state;
    assert_int_equal(
        run_job(&(struct job){.size = 2, .silent_s = PATIENCE_S, .call_s = PATIENCE_S, .run = close_early}), 0);
}

/* ---- messages between any two ranks ------------------------------------------------------------------------------ */

static const size_t message_sizes[] = {0, 1, 7, 65535, 65536, 65537, 3000017};

/* Every pair, every size; the lower rank sends first. */
static int pairs(struct ash_group *group, struct shared *shared, const void *arg)
{
    size_t rank = ash_group_rank(group), size = ash_group_size(group);
    uint8_t *data = malloc(message_sizes[6] + 1);
    int bad = 0;

    (void)shared;
    (void)arg;
    for (size_t i = 0; i < ASH_COUNT(message_sizes); i++)
        for (size_t from = 0; from < size; from++)
            for (size_t to = 0; to < size; to++) {
                uint64_t number = (i * 100 + from) * 100 + to;

                if (from == to || (rank != from && rank != to)) continue;
                if (rank == from) fill_message(number, message_sizes[i], data);
                if ((rank == from ? ash_group_send(group, to, data, message_sizes[i], NULL)
                                  : ash_group_recv(group, from, data, message_sizes[i], NULL)) != 0)
                    bad = 1;
                if (rank == to && !is_message(number, message_sizes[i], data)) bad = 2;
            }
    if (ash_group_send(group, rank, data, 1, NULL) != -EINVAL || ash_group_recv(group, size, data, 1, NULL) != -EINVAL)
        bad = 3;
    free(data);
    return bad;
}

static void test_pairs(void **state)
{
    (void)state;
    for (size_t size = 1; size <= 5; size++)
        assert_int_equal(
            run_job(&(struct job){.size = size, .silent_s = PATIENCE_S, .call_s = PATIENCE_S, .run = pairs}), 0);
}

/* ---- when it goes wrong ------------------------------------------------------------------------------------------ */

enum wrong { OTHER_SIZE, OTHER_SLOTS, LATE_SENDER, LATE_RECEIVER, LEFT, ABORTED };

static void note_error(struct shared *shared, size_t rank, int rc, const struct ash_err *err)
{
    memcpy(shared->text[rank], err->text, sizeof(err->text));
    atomic_store(&shared->noticed_ns[rank], ash_clock_ns());
    atomic_store(&shared->code[rank], rc);
}

static void await(_Atomic int *code)
{
    while (atomic_load(code) == 0)
        usleep(500);
}

/* Rank 0 sends to rank 1 and one of them is wrong; rank 2 waits in a barrier and is told. */
static int go_wrong(struct ash_group *group, struct shared *shared, const void *arg)
{
    const enum wrong wrong = *(const enum wrong *)arg;
    size_t rank = ash_group_rank(group);
    struct ash_channel *channel = NULL;
    struct ash_err err = {0};
    char data[64] = {0};
    int rc = 0;

    if (rank < 2) rc = ash_channel_open(group, 0, 1, 64, wrong == OTHER_SLOTS && rank == 1 ? 3 : 2, &channel, &err);
    if (rank == 0 && (wrong == LATE_SENDER || wrong == LEFT)) {
        if (wrong == LATE_SENDER) await(&shared->code[1]);
        ash_channel_close(channel);
        return 0;
    }
    while (wrong == ABORTED && atomic_load(&shared->joined) < ash_group_size(group)) /* all have come */
        usleep(500);
    if (rank == 0 && wrong == ABORTED) ash_group_abort(group, "rank 0 gives up: its roof leaks");
    if (rank == 1 && wrong == LATE_RECEIVER) await(&shared->code[0]);
    while (rank == 0 && rc == 0)
        rc = ash_channel_send(channel, data, 40, &err);
    while (rank == 1 && rc == 0)
        rc = ash_channel_recv(channel, data, wrong == OTHER_SIZE ? 41 : 40, &err);
    if (rank == 2 && wrong == LATE_SENDER) await(&shared->code[1]);
    if (rank == 2 && wrong == LATE_RECEIVER) await(&shared->code[0]);
    if (rank == 2) rc = ash_group_barrier(group, &err);
    note_error(shared, rank, rc, &err);
    ash_channel_close(channel);
    return 0;
}

/* Returns how many ranks from `first` on end with another code or leave out one of the words. */
static int try_wrong(enum wrong wrong, double call_s, int code, const char *const *words, size_t first)
{
    struct job job = {.size = 3, .silent_s = PATIENCE_S, .call_s = call_s, .run = go_wrong, .arg = &wrong};
    struct shared *shared = start(&job);
    int bad = 0;

    assert_int_equal(finish(&job, shared, SIZE_MAX), 0);
    for (size_t r = first; r < 3; r++) {
        bool is_right = shared->code[r] == code;

        if (wrong == LATE_RECEIVER && r == 1) continue;
        for (size_t w = 0; words[w] != NULL; w++)
            is_right = is_right && strstr(shared->text[r], words[w]) != NULL;
        if (is_right) continue;
        print_message("case %d, rank %zu ends with %d: %s\n", (int)wrong, r, shared->code[r], shared->text[r]);
        bad++;
    }
    end(shared);
    return bad;
}

/* A busy machine may hold up another rank for longer than call_s: more tries, each with five times the limit. */
static void wrong_case(enum wrong wrong, double call_s, int code, const char *const *words, size_t first)
{
    int bad = try_wrong(wrong, call_s, code, words, first);

    for (call_s *= 5; bad > 0 && call_s < PATIENCE_S; call_s *= 5)
        bad = try_wrong(wrong, call_s, code, words, first);
    assert_int_equal(bad, 0);
}

static void test_wrong(void **state)
{
    (void)state;
    wrong_case(OTHER_SIZE, PATIENCE_S, -EPROTO, (const char *const[]){"rank 0", "40 bytes", "expects 41", NULL}, 0);
    wrong_case(OTHER_SLOTS, PATIENCE_S, -EPROTO, (const char *const[]){"rank 0", "rank 1", "slots", NULL}, 0);
    wrong_case(LATE_SENDER, 0.5, -ETIMEDOUT, (const char *const[]){"rank 1 has waited", "for rank 0", NULL}, 1);
    wrong_case(LATE_RECEIVER, 0.5, -ETIMEDOUT, (const char *const[]){"rank 0 has waited", "rank 1", "message 3", NULL},
               0);
    wrong_case(ABORTED, PATIENCE_S, -ECONNRESET, (const char *const[]){"its roof leaks", NULL}, 0);
}

/* A rank that closes its end and leaves: the other hears so at once, also in a collective. */
static void test_left(void **state)
{
    enum wrong wrong = LEFT;
    struct job job = {.size = 3, .silent_s = PATIENCE_S, .call_s = PATIENCE_S, .run = go_wrong, .arg = &wrong};
    struct shared *shared = start(&job);

    (void)state;
    assert_int_equal(finish(&job, shared, SIZE_MAX), 0);
    assert_true(shared->code[1] == -EPIPE || shared->code[1] == -EPROTO); /* by itself, or from rank 2 */
    assert_non_null(strstr(shared->text[1], "rank 0"));
    assert_int_equal(shared->code[2], -EPROTO);
    assert_non_null(strstr(shared->text[2], "has left the group"));
    end(shared);
}

static int until_lost(struct ash_group *group, struct shared *shared, const void *arg)
{
    size_t rank = ash_group_rank(group);
    struct ash_err err = {0};
    int data = 0, rc = 0;

    (void)arg;
    while (rc == 0) /* a token goes round and round */
        rc = rank == 0 ? ash_group_send(group, 1, &data, sizeof(data), &err)
                       : ash_group_recv(group, rank - 1, &data, sizeof(data), &err);
    note_error(shared, rank, rc, &err);
    for (int i = 0; i < 3; i++) /* others that were started before any rank knew */
        if (rank == 0 && ash_group_send(group, 1, &data, sizeof(data), &err) == 0) return 1;
    return 0;
}

static void test_killed(void **state)
{
    struct job job = {.size = 2, .silent_s = PATIENCE_S, .call_s = PATIENCE_S, .run = until_lost};

    (void)state;
    for (size_t victim = 0; victim < 2; victim++) {
        struct shared *shared = start(&job);
        uint64_t hit_ns;

        wait_joined(&job, shared);
        hit_ns = ash_clock_ns();
        kill(shared->pids[victim], SIGKILL);
        assert_int_equal(finish(&job, shared, victim), 0);
        assert_int_equal(shared->code[1 - victim], -ECONNRESET);
        assert_non_null(strstr(shared->text[1 - victim], victim == 0 ? "rank 0" : "rank 1"));
        assert_true(shared->noticed_ns[1 - victim] - hit_ns < (PATIENCE_S / 2) * 1000000000ull);
        end(shared);
    }
}

static int misuse(struct ash_group *group, struct shared *shared, const void *arg)
{
    struct ash_channel *channel = NULL;
    struct ash_err err = {0};
    size_t rank = ash_group_rank(group), bytes;

    (void)shared;
    (void)arg;
    if (ash_channel_open(group, 0, 0, 8, 1, &channel, &err) != -EINVAL) return 1;
    if (ash_channel_open(group, 0, 3, 8, 1, &channel, &err) != -EINVAL) return 2;
    if (rank == 2 && ash_channel_open(group, 0, 1, 8, 1, &channel, &err) != -EINVAL) return 3;
    if (ash_channel_open(group, 0, 1, 0, 1, &channel, &err) != -EINVAL) return 4;
    if (ash_channel_open(group, 0, 1, 8, 0, &channel, &err) != -EINVAL) return 5;
    if (channel != NULL || rank == 2) return channel != NULL;
    if (ash_channel_open(group, 0, 1, 8, 1, &channel, &err) != 0) return 6;
    if (rank == 0 && (ash_channel_fill(channel, &err) == NULL || ash_channel_post(channel, 9, &err) != -EINVAL ||
                      ash_channel_post(channel, 8, &err) != 0))
        return 7;
    if (rank == 1 && (ash_channel_take(channel, &bytes, &err) == NULL || bytes != 8 ||
                      ash_channel_take(channel, &bytes, &err) != NULL || err.code != -EINVAL))
        return 8;
    ash_channel_close(channel);
    return 0;
}

static void test_misuse(void **state)
{
    (void)state;
    assert_int_equal(run_job(&(struct job){.size = 3, .silent_s = PATIENCE_S, .call_s = PATIENCE_S, .run = misuse}), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ring),   cmocka_unit_test(test_many_channels), cmocka_unit_test(test_close_early),
        cmocka_unit_test(test_pairs),  cmocka_unit_test(test_wrong),         cmocka_unit_test(test_left),
        cmocka_unit_test(test_killed), cmocka_unit_test(test_misuse),
    };

    const struct CMUnitTest across[] = {cmocka_unit_test(test_ring),        cmocka_unit_test(test_many_channels),
                                        cmocka_unit_test(test_close_early), cmocka_unit_test(test_pairs),
                                        cmocka_unit_test(test_wrong),       cmocka_unit_test(test_left),
                                        cmocka_unit_test(test_killed)};
    int failed = cmocka_run_group_tests_name("one node", tests, NULL, NULL);

    if (!start_network()) return failed;
    default_nodes = "abb";
    return failed + cmocka_run_group_tests_name("several nodes", across, NULL, NULL);
}
