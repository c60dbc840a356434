/* Files that several writers fill in parts, in drawn pieces and orders, through io_uring and through threads: the bytes
 * are those that were put, and the sums of the writers add up to those of the files. */
#include "unit/storage/scratch.h"

#include <errno.h>
#include <signal.h>
#include <sys/resource.h>

#include "base/rng.h"
#include "storage/io/io_queue.h"
#include "storage/io/piece_writer.h"

#define WRITERS 3

static uint64_t seed;
static uint64_t drawn;

static size_t draw(size_t below)
{
    return (size_t)ash_rng_below(seed, 3, drawn++, below);
}

/* Whose are the words of a file: runs of drawn lengths, some of a few words, some of megabytes. */
static uint8_t *draw_owners(size_t words)
{
    uint8_t *owners = malloc(words);
    size_t at = 0;

    assert_non_null(owners);
    while (at < words) {
        size_t longest = draw(3) == 0 ? words : draw(2) == 0 ? 2000 : 40, run = 1 + draw(longest);
        uint8_t owner = (uint8_t)draw(WRITERS);

        for (; run > 0 && at < words; run--)
            owners[at++] = owner;
    }
    return owners;
}

/* All runs of one writer, in order. */
static void put_runs(struct ash_piece_set *set, size_t file, const uint32_t *words, const uint8_t *owners, size_t count,
                     uint8_t owner)
{
    for (size_t at = 0; at < count;) {
        size_t end = at;
        void *room;
        ssize_t some;

        while (end < count && owners[end] == owners[at])
            end++;
        if (owners[at] != owner) {
            at = end;
            continue;
        }
        some = ash_piece_set_room(set, file, at * 4, (end - at) * 4, &room, NULL);
        assert_true(some >= 4 && some % 4 == 0 && (size_t)some <= (end - at) * 4);
        memcpy(room, words + at, (size_t)some);
        ash_piece_set_filled(set);
        at += (size_t)some / 4;
    }
}

static void check_file(const char *name, const uint32_t *words, size_t count, const struct ash_pieces *sums)
{
    struct ash_pieces whole = {0};
    char *found = NULL;
    size_t size = 0;

    assert_int_equal(ash_file_read(scratch_path(name), (size_t)1 << 30, &found, &size, NULL), 0);
    assert_int_equal(size, count * 4);
    assert_memory_equal(found, words, size);
    free(found);
    assert_int_equal(ash_pieces_init(&whole, size, NULL), 0);
    for (size_t i = 0; i < whole.count; i++)
        ash_pieces_add(&whole, i * ASH_PIECE_BYTES, words + i * ASH_PIECE_BYTES / 4, ash_pieces_bytes(&whole, i));
    assert_memory_equal(whole.sums, sums->sums, whole.count * sizeof(uint64_t));
    ash_pieces_fini(&whole);
}

static void fill_and_check(bool wants_uring)
{
    size_t counts[2] = {1 + draw(5 << 20), 1 + draw(100000)};
    struct ash_piece_file files[2] = {{"large", counts[0] * 4}, {"small", counts[1] * 4}};
    struct ash_piece_writer_opts opts = {.memory_bytes = draw(64) << 20, .wants_uring = wants_uring};
    struct ash_pieces sums[2] = {{0}};
    uint32_t *words[2];
    uint8_t *owners[2];

    for (int f = 0; f < 2; f++) {
        words[f] = malloc(counts[f] * 4);
        for (size_t i = 0; i < counts[f]; i++)
            words[f][i] = (uint32_t)(i * 2654435761u + seed);
        owners[f] = draw_owners(counts[f]);
        assert_int_equal(ash_pieces_init(&sums[f], counts[f] * 4, NULL), 0);
    }
    for (uint8_t w = 0; w < WRITERS; w++) {
        struct ash_piece_set_opts set_opts = {scratch_dir, files, 2, w == 1};
        struct ash_piece_writer *writer = NULL;
        struct ash_piece_set *set = NULL;
        struct ash_pieces own[2] = {{0}};

        assert_int_equal(ash_piece_writer_open(&opts, &writer, NULL), 0);
        assert_int_equal(ash_piece_set_open(writer, &set_opts, &set, NULL), 0);
        for (size_t f = 0; f < 2; f++)
            put_runs(set, f, words[f], owners[f], counts[f], w);
        assert_int_equal(ash_piece_set_close(set, own, NULL), 0);
        assert_true(ash_piece_writer_peak_bytes(writer) <=
                    (opts.memory_bytes > 16 << 20 ? opts.memory_bytes : 16 << 20));
        for (int f = 0; f < 2; f++) {
            for (size_t i = 0; i < own[f].count; i++)
                sums[f].sums[i] += own[f].sums[i];
            ash_pieces_fini(&own[f]);
        }
        ash_piece_writer_close(writer);
    }
    for (int f = 0; f < 2; f++) {
        check_file(files[f].name, words[f], counts[f], &sums[f]);
        free(words[f]);
        free(owners[f]);
        ash_pieces_fini(&sums[f]);
    }
}

static void parts_of_several_writers_make_the_file(void **state)
{
    (void)state;
    for (seed = 1; seed <= 8; seed++) {
        drawn = 0;
        fill_and_check(seed % 2 == 0);
    }
}

