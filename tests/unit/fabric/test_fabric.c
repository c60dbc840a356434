/* Transfers between processes on every road: contents, order of notifications, many under way, early ones, counters. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <poll.h>

#include "record/metrics.h"
#include "base/rng.h"
#include "harness/fabric_ranks.h"

#define LANES 8 /* messages under way */
#define LANE_BYTES (((size_t)1 << 20) + 64)
#define BIG_BYTES (((size_t)6 << 20) + 1) /* more than copies that bypass the caches begin with */
#define AREA_BYTES (LANES * LANE_BYTES)
#define ACK (1ull << 63)
#define WORDS 600 /* more than a ring holds */

/* A region of the road's kind. */
static int make_region(const struct fabric_rank *member, const struct road *road, size_t size, struct ash_region **out)
{
    void *own;

    if (!road->registered) return ash_region_alloc(member->fabric, size, out, NULL);
    own = calloc(1, size);
    return own == NULL ? -ENOMEM : ash_region_register(member->fabric, own, size, out, NULL);
}

static void free_region(const struct road *road, struct ash_region *region)
{
    void *data = ash_region_data(region);

    ash_region_close(region);
    if (road->registered) free(data);
}

/* Give one's key to the others and open that of peer 1 - rank. */
static int exchange_keys(const struct fabric_rank *member, struct ash_region *region, struct ash_remote **remote_out)
{
    uint32_t other = (uint32_t)(1 - member->rank);
    struct ash_err err = {0};
    int rc;

    ash_region_key(region, &member->meeting->keys[member->rank]);
    meet(member);
    rc = ash_remote_open(member->fabric, other, &member->meeting->keys[other], remote_out, &err);
    if (rc < 0) fprintf(stderr, "%s\n", err.text);
    return rc;
}

static size_t message_bytes(size_t rank, uint64_t i)
{
    uint64_t kind = ash_rng_below(3, rank, i, 8);

    if (kind == 0) return 0;
    if (kind < 5) return 1 + ash_rng_below(4, rank, i, 300);
    return kind < 7 ? 1 + ash_rng_below(5, rank, i, 100000) : 1 + ash_rng_below(6, rank, i, LANE_BYTES - 64);
}

static uint8_t pattern(size_t rank, uint64_t i, size_t at)
{
    return (uint8_t)((i * 131 + rank * 17 + (at >> 8)) ^ at);
}

static void paint(uint8_t *data, size_t rank, uint64_t i, size_t size)
{
    for (size_t at = 0; at < size; at++)
        data[at] = pattern(rank, i, at);
}

static bool painted(const uint8_t *data, size_t rank, uint64_t i, size_t size)
{
    for (size_t at = 0; at < size; at++)
        if (data[at] != pattern(rank, i, at)) return false;
    return true;
}

/* ---- writes, each followed by a notification, in both directions at once ----------------------------------------- */

struct stream {
    uint64_t posted, done, acked, seen; /* messages */
    uint64_t owed;                      /* acknowledgements not sent yet */
    bool notify_due;                    /* message posted - 1 is written and its notification refused */
    bool lost;                          /* the other one has all it waited for, and has left */
};

static int step_out(struct fabric_rank *member, struct stream *stream, struct ash_region *from, struct ash_remote *to,
                    uint64_t count)
{
    uint32_t other = (uint32_t)(1 - member->rank);
    int rc = 0;

    while (stream->owed > 0 && (rc = ash_fabric_notify(member->fabric, other, ACK)) == 0)
        stream->owed--;
    if (stream->notify_due && rc == 0) {
        rc = ash_fabric_notify(member->fabric, other, stream->posted - 1);
        if (rc == 0) stream->notify_due = false;
    }
    while (rc == 0 && stream->posted < count && stream->posted < stream->acked + LANES &&
           stream->done + LANES > stream->posted) {
        size_t lane = stream->posted % LANES, size = message_bytes(member->rank, stream->posted);
        struct ash_transfer transfer = {.local = from,
                                        .local_offset = lane * LANE_BYTES + stream->posted % 5,
                                        .remote = to,
                                        .remote_offset = lane * LANE_BYTES + stream->posted % 7,
                                        .size_bytes = size,
                                        .cookie = stream->posted};

        paint((uint8_t *)ash_region_data(from) + transfer.local_offset, member->rank, stream->posted, size);
        rc = ash_fabric_write(member->fabric, &transfer);
        if (rc < 0) break;
        rc = ash_fabric_notify(member->fabric, other, stream->posted);
        stream->notify_due = rc == -EAGAIN;
        stream->posted++;
    }
    return rc == -EAGAIN ? 0 : rc;
}

