/* What goes wrong between processes: peers that die, restart, close or are dropped; keys and addresses that are not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>

#include "fabric/wire.h"
#include "harness/fabric_ranks.h"

#define AREA_BYTES ((size_t)1 << 20)
#define SILENCE_MS 60000
#define NOTICED_NS 30000000000ull /* long before the silence counts, also on a busy machine */

static const struct road *road_of(const struct fabric_rank *member)
{
    return member->arg;
}

static void on_all_roads(size_t size, bool strangers, int (*run)(struct fabric_rank *member), int kills)
{
    for (size_t r = 0; r < MAIN_ROADS; r++) {
        struct ash_fabric_opts opts = roads[r].opts;
        int killed = 0;

        if (!road_open(&roads[r])) continue;
        opts.silence_ms = SILENCE_MS;
        print_message("road: %s\n", roads[r].name);
        assert_int_equal(run_fabric_ranks(
                             &(struct fabric_ranks){
                                 .size = size, .opts = opts, .strangers = strangers, .run = run, .arg = &roads[r]},
                             &killed),
                         0);
        assert_int_equal(killed, kills);
    }
}

static struct ash_region *make_area(struct fabric_rank *member, uint8_t *own)
{
    struct ash_region *region = NULL;

    if (road_of(member)->registered)
        ash_region_register(member->fabric, own, AREA_BYTES, &region, NULL);
    else
        ash_region_alloc(member->fabric, AREA_BYTES, &region, NULL);
    if (region != NULL) ash_region_key(region, &member->meeting->keys[member->rank]);
    return region;
}

static uint8_t area_bytes[2][AREA_BYTES];

/* ---- death while others post ------------------------------------------------------------------------------------- */

struct posts {
    uint64_t posted, ended, failed;
};

/* Write and notify without end until the peer is lost; everything that was posted must have ended by then. */
static int post_until_lost(struct fabric_rank *member, struct ash_region *area, struct ash_remote *remote,
                           struct posts *posts, uint64_t *lost_ns_out)
{
    uint64_t limit = ash_clock_ns() + PATIENCE_NS;

    for (;;) {
        struct ash_fabric_event events[16];
        struct ash_transfer transfer = {.local = area, .remote = remote, .cookie = posts->posted};
        size_t count;
        int rc;

        CHECK(ash_clock_ns() < limit);
        transfer.size_bytes = posts->posted * 7919 % AREA_BYTES;
        rc = ash_fabric_write(member->fabric, &transfer);
        CHECK(rc == 0 || rc == -EAGAIN || rc == -ECONNRESET);
        posts->posted += rc == 0;
        rc = ash_fabric_notify(member->fabric, 1, posts->posted);
        CHECK(rc == 0 || rc == -EAGAIN || rc == -ECONNRESET);
        count = ash_fabric_poll(member->fabric, events, 16);
        for (size_t e = 0; e < count; e++) {
            CHECK(events[e].peer == 1 && events[e].kind != ASH_FABRIC_NOTIFIED);
            if (events[e].kind == ASH_FABRIC_LOST) {
                CHECK(events[e].status == -ECONNRESET);
                *lost_ns_out = ash_clock_ns();
                return 0;
            }
            CHECK(events[e].status == 0 || events[e].status == -ECONNRESET);
            posts->ended++;
            posts->failed += events[e].status != 0;
        }
    }
}

