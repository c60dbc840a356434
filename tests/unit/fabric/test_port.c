/* The transfer library between two processes: reads, writes, words; versions, whole if a process dies; wrong
 * descriptions. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "ashlar/transfer.h"
#include "base/math.h"
#include "base/rng.h"
#include "harness/ranks.h"

#define BYTES (((size_t)3 << 20) + 17)
#define VERSIONS 40
#define CHECK(condition)                                                                                               \
    if (!(condition)) return fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition), 1

struct road {
    const char *name;
    struct ash_port_opts opts;
    bool registered; /* the memory is the test's own */
};

static const struct road roads[] = {
    {"mapped", {.size = sizeof(struct ash_port_opts), .path = "shm"}, false},
    {"kernel", {.size = sizeof(struct ash_port_opts), .path = "shm"}, true},
    {"tcp", {.size = sizeof(struct ash_port_opts), .path = "ofi", .provider = "tcp", .interface = "127.0.0.1"}, false},
};

/* What the two processes share. */
struct meeting {
    const struct road *road;
    _Atomic uint32_t arrived;
    struct ash_port_description descriptions[2], ports[2];
    _Atomic uint64_t taken; /* the version that the reader had last */
    _Atomic bool is_over;   /* the owner may go */
};

static bool road_open(const struct road *road)
{
    struct ash_port *port = NULL;
    int status = 1;
    pid_t child = fork();

    if (child == 0) {
        status = ash_port_open(&road->opts, &port, NULL) < 0;
        ash_port_close(port);
        _exit(status);
    }
    waitpid(child, &status, 0);
    return status == 0;
}

static uint8_t byte_of(uint64_t version, size_t at)
{
    return (uint8_t)(version * 37 + at * 11 + (at >> 9));
}

static void paint(uint8_t *data, uint64_t version, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        data[i] = byte_of(version, i);
}

static bool is_painted(const uint8_t *data, uint64_t version, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (data[i] != byte_of(version, i)) return false;
    return true;
}

/* Run main in two processes over each road that is here. */
static void over_roads(rank_main_fn main, int kills_wanted)
{
    for (size_t r = 0; r < sizeof(roads) / sizeof(roads[0]); r++) {
        struct meeting *meeting;
        int kills = 0;

        if (!road_open(&roads[r])) continue;
        print_message("road: %s\n", roads[r].name);
        meeting = ranks_share(sizeof(*meeting));
        meeting->road = &roads[r];
        assert_int_equal(ranks_run(2, main, meeting, &kills), 0);
        assert_int_equal(kills, kills_wanted);
        ranks_unshare(meeting, sizeof(*meeting));
    }
}

static struct ash_port *open_port(const struct meeting *meeting)
{
    struct ash_port *port = NULL;
    struct ash_err err = {0};

    if (ash_port_open(&meeting->road->opts, &port, &err) < 0) fprintf(stderr, "%s\n", err.text);
    return port;
}

/* The next event, which must come. */
static int next_event(struct ash_port *port, struct ash_port_event *event_out)
{
    uint64_t limit_ns = ash_clock_ns() + RANKS_PATIENCE_NS;

    while (ash_clock_ns() < limit_ns)
        if (ash_port_wait(port, event_out, 1, 1) == 1) return 0;
    fprintf(stderr, "no event came\n");
    return 1;
}

/* ---- bytes and words --------------------------------------------------------------------------------------------- */

static int tell(struct ash_port *port, struct ash_port_remote *remote, uint64_t word)
{
    int rc;

    while ((rc = ash_port_notify(port, remote, word)) == -EAGAIN)
        ;
    return rc;
}

