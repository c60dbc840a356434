/* Input files as documents: every way to cut, places to continue from, files that change, limits. */
#include "unit/storage/scratch.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"
#include "train/data/tokenize_priv.h"

static struct ash_err err;

/* Cut text into documents "a|b|c", feeding it one byte more at a time, as slow a source as there can be. */
static void check_cut(enum ash_tokenize_split split, const char *text, const char *expected)
{
    size_t size_bytes = strlen(text), at = 0, have = 0;
    struct ash_input_cut cut;
    char got[256] = "";

    while (at < size_bytes) {
        if (!ash_input_find_cut(split, text + at, have - at, have == size_bytes, &cut)) {
            assert_true(have < size_bytes);
            have++;
            continue;
        }
        assert_true(cut.start + cut.size_bytes <= cut.used_bytes && cut.used_bytes <= have - at);
        if (cut.size_bytes > 0) {
            size_t used = strlen(got);

            snprintf(got + used, sizeof(got) - used, "%s%.*s", used > 0 ? "|" : "", (int)cut.size_bytes,
                     text + at + cut.start);
        }
        assert_true(cut.used_bytes > 0 || at == have);
        if (cut.used_bytes == 0) have++;
        at += cut.used_bytes;
    }
    assert_string_equal(got, expected);
}

static void test_cut(void **state)
{
    (void)state;
    check_cut(ASH_SPLIT_NONE, "a\n\nb\n", "a\n\nb\n");
    check_cut(ASH_SPLIT_LINE, "a\nb b\n\n \t\r\nc\r\nd", "a|b b|c|d");
    check_cut(ASH_SPLIT_LINE, "\n\n", "");
    check_cut(ASH_SPLIT_LINE, "a\r", "a");
    check_cut(ASH_SPLIT_BLANK_LINE, "a\nb\n\nc\n", "a\nb|c");
    check_cut(ASH_SPLIT_BLANK_LINE, "\n \n\na\n b\n\t\n\n\nc", "a\n b|c");
    check_cut(ASH_SPLIT_BLANK_LINE, "a\r\nb\r\n\r\nc\r\n", "a\r\nb|c");
    check_cut(ASH_SPLIT_BLANK_LINE, "\n\n", "");
    check_cut(ASH_SPLIT_BLANK_LINE, "  a\n", "  a");
}

static int open_input(const char *const *paths, size_t count, enum ash_tokenize_split split, size_t document_bytes_max,
                      struct ash_input **input_out)
{
    return ash_input_open(
        paths, count,
        &(struct ash_input_opts){
            .format = ASH_FORMAT_AUTO, .split = split, .field = "text", .document_bytes_max = document_bytes_max},
        input_out, &err);
}

struct collected {
    size_t count;
    struct ash_input_doc docs[4096];
    char texts[4096][16]; /* their first bytes */
};

/* All documents from input's position on, a few bytes of text per batch. */
static int collect(struct ash_input *input, size_t want_bytes, struct collected *out)
{
    struct ash_input_batch batch = {0};
    int rc;

    out->count = 0;
    while ((rc = ash_input_next(input, want_bytes, &batch, &err)) == 1)
        for (size_t d = 0; d < batch.count; d++) {
            const struct ash_input_doc *doc = &batch.docs[d];

            assert_true(out->count < ASH_COUNT(out->docs));
            out->docs[out->count] = *doc;
            snprintf(out->texts[out->count++], 16, "%.*s", (int)doc->size_bytes, batch.text.data + doc->start);
        }
    ash_input_batch_fini(&batch);
    return rc;
}

