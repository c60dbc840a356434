/* A namespace over a folder: states, ranges, damage, room, exports, several at a time; its logs cut at every byte. */
#include "unit/storage/scratch.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/math.h"
#include "base/rng.h"
#include "storage/namespace/extents_priv.h"
#include "storage/namespace/journal_priv.h"
#include "storage/namespace/namespace.h"

#define SIZE ((size_t)5 * 1000 * 1000 + 7)

static struct ash_err err;
static uint8_t *bytes; /* of the object "big" */
static const struct ash_s3_opts no_s3 = {.connections = 1, .part_bytes = 5 << 20};

static void expect_ok(int rc)
{
    if (rc < 0) fail_msg("%d: %s", rc, err.text);
}

static int open_scratch(void **state)
{
    bytes = malloc(SIZE);
    for (size_t i = 0; i < SIZE; i++)
        bytes[i] = (uint8_t)ash_rng_u64(1, 2, i / 8) + (uint8_t)i;
    return scratch_open(state);
}

static int close_scratch(void **state)
{
    free(bytes);
    return scratch_close(state);
}

static void write_remote(const char *key, const void *data, size_t size_bytes)
{
    struct ash_tier *tier = NULL;
    struct ash_tier_write *write = NULL;

    expect_ok(ash_tier_open(scratch_path("remote"), &no_s3, &tier, &err));
    expect_ok(ash_tier_write_open(tier, key, size_bytes, false, &write, &err));
    expect_ok(ash_tier_write_add(tier, write, data, size_bytes, &err));
    expect_ok(ash_tier_write_finish(tier, write, &err));
    ash_tier_write_close(tier, write, false);
    ash_tier_close(tier);
}

static struct ash_namespace *open_space(int64_t limit_bytes)
{
    const struct ash_cache_opts cache = {.dir = scratch_path("cache"), .bytes = limit_bytes};
    struct ash_namespace *space = NULL;

    expect_ok(ash_namespace_open(scratch_path("remote"), &cache, &no_s3, &space, &err));
    return space;
}

static enum ash_object_state state_of(struct ash_namespace *space, const char *key)
{
    struct ash_object_info info = {0};

    expect_ok(ash_namespace_stat(space, key, &info, &err));
    return info.state;
}

static void expect_range(struct ash_namespace *space, struct ash_object *object, uint64_t offset, size_t size_bytes)
{
    uint8_t *data = malloc(size_bytes + 1);
    struct ash_object_range range = {object, offset, size_bytes, data};

    expect_ok(ash_namespace_read(space, &range, 1, &err));
    assert_memory_equal(data, bytes + offset, size_bytes);
    free(data);
}

/* Ranges of any size at any place, read again from here, by two at a time; then the remote place goes away. */
static void test_ranges(void **state)
{
    struct ash_namespace *spaces[2];
    struct ash_object *objects[2] = {NULL};
    struct ash_object_info info = {0};

    (void)state;
    write_remote("big", bytes, SIZE);
    for (size_t s = 0; s < 2; s++) {
        spaces[s] = open_space(0);
        if (s == 0) assert_int_equal(state_of(spaces[0], "big"), ASH_OBJECT_REMOTE);
        expect_ok(ash_object_open(spaces[s], "big", false, &objects[s], &err));
        assert_int_equal(ash_object_size(objects[s]), SIZE);
    }
    for (size_t n = 0; n < 200; n++) {
        uint64_t offset = ash_rng_below(3, 4, n, SIZE);
        size_t most = n % 10 == 0 ? 3000000 : 5000, size_bytes = ash_rng_below(5, 6, n, most);

        expect_range(spaces[n % 2], objects[n % 2], offset, ash_min(size_bytes, (size_t)(SIZE - offset)));
    }
    expect_ok(ash_namespace_stat(spaces[0], "big", &info, &err));
    assert_true(info.here_bytes > 0);
    expect_range(spaces[0], objects[0], 0, SIZE);
    assert_int_equal(state_of(spaces[1], "big"), ASH_OBJECT_EXPORTED);
    ash_dir_remove(scratch_path("remote"), NULL);
    for (size_t s = 0; s < 2; s++) {
        struct ash_object_range outside = {objects[s], SIZE - 1, 2, NULL};

        expect_range(spaces[s], objects[s], 17, SIZE - 17);
        assert_int_equal(ash_namespace_read(spaces[s], &outside, 1, &err), -ERANGE);
        ash_object_close(objects[s]);
        ash_namespace_close(spaces[s]);
    }
}

