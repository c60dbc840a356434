/* The log: what is written is read back; resuming drops what came later and what a crash cut short; a full disk loses
 * no line. */
#include "unit/storage/scratch.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "train/run/runlog.h"

static struct ash_err err;

static struct ash_log_record record_of(uint64_t step)
{
    return (struct ash_log_record){.step = step,
                                   .tokens = 512 * step,
                                   .time_s = 0.25 * (double)step,
                                   .loss = 3.0f / (float)step,
                                   .grad_norm = 0.5f + (float)step,
                                   .lr = 1e-3f,
                                   .tokens_per_s = 2048.0f,
                                   .valid_loss = step % 5 == 0 ? 2.5f / (float)step : NAN,
                                   .pairs = step % 10 == 0 ? (struct ash_pair_figures){0.75, 1.5, -0.25} : ASH_NO_PAIRS,
                                   .skipped = step == 3,
                                   .hashed = step % 10 == 0,
                                   .state_hash = step % 10 == 0 ? 0x0123456789abcdefu + step : 0};
}

static void add_steps(struct ash_runlog *log, uint64_t first, uint64_t last)
{
    for (uint64_t s = first; s <= last; s++) {
        struct ash_log_record record = record_of(s);
        assert_int_equal(ash_runlog_add(log, &record, &err), 0);
    }
}

static void assert_steps(const struct ash_runlog *log, uint64_t last)
{
    assert_int_equal(ash_runlog_count(log), last);
    for (uint64_t s = 1; s <= last; s++) {
        struct ash_log_record expected = record_of(s), found = ash_runlog_records(log)[s - 1];
        assert_true(isnan(expected.valid_loss) == isnan(found.valid_loss));
        assert_true(isnan(expected.pairs.accuracy) == isnan(found.pairs.accuracy));
        if (!isnan(expected.pairs.accuracy)) assert_memory_equal(&found.pairs, &expected.pairs, sizeof(found.pairs));
        if (isnan(expected.valid_loss)) expected.valid_loss = found.valid_loss = 0.0f;
        assert_int_equal(found.step, expected.step);
        assert_int_equal(found.tokens, expected.tokens);
        assert_true(found.time_s == expected.time_s && found.loss == expected.loss &&
                    found.grad_norm == expected.grad_norm);
        assert_true(found.lr == expected.lr && found.tokens_per_s == expected.tokens_per_s);
        assert_true(found.valid_loss == expected.valid_loss && found.skipped == expected.skipped);
        assert_true(found.hashed == expected.hashed && found.state_hash == expected.state_hash);
    }
}

static size_t count_lines(const char *path)
{
    char *text = NULL;
    size_t size = 0, lines = 0;

    assert_int_equal(ash_file_read(path, 1 << 20, &text, &size, &err), 0);
    for (size_t i = 0; i < size; i++)
        lines += text[i] == '\n';
    assert_true(size == 0 || text[size - 1] == '\n');
    free(text);
    return lines;
}

static void test_resume_keeps_each_step_once(void **state)
{
    const char *path;
    struct ash_runlog *log = NULL;
    int fd = -1;

    (void)state;
    path = scratch_path("log.jsonl");
    assert_int_equal(ash_runlog_open(path, 0, &log, &err), 0);
    add_steps(log, 1, 25);
    assert_int_equal(ash_runlog_write(log, &fd, &err), 0);
    assert_steps(log, 25);
    ash_runlog_close(log);
    assert_int_equal(count_lines(path), 25);
    for (uint64_t at = 24; at >= 10; at -= 7) {
        assert_int_equal(ash_runlog_open(path, at, &log, &err), 0);
        assert_steps(log, at);
        assert_int_equal(count_lines(path), at);
        add_steps(log, at + 1, 26);
        assert_steps(log, 26);
        ash_runlog_close(log);
        assert_int_equal(count_lines(path), 26);
    }
    assert_int_equal(ash_runlog_open(path, 0, &log, &err), 0);
    assert_int_equal(ash_runlog_count(log), 0);
    ash_runlog_close(log);
    assert_int_equal(count_lines(path), 0);
}

static void test_a_cut_line_is_dropped(void **state)
{
    const char *path;
    struct ash_runlog *log = NULL;
    struct stat info;

    (void)state;
    path = scratch_path("cut.jsonl");
    assert_int_equal(ash_runlog_open(path, 0, &log, &err), 0);
    add_steps(log, 1, 9);
    ash_runlog_close(log);
    assert_int_equal(stat(path, &info), 0);
    for (int cut = 1; cut < 60; cut += 7) {
        assert_int_equal(truncate(path, info.st_size - cut), 0);
        assert_int_equal(ash_runlog_open(path, 9, &log, &err), 0);
        assert_steps(log, 8);
        add_steps(log, 9, 9);
        ash_runlog_close(log);
        assert_int_equal(count_lines(path), 9);
    }
}

static void test_numbers_that_are_not_finite(void **state)
{
    const char *path;
    char *text = NULL;
    struct ash_runlog *log = NULL;
    struct ash_log_record record = {.step = 1, .loss = NAN, .grad_norm = INFINITY, .valid_loss = NAN, .skipped = true};
    size_t size;

    (void)state;
    path = scratch_path("nan.jsonl");
    assert_int_equal(ash_runlog_open(path, 0, &log, &err), 0);
    assert_int_equal(ash_runlog_add(log, &record, &err), 0);
    ash_runlog_close(log);
    assert_int_equal(ash_file_read(path, 1 << 20, &text, &size, &err), 0);
    assert_non_null(strstr(text, "\"loss\":null,\"loss_bits\":\"7fc00000\",\"grad_norm\":null"));
    assert_non_null(strstr(text, "\"skipped\":true"));
    assert_null(strstr(text, "valid_loss"));
    free(text);
    assert_int_equal(ash_runlog_open(path, 1, &log, &err), 0);
    assert_int_equal(ash_runlog_count(log), 1);
    assert_true(isnan(ash_runlog_records(log)[0].loss));
    ash_runlog_close(log);
}

static void test_a_full_disk_loses_nothing(void **state)
{
    const char *path;
    struct ash_runlog *log = NULL;
    struct rlimit limit, small;
    struct ash_log_record record;
    int failed = 0, fd = -1;

    (void)state;
    path = scratch_path("full.jsonl");
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(ash_runlog_open(path, 0, &log, &err), 0);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    small = limit;
    small.rlim_cur = 1000;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    for (uint64_t s = 1; s <= 20; s++) {
        record = record_of(s);
        failed += ash_runlog_add(log, &record, &err) == -EFBIG;
    }
    assert_true(ash_runlog_write(log, &fd, &err) < 0);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    assert_true(failed > 5);
    add_steps(log, 21, 21);
    ash_runlog_close(log);
    assert_int_equal(count_lines(path), 21);
    assert_int_equal(ash_runlog_open(path, 21, &log, &err), 0);
    assert_steps(log, 21);
    ash_runlog_close(log);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_resume_keeps_each_step_once),
        cmocka_unit_test(test_a_cut_line_is_dropped),
        cmocka_unit_test(test_numbers_that_are_not_finite),
        cmocka_unit_test(test_a_full_disk_loses_nothing),
    };
    return cmocka_run_group_tests(tests, scratch_open, scratch_close);
}