/* Rank 1 reads what is painted at rank 0 in drawn parts, writes it changed, and says so. */
static int read_and_write(struct ash_port *port, struct ash_port_memory *memory, struct ash_port_remote *remote)
{
    struct ash_port_transfer transfer = {
        .size = sizeof(transfer), .direction = ASH_PORT_READ, .local = memory, .remote = remote};
    struct ash_port_event event;
    size_t posted = 0;

    for (size_t at = 0; at < BYTES; posted++) {
        size_t bytes = ash_min(1 + (size_t)ash_rng_below(1, 2, at, BYTES / 8), BYTES - at);

        transfer.local_offset = transfer.remote_offset = at;
        transfer.size_bytes = bytes;
        transfer.cookie = posted;
        CHECK(ash_port_post(port, &transfer) == 0);
        at += bytes;
    }
    for (uint64_t seen = 0; posted > 0; posted--) {
        CHECK(next_event(port, &event) == 0 && event.kind == ASH_PORT_DONE && event.status == 0);
        CHECK(event.word < 64 && (seen & 1ull << event.word) == 0);
        seen |= 1ull << event.word;
    }
    CHECK(is_painted(ash_port_memory_data(memory), 5, BYTES));
    paint(ash_port_memory_data(memory), 6, BYTES);
    transfer = (struct ash_port_transfer){.size = sizeof(transfer),
                                          .direction = ASH_PORT_WRITE,
                                          .local = memory,
                                          .remote = remote,
                                          .size_bytes = BYTES,
                                          .cookie = 99};
    CHECK(ash_port_post(port, &transfer) == 0 && tell(port, remote, 1234) == 0);
    CHECK(next_event(port, &event) == 0 && event.kind == ASH_PORT_DONE && event.word == 99 && event.status == 0);
    transfer.remote_offset = 1;
    CHECK(ash_port_post(port, &transfer) == -ERANGE);
    transfer.size = 1;
    CHECK(ash_port_post(port, &transfer) == -EINVAL);
    CHECK(ash_port_take(port, remote, memory, 0) == -EINVAL); /* these have no versions */
    CHECK(next_event(port, &event) == 0 && event.kind == ASH_PORT_NOTIFIED && event.word == 4321);
    CHECK(event.peer == ash_port_remote_peer(remote));
    return 0;
}

static int bytes_main(void *ctx, size_t rank)
{
    struct meeting *meeting = ctx;
    struct ash_port *port = open_port(meeting);
    struct ash_port_memory *memory = NULL;
    struct ash_port_remote *remote = NULL;
    struct ash_port_event event;
    void *own = meeting->road->registered ? calloc(1, BYTES) : NULL;

    CHECK(port != NULL && ash_port_register(port, own, BYTES, &memory, NULL) == 0);
    CHECK(own == NULL || ash_port_memory_data(memory) == own);
    if (rank == 0) paint(ash_port_memory_data(memory), 5, BYTES);
    ash_port_describe(port, memory, &meeting->descriptions[rank]);
    ranks_barrier(&meeting->arrived, 2);
    CHECK(ash_port_attach(port, &meeting->descriptions[1 - rank], &remote, NULL) == 0);
    CHECK(ash_port_remote_bytes(remote) == BYTES);
    if (rank == 1) {
        CHECK(read_and_write(port, memory, remote) == 0);
        CHECK(tell(port, remote, 1) == 0);
    } else {
        CHECK(next_event(port, &event) == 0 && event.kind == ASH_PORT_NOTIFIED && event.word == 1234);
        CHECK(is_painted(ash_port_memory_data(memory), 6, BYTES)); /* the word comes after the bytes */
        CHECK(tell(port, remote, 4321) == 0);
        CHECK(next_event(port, &event) == 0 && event.kind == ASH_PORT_NOTIFIED && event.word == 1);
    }
    ash_port_detach(remote);
    ash_port_memory_close(memory);
    ash_port_close(port);
    free(own);
    return 0;
}

static void test_bytes(void **state)
{
    (void)state;
    over_roads(bytes_main, 0);
}

/* ---- versions ---------------------------------------------------------------------------------------------------- */