/* A byte of the cached file that changes is found, and fetched again; an object that changes is said so. */
static void test_damage(void **state)
{
    struct ash_namespace *space = open_space(0);
    struct ash_object *object = NULL;
    struct ash_object_range range = {0};
    struct ash_str path = {0};
    uint8_t wrong = 0x55, byte;
    int fd;

    (void)state;
    write_remote("dir/big", bytes, SIZE);
    expect_ok(ash_namespace_fetch(space, "dir/big", NULL, &path, &err));
    fd = open(path.data, O_RDWR);
    for (size_t n = 0; n < 20; n++) {
        uint64_t at = ash_rng_below(7, 8, n, SIZE);

        wrong = (uint8_t)~bytes[at];
        assert_int_equal(pwrite(fd, &wrong, 1, (off_t)at), 1);
        expect_ok(ash_object_open(space, "dir/big", false, &object, &err));
        expect_range(space, object, at > 100 ? at - 100 : 0, ash_min(200, SIZE - at));
        ash_object_close(object);
    }
    assert_int_equal(ftruncate(fd, 3), 0);
    expect_ok(ash_namespace_fetch(space, "dir/big", NULL, NULL, &err));
    for (size_t at = 0; at < SIZE; at += 99991) {
        assert_int_equal(pread(fd, &byte, 1, (off_t)at), 1);
        assert_int_equal(byte, bytes[at]);
    }
    close(fd);
    expect_ok(ash_namespace_release(space, "dir/big", &err));
    expect_ok(ash_object_open(space, "dir/big", false, &object, &err));
    write_remote("dir/big", bytes, SIZE - 1);
    range = (struct ash_object_range){object, 0, 1, &byte};
    assert_int_equal(ash_namespace_read(space, &range, 1, &err), -ESTALE);
    assert_non_null(strstr(err.text, "has changed"));
    ash_object_close(object);
    expect_ok(ash_object_open(space, "dir/big", true, &object, &err));
    assert_int_equal(ash_object_size(object), SIZE - 1);
    expect_range(space, object, 10, 1000);
    ash_object_close(object);
    ash_str_fini(&path);
    ash_namespace_close(space);
}

/* Bytes on disk of all files of the cache. */
static uint64_t disk_bytes(void)
{
    char command[PATH_MAX + 64];
    unsigned long long kib = 0;
    FILE *pipe;

    snprintf(command, sizeof(command), "du -sk %s/cache/dir/*/data | cut -f1", scratch_dir);
    pipe = popen(command, "r");
    assert_int_equal(fscanf(pipe, "%llu", &kib), 1);
    pclose(pipe);
    return kib * 1024;
}

/* A limit of a quarter of what is read: never far over it, and all bytes right, in use or not, large and small. */
static void test_limit(void **state)
{
    static const size_t sizes[] = {300000, 2000};
    const int64_t limit = SIZE / 4;

    (void)state;
    write_remote("big", bytes, SIZE);
    for (size_t s = 0; s < ASH_COUNT(sizes); s++) {
        struct ash_namespace *space = open_space(limit);
        struct ash_object *object = NULL;

        expect_ok(ash_object_open(space, "big", false, &object, &err));
        for (size_t n = 0; n < SIZE / sizes[s]; n++) {
            expect_range(space, object, ash_rng_permute(9, s, n, SIZE / sizes[s]) * sizes[s], sizes[s]);
            if (n % (100000 / sizes[s] * 5 + 5) == 0) assert_true(disk_bytes() <= (uint64_t)limit * 9 / 8 + 500000);
        }
        ash_object_close(object);
        ash_namespace_close(space);
    }
}

static size_t count_files(const char *folder)
{
    char command[2 * PATH_MAX];
    size_t count = 0;
    FILE *pipe;

    snprintf(command, sizeof(command), "find %s -type f | wc -l", scratch_path(folder));
    pipe = popen(command, "r");
    assert_int_equal(fscanf(pipe, "%zu", &count), 1);
    pclose(pipe);
    return count;
}

