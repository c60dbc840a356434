/* Pages that other processes read: each is whole, also if its writer dies or replaces it meanwhile; other memory is
 * refused as a shelf. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/math.h"
#include "base/rng.h"
#include "harness/ranks.h"
#include "serve/kv/peer.h"
#include "serve/kv/shelf.h"
#include "unit/serve/tiny.h"

#define PAGE ASH_CACHE_PAGE_TOKENS
#define PREFIXES 12
#define PAGES_MOST 3 /* of a prefix */
#define SLOTS 5

struct world {
    struct tiny tiny;
    struct ash_cache *cache;
    size_t page_bytes, file_bytes;
    int32_t tokens[PREFIXES][PAGES_MOST * PAGE];
    struct ash_kv_prefix prefixes[PREFIXES];
    uint8_t *page; /* a page's bytes */
};

static void paint(const struct world *world, uint8_t *page, size_t which)
{
    for (size_t i = 0; i < world->page_bytes; i++)
        page[i] = (uint8_t)(which * 41 + i * 7 + (i >> 8));
}

static void open_world(struct world *world)
{
    struct ash_err err = {0};

    memset(world, 0, sizeof(*world));
    assert_int_equal(tiny_open(&world->tiny, &err), 0);
    assert_int_equal(ash_cache_open(world->tiny.model, 1, &world->cache, &err), 0);
    assert_int_equal(ash_cache_take(world->cache), 0);
    world->page_bytes = ash_cache_page_bytes(world->cache);
    world->file_bytes = ash_kv_page_file_bytes(PAGES_MOST * PAGE, world->page_bytes);
    world->page = malloc(world->page_bytes);
    for (size_t i = 0; i < PREFIXES; i++) {
        for (size_t t = 0; t < PAGES_MOST * PAGE; t++)
            world->tokens[i][t] = (int32_t)ash_rng_below(1, i, t, 16);
        world->prefixes[i] = (struct ash_kv_prefix){
            .fingerprint = 5, .salt = i % 2, .tokens = world->tokens[i], .count = (1 + i % PAGES_MOST) * PAGE};
    }
}

static void close_world(struct world *world)
{
    free(world->page);
    ash_cache_close(world->cache);
    tiny_close(&world->tiny);
}

static int read_pool(void *ctx, int32_t page, void *data)
{
    const struct world *world = ctx;

    return ash_cache_read_page(world->cache, page, data);
}

static void put(struct world *world, struct ash_kv_shelf *shelf, size_t which)
{
    const struct ash_kv_pool pool = {.page_bytes = world->page_bytes, .read = read_pool, .ctx = world};
    const struct ash_kv_prefix *prefix = &world->prefixes[which];

    paint(world, world->page, which);
    assert_int_equal(ash_cache_write_page(world->cache, 0, world->page), 0);
    ash_kv_shelf_put(shelf, &pool, ash_kv_name_of(prefix, PAGE), prefix, 0);
}

/* Read it: what was read is it. Returns as ash_kv_peer_read. */
static int read_it(struct world *world, struct ash_kv_peer *peer, const struct ash_port_description *from, size_t which,
                   void *buffer)
{
    const struct ash_kv_prefix *prefix = &world->prefixes[which];
    int rc = ash_kv_peer_read(peer, from, ash_kv_name_of(prefix, PAGE), prefix, world->page_bytes, buffer);

    if (rc < 0) return rc;
    paint(world, world->page, which);
    assert_memory_equal((char *)buffer + ash_kv_page_file_offset(prefix->count), world->page, world->page_bytes);
    return rc;
}

static struct ash_kv_peer *open_peer(const struct world *world, void *buffers[2])
{
    struct ash_kv_peer *peer = NULL;

    for (size_t i = 0; i < 2; i++)
        buffers[i] = malloc(world->file_bytes);
    assert_int_equal(ash_kv_peer_open(buffers, 2, world->file_bytes, &peer, NULL), 0);
    return peer;
}

static void close_peer(struct ash_kv_peer *peer, void *buffers[2])
{
    ash_kv_peer_close(peer);
    free(buffers[0]);
    free(buffers[1]);
}

/* ---- one after the other ----------------------------------------------------------------------------------------- */