static int step_in(struct fabric_rank *member, struct stream *stream, const struct ash_region *area)
{
    size_t other = 1 - member->rank, count;
    struct ash_fabric_event events[16];

    count = ash_fabric_poll(member->fabric, events, 16);
    for (size_t e = 0; e < count; e++) {
        const struct ash_fabric_event *event = &events[e];
        uint64_t i = event->word;

        CHECK(event->peer == other && event->status == (event->kind == ASH_FABRIC_LOST ? -ESHUTDOWN : 0));
        if (event->kind == ASH_FABRIC_LOST) {
            stream->lost = true;
        } else if (event->kind == ASH_FABRIC_DONE) {
            stream->done++;
        } else if (i == ACK) {
            stream->acked++;
        } else {
            const uint8_t *data = (const uint8_t *)ash_region_data(area) + i % LANES * LANE_BYTES + i % 7;

            CHECK(i == stream->seen++); /* in order */
            CHECK(painted(data, other, i, message_bytes(other, i)));
            stream->owed++;
        }
    }
    return 0;
}

static int stream_both_ways(struct fabric_rank *member)
{
    const struct road *road = member->arg;
    struct ash_region *from = NULL, *area = NULL;
    struct ash_remote *to = NULL;
    struct stream stream = {0};
    struct ash_fabric_stats stats;
    uint64_t limit = ash_clock_ns() + PATIENCE_NS, bytes = 0;
    const uint64_t count = road->messages;

    CHECK(make_region(member, road, AREA_BYTES, &from) == 0 && make_region(member, road, AREA_BYTES, &area) == 0);
    CHECK(exchange_keys(member, area, &to) == 0);
    while (stream.done < count || stream.acked < count || stream.seen < count || stream.owed > 0) {
        CHECK(ash_clock_ns() < limit && !stream.lost);
        CHECK(step_out(member, &stream, from, to, count) == 0);
        CHECK(step_in(member, &stream, area) == 0);
    }
    for (uint64_t i = 0; i < count; i++)
        bytes += message_bytes(member->rank, i);
    ash_fabric_peer_stats(member->fabric, (uint32_t)(1 - member->rank), &stats);
    CHECK(stats.bytes == bytes && stats.messages == 3 * count && stats.path == (enum ash_fabric_path)road->opts.path);
    CHECK(ash_fabric_peer_path(member->fabric, (uint32_t)(1 - member->rank)) == stats.path);
    ash_remote_close(to);
    free_region(road, from);
    free_region(road, area);
    return 0;
}

static void test_stream(void **state)
{
    (void)state;
    for (size_t r = 0; r < ROADS; r++) {
        if (!road_open(&roads[r])) continue;
        print_message("road: %s\n", roads[r].name);
        assert_int_equal(
            run_fabric_ranks(
                &(struct fabric_ranks){.size = 2, .opts = roads[r].opts, .run = stream_both_ways, .arg = &roads[r]},
                NULL),
            0);
    }
}

/* ---- reads, and one large write ---------------------------------------------------------------------------------- */

/* What this process has been told so far. */
static struct {
    uint64_t done, words, last;
    bool lost; /* the other one has closed its endpoint: nothing more will come */
} told;

static int pump(struct fabric_rank *member)
{
    struct ash_fabric_event events[8];
    size_t count = ash_fabric_poll(member->fabric, events, 8);

    for (size_t e = 0; e < count; e++) {
        CHECK(!told.lost && events[e].status == (events[e].kind == ASH_FABRIC_LOST ? -ESHUTDOWN : 0));
        told.done += events[e].kind == ASH_FABRIC_DONE;
        told.words += events[e].kind == ASH_FABRIC_NOTIFIED;
        told.lost = events[e].kind == ASH_FABRIC_LOST;
        if (events[e].kind == ASH_FABRIC_NOTIFIED) told.last = events[e].word;
    }
    return 0;
}

/* Poll until the given transfers are done and notifications received, both counted from the start of the process. */
static int await(struct fabric_rank *member, uint64_t done, uint64_t words)
{
    uint64_t limit = ash_clock_ns() + PATIENCE_NS;

    while (told.done < done || told.words < words) {
        CHECK(ash_clock_ns() < limit && !told.lost);
        CHECK(pump(member) == 0);
    }
    return 0;
}