static size_t version_bytes(uint64_t version)
{
    return BYTES - (size_t)ash_rng_below(7, 1, version, BYTES / 2);
}

/* Publish versions as fast as they are painted, while the reader takes some of them. */
static int publish_all(struct meeting *meeting, struct ash_port *port, struct ash_port_memory *memory)
{
    uint64_t limit_ns = ash_clock_ns() + RANKS_PATIENCE_NS;
    struct ash_port_event event;

    for (uint64_t version = 1; version <= VERSIONS; version++) {
        paint(ash_port_memory_data(memory), version, version_bytes(version));
        CHECK(ash_port_publish(memory, version_bytes(version), version) == 0);
        CHECK(ash_port_publish(memory, 1, version) == -EINVAL); /* not newer */
        ash_port_poll(port, &event, 1);
    }
    while (!atomic_load(&meeting->is_over) && ash_clock_ns() < limit_ns)
        ash_port_wait(port, &event, 1, 0.01);
    return 0;
}

/* Take a version. Returns the status of the take, or 1 if something is wrong. */
static int take_one(struct ash_port *port, struct ash_port_remote *remote, struct ash_port_memory *memory)
{
    struct ash_port_event event;
    int rc = ash_port_take(port, remote, memory, 77);

    if (rc < 0) return rc;
    CHECK(ash_port_take(port, remote, memory, 78) == -EBUSY);
    do
        CHECK(next_event(port, &event) == 0);
    while (event.kind == ASH_PORT_LOST);
    CHECK(event.kind == ASH_PORT_DONE && event.word == 77 && event.status <= 0);
    return event.status;
}

static bool is_whole(const struct ash_port_memory *memory, uint64_t *version_out)
{
    size_t bytes = 0;
    const uint8_t *data = ash_port_version(memory, &bytes, version_out);

    return data != NULL && bytes == version_bytes(*version_out) && is_painted(data, *version_out, bytes);
}

static int take_all(struct meeting *meeting, struct ash_port *port, struct ash_port_memory *memory)
{
    uint64_t last = 0, version = 0, limit_ns = ash_clock_ns() + RANKS_PATIENCE_NS;
    struct ash_port_remote *remote = NULL;
    struct ash_port_memory *small = NULL;

    CHECK(ash_port_attach(port, &meeting->descriptions[0], &remote, NULL) == 0);
    CHECK(ash_port_remote_bytes(remote) == BYTES);
    while (last < VERSIONS) {
        int rc = take_one(port, remote, memory);

        CHECK(ash_clock_ns() < limit_ns && (rc == 0 || rc == -EAGAIN || rc == -ENODATA));
        if (rc == 0) CHECK(is_whole(memory, &version) && version >= last);
        if (rc == -EAGAIN && last > 0) CHECK(is_whole(memory, &version) && version == last); /* the one before */
        if (rc == 0) last = version;
    }
    CHECK(ash_port_register_versions(port, 100, &small, NULL) == 0);
    CHECK(take_one(port, remote, small) == -EMSGSIZE);
    CHECK(ash_port_version(small, &(size_t){0}, &version) == NULL);
    atomic_store(&meeting->is_over, true);
    ash_port_memory_close(small);
    ash_port_detach(remote);
    return 0;
}

static int versions_main(void *ctx, size_t rank)
{
    struct meeting *meeting = ctx;
    struct ash_port *port = open_port(meeting);
    struct ash_port_memory *memory = NULL;
    int rc;

    CHECK(port != NULL && ash_port_register_versions(port, BYTES, &memory, NULL) == 0);
    ash_port_describe(port, memory, &meeting->descriptions[rank]);
    ranks_barrier(&meeting->arrived, 2);
    rc = rank == 0 ? publish_all(meeting, port, memory) : take_all(meeting, port, memory);
    ash_port_memory_close(memory);
    ash_port_close(port);
    return rc;
}