static void test_pages(void **state)
{
    struct ash_port_description gone;
    struct ash_kv_tier_stats stats;
    struct ash_kv_shelf *shelf = NULL;
    struct ash_kv_peer *peer;
    struct world world;
    void *buffers[2];
    size_t found = 0, missed = 0;

    (void)state;
    open_world(&world);
    assert_int_equal(ash_kv_shelf_open(10, world.file_bytes, &shelf, NULL), -EINVAL);
    assert_int_equal(ash_kv_shelf_open(SLOTS * (world.file_bytes + 100), world.file_bytes, &shelf, NULL), 0);
    peer = open_peer(&world, buffers);
    for (uint64_t step = 0; step < 400; step++) {
        size_t which = ash_rng_below(2, 0, step, PREFIXES), other = ash_rng_below(2, 1, step, PREFIXES);
        int rc;

        put(&world, shelf, which);
        assert_int_equal(read_it(&world, peer, ash_kv_shelf_describe(shelf), which, buffers[step % 2]), 0);
        rc = read_it(&world, peer, ash_kv_shelf_describe(shelf), other, buffers[step % 2]);
        assert_true(rc == 0 || rc == -ENOENT);
        found += rc == 0;
        missed += rc < 0;
        if (step != 200) continue;
        ash_kv_shelf_clear(shelf);
        close_peer(peer, buffers); /* it may still find what was there, which is right */
        peer = open_peer(&world, buffers);
        for (size_t i = 0; i < PREFIXES; i++)
            assert_int_equal(read_it(&world, peer, ash_kv_shelf_describe(shelf), i, buffers[0]), -ENOENT);
    }
    ash_kv_shelf_stats(shelf, &stats);
    assert_true(found > 50 && missed > 50 && stats.evictions > 50 && stats.pages == SLOTS);
    gone = *ash_kv_shelf_describe(shelf);
    ash_kv_shelf_close(shelf);
    assert_true(read_it(&world, peer, &gone, 0, buffers[0]) < 0);
    close_peer(peer, buffers);
    close_world(&world);
}

/* ---- jobs -------------------------------------------------------------------------------------------------------- */

/* What a drawn row of words about more jobs than there is room for says, as a plain list of them does. */
static void test_jobs(void **state)
{
    enum { OPENED = ASH_KV_SHELF_JOBS + 200, STEPS = 4000 };
    static struct ash_kv_job plain[OPENED];
    static uint64_t jobs[OPENED];
    size_t opened = 0, forgotten = 0, growing = 0;
    struct ash_kv_shelf *shelf = NULL;
    struct ash_kv_peer *peer;
    struct world world;
    void *buffers[2];

    (void)state;
    open_world(&world);
    assert_int_equal(ash_kv_shelf_open(SLOTS * (world.file_bytes + 100), world.file_bytes, &shelf, NULL), 0);
    peer = open_peer(&world, buffers);
    for (uint64_t step = 0; step < STEPS; step++) {
        size_t which = opened > 0 ? ash_rng_below(11, 1, step, opened) : 0, pages = ash_rng_below(11, 2, step, 50);
        bool is_over = ash_rng_below(11, 3, step, 4) == 0;
        struct ash_kv_job job;

        if (opened < OPENED && ash_rng_below(11, 0, step, 2) == 0) {
            plain[opened] = (struct ash_kv_job){.pages = 0};
            jobs[opened++] = ash_kv_shelf_open_job(shelf);
            continue;
        }
        if (opened == 0) continue;
        ash_kv_shelf_tell_job(shelf, jobs[which], pages, is_over);
        plain[which].pages = ash_max(plain[which].pages, pages);
        plain[which].is_over = plain[which].is_over || is_over;
        assert_int_equal(ash_kv_peer_look(peer, ash_kv_shelf_describe(shelf), jobs[which], &job), 0);
        if (which + ASH_KV_SHELF_JOBS < opened) {
            assert_true(job.is_over && job.pages == 0);
            forgotten++;
            continue;
        }
        assert_true(job.is_over == plain[which].is_over && job.pages == plain[which].pages);
        growing += !job.is_over;
    }
    assert_true(opened == OPENED && forgotten > 20 && growing > 500);
    close_peer(peer, buffers);
    ash_kv_shelf_close(shelf);
    close_world(&world);
}

/* A process shows that it lives. */
static void test_beat(void **state)
{
    uint64_t limit_ns = ash_clock_ns() + RANKS_PATIENCE_NS;
    struct ash_kv_job first, job;
    struct ash_kv_shelf *shelf = NULL;
    struct ash_kv_peer *peer;
    struct world world;
    void *buffers[2];

    (void)state;
    open_world(&world);
    assert_int_equal(ash_kv_shelf_open(SLOTS * (world.file_bytes + 100), world.file_bytes, &shelf, NULL), 0);
    peer = open_peer(&world, buffers);
    assert_int_equal(ash_kv_peer_look(peer, ash_kv_shelf_describe(shelf), 1, &first), 0);
    do {
        usleep(1000);
        assert_int_equal(ash_kv_peer_look(peer, ash_kv_shelf_describe(shelf), 1, &job), 0);
    } while (job.beat == first.beat && ash_clock_ns() < limit_ns);
    assert_true(job.beat != first.beat && job.is_over); /* no job was opened */
    close_peer(peer, buffers);
    ash_kv_shelf_close(shelf);
    close_world(&world);
}

/* ---- at the same time, until one dies ---------------------------------------------------------------------------- */

struct meeting {
    struct ash_port_description description;
    _Atomic bool is_there;
};