static int die_under_load(struct fabric_rank *member)
{
    struct ash_region *area = make_area(member, area_bytes[0]);
    struct ash_remote *remote = NULL;
    struct ash_fabric_event event;
    struct posts posts = {0};
    uint64_t lost_ns = 0, waited_ns;

    CHECK(area != NULL);
    meet(member);
    if (member->rank == 1) {
        uint64_t began = ash_clock_ns();

        while (ash_clock_ns() - began < 30000000ull)
            ash_fabric_poll(member->fabric, &event, 1);
        atomic_store(&member->meeting->words[0], ash_clock_ns());
        raise(SIGKILL);
    }
    CHECK(ash_remote_open(member->fabric, 1, &member->meeting->keys[1], &remote, NULL) == 0);
    CHECK(post_until_lost(member, area, remote, &posts, &lost_ns) == 0);
    waited_ns = lost_ns - atomic_load(&member->meeting->words[0]);
    CHECK(waited_ns < NOTICED_NS);
    CHECK(posts.ended == posts.posted && posts.posted > 0);
    CHECK(ash_fabric_write(member->fabric, &(struct ash_transfer){.local = area, .remote = remote, .size_bytes = 1}) ==
          -ECONNRESET);
    CHECK(ash_fabric_notify(member->fabric, 1, 0) == -ECONNRESET);
    for (int i = 0; i < 1000; i++)
        CHECK(ash_fabric_poll(member->fabric, &event, 1) == 0); /* told once */
    ash_remote_close(remote);
    ash_region_close(area);
    return 0;
}

static void test_die_under_load(void **state)
{
    (void)state;
    on_all_roads(2, false, die_under_load, 1);
}

/* ---- death while others only listen; what was sent before is heard ----------------------------------------------- */

static int last_words(struct fabric_rank *member)
{
    bool network = road_of(member)->opts.path == ASH_FABRIC_OFI;
    uint64_t next = 0, limit = ash_clock_ns() + PATIENCE_NS;

    while (member->rank == 1) {
        struct ash_fabric_event event;

        if (next < 300 && ash_fabric_notify(member->fabric, 0, next) == 0) next++;
        ash_fabric_poll(member->fabric, &event, 1);
        if (next < 300 || (network && atomic_load(&member->meeting->words[1]) == 0)) continue;
        atomic_store(&member->meeting->words[0], ash_clock_ns());
        raise(SIGKILL);
    }
    for (;;) {
        struct ash_fabric_event event;

        CHECK(ash_clock_ns() < limit);
        if (ash_fabric_poll(member->fabric, &event, 1) == 0) continue;
        if (event.kind == ASH_FABRIC_LOST) break;
        CHECK(event.kind == ASH_FABRIC_NOTIFIED && event.word == next);
        next++;
        atomic_store(&member->meeting->words[1], next);
    }
    CHECK(next == 300 || network); /* what had not left the process is gone with it */
    CHECK(ash_clock_ns() - atomic_load(&member->meeting->words[0]) < NOTICED_NS);
    return 0;
}

static void test_last_words(void **state)
{
    (void)state;
    on_all_roads(2, false, last_words, 1);
}

/* ---- a peer is replaced ------------------------------------------------------------------------------------------ */

static int await_word(struct fabric_rank *member, uint32_t peer, uint64_t word)
{
    uint64_t limit = ash_clock_ns() + PATIENCE_NS;

    for (;;) {
        struct ash_fabric_event event;

        CHECK(ash_clock_ns() < limit);
        if (ash_fabric_poll(member->fabric, &event, 1) == 0 || event.kind == ASH_FABRIC_DONE) continue;
        CHECK(event.kind == ASH_FABRIC_NOTIFIED && event.peer == peer && event.word == word);
        return 0;
    }
}

static int await_lost(struct fabric_rank *member, uint32_t peer, int status)
{
    uint64_t limit = ash_clock_ns() + PATIENCE_NS;

    for (;;) {
        struct ash_fabric_event event;

        CHECK(ash_clock_ns() < limit);
        if (ash_fabric_poll(member->fabric, &event, 1) == 0) continue;
        CHECK(event.kind == ASH_FABRIC_LOST && event.peer == peer && event.status == status);
        return 0;
    }
}