/* Notify, however long the road is full. */
static int tell(struct fabric_rank *member, uint32_t peer, uint64_t word)
{
    int rc;

    while ((rc = ash_fabric_notify(member->fabric, peer, word)) == -EAGAIN)
        CHECK(pump(member) == 0);
    return rc;
}

static int random_reads(struct fabric_rank *member, struct ash_region *into, struct ash_remote *remote)
{
    const size_t reads = 64, share = BIG_BYTES / reads;

    for (size_t i = 0; i < reads; i++) {
        size_t at = ash_rng_below(1, 0, i, share), size = ash_rng_below(2, 0, i, share - at + 1);
        struct ash_transfer transfer = {.local = into,
                                        .local_offset = share * i + at,
                                        .remote = remote,
                                        .remote_offset = share * i + at,
                                        .size_bytes = size,
                                        .cookie = i};

        CHECK(ash_fabric_read(member->fabric, &transfer) == 0);
    }
    CHECK(await(member, reads, 0) == 0);
    for (size_t i = 0; i < reads; i++) {
        size_t at = share * i + ash_rng_below(1, 0, i, share),
               end = at + ash_rng_below(2, 0, i, share - (at - share * i) + 1);

        for (const uint8_t *got = ash_region_data(into); at < end; at++)
            CHECK(got[at] == pattern(1, 9, at));
    }
    return 0;
}

static int read_and_write_big(struct fabric_rank *member)
{
    const struct road *road = member->arg;
    struct ash_region *area = NULL, *into = NULL;
    struct ash_remote *remote = NULL;
    struct ash_transfer whole = {.size_bytes = BIG_BYTES};

    CHECK(make_region(member, road, BIG_BYTES, &area) == 0 && make_region(member, road, BIG_BYTES, &into) == 0);
    if (member->rank == 1) paint(ash_region_data(area), 1, 9, BIG_BYTES);
    CHECK(exchange_keys(member, area, &remote) == 0);
    whole.local = into;
    whole.remote = remote;
    if (member->rank == 1) {
        CHECK(await(member, 0, 1) == 0);
        CHECK(told.last == 1 && painted(ash_region_data(area), 0, 4, BIG_BYTES));
        CHECK(tell(member, 0, 2) == 0);
    } else {
        CHECK(random_reads(member, into, remote) == 0);
        CHECK(ash_fabric_read(member->fabric, &whole) == 0 && await(member, 65, 0) == 0);
        CHECK(painted(ash_region_data(into), 1, 9, BIG_BYTES));
        paint(ash_region_data(into), 0, 4, BIG_BYTES);
        CHECK(ash_fabric_write(member->fabric, &whole) == 0 && tell(member, 1, 1) == 0);
        CHECK(await(member, 66, 1) == 0 && told.last == 2);
    }
    ash_remote_close(remote);
    free_region(road, area);
    free_region(road, into);
    return 0;
}

static void test_big(void **state)
{
    (void)state;
    for (size_t r = 0; r < MAIN_ROADS + 1; r++)
        if (road_open(&roads[r])) {
            print_message("road: %s\n", roads[r].name);
            assert_int_equal(run_fabric_ranks(
                                 &(struct fabric_ranks){
                                     .size = 2, .opts = roads[r].opts, .run = read_and_write_big, .arg = &roads[r]},
                                 NULL),
                             0);
        }
}

/* ---- notifications among many, and before the peers know each other ---------------------------------------------- */

/* All ranks send all others many words; each sender's words come in its order. Odd ranks add their peers late. */
static int crowd(struct fabric_rank *member)
{
    uint64_t next[FABRIC_RANKS_MAX] = {0}, sent[FABRIC_RANKS_MAX] = {0}, left = 2 * WORDS * (member->size - 1);
    uint64_t limit = ash_clock_ns() + PATIENCE_NS;

    for (size_t r = 0; r < member->size; r++)
        if (r != member->rank) {
            if (member->rank % 2 == 1) usleep(20000);
            CHECK(ash_fabric_add_peer(member->fabric, (uint32_t)r, &member->meeting->addrs[r], NULL) == 0);
            CHECK(ash_fabric_notify(member->fabric, (uint32_t)r, sent[r]++) == 0);
            left--;
        }
    while (left > 0) {
        struct ash_fabric_event events[32];
        size_t count = ash_fabric_poll(member->fabric, events, 1 + left % 32);

        CHECK(ash_clock_ns() < limit);
        for (size_t e = 0; e < count; e++) {
            uint64_t *word = &next[events[e].peer];

            if (events[e].kind == ASH_FABRIC_LOST) CHECK(events[e].status == -ESHUTDOWN && *word == WORDS);
            if (events[e].kind == ASH_FABRIC_LOST) continue; /* it has all it waits for */
            CHECK(events[e].kind == ASH_FABRIC_NOTIFIED && events[e].word == (*word)++);
            left--;
        }
        for (size_t r = 0; r < member->size; r++)
            while (r != member->rank && sent[r] < WORDS &&
                   ash_fabric_notify(member->fabric, (uint32_t)r, sent[r]) == 0) {
                sent[r]++;
                left--;
            }
    }
    return 0;
}