/* A process that replaces pages as fast as it can. */
static int replace_pages(void *ctx, size_t rank)
{
    struct meeting *meeting = ctx;
    struct ash_kv_shelf *shelf = NULL;
    struct world world;

    (void)rank;
    open_world(&world);
    assert_int_equal(ash_kv_shelf_open(SLOTS * (world.file_bytes + 100), world.file_bytes, &shelf, NULL), 0);
    meeting->description = *ash_kv_shelf_describe(shelf);
    atomic_store(&meeting->is_there, true);
    for (uint64_t step = 0; step < UINT64_MAX; step++) /* until it is killed */
        put(&world, shelf, ash_rng_below(3, 0, step, PREFIXES));
    return 1;
}

static void test_death(void **state)
{
    struct meeting *meeting = ranks_share(sizeof(*meeting));
    uint64_t limit_ns = ash_clock_ns() + RANKS_PATIENCE_NS, step = 0;
    size_t found = 0, missed = 0;
    struct ash_kv_peer *peer;
    struct world world;
    void *buffers[2];
    int status = 0, rc;
    pid_t pid;

    (void)state;
    open_world(&world);
    pid = rank_start(replace_pages, meeting, 0);
    while (!atomic_load(&meeting->is_there) && ash_clock_ns() < limit_ns)
        usleep(100);
    peer = open_peer(&world, buffers);
    for (; found < 300 && ash_clock_ns() < limit_ns; step++) {
        rc = read_it(&world, peer, &meeting->description, ash_rng_below(4, 0, step, PREFIXES), buffers[step % 2]);
        assert_true(rc == 0 || rc == -ENOENT || rc == -EBADMSG || rc == -ESTALE);
        found += rc == 0;
        missed += rc < 0;
    }
    assert_true(found >= 300 && missed > 0);
    kill(pid, SIGKILL);
    waitpid(pid, &status, 0);
    do /* whole ones may come until its end is noticed, and then none */
        rc = read_it(&world, peer, &meeting->description, ash_rng_below(4, 0, step++, PREFIXES), buffers[0]);
    while ((rc == 0 || rc == -ENOENT || rc == -EBADMSG || rc == -ESTALE) && ash_clock_ns() < limit_ns);
    assert_true(rc == -ECONNRESET || rc == -ESRCH);
    assert_int_equal(read_it(&world, peer, &meeting->description, 0, buffers[0]), -ESRCH);
    close_peer(peer, buffers);
    close_world(&world);
    ranks_unshare(meeting, sizeof(*meeting));
}

/* ---- what is no shelf -------------------------------------------------------------------------------------------- */

static uint64_t draw_word(uint64_t i, uint64_t word)
{
    static const uint64_t few[] = {0, 1, 2, 64, 1000, UINT32_MAX, UINT64_MAX, UINT64_MAX / 64};

    return ash_rng_below(5, i, word, 3) == 0 ? few[ash_rng_below(6, i, word, ASH_COUNT(few))]
                                             : ash_rng_below(7, i, word, 5000);
}

static void test_strange_memory(void **state)
{
    struct ash_port_description description;
    struct ash_port_memory *memory = NULL;
    struct ash_port *port = NULL;
    struct ash_kv_peer *peer;
    struct world world;
    void *buffers[2];

    (void)state;
    open_world(&world);
    assert_int_equal(ash_port_open(NULL, &port, NULL), 0);
    memset(&description, 1, sizeof(description));
    peer = open_peer(&world, buffers);
    assert_int_equal(read_it(&world, peer, &description, 0, buffers[0]), -EPROTO);
    for (uint64_t i = 0; i < 300; i++) {
        struct ash_kv_shelf_head head = {.magic = draw_word(i, 9) == 0 ? 0 : ASH_KV_SHELF_MAGIC,
                                         .slots = draw_word(i, 0),
                                         .slot_bytes = draw_word(i, 1),
                                         .first_slot = draw_word(i, 2)};
        struct ash_kv_shelf_entry entry = {.name = ash_kv_name_of(&world.prefixes[0], PAGE)};
        size_t bytes = 8 + ash_rng_below(8, 0, i, 30000);

        entry.bytes = ash_kv_page_file_bytes(world.prefixes[0].count, world.page_bytes);
        assert_int_equal(ash_port_register(port, NULL, bytes, &memory, NULL), 0);
        memcpy(ash_port_memory_data(memory), &head, ash_min(sizeof(head), bytes));
        if (bytes >= sizeof(head) + sizeof(entry))
            memcpy((char *)ash_port_memory_data(memory) + sizeof(head), &entry, sizeof(entry));
        ash_port_describe(port, memory, &description);
        assert_true(read_it(&world, peer, &description, 0, buffers[0]) < 0);
        ash_port_memory_close(memory);
    }
    close_peer(peer, buffers);
    ash_port_close(port);
    close_world(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pages), cmocka_unit_test(test_jobs),           cmocka_unit_test(test_beat),
        cmocka_unit_test(test_death), cmocka_unit_test(test_strange_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