static void test_places(void **state)
{
    static struct collected all, rest;
    const char *paths[] = {scratch_path("a.txt"), scratch_path("b.jsonl"), scratch_path("empty"), scratch_path("c")};
    static const char *const texts[] = {"one", "two", "{\"x\":1}", "3", "last"};
    static const uint64_t lines[] = {1, 4, 1, 3, 2}, offsets[] = {3, 9, 0, 9, 1};
    static const size_t files[] = {0, 0, 1, 1, 3};
    struct ash_input *input = NULL;

    (void)state;
    scratch_write("a.txt", "\xef\xbb\xbfone\n\n\ntwo\n", 12);
    scratch_write("b.jsonl", "{\"x\":1}\n\n3\n", 11);
    scratch_write("empty", "", 0);
    scratch_write("c", "\nlast", 5);
    assert_int_equal(open_input(paths, 4, ASH_SPLIT_BLANK_LINE, 1000, &input), 0);
    assert_true(ash_input_file_at(input, 1)->jsonl && !ash_input_file_at(input, 0)->jsonl);
    assert_int_equal(collect(input, 1, &all), 0);
    assert_int_equal(all.count, ASH_COUNT(texts));
    for (size_t d = 0; d < all.count; d++) {
        assert_string_equal(all.texts[d], texts[d]);
        assert_int_equal(all.docs[d].begin.file, files[d]);
        assert_int_equal(all.docs[d].begin.line, lines[d]);
        assert_int_equal(all.docs[d].begin.offset, offsets[d]);
    }
    for (size_t d = 0; d < all.count; d++) { /* continue after each */
        assert_int_equal(ash_input_seek(input, &all.docs[d].next, &err), 0);
        assert_int_equal(collect(input, 1, &rest), 0);
        assert_int_equal(rest.count, all.count - d - 1);
        for (size_t i = 0; i < rest.count; i++) {
            assert_string_equal(rest.texts[i], all.texts[d + 1 + i]);
            assert_memory_equal(&rest.docs[i].begin, &all.docs[d + 1 + i].begin, sizeof(rest.docs[i].begin));
            assert_memory_equal(&rest.docs[i].next, &all.docs[d + 1 + i].next, sizeof(rest.docs[i].next));
        }
    }
    assert_int_equal(ash_input_seek(input, &(struct ash_input_pos){.file = 5, .line = 1}, &err), -EINVAL);
    assert_int_equal(ash_input_seek(input, &(struct ash_input_pos){.file = 1, .offset = 12, .line = 1}, &err), -EINVAL);
    ash_input_close(input);
    ash_input_close(NULL);
}

/* Rows of a Parquet file between text files: places count rows, and nulls are documents without a text. */
static void test_table(void **state)
{
    static struct collected all, rest;
    const char *paths[] = {scratch_path("a.txt"), TEST_DATA "/golden/parquet/rs-plain-v1.parquet",
                           scratch_path("b.txt")};
    struct ash_input *input = NULL;

    (void)state;
    scratch_write("a.txt", "first", 5);
    scratch_write("b.txt", "last", 4);
    assert_int_equal(open_input(paths, 3, ASH_SPLIT_LINE, 1000, &input), 0);
    assert_true(ash_input_file_at(input, 1)->is_parquet);
    assert_int_equal(collect(input, 1 << 20, &all), 0);
    assert_int_equal(all.count, 42);
    assert_string_equal(all.texts[0], "first");
    assert_string_equal(all.texts[1], "row 0, ä ");
    assert_string_equal(all.texts[41], "last");
    assert_true(all.docs[4].is_null && !all.docs[6].is_null && all.docs[6].size_bytes == 0);
    for (size_t d = 0; d < all.count; d++) {
        assert_int_equal(ash_input_seek(input, &all.docs[d].next, &err), 0);
        assert_int_equal(collect(input, 1, &rest), 0);
        assert_int_equal(rest.count, all.count - d - 1);
        for (size_t i = 0; i < rest.count; i++) {
            assert_string_equal(rest.texts[i], all.texts[d + 1 + i]);
            assert_memory_equal(&rest.docs[i].next, &all.docs[d + 1 + i].next, sizeof(rest.docs[i].next));
        }
    }
    assert_int_equal(ash_input_seek(input, &(struct ash_input_pos){.file = 1, .offset = 41, .line = 1}, &err), -EINVAL);
    ash_input_close(input);
}

/* Documents around the size of the read buffer, whole and in pieces. */
static void test_large(void **state)
{
    static struct collected all;
    static const size_t sizes[] = {(1 << 20) - 1, 1 << 20, (1 << 20) + 1, 3 << 20, 5};
    const char *path = scratch_path("big");
    struct ash_input *input = NULL;
    struct ash_str text = {0};
    char line[1024];

    (void)state;
    memset(line, 'x', sizeof(line));
    for (size_t s = 0; s < ASH_COUNT(sizes); s++) {
        for (size_t left = sizes[s]; left > 0;) {
            size_t part = left < sizeof(line) ? left : sizeof(line);

            assert_int_equal(ash_str_add(&text, line, part), 0);
            left -= part;
        }
        assert_int_equal(ash_str_adds(&text, "\n"), 0);
    }
    scratch_write("big", text.data, text.size_bytes);
    ash_str_fini(&text);
    assert_int_equal(open_input(&path, 1, ASH_SPLIT_LINE, 3 << 20, &input), 0);
    assert_int_equal(collect(input, 1 << 20, &all), 0);
    assert_int_equal(all.count, ASH_COUNT(sizes));
    for (size_t s = 0; s < ASH_COUNT(sizes); s++) {
        assert_int_equal(all.docs[s].size_bytes, sizes[s]);
        assert_int_equal(all.docs[s].begin.line, s + 1);
    }
    ash_input_close(input);
    input = NULL;
    assert_int_equal(open_input(&path, 1, ASH_SPLIT_LINE, (3 << 20) - 1, &input), 0);
    assert_int_equal(collect(input, 1, &all), -EFBIG);
    assert_non_null(strstr(err.text, "big:4: "));
    assert_int_equal(all.count, 3);
    ash_input_close(input);
}