/* Rank 1 dies; rank 2 takes its number at rank 0 and gets what its area has. */
static int replace(struct fabric_rank *member)
{
    struct ash_region *area = make_area(member, area_bytes[0]);
    struct ash_remote *old = NULL, *new = NULL;
    struct ash_transfer transfer = {.local = area, .size_bytes = 5000};
    const struct ash_fabric_addr *addrs = member->meeting->addrs;
    const struct ash_fabric_key *keys = member->meeting->keys;

    CHECK(area != NULL);
    memset(ash_region_data(area), (int)member->rank + 1, 5000);
    meet(member);
    if (member->rank == 1) raise(SIGKILL);
    if (member->rank == 2) {
        CHECK(ash_fabric_add_peer(member->fabric, 0, &addrs[0], NULL) == 0);
        CHECK(await_word(member, 0, 42) == 0);
        CHECK(((uint8_t *)ash_region_data(area))[4999] == 1);
        CHECK(await_lost(member, 0, -ESHUTDOWN) == 0);
        ash_region_close(area);
        return 0;
    }
    CHECK(ash_fabric_add_peer(member->fabric, 1, &addrs[1], NULL) == 0 ||
          ash_fabric_add_peer(member->fabric, 1, &addrs[1], NULL) == -ESRCH);
    if (ash_fabric_peer_path(member->fabric, 1) != ASH_FABRIC_AUTO) {
        if (ash_remote_open(member->fabric, 1, &keys[1], &old, NULL) < 0) old = NULL; /* dead already */
        CHECK(await_lost(member, 1, -ECONNRESET) == 0);
    }
    CHECK(ash_fabric_add_peer(member->fabric, 1, &addrs[2], NULL) == 0);
    CHECK(ash_remote_open(member->fabric, 1, &keys[1], &new, NULL) == -ESTALE);
    CHECK(ash_remote_open(member->fabric, 1, &keys[2], &new, NULL) == 0);
    transfer.remote = old;
    if (old != NULL) CHECK(ash_fabric_write(member->fabric, &transfer) == -ECONNRESET);
    transfer.remote = new;
    CHECK(ash_fabric_write(member->fabric, &transfer) == 0);
    while (ash_fabric_notify(member->fabric, 1, 42) == -EAGAIN) {
        struct ash_fabric_event event;

        ash_fabric_poll(member->fabric, &event, 1);
    }
    ash_remote_close(old);
    ash_remote_close(new);
    for (int i = 0; i < 200; i++) { /* help with chunks: the other one answers when it polls */
        struct ash_fabric_event event;

        ash_fabric_poll(member->fabric, &event, 1);
        usleep(500);
    }
    ash_region_close(area);
    return 0;
}

static void test_replace(void **state)
{
    (void)state;
    on_all_roads(3, true, replace, 1);
}

/* ---- a peer is dropped with transfers under way, and added again ------------------------------------------------- */

static int drop(struct fabric_rank *member)
{
    struct ash_region *area = make_area(member, area_bytes[0]);
    struct ash_remote *remote = NULL;
    struct ash_transfer transfer = {.local = area, .size_bytes = AREA_BYTES};
    size_t posted = 0, ended = 0;

    CHECK(area != NULL);
    meet(member);
    if (member->rank == 1) {
        meet(member); /* does not poll: what needs its help stays under way */
        CHECK(await_word(member, 0, 7) == 0);
        ash_region_close(area);
        return 0;
    }
    CHECK(ash_remote_open(member->fabric, 1, &member->meeting->keys[1], &remote, NULL) == 0);
    transfer.remote = remote;
    while (posted < 20 && ash_fabric_write(member->fabric, &transfer) == 0)
        posted++;
    ash_fabric_drop_peer(member->fabric, 1);
    CHECK(ash_fabric_write(member->fabric, &transfer) == -ENOTCONN &&
          ash_fabric_notify(member->fabric, 1, 0) == -ENOTCONN);
    for (int i = 0; i < 100; i++) {
        struct ash_fabric_event event;

        if (ash_fabric_poll(member->fabric, &event, 1) == 0) continue;
        CHECK(event.kind == ASH_FABRIC_DONE && (event.status == 0 || event.status == -ECONNRESET));
        ended++;
    }
    CHECK(ended == posted && posted > 0);
    CHECK(ash_fabric_add_peer(member->fabric, 1, &member->meeting->addrs[1], NULL) == 0);
    meet(member);
    CHECK(ash_fabric_notify(member->fabric, 1, 7) == 0);
    ash_remote_close(remote);
    CHECK(await_lost(member, 1, -ESHUTDOWN) == 0);
    ash_region_close(area);
    return 0;
}