/* local -> exported -> released -> back, in a thread; what is local or pinned is not released. */
static void test_states(void **state)
{
    struct ash_namespace *space = open_space(0);
    struct ash_object *object = NULL;

    (void)state;
    scratch_write("file", bytes, SIZE);
    expect_ok(ash_namespace_put(space, "new/big", scratch_path("file"), false, &err));
    assert_int_equal(state_of(space, "new/big"), ASH_OBJECT_LOCAL);
    expect_ok(ash_object_open(space, "new/big", true, &object, &err));
    expect_range(space, object, 1234, 100000);
    ash_object_close(object);
    assert_int_equal(ash_namespace_release(space, "new/big", &err), -EBUSY);
    ash_namespace_close(space);
    space = open_space(0); /* the journal has it */
    assert_int_equal(state_of(space, "new/big"), ASH_OBJECT_LOCAL);
    expect_ok(ash_namespace_export_start(space, &err));
    expect_ok(ash_namespace_export_wait(space, NULL, &err));
    assert_int_equal(state_of(space, "new/big"), ASH_OBJECT_EXPORTED);
    assert_int_equal(count_files("remote"), 1);
    expect_ok(ash_namespace_pin(space, "new/big", true, &err));
    assert_int_equal(ash_namespace_release(space, "new/big", &err), -EBUSY);
    expect_ok(ash_namespace_pin(space, "new/big", false, &err));
    expect_ok(ash_namespace_release(space, "new/big", &err));
    assert_int_equal(state_of(space, "new/big"), ASH_OBJECT_RELEASED);
    assert_int_equal(count_files("cache"), 2); /* the journal and a log */
    expect_ok(ash_object_open(space, "new/big", false, &object, &err));
    expect_range(space, object, 0, SIZE);
    ash_object_close(object);
    assert_int_equal(state_of(space, "new/big"), ASH_OBJECT_EXPORTED);
    ash_namespace_close(space);
}

/* Pinned objects stay when room is made; of the others the one used longest ago goes first. */
static void test_pins_and_order(void **state)
{
    static const char *const keys[] = {"a", "b", "c", "d"};
    struct ash_namespace *space = open_space(0);
    const size_t part = SIZE / 5;

    (void)state;
    for (size_t i = 0; i < ASH_COUNT(keys); i++) {
        struct timespec later = {0, 20000000};

        write_remote(keys[i], bytes, part);
        expect_ok(ash_namespace_fetch(space, keys[i], NULL, NULL, &err));
        nanosleep(&later, NULL); /* stamps of files differ */
    }
    expect_ok(ash_namespace_pin(space, "a", true, &err));
    ash_namespace_close(space);
    space = open_space((int64_t)part * 2 + 100000);
    expect_ok(ash_namespace_make_room(space, 0, &err));
    assert_int_equal(state_of(space, "a"), ASH_OBJECT_EXPORTED);
    assert_int_equal(state_of(space, "b"), ASH_OBJECT_RELEASED);
    assert_int_equal(state_of(space, "c"), ASH_OBJECT_RELEASED);
    assert_int_equal(state_of(space, "d"), ASH_OBJECT_EXPORTED);
    ash_namespace_close(space);
}

/* Keys that cannot be files, and such that cannot be files together. */
static void test_odd_keys(void **state)
{
    struct ash_namespace *space = open_space(0);
    struct ash_object *object = NULL;
    char longest[1025], longer[1030];

    (void)state;
    memset(longest, 'k', 1024);
    longest[1024] = '\0';
    memset(longer, 'k', 1029);
    longer[1029] = '\0';
    scratch_write("file", bytes, 1000);
    const char *const keys[] = {"a", "a/b", "../up", "x//y", "x/./y", "tail/", longest};
    for (size_t i = 0; i < ASH_COUNT(keys); i++) {
        expect_ok(ash_namespace_put(space, keys[i], scratch_path("file"), false, &err));
        assert_int_equal(state_of(space, keys[i]), ASH_OBJECT_LOCAL);
        expect_ok(ash_object_open(space, keys[i], false, &object, &err));
        expect_range(space, object, 10, 900);
        ash_object_close(object);
        object = NULL;
    }
    assert_int_equal(ash_namespace_put(space, longer, scratch_path("file"), false, &err), -EINVAL);
    assert_int_equal(ash_object_open(space, longer, false, &object, &err), -EINVAL);
    ash_namespace_close(space);
}