static void test_versions(void **state)
{
    (void)state;
    over_roads(versions_main, 0);
}

/* ---- a process that dies ----------------------------------------------------------------------------------------- */

/* The owner publishes, and is killed at a drawn moment, in the middle of a version as a rule. */
static int die_publishing(struct meeting *meeting, struct ash_port *port, struct ash_port_memory *memory)
{
    struct ash_port_event event;

    for (uint64_t version = 1;; version++) {
        size_t bytes = version_bytes(version), half = bytes / 2;

        paint(ash_port_memory_data(memory), version, half);
        ash_port_poll(port, &event, 1);
        if (atomic_load(&meeting->taken) >= 3) raise(SIGKILL);
        paint(ash_port_memory_data(memory), version, bytes);
        CHECK(ash_port_publish(memory, bytes, version) == 0);
        ash_port_poll(port, &event, 1);
    }
}

static int outlive(struct meeting *meeting, struct ash_port *port, struct ash_port_memory *memory)
{
    uint64_t version = 0, limit_ns = ash_clock_ns() + RANKS_PATIENCE_NS;
    struct ash_port_remote *remote = NULL, *again = NULL;
    struct ash_err err = {0};
    int rc = 0;

    CHECK(ash_port_attach(port, &meeting->descriptions[0], &remote, NULL) == 0);
    while (rc == 0 || rc == -EAGAIN || rc == -ENODATA) {
        rc = take_one(port, remote, memory);
        CHECK(ash_clock_ns() < limit_ns);
        if (rc == 0) CHECK(is_whole(memory, &version));
        if (rc == 0) atomic_store(&meeting->taken, version);
    }
    CHECK(rc == -ECONNRESET || rc == -ETIMEDOUT || rc == -ENOTCONN);
    CHECK(is_whole(memory, &version) && version >= 3); /* what it had is what it has */
    ash_port_detach(remote);
    rc = ash_port_attach(port, &meeting->descriptions[0], &again, &err);
    CHECK(rc < 0 || strcmp(meeting->road->opts.path, "ofi") == 0);
    if (rc < 0) CHECK(err.text[0] != '\0');
    ash_port_detach(again);
    return 0;
}

static int death_main(void *ctx, size_t rank)
{
    struct meeting *meeting = ctx;
    struct ash_port *port = open_port(meeting);
    struct ash_port_memory *memory = NULL;
    int rc;

    CHECK(port != NULL && ash_port_register_versions(port, BYTES, &memory, NULL) == 0);
    ash_port_describe(port, memory, &meeting->descriptions[rank]);
    ranks_barrier(&meeting->arrived, 2);
    rc = rank == 0 ? die_publishing(meeting, port, memory) : outlive(meeting, port, memory);
    ash_port_memory_close(memory);
    ash_port_close(port);
    return rc;
}

static void test_death(void **state)
{
    (void)state;
    over_roads(death_main, 1);
}

/* ---- many that come and go --------------------------------------------------------------------------------------- */

#define COMINGS 300 /* more than a process has places for others at a time */

static int come_and_go(struct meeting *meeting, uint64_t limit_ns)
{
    for (int i = 0; i < COMINGS; i++) {
        struct ash_port *port = open_port(meeting);
        struct ash_port_remote *remote = NULL;
        int rc;

        CHECK(port != NULL);
        while ((rc = ash_port_attach(port, &meeting->descriptions[0], &remote, NULL)) == -ENOSPC)
            CHECK(ash_clock_ns() < limit_ns);
        CHECK(rc == 0);
        ash_port_detach(remote);
        ash_port_close(port);
    }
    atomic_store(&meeting->is_over, true);
    return 0;
}