static void test_drop(void **state)
{
    (void)state;
    on_all_roads(2, false, drop, 0);
}

/* ---- keys and addresses that are not ----------------------------------------------------------------------------- */

static int refuse(struct fabric_rank *member)
{
    uint32_t other = (uint32_t)(1 - member->rank);
    struct ash_region *area = make_area(member, area_bytes[0]), *mine = NULL;
    struct ash_fabric_key key, good;
    struct ash_remote *remote = NULL;
    struct ash_err err = {0};

    CHECK(area != NULL && ash_region_register(member->fabric, area_bytes[1], 10, &mine, NULL) == 0);
    CHECK(ash_region_alloc(member->fabric, 0, &mine, &err) == -EINVAL && err.text[0] != '\0');
    meet(member);
    good = member->meeting->keys[other];
    for (size_t w = 0; w < 2; w++) { /* magic, version; owner */
        key = good;
        key.words[w] ^= 0x0000010000000001ull;
        CHECK(ash_remote_open(member->fabric, other, &key, &remote, &err) == (w == 0 ? -EPROTO : -ESTALE));
    }
    key = good;
    key.words[3] = 0; /* size */
    CHECK(ash_remote_open(member->fabric, other, &key, &remote, NULL) == -EPROTO);
    CHECK(ash_remote_open(member->fabric, other, &member->meeting->keys[member->rank], &remote, NULL) == -ESTALE);
    CHECK(ash_remote_open(member->fabric, 99, &good, &remote, NULL) == -ENOTCONN && remote == NULL);
    CHECK(ash_remote_open(member->fabric, other, &good, &remote, NULL) == 0);
    CHECK(ash_fabric_write(member->fabric, &(struct ash_transfer){.local = mine, .remote = remote, .size_bytes = 11}) ==
          -ERANGE);
    CHECK(ash_fabric_write(member->fabric,
                           &(struct ash_transfer){
                               .local = mine, .remote = remote, .remote_offset = AREA_BYTES - 4, .size_bytes = 5}) ==
          -ERANGE);
    CHECK(ash_fabric_read(
              member->fabric,
              &(struct ash_transfer){.local = mine, .local_offset = SIZE_MAX - 2, .remote = remote, .size_bytes = 5}) ==
          -ERANGE);
    ash_remote_close(remote);
    ash_region_close(mine);
    meet(member);
    ash_region_close(area);
    meet(member);
    return 0;
}

static void test_refuse(void **state)
{
    (void)state;
    on_all_roads(2, false, refuse, 0);
}

/* A region that its owner has closed is not written to through chunks. */
static int stale_region(struct fabric_rank *member)
{
    struct ash_region *area = make_area(member, area_bytes[0]);
    struct ash_remote *remote = NULL;
    struct ash_fabric_event event;
    uint64_t limit = ash_clock_ns() + PATIENCE_NS;

    CHECK(area != NULL);
    meet(member);
    if (member->rank == 1) {
        ash_region_close(area);
        meet(member);
        CHECK(await_word(member, 0, 1) == 0);
        return 0;
    }
    CHECK(ash_remote_open(member->fabric, 1, &member->meeting->keys[1], &remote, NULL) == 0);
    meet(member);
    CHECK(ash_fabric_write(member->fabric,
                           &(struct ash_transfer){.local = area, .remote = remote, .size_bytes = AREA_BYTES}) == 0);
    while (ash_fabric_poll(member->fabric, &event, 1) == 0)
        CHECK(ash_clock_ns() < limit);
    CHECK(event.kind == ASH_FABRIC_DONE && event.status == -ESTALE);
    CHECK(ash_fabric_notify(member->fabric, 1, 1) == 0);
    ash_remote_close(remote);
    ash_region_close(area);
    return 0;
}

static void test_stale_region(void **state)
{
    (void)state;
    assert_int_equal(
        run_fabric_ranks(
            &(struct fabric_ranks){.size = 2, .opts = roads[2].opts, .run = stale_region, .arg = &roads[2]}, NULL),
        0);
}