static void test_crowd(void **state)
{
    (void)state;
    for (size_t r = 0; r < MAIN_ROADS; r++)
        if (road_open(&roads[r])) {
            print_message("road: %s\n", roads[r].name);
            assert_int_equal(
                run_fabric_ranks(
                    &(struct fabric_ranks){.size = 4, .opts = roads[r].opts, .strangers = true, .run = crowd}, NULL),
                0);
        }
}

/* ---- sleeping ---------------------------------------------------------------------------------------------------- */

/* Two processes hand a word back and forth and sleep in between; each sleep ends by the word, not by the time. */
static int sleepers(struct fabric_rank *member)
{
    uint32_t other = (uint32_t)(1 - member->rank);
    uint64_t began = ash_clock_ns();

    if (member->rank == 0) CHECK(tell(member, other, 0) == 0);
    for (uint64_t i = 0; i < 100; i++) {
        while (told.words <= i) {
            struct pollfd fd = {.fd = ash_fabric_wait_fd(member->fabric), .events = POLLIN};
            uint64_t before = told.words;

            CHECK(pump(member) == 0);
            if (fd.fd >= 0 && told.words == before) poll(&fd, 1, 1000);
            CHECK(ash_clock_ns() - began < PATIENCE_NS);
        }
        if (member->rank != 0 || i < 99) CHECK(tell(member, other, i) == 0);
    }
    CHECK(ash_clock_ns() - began < 50000000000ull); /* 100 sleeps of 1 s would be 100 s */
    return 0;
}

static void test_sleep(void **state)
{
    static const size_t which[] = {0, 3};

    (void)state;
    for (size_t w = 0; w < 2; w++)
        if (road_open(&roads[which[w]])) {
            print_message("road: %s\n", roads[which[w]].name);
            assert_int_equal(
                run_fabric_ranks(&(struct fabric_ranks){.size = 2, .opts = roads[which[w]].opts, .run = sleepers},
                                 NULL),
                0);
        }
}

/* ---- paths and counters ------------------------------------------------------------------------------------------ */

static int choose_paths(struct fabric_rank *member)
{
    const char *const nodes[] = {"a", "a", "b"};
    struct ash_fabric_opts opts = {.node = nodes[member->rank], .provider = "tcp", .interface = "127.0.0.1"};
    struct ash_fabric *fabric = NULL;

    CHECK(ash_fabric_open(&opts, &fabric, NULL) == 0);
    ash_fabric_get_addr(fabric, &member->meeting->addrs[member->rank]);
    meet(member);
    for (uint32_t r = 0; r < 3; r++) {
        struct ash_err err = {0};
        bool near = strcmp(nodes[r], nodes[member->rank]) == 0;
        int rc = ash_fabric_add_peer(fabric, r, &member->meeting->addrs[r], &err);

        if (rc == -ENETUNREACH) CHECK(!near && strstr(err.text, "libfabric") != NULL); /* built without it */
        if (rc == 0) CHECK(ash_fabric_peer_path(fabric, r) == (near ? ASH_FABRIC_SHM : ASH_FABRIC_OFI));
        CHECK(rc == 0 || (rc == -ENETUNREACH && ash_fabric_peer_path(fabric, r) == ASH_FABRIC_AUTO));
    }
    meet(member);
    ash_fabric_close(fabric);
    return 0;
}

static void test_paths(void **state)
{
    (void)state;
    assert_int_equal(
        run_fabric_ranks(
            &(struct fabric_ranks){.size = 3, .opts = roads[0].opts, .strangers = true, .run = choose_paths}, NULL),
        0);
}

/* ---- a process as its own peer: everything in one place, where leaks are looked for ------------------------------ */