/* Whatever byte a journal is cut at, what was flushed before is there, and the next line is read back. */
static void test_journal_cut(void **state)
{
    struct ash_journal_entry entry = {.key = "k\"1\n", .file = "f1", .size_bytes = 5, .hash = 0xabcdef};
    struct ash_journal *journal = NULL;
    size_t size_bytes = 0, ends[3], damaged = 0;
    char *text = NULL;

    (void)state;
    expect_ok(ash_journal_open(scratch_path("journal"), &journal, NULL, &err));
    for (size_t i = 0; i < 3; i++) {
        struct stat info;

        if (i == 0) expect_ok(ash_journal_put(journal, &entry, &err));
        if (i == 1) expect_ok(ash_journal_pin(journal, "p", true, &err));
        if (i == 2) expect_ok(ash_journal_done(journal, "k\"1\n", "f1", &err));
        assert_int_equal(stat(scratch_path("journal"), &info), 0);
        ends[i] = (size_t)info.st_size;
    }
    ash_journal_close(journal);
    expect_ok(ash_file_read(scratch_path("journal"), 100000, &text, &size_bytes, &err));
    for (size_t cut = 0; cut <= size_bytes; cut++) {
        scratch_write("cut", text, cut);
        expect_ok(ash_journal_open(scratch_path("cut"), &journal, &damaged, &err));
        assert_int_equal(damaged, 0);
        assert_int_equal(ash_journal_find(journal, entry.key) != NULL, cut >= ends[0] && cut < ends[2]);
        assert_int_equal(ash_journal_is_pinned(journal, "p"), cut >= ends[1]);
        expect_ok(ash_journal_pin(journal, "after", true, &err));
        ash_journal_close(journal);
        expect_ok(ash_journal_open(scratch_path("cut"), &journal, &damaged, &err));
        assert_true(ash_journal_is_pinned(journal, "after") && damaged <= 1);
        /* a line that lacked its newline alone is whole now */
        assert_int_equal(ash_journal_is_pinned(journal, "p"), cut + 1 >= ends[1]);
        ash_journal_close(journal);
    }
    for (size_t at = 0; at < size_bytes; at++) { /* a flipped bit costs its line and no other */
        text[at] ^= 4;
        scratch_write("cut", text, size_bytes);
        expect_ok(ash_journal_open(scratch_path("cut"), &journal, NULL, &err));
        if (at >= ends[1]) assert_true(ash_journal_is_pinned(journal, "p"));
        if (at < ends[0]) assert_null(ash_journal_find(journal, entry.key));
        ash_journal_close(journal);
        text[at] ^= 4;
    }
    free(text);
}

/* A journal of much history is rewritten; another process that has it open continues with the new one. */
static void test_journal_rewritten(void **state)
{
    struct ash_journal *journal = NULL, *other = NULL;
    char key[1000];
    struct stat info;

    (void)state;
    memset(key, 'k', sizeof(key) - 1);
    key[sizeof(key) - 1] = '\0';
    expect_ok(ash_journal_open(scratch_path("journal"), &journal, NULL, &err));
    expect_ok(ash_journal_open(scratch_path("journal"), &other, NULL, &err));
    expect_ok(ash_journal_pin(other, "kept", true, &err));
    for (size_t i = 0; i < 300; i++)
        expect_ok(ash_journal_pin(journal, key, i % 2 == 0, &err));
    assert_int_equal(stat(scratch_path("journal"), &info), 0);
    assert_true(info.st_size < 100000);
    expect_ok(ash_journal_pin(other, "late", true, &err));
    expect_ok(ash_journal_refresh(journal, &err));
    assert_true(ash_journal_is_pinned(journal, "kept") && ash_journal_is_pinned(journal, "late"));
    assert_false(ash_journal_is_pinned(other, key));
    ash_journal_close(journal);
    ash_journal_close(other);
}