/* A peer that was asleep when it closed its endpoint can be sent a word: no process dies of it. */
static int late_word(struct fabric_rank *member)
{
    if (member->rank == 1) {
        CHECK(ash_fabric_wait_fd(member->fabric) >= 0);
        ash_fabric_close(member->fabric);
        member->fabric = NULL;
        meet(member);
        return 0;
    }
    meet(member);
    ash_fabric_notify(member->fabric, 1, 7);
    return 0;
}

static void test_late_word(void **state)
{
    (void)state;
    on_all_roads(2, false, late_word, 0);
}

static void test_bad_addresses(void **state)
{
    struct ash_fabric *fabric = NULL;
    struct ash_fabric_addr good, addr;
    struct ash_wire_addr wire;
    struct ash_err err = {0};

    (void)state;
    assert_int_equal(ash_fabric_open(&roads[0].opts, &fabric, NULL), 0);
    ash_fabric_get_addr(fabric, &good);
    addr = good;
    addr.size_bytes = 3;
    assert_int_equal(ash_fabric_add_peer(fabric, 0, &addr, &err), -EPROTO);
    addr = good;
    addr.bytes[0] ^= 1;
    assert_int_equal(ash_fabric_add_peer(fabric, 0, &addr, &err), -EPROTO);
    addr = good;
    addr.bytes[4] ^= 1; /* version */
    assert_int_equal(ash_fabric_add_peer(fabric, 0, &addr, &err), -EPROTO);
    assert_non_null(strstr(err.text, "version"));
    memcpy(&wire, good.bytes, sizeof(wire));
    memset(wire.node, 'x', sizeof(wire.node)); /* no end */
    ash_wire_put_addr(&wire, &addr);
    assert_int_equal(ash_fabric_add_peer(fabric, 0, &addr, &err), -EPROTO);
    memcpy(&wire, good.bytes, sizeof(wire));
    wire.rail_count = 3;
    memset(wire.rails, 255, sizeof(wire.rails)); /* longer than the array */
    ash_wire_put_addr(&wire, &addr);
    assert_int_equal(ash_fabric_add_peer(fabric, 0, &addr, &err), -EPROTO);
    memcpy(&wire, good.bytes, sizeof(wire));
    wire.machine ^= 1;
    ash_wire_put_addr(&wire, &addr);
    assert_int_equal(ash_fabric_add_peer(fabric, 0, &addr, &err), -ENETUNREACH);
    memcpy(&wire, good.bytes, sizeof(wire));
    wire.box.inode ^= 1; /* as after a restart with the same process number */
    ash_wire_put_addr(&wire, &addr);
    assert_int_equal(ash_fabric_add_peer(fabric, 0, &addr, &err), -ESRCH);
    assert_int_equal(ash_fabric_peer_path(fabric, 0), ASH_FABRIC_AUTO);
    ash_fabric_close(fabric);
}

static void test_bad_settings(void **state)
{
    struct ash_fabric *fabric = NULL;
    struct ash_err err = {0};

    (void)state;
    assert_int_equal(ash_fabric_open(&(struct ash_fabric_opts){.path = 9}, &fabric, &err), -EINVAL);
    assert_int_equal(ash_fabric_open(&(struct ash_fabric_opts){.path = ASH_FABRIC_SHM, .node = ""}, &fabric, &err),
                     -EINVAL);
    assert_true(
        ash_fabric_open(&(struct ash_fabric_opts){.path = ASH_FABRIC_OFI, .provider = "nonesuch"}, &fabric, &err) < 0);
    assert_non_null(strstr(err.text, "fabric.path ofi"));
    assert_true(
        ash_fabric_open(&(struct ash_fabric_opts){.path = ASH_FABRIC_OFI, .provider = "tcp", .interface = "nonesuch0"},
                        &fabric, &err) < 0);
    assert_null(fabric);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_die_under_load), cmocka_unit_test(test_last_words),
        cmocka_unit_test(test_replace),        cmocka_unit_test(test_drop),
        cmocka_unit_test(test_refuse),         cmocka_unit_test(test_stale_region),
        cmocka_unit_test(test_late_word),      cmocka_unit_test(test_bad_addresses),
        cmocka_unit_test(test_bad_settings),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