static void talk_to_oneself(const struct road *road)
{
    struct fabric_rank member = {.rank = 0, .size = 1};
    struct ash_region *from = NULL, *to = NULL;
    struct ash_remote *remote = NULL;
    struct ash_fabric_addr addr;
    struct ash_fabric_key key;

    memset(&told, 0, sizeof(told));
    assert_int_equal(ash_fabric_open(&road->opts, &member.fabric, NULL), 0);
    ash_fabric_get_addr(member.fabric, &addr);
    assert_int_equal(ash_fabric_add_peer(member.fabric, 5, &addr, NULL), 0);
    assert_true(make_region(&member, road, 100000, &from) == 0 && make_region(&member, road, 100000, &to) == 0);
    ash_region_key(to, &key);
    assert_int_equal(ash_remote_open(member.fabric, 5, &key, &remote, NULL), 0);
    paint(ash_region_data(from), 1, 2, 100000);
    assert_int_equal(ash_fabric_write(member.fabric, &(struct ash_transfer){from, 0, remote, 0, 100000, 1}), 0);
    assert_int_equal(tell(&member, 5, 77), 0);
    assert_int_equal(await(&member, 1, 1), 0);
    assert_true(told.last == 77 && painted(ash_region_data(to), 1, 2, 100000));
    assert_int_equal(ash_fabric_read(member.fabric, &(struct ash_transfer){from, 1, remote, 0, 99999, 1}), 0);
    assert_int_equal(await(&member, 2, 1), 0);
    assert_true(painted((uint8_t *)ash_region_data(from) + 1, 1, 2, 99999));
    ash_remote_close(remote);
    free_region(road, from);
    free_region(road, to);
    ash_fabric_close(member.fabric);
}

static void test_oneself(void **state)
{
    (void)state;
    for (size_t r = 0; r < ROADS; r++)
        if (!roads[r].leaks && road_open(&roads[r])) {
            print_message("road: %s\n", roads[r].name);
            talk_to_oneself(&roads[r]);
        }
}

static uint64_t metric(const char *name)
{
    char *text = NULL, *at;
    size_t size = 0;
    uint64_t value;
    FILE *out = open_memstream(&text, &size);

    ash_metrics_write(out);
    fclose(out);
    at = strstr(text, name);
    value = at != NULL ? strtoull(at + strlen(name), NULL, 10) : 0;
    free(text);
    return value;
}

static void test_metrics(void **state)
{
    struct ash_fabric *fabric = NULL;
    struct ash_fabric_addr addr;
    uint64_t stalls = metric("\nashlar_fabric_stalls_total{path=\"shm\"} "),
             messages = metric("\nashlar_fabric_messages_total{path=\"shm\"} "), count = 0;

    (void)state;
    assert_int_equal(ash_fabric_open(&roads[0].opts, &fabric, NULL), 0);
    ash_fabric_get_addr(fabric, &addr);
    assert_int_equal(ash_fabric_add_peer(fabric, 0, &addr, NULL), 0);
    while (ash_fabric_notify(fabric, 0, 1) == 0)
        count++;
    ash_fabric_close(fabric);
    assert_true(count > 0);
    assert_int_equal(metric("\nashlar_fabric_stalls_total{path=\"shm\"} "), stalls + 1);
    assert_int_equal(metric("\nashlar_fabric_messages_total{path=\"shm\"} "), messages + count);
}

static void ignore(int number)
{
    (void)number;
}

/* The libraries below libfabric install handlers for the signals that end a program. */
static void test_signals(void **state)
{
    struct sigaction ours = {.sa_handler = ignore}, after;
    struct ash_fabric *fabric = NULL;

    (void)state;
    sigaction(SIGTERM, &ours, NULL);
    ash_fabric_open(&roads[1].opts, &fabric, NULL); /* fails in a build without it */
    ash_fabric_close(fabric);
    sigaction(SIGTERM, NULL, &after);
    assert_true(after.sa_handler == ignore);
    signal(SIGTERM, SIG_DFL);
}

int main(void)
{
    /* Signals first: what they load is then there in every process that the others fork. */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_signals), cmocka_unit_test(test_stream),  cmocka_unit_test(test_big),
        cmocka_unit_test(test_crowd),   cmocka_unit_test(test_sleep),   cmocka_unit_test(test_paths),
        cmocka_unit_test(test_oneself), cmocka_unit_test(test_metrics),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