static int comings_main(void *ctx, size_t rank)
{
    uint64_t limit_ns = ash_clock_ns() + RANKS_PATIENCE_NS;
    struct meeting *meeting = ctx;
    struct ash_port *port = NULL;
    struct ash_port_event event;

    if (rank == 0) {
        port = open_port(meeting);
        CHECK(port != NULL);
        ash_port_describe(port, NULL, &meeting->descriptions[0]);
    }
    ranks_barrier(&meeting->arrived, 2);
    if (rank == 1) return come_and_go(meeting, limit_ns);
    while (!atomic_load(&meeting->is_over) && ash_clock_ns() < limit_ns)
        ash_port_wait(port, &event, 1, 0.01);
    CHECK(atomic_load(&meeting->is_over));
    ash_port_close(port);
    return 0;
}

/* A sender that leaves makes room for others, also if this process knew of neither. */
static void test_comings(void **state)
{
    struct meeting *meeting = ranks_share(sizeof(*meeting));

    (void)state;
    meeting->road = &roads[0];
    assert_int_equal(ranks_run(2, comings_main, meeting, NULL), 0);
    ranks_unshare(meeting, sizeof(*meeting));
}

/* ---- wrong words ------------------------------------------------------------------------------------------------- */

static void test_wrong_descriptions(void **state)
{
    struct ash_port_description good, bad;
    struct ash_port *port = NULL;
    struct ash_port_memory *memory = NULL;
    struct ash_port_remote *remote = NULL;
    struct ash_err err = {0};

    (void)state;
    assert_int_equal(ash_port_open(&roads[0].opts, &port, &err), 0);
    assert_int_equal(ash_port_register(port, NULL, 4096, &memory, &err), 0);
    ash_port_describe(port, memory, &good);
    memset(&bad, 0, sizeof(bad));
    assert_int_equal(ash_port_attach(port, &bad, &remote, &err), -EPROTO);
    assert_string_equal(err.text, "these bytes do not describe memory");
    for (uint64_t i = 0; i < 300; i++) {
        size_t at = (size_t)ash_rng_below(11, 3, i, 600);

        bad = good;
        bad.bytes[at] ^= (uint8_t)(1 + ash_rng_below(12, 3, i, 255));
        err.text[0] = '\0';
        if (ash_port_attach(port, &bad, &remote, &err) == 0) fail_msg("byte %zu may be anything", at);
        assert_null(remote);
        assert_true(err.text[0] != '\0');
    }
    assert_int_equal(ash_port_attach(port, &good, &remote, &err), 0); /* one's own, that works too */
    ash_port_detach(remote);
    ash_port_memory_close(memory);
    ash_port_close(port);
}

static void test_wrong_options(void **state)
{
    struct ash_port_opts opts;
    struct ash_port *port = NULL;
    struct ash_port_memory *memory = NULL;
    struct ash_err err = {0};

    (void)state;
    ash_port_opts_init(&opts);
    opts.path = "pigeon";
    assert_int_equal(ash_port_open(&opts, &port, &err), -EINVAL);
    assert_string_equal(err.text, "path 'pigeon': it is auto, shm or ofi");
    opts = (struct ash_port_opts){.path = "shm"};
    assert_int_equal(ash_port_open(&opts, &port, &err), -EINVAL);
    ash_port_opts_init(&opts);
    opts.silence_s = -1;
    assert_int_equal(ash_port_open(&opts, &port, &err), -EINVAL);
    assert_int_equal(ash_port_open(&roads[0].opts, &port, &err), 0);
    assert_int_equal(ash_port_register(port, NULL, 0, &memory, &err), -EINVAL);
    assert_int_equal(ash_port_register_versions(port, 0, &memory, &err), -EINVAL);
    assert_int_equal(ash_port_register_versions(port, SIZE_MAX / 2, &memory, &err), -EINVAL);
    assert_null(memory);
    ash_port_close(port);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes),   cmocka_unit_test(test_versions),           cmocka_unit_test(test_death),
        cmocka_unit_test(test_comings), cmocka_unit_test(test_wrong_descriptions), cmocka_unit_test(test_wrong_options),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