/* Two folders out of one small memory: the second is filled while the first is on its way. */
static void the_next_files_are_filled_while_the_last_are_written(void **state)
{
    enum { COUNT = 9 << 18 }; /* words: 9 MiB */
    struct ash_piece_writer_opts opts = {.wants_uring = true};
    struct ash_piece_file files[2] = {{"one", COUNT * 4}, {"two", COUNT * 4}};
    struct ash_piece_writer *writer = NULL;
    struct ash_piece_set *sets[2] = {NULL, NULL};
    struct ash_pieces sums = {0};
    uint32_t *words = malloc(COUNT * 4);
    uint8_t *owners = calloc(COUNT, 1);

    (void)state;
    for (size_t i = 0; i < COUNT; i++)
        words[i] = (uint32_t)(i * 2654435761u);
    assert_int_equal(ash_piece_writer_open(&opts, &writer, NULL), 0);
    for (size_t i = 0; i < 2; i++) {
        struct ash_piece_set_opts set_opts = {scratch_dir, &files[i], 1, true};

        assert_int_equal(ash_piece_set_open(writer, &set_opts, &sets[i], NULL), 0);
        put_runs(sets[i], 0, words, owners, COUNT, 0);
        ash_piece_set_submit(sets[i]);
    }
    for (size_t i = 2; i-- > 0;) { /* whichever is closed first */
        assert_int_equal(ash_piece_set_close(sets[i], &sums, NULL), 0);
        check_file(files[i].name, words, COUNT, &sums);
        ash_pieces_fini(&sums);
    }
    assert_true(ash_piece_writer_peak_bytes(writer) <= 16 << 20);
    ash_piece_writer_close(writer);
    free(owners);
    free(words);
}

static void a_full_disk_is_an_error_with_a_sentence(void **state)
{
    const struct rlimit small = {.rlim_cur = 6 << 20, .rlim_max = RLIM_INFINITY};
    struct ash_piece_writer_opts opts = {.wants_uring = true};
    struct ash_piece_file file = {"large", 64 << 20};
    struct ash_piece_set_opts set_opts = {scratch_dir, &file, 1, false};
    struct ash_piece_writer *writer = NULL;
    struct ash_piece_set *set = NULL;
    struct ash_err err = {0};
    struct rlimit before;
    ssize_t rc = 0;

    (void)state;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(ash_piece_writer_open(&opts, &writer, NULL), 0);
    assert_int_equal(ash_piece_set_open(writer, &set_opts, &set, NULL), 0);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    for (uint64_t at = 0; rc >= 0 && at < file.size_bytes;) {
        void *room;

        rc = ash_piece_set_room(set, 0, at, (size_t)(file.size_bytes - at), &room, &err);
        if (rc < 0) break;
        memset(room, 1, (size_t)rc);
        ash_piece_set_filled(set);
        at += (uint64_t)rc;
    }
    rc = ash_piece_set_close(set, NULL, &err);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(rc, -EFBIG);
    assert_non_null(strstr(err.text, "large"));
    set_opts.sets_sizes = true; /* and it can be used again */
    assert_int_equal(ash_piece_set_open(writer, &set_opts, &set, NULL), 0);
    assert_int_equal(ash_piece_set_close(set, NULL, NULL), 0);
    ash_piece_writer_close(writer);
}

static void a_queue_reads_to_the_end_of_a_file_and_says_what_works(void **state)
{
    struct ash_io_request requests[3] = {0};
    char data[3][4096];

    (void)state;
    assert_int_equal(ash_file_replace(scratch_path("short"), "0123456789", 10, NULL), 0);
    for (int uring = 0; uring < 2; uring++) {
        struct ash_io_queue *queue = NULL;
        FILE *file = fopen(scratch_path("short"), "r");
        size_t seen = 0;

        assert_non_null(file);
        assert_int_equal(ash_io_queue_open(3, uring != 0, &queue, NULL), 0);
        for (size_t i = 0; i < 3; i++) {
            requests[i] = (struct ash_io_request){.kind = ASH_IO_READ,
                                                  .fd = i == 2 ? -1 : fileno(file),
                                                  .plain_fd = -1,
                                                  .data = data[i],
                                                  .size_bytes = 4,
                                                  .offset = 8 * i};
            ash_io_queue_submit(queue, &requests[i]);
        }
        for (struct ash_io_request *done; (done = ash_io_queue_wait(queue)) != NULL; seen++)
            ;
        assert_int_equal(seen, 3);
        assert_int_equal(requests[0].done_bytes, 4);
        assert_memory_equal(data[0], "0123", 4);
        assert_int_equal(requests[1].done_bytes, 2); /* the end */
        assert_int_equal(requests[1].rc, 0);
        assert_int_equal(requests[2].rc, -EBADF);
        ash_io_queue_close(queue);
        fclose(file);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(parts_of_several_writers_make_the_file, scratch_open, scratch_close),
        cmocka_unit_test_setup_teardown(the_next_files_are_filled_while_the_last_are_written, scratch_open,
                                        scratch_close),
        cmocka_unit_test_setup_teardown(a_full_disk_is_an_error_with_a_sentence, scratch_open, scratch_close),
        cmocka_unit_test_setup_teardown(a_queue_reads_to_the_end_of_a_file_and_says_what_works, scratch_open,
                                        scratch_close),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