static void test_refused_files(void **state)
{
    static struct collected all;
    const char *missing = scratch_path("none"), *dir = scratch_dir, *path = scratch_path("a");
    struct ash_input *input = NULL;

    (void)state;
    assert_int_equal(open_input(&missing, 1, ASH_SPLIT_NONE, 1000, &input), -ENOENT);
    assert_int_equal(open_input(&dir, 1, ASH_SPLIT_NONE, 1000, &input), -ENOENT);
    assert_non_null(strstr(err.text, "there is no text in this folder"));
    assert_null(input);
    for (int longer = 0; longer < 2; longer++) { /* changed between open and read */
        scratch_write("a", "some text", 9);
        assert_int_equal(open_input(&path, 1, ASH_SPLIT_NONE, 1000, &input), 0);
        assert_int_equal(truncate(path, longer ? 10 : 8), 0);
        assert_int_equal(collect(input, 1, &all), -ESTALE);
        ash_input_close(input);
        input = NULL;
    }
}

/* Write text to name, compressed by a program that others wrote. False where there is none. */
static bool write_packed(const char *program, const char *name, const char *text)
{
    char command[512];
    FILE *pipe;

    snprintf(command, sizeof(command), "command -v %s > /dev/null && %s -c > '%s'", program, program,
             scratch_path(name));
    pipe = popen(command, "w");
    assert_non_null(pipe);
    fputs(text, pipe);
    return pclose(pipe) == 0;
}

/* Cut by lines, path must hold the lines of expected ("a|b|c"). */
static void check_lines(const char *path, const char *expected)
{
    static struct collected all;
    struct ash_input *input = NULL;
    char got[256] = "";

    if (open_input(&path, 1, ASH_SPLIT_LINE, 1000, &input) < 0) fail_msg("%s", err.text);
    if (collect(input, 1, &all) < 0) fail_msg("%s", err.text);
    for (size_t d = 0; d < all.count; d++)
        snprintf(got + strlen(got), sizeof(got) - strlen(got), "%s%s", d > 0 ? "|" : "", all.texts[d]);
    assert_string_equal(got, expected);
    for (size_t d = 0; d < all.count && !ash_input_file_at(input, 0)->is_stream; d++) { /* continue after each */
        static struct collected rest;

        assert_int_equal(ash_input_seek(input, &all.docs[d].next, &err), 0);
        assert_int_equal(collect(input, 1, &rest), 0);
        assert_int_equal(rest.count, all.count - d - 1);
        if (rest.count > 0) assert_string_equal(rest.texts[0], all.texts[d + 1]);
    }
    ash_input_close(input);
}

static void test_compressed(void **state)
{
    static const char *const programs[] = {"gzip", "zstd"};
    static struct collected all;
    struct ash_input *input = NULL;
    char command[1024];

    (void)state;
    for (size_t p = 0; p < ASH_COUNT(programs); p++) {
        const char *path = scratch_path("a.packed");
        int rc;

        if (!write_packed(programs[p], "a.packed", "one\ntwo\nthree\n")) continue;
        rc = open_input(&path, 1, ASH_SPLIT_LINE, 1000, &input);
        if (rc == -ENOTSUP) continue; /* the build lacks it */
        assert_int_equal(rc, 0);
        assert_true(ash_input_file_at(input, 0)->is_packed);
        ash_input_close(input);
        check_lines(path, "one|two|three");
        snprintf(command, sizeof(command), "cat '%s' '%s' > '%s.twice'", path, path, path); /* two streams in a file */
        assert_int_equal(system(command), 0);
        check_lines(scratch_path("a.packed.twice"), "one|two|three|one|two|three");
        snprintf(command, sizeof(command), "head -c 20 '%s' > '%s.cut'", path, path);
        assert_int_equal(system(command), 0);
        path = scratch_path("a.packed.cut");
        rc = open_input(&path, 1, ASH_SPLIT_LINE, 1000, &input);
        if (rc == 0) {
            rc = collect(input, 1, &all);
            ash_input_close(input);
        }
        assert_int_equal(rc, -EBADMSG);
    }
}