/* A process that puts and exports is killed at random moments: what it was told is put is there, whole, in the end. */
static void test_killed(void **state)
{
    enum { ROUNDS = 12, KEYS = 40 };
    struct ash_namespace *space;
    struct ash_object *object = NULL;
    size_t told = 0;

    (void)state;
    for (size_t round = 0; round < ROUNDS; round++) {
        int pipes[2];
        pid_t child;
        uint8_t number;
        struct timespec pause = {0, (long)(1000000 + ash_rng_below(11, 12, round, 60000000))};

        assert_int_equal(pipe(pipes), 0);
        child = fork();
        if (child == 0) {
            space = open_space(0);
            ash_namespace_export_start(space, NULL);
            for (size_t i = told; i < KEYS; i++) {
                char key[32], file[32];

                snprintf(key, sizeof(key), "k%zu", i);
                snprintf(file, sizeof(file), "f%zu", i);
                scratch_write(file, bytes + i, 200000 + i * 999);
                number = (uint8_t)i;
                if (ash_namespace_put(space, key, scratch_path(file), true, NULL) < 0 ||
                    write(pipes[1], &number, 1) != 1)
                    break;
            }
            _exit(0);
        }
        close(pipes[1]);
        nanosleep(&pause, NULL);
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        while (read(pipes[0], &number, 1) == 1)
            told = number + 1u;
        close(pipes[0]);
    }
    space = open_space(0);
    expect_ok(ash_namespace_export(space, NULL, &err));
    assert_true(told > 0);
    for (size_t i = 0; i < told; i++) {
        char key[32];

        snprintf(key, sizeof(key), "k%zu", i);
        assert_int_equal(state_of(space, key), ASH_OBJECT_EXPORTED);
        expect_ok(ash_namespace_release(space, key, &err));
        expect_ok(ash_object_open(space, key, true, &object, &err));
        assert_int_equal(ash_object_size(object), 200000 + i * 999);
        bytes += i;
        expect_range(space, object, 0, 200000 + i * 999);
        bytes -= i;
        ash_object_close(object);
    }
    ash_namespace_close(space);
}

/* A log of extents, cut and flipped: what it still says is right. */
static void test_extents_cut(void **state)
{
    struct ash_extents_head head = {.key = "k", .version = "v", .size_bytes = 10000};
    struct ash_extents *extents = NULL;
    size_t size_bytes = 0;
    char *text = NULL;

    (void)state;
    expect_ok(ash_extents_open(scratch_path("log"), &head, &extents, &err));
    for (size_t i = 0; i < 10; i++)
        expect_ok(ash_extents_add(extents, i * 1000, bytes + i * 1000, 1000));
    assert_true(ash_extents_cover(extents));
    ash_extents_close(extents);
    expect_ok(ash_file_read(scratch_path("log"), 100000, &text, &size_bytes, &err));
    for (size_t cut = 0; cut <= size_bytes; cut++) {
        scratch_write("cut", text, cut);
        expect_ok(ash_extents_open(scratch_path("cut"), &head, &extents, &err));
        expect_ok(ash_extents_add(extents, 500, bytes + 500, 1000));
        assert_non_null(ash_extents_find(extents, 1400));
        assert_int_equal(ash_extents_cover(extents), cut == size_bytes);
        ash_extents_close(extents);
        expect_ok(ash_extents_open(scratch_path("cut"), &head, &extents, &err));
        assert_non_null(ash_extents_find(extents, 1400));
        ash_extents_close(extents);
    }
    for (size_t at = 0; at < size_bytes; at += 7) {
        text[at] ^= 1;
        if (ash_extents_parse(text, size_bytes, &extents, NULL) == 0) {
            assert_false(ash_extents_cover(extents));
            ash_extents_close(extents);
        }
        text[at] ^= 1;
    }
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_ranges, open_scratch, close_scratch),
        cmocka_unit_test_setup_teardown(test_damage, open_scratch, close_scratch),
        cmocka_unit_test_setup_teardown(test_limit, open_scratch, close_scratch),
        cmocka_unit_test_setup_teardown(test_states, open_scratch, close_scratch),
        cmocka_unit_test_setup_teardown(test_pins_and_order, open_scratch, close_scratch),
        cmocka_unit_test_setup_teardown(test_odd_keys, open_scratch, close_scratch),
        cmocka_unit_test_setup_teardown(test_journal_cut, open_scratch, close_scratch),
        cmocka_unit_test_setup_teardown(test_journal_rewritten, open_scratch, close_scratch),
        cmocka_unit_test_setup_teardown(test_killed, open_scratch, close_scratch),
        cmocka_unit_test_setup_teardown(test_extents_cut, open_scratch, close_scratch),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