static void test_pipe(void **state)
{
    char path[64];
    int ends[2];

    (void)state;
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(write(ends[1], "a\nb\n", 4), 4);
    close(ends[1]);
    snprintf(path, sizeof(path), "/dev/fd/%d", ends[0]);
    check_lines(path, "a|b");
    close(ends[0]);
}

/* Endings and first lines tell text from JSON lines. */
static void test_formats(void **state)
{
    static const struct {
        const char *name, *text;
        bool jsonl;
    } files[] = {
        {"a.jsonl", "x", true},
        {"a.ndjson", "x", true},
        {"a.json", "{\"id\": 1}\n{\"id\": 2}\n", true},
        {"a.txt", "{\"text\": \"a\"}\n", false},
        {"a.md", "{\"text\": \"a\"}\n", false},
        {"a", "{\"text\": \"a\"}\n", true},
        {"b", "{\"body\": \"a\"}\n", false},
        {"c", "{\n", false},
    };
    static const char *const refused[][3] = {
        {"b.json", "[\n{\"text\": 1}\n]\n", "not a JSON object per line"},
        {"c.json", "{\n \"text\": 1\n}\n", "--format text"},
        {"d.parquet", "PAR1....", "no Parquet file"},
        {"e.txt", "\xff\xfe=", "UTF-16"},
        {"f.txt", "BZh9....", "bzip2 -dc"},
    };
    struct ash_input *input = NULL;

    (void)state;
    for (size_t i = 0; i < ASH_COUNT(files); i++) {
        const char *path = scratch_path(files[i].name);

        scratch_write(files[i].name, files[i].text, strlen(files[i].text));
        assert_int_equal(open_input(&path, 1, ASH_SPLIT_LINE, 1000, &input), 0);
        if (ash_input_file_at(input, 0)->jsonl != files[i].jsonl) fail_msg("%s is taken for the other", files[i].name);
        ash_input_close(input);
        input = NULL;
    }
    for (size_t i = 0; i < ASH_COUNT(refused); i++) {
        const char *path = scratch_path(refused[i][0]);

        scratch_write(refused[i][0], refused[i][1], strlen(refused[i][1]));
        assert_int_equal(open_input(&path, 1, ASH_SPLIT_LINE, 1000, &input), -EINVAL);
        if (strstr(err.text, refused[i][2]) == NULL) fail_msg("'%s' is not in '%s'", refused[i][2], err.text);
    }
}

static void test_folders(void **state)
{
    static const char *const names[] = {"in/b.txt", "in/a.jsonl", "in/sub/c.md", "in/.hidden.txt", "in/picture.png"};
    static const char *const expected[] = {"in/a.jsonl", "in/b.txt", "in/sub/c.md"};
    const char *dir;
    struct ash_input *input = NULL;

    (void)state;
    assert_int_equal(mkdir(scratch_path("in"), 0700), 0);
    assert_int_equal(mkdir(scratch_path("in/sub"), 0700), 0);
    for (size_t i = 0; i < ASH_COUNT(names); i++)
        scratch_write(names[i], "x\n", 2);
    dir = scratch_path("in");
    assert_int_equal(open_input(&dir, 1, ASH_SPLIT_NONE, 1000, &input), 0);
    assert_int_equal(ash_input_file_count(input), ASH_COUNT(expected));
    for (size_t i = 0; i < ASH_COUNT(expected); i++)
        assert_non_null(strstr(ash_input_file_at(input, i)->path, expected[i]));
    ash_input_close(input);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cut),
        cmocka_unit_test_setup_teardown(test_places, scratch_open, scratch_close),
        cmocka_unit_test_setup_teardown(test_table, scratch_open, scratch_close),
        cmocka_unit_test_setup_teardown(test_large, scratch_open, scratch_close),
        cmocka_unit_test_setup_teardown(test_refused_files, scratch_open, scratch_close),
        cmocka_unit_test_setup_teardown(test_compressed, scratch_open, scratch_close),
        cmocka_unit_test(test_pipe),
        cmocka_unit_test_setup_teardown(test_formats, scratch_open, scratch_close),
        cmocka_unit_test_setup_teardown(test_folders, scratch_open, scratch_close),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
