/* Committed folders: what finish leaves, what verify sees, which one latest finds and which ones prune takes. */
#include "unit/storage/scratch.h"

#include <dirent.h>
#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/hash.h"
#include "storage/commit/commit.h"

static void put_file(const struct ash_commit *commit, const char *name, const char *text)
{
    char path[PATH_MAX];

    assert_int_equal(ash_path_join(path, sizeof(path), ash_commit_dir(commit), name), 0);
    assert_int_equal(ash_file_replace(path, text, strlen(text), NULL), 0);
}

/* Commit a folder with three files, one of them in a folder and one empty, and {"step": number} as its state. */
static void save(const char *name, int number)
{
    struct ash_commit *commit = NULL;
    json_t *state = json_pack("{s:i}", "step", number);
    struct ash_err err = {0};
    char path[PATH_MAX];

    assert_int_equal(ash_commit_begin(scratch_path(name), &commit, &err), 0);
    put_file(commit, "weights", "some weights");
    put_file(commit, "empty", "");
    assert_int_equal(ash_path_join(path, sizeof(path), ash_commit_dir(commit), "model"), 0);
    assert_int_equal(ash_dir_make(path, NULL), 0);
    put_file(commit, "model/config", "some text");
    if (ash_commit_finish(commit, state, &err) != 0) fail_msg("%s", err.text);
    json_decref(state);
}

static size_t count_entries(void)
{
    DIR *entries = opendir(scratch_dir);
    size_t count = 0;

    assert_non_null(entries);
    for (struct dirent *e = readdir(entries); e != NULL; e = readdir(entries))
        count += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
    closedir(entries);
    return count;
}

static int64_t step_of(const json_t *manifest)
{
    return json_integer_value(json_object_get(json_object_get(manifest, "state"), "step"));
}

static void test_save_and_verify(void **state)
{
    static const struct {
        const char *name, *text;
    } files[] = {{"empty", ""}, {"model/config", "some text"}, {"weights", "some weights"}};
    json_t *manifest = NULL, *list;
    struct ash_err err = {0};

    (void)state;
    save("a", 7);
    assert_int_equal(count_entries(), 1);
    assert_int_equal(ash_commit_verify(scratch_path("a"), true, &manifest, &err), 0);
    assert_int_equal(step_of(manifest), 7);
    list = json_object_get(manifest, "files");
    assert_int_equal(json_array_size(list), ASH_COUNT(files));
    for (size_t i = 0; i < ASH_COUNT(files); i++) {
        const json_t *entry = json_array_get(list, i);
        char hex[17];
        uint32_t words[8] = {0};
        memcpy(words, files[i].text, strlen(files[i].text));
        snprintf(hex, sizeof(hex), "%016llx",
                 (unsigned long long)ash_hash_words(words, (strlen(files[i].text) + 3) / 4, 0, 0));
        assert_string_equal(json_string_value(json_object_get(entry, "name")), files[i].name);
        assert_int_equal(json_integer_value(json_object_get(entry, "size")), strlen(files[i].text));
        assert_int_equal(json_array_size(json_object_get(entry, "pieces")), files[i].text[0] != '\0');
        if (files[i].text[0] != '\0')
            assert_string_equal(json_string_value(json_array_get(json_object_get(entry, "pieces"), 0)), hex);
    }
    json_decref(manifest);
    assert_int_equal(ash_commit_verify(scratch_path("a"), false, NULL, NULL), 0);
}

static void test_save_over_an_older_one(void **state)
{
    json_t *manifest = NULL;

    (void)state;
    for (int step = 1; step <= 3; step++) {
        save(step == 2 ? "deep/er/a//" : "deep/er/a", step);
        assert_int_equal(ash_commit_verify(scratch_path("deep/er/a"), true, &manifest, NULL), 0);
        assert_int_equal(step_of(manifest), step);
        json_decref(manifest);
    }
    snprintf(scratch_dir + strlen(scratch_dir), sizeof(scratch_dir) - strlen(scratch_dir), "/deep/er");
    assert_int_equal(count_entries(), 1);
    *strstr(scratch_dir, "/deep/er") = '\0';
}

static void test_abort_leaves_nothing(void **state)
{
    struct ash_commit *commit = NULL;

    (void)state;
    save("a", 1);
    assert_int_equal(ash_commit_begin(scratch_path("a"), &commit, NULL), 0);
    put_file(commit, "weights", "half of");
    ash_commit_abort(commit);
    ash_commit_abort(NULL);
    assert_int_equal(count_entries(), 1);
    assert_int_equal(ash_commit_verify(scratch_path("a"), true, NULL, NULL), 0);
}

/* A save that cannot be finished says why, leaves no trace, and the older one stays. */
static void expect_unfinished(struct ash_commit *commit, json_t *state, int code, const char *words)
{
    struct ash_err err = {0};

    assert_int_equal(ash_commit_finish(commit, state, &err), code);
    if (strstr(err.text, words) == NULL) fail_msg("wanted '%s', got '%s'", words, err.text);
    assert_int_equal(count_entries(), 1);
    assert_int_equal(ash_commit_verify(scratch_path("a"), true, NULL, NULL), 0);
}

static void test_refused_saves(void **state)
{
    struct ash_commit *commit = NULL;
    struct ash_err err = {0};
    json_t *list = json_array();
    char path[PATH_MAX];

    (void)state;
    save("a", 1);
    assert_int_equal(ash_commit_begin(scratch_path("a"), &commit, NULL), 0);
    put_file(commit, ASH_COMMIT_MANIFEST, "{}");
    expect_unfinished(commit, NULL, -EEXIST, "is kept for the list");
    assert_int_equal(ash_commit_begin(scratch_path("a"), &commit, NULL), 0);
    expect_unfinished(commit, list, -EINVAL, "not an object");
    json_decref(list);
    assert_int_equal(ash_commit_begin(scratch_path("a"), &commit, NULL), 0);
    assert_int_equal(ash_path_join(path, sizeof(path), ash_commit_dir(commit), "link"), 0);
    assert_int_equal(symlink("/etc/passwd", path), 0);
    expect_unfinished(commit, NULL, -EINVAL, "only files and folders");
    assert_int_equal(ash_commit_begin(scratch_path("a"), &commit, NULL), 0);
    assert_int_equal(ash_path_join(path, sizeof(path), ash_commit_dir(commit), "1/2/3/4/5/6/7/8/9"), 0);
    assert_int_equal(ash_dir_make(path, NULL), 0);
    expect_unfinished(commit, NULL, -ELOOP, "deep");

    assert_int_equal(ash_commit_begin("/", &commit, &err), -EINVAL);
    assert_int_equal(ash_commit_begin("..", &commit, &err), -EINVAL);
    assert_int_equal(ash_commit_begin(scratch_path("a/weights/b"), &commit, &err), -ENOTDIR);
}

static void test_a_file_in_the_way(void **state)
{
    struct ash_commit *commit = NULL;
    struct ash_err err = {0};
    size_t size = 0;
    char *text = NULL;

    (void)state;
    scratch_write("a", "mine", 4);
    assert_int_equal(ash_commit_begin(scratch_path("a"), &commit, &err), 0);
    assert_int_equal(ash_commit_finish(commit, NULL, &err), -ENOTDIR);
    assert_int_equal(ash_file_read(scratch_path("a"), 10, &text, &size, NULL), 0);
    assert_string_equal(text, "mine");
    free(text);
    assert_int_equal(count_entries(), 1);
}

/* Replace a file's content without a temporary file, as damage does. */
static void overwrite(const char *name, const char *data, size_t size)
{
    FILE *file = fopen(scratch_path(name), "wb");

    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

/* Every bit of every file, the manifest too: a flip is found. So are a lost byte and one too many, without deep as
 * well. */
static void test_damage_anywhere_is_found(void **state)
{
    static const char *const names[] = {"a/weights", "a/model/config", "a/manifest.json"};

    (void)state;
    save("a", 1);
    for (size_t f = 0; f < ASH_COUNT(names); f++) {
        size_t size = 0;
        char *data = NULL;
        struct ash_err err = {0};

        assert_int_equal(ash_file_read(scratch_path(names[f]), 1 << 20, &data, &size, NULL), 0);
        for (size_t at = 0; at < size; at++) {
            data[at] ^= (char)(1 << at % 8);
            overwrite(names[f], data, size);
            if (ash_commit_verify(scratch_path("a"), true, NULL, &err) != -EBADMSG)
                fail_msg("%s byte %zu", names[f], at);
            assert_non_null(strstr(err.text, names[f]));
            data[at] ^= (char)(1 << at % 8);
        }
        for (size_t shorter = 0; shorter < size; shorter++) {
            overwrite(names[f], data, shorter);
            assert_int_equal(ash_commit_verify(scratch_path("a"), false, NULL, NULL), -EBADMSG);
        }
        overwrite(names[f], data, size + 1); /* and its NUL */
        assert_int_equal(ash_commit_verify(scratch_path("a"), false, NULL, NULL), -EBADMSG);
        overwrite(names[f], data, size);
        assert_int_equal(ash_commit_verify(scratch_path("a"), true, NULL, NULL), 0);
        free(data);
    }
}

static void test_missing_files_are_found(void **state)
{
    struct ash_err err = {0};

    (void)state;
    save("a", 1);
    scratch_write("a/unlisted", "note", 4);
    assert_int_equal(ash_commit_verify(scratch_path("a"), true, NULL, NULL), 0);
    assert_int_equal(unlink(scratch_path("a/empty")), 0);
    assert_int_equal(ash_commit_verify(scratch_path("a"), false, NULL, &err), -EBADMSG);
    assert_non_null(strstr(err.text, "a/empty: this file is missing"));
    assert_int_equal(ash_dir_make(scratch_path("a/empty"), NULL), 0);
    assert_int_equal(ash_commit_verify(scratch_path("a"), false, NULL, &err), -EBADMSG);
    assert_int_equal(unlink(scratch_path("a/" ASH_COMMIT_MANIFEST)), 0);
    assert_int_equal(ash_commit_verify(scratch_path("a"), false, NULL, &err), -ENOENT);
    assert_non_null(strstr(err.text, "not finished"));
    assert_int_equal(ash_commit_verify(scratch_path("nothing"), false, NULL, &err), -ENOENT);
}

/* Manifests whose checksum is right but whose content is not (forged ones). */
static void test_manifests_that_make_no_sense(void **state)
{
    static const char *const heads[] = {
        "[\n",
        "{\n",
        "{\"version\": 3, \"files\": [], \"state\": {},\n",
        "{\"version\": 1, \"files\": {}, \"state\": {},\n",
        "{\"version\": 1, \"files\": [], \"state\": 3,\n",
        "{\"version\": 1, \"files\": [3], \"state\": {},\n",
        "{\"version\": 1, \"files\": [{\"name\": \"../a/weights\", \"size\": 12, \"xxh3\": \"\"}], \"state\": {},\n",
        "{\"version\": 1, \"files\": [{\"name\": \"/etc/passwd\", \"size\": 12, \"xxh3\": \"\"}], \"state\": {},\n",
        "{\"version\": 1, \"files\": [{\"name\": \"\", \"size\": 12, \"xxh3\": \"\"}], \"state\": {},\n",
        "{\"version\": 1, \"files\": [{\"name\": \"weights\", \"size\": -1, \"xxh3\": \"\"}], \"state\": {},\n",
        "{\"version\": 1, \"files\": [{\"name\": \"weights\", \"size\": 12}], \"state\": {},\n",
        "{\"version\": 2, \"files\": [{\"name\": \"weights\", \"size\": 12, \"pieces\": []}], \"state\": {},\n",
        "{\"version\": 2, \"files\": [{\"name\": \"weights\", \"size\": 12, \"pieces\": [3]}], \"state\": {},\n",
        "{\"version\": 2, \"files\": [{\"name\": \"weights\", \"size\": 12, \"pieces\": [\"x\"]}], \"state\": {},\n",
        "{\"version\": 2, \"files\": [{\"name\": \"w\", \"size\": 4, \"pieces\": [\"0123456789abcdeg\"]}], \"state\": {},\n",
    };
    char text[512], zeros[512];

    (void)state;
    save("a", 1);
    for (size_t i = 0; i < ASH_COUNT(heads); i++) {
        static const char tail[] = "  \"manifest_xxh3\": \"%016llx\"\n}\n";
        struct ash_err err = {0};
        int head = snprintf(zeros, sizeof(zeros), "%s", heads[i]);
        int size = head + snprintf(zeros + head, sizeof(zeros) - (size_t)head, tail, 0ull);
        snprintf(text, sizeof(text), "%s", heads[i]);
        snprintf(text + head, sizeof(text) - (size_t)head, tail,
                 (unsigned long long)ash_hash_bytes(zeros, (size_t)size, 0));
        overwrite("a/" ASH_COMMIT_MANIFEST, text, (size_t)size);
        if (ash_commit_verify(scratch_path("a"), true, NULL, &err) != (i == 1 || i == 2 ? -ENOTSUP : -EBADMSG))
            fail_msg("%s: %s", heads[i], err.text);
    }
}

static void test_latest(void **state)
{
    struct ash_commit_found found = {0};
    struct ash_err err = {0};

    (void)state;
    assert_int_equal(ash_commit_latest(scratch_path("nothing"), "step-", true, &found, &err), -ENOENT);
    assert_int_equal(ash_commit_latest(scratch_dir, "step-", true, &found, &err), -ENOENT);
    save("step-000009", 9);
    save("step-000010", 10);
    save("step-000100", 100);
    save("step-1000x", 1000);
    save("other-000200", 200);
    scratch_write("step-000300", "a file", 6);
    assert_int_equal(ash_dir_make(scratch_path("step-000400"), NULL), 0);

    assert_int_equal(ash_commit_latest(scratch_dir, "step-", true, &found, &err), 0);
    assert_int_equal(found.number, 100);
    assert_string_equal(found.path, scratch_path("step-000100"));
    assert_int_equal(step_of(found.manifest), 100);
    assert_non_null(strstr(found.skipped, "step-000400: it has no manifest.json"));
    assert_non_null(strstr(found.skipped, "\n"));
    ash_commit_found_fini(&found);
    ash_commit_found_fini(&found);

    overwrite("step-000100/weights", "SOME WEIGHTS", 12);
    assert_int_equal(ash_commit_latest(scratch_dir, "step-", false, &found, &err), 0);
    assert_int_equal(found.number, 100); /* the right size: only deep sees it */
    ash_commit_found_fini(&found);
    assert_int_equal(ash_commit_latest(scratch_dir, "step-", true, &found, &err), 0);
    assert_int_equal(found.number, 10);
    assert_non_null(strstr(found.skipped, "step-000100/weights: it is damaged"));
    ash_commit_found_fini(&found);

    overwrite("step-000010/weights", "", 0);
    overwrite("step-000009/weights", "", 0);
    assert_int_equal(ash_commit_latest(scratch_dir, "step-", true, &found, &err), -ENOENT);
    assert_null(found.path);
    assert_non_null(strstr(err.text, "the newest is no good: "));
}

/* A process killed between the two renames of a replacement: the folder aside is found, and put back by the next who
 * writes. */
static void test_a_save_aside_is_found_and_put_back(void **state)
{
    struct ash_commit_found found = {0};
    struct ash_commit *commit = NULL;

    (void)state;
    for (int put_back_by_prune = 0; put_back_by_prune < 2; put_back_by_prune++) {
        save("step-5", 5);
        assert_int_equal(rename(scratch_path("step-5"), scratch_path(".step-5.old")), 0);
        assert_int_equal(ash_commit_latest(scratch_dir, "step-", true, &found, NULL), 0);
        assert_int_equal(found.number, 5);
        ash_commit_found_fini(&found);
        if (put_back_by_prune) {
            assert_int_equal(ash_commit_prune(scratch_dir, "step-", 1, NULL), 0);
        } else {
            assert_int_equal(ash_commit_begin(scratch_path("step-5"), &commit, NULL), 0);
            ash_commit_abort(commit);
        }
        assert_int_equal(ash_commit_verify(scratch_path("step-5"), true, NULL, NULL), 0);
        assert_int_equal(count_entries(), 1);
    }
    assert_int_equal(ash_dir_make(scratch_path("aside"), NULL), 0);
    save("aside/step-5", 4);
    assert_int_equal(rename(scratch_path("aside/step-5"), scratch_path(".step-5.old")), 0);
    assert_int_equal(ash_commit_prune(scratch_dir, "step-", 1, NULL), 0);
    assert_false(ash_path_exists(scratch_path(".step-5.old")));
    assert_int_equal(ash_commit_latest(scratch_dir, "step-", true, &found, NULL), 0);
    assert_int_equal(step_of(found.manifest), 5);
    ash_commit_found_fini(&found);
}

static void test_prune(void **state)
{
    struct ash_err err = {0};
    char name[32];

    (void)state;
    assert_int_equal(ash_commit_prune(scratch_path("nothing"), "step-", 1, &err), 0);
    assert_int_equal(ash_commit_prune(scratch_dir, "step-", 0, &err), -EINVAL);
    for (int i = 1; i <= 6; i++) {
        snprintf(name, sizeof(name), "step-%06d", i);
        save(name, i);
    }
    overwrite("step-000006/weights", "", 0);
    overwrite("step-000001/weights", "", 0);
    assert_int_equal(ash_dir_make(scratch_path("step-000007/mine"), NULL), 0);
    assert_int_equal(ash_commit_claim(scratch_path("step-000008"), NULL), 0); /* and killed */
    assert_int_equal(ash_dir_make(scratch_path("step-000009"), NULL), 0);     /* even earlier */
    assert_int_equal(ash_commit_prune_complete(scratch_dir, "step-", 4, 2, &err), 0);
    assert_true(ash_path_exists(scratch_path("step-000002"))); /* one of four: complete are 2 to 5 */
    assert_int_equal(ash_commit_prune_complete(scratch_dir, "step-", 3, 2, &err), 0);
    assert_true(ash_path_exists(scratch_path("step-000002"))); /* pinned */
    assert_true(ash_path_exists(scratch_path("step-000008"))); /* it may be written now */
    assert_int_equal(ash_dir_make(scratch_path(".step-000008.tmp-123-4/model"), NULL), 0);
    assert_int_equal(ash_dir_make(scratch_path(".step-000002.trash"), NULL), 0);
    assert_int_equal(ash_dir_make(scratch_path(".step-mine.old"), NULL), 0);
    assert_int_equal(ash_dir_make(scratch_path(".step-mine.tmp-x"), NULL), 0);
    save("other-1", 1);

    assert_int_equal(ash_commit_prune(scratch_dir, "step-", 2, &err), 0);
    assert_int_equal(ash_commit_verify(scratch_path("step-000005"), true, NULL, NULL), 0);
    assert_int_equal(ash_commit_verify(scratch_path("step-000004"), true, NULL, NULL), 0);
    assert_true(ash_path_exists(scratch_path("step-000007")));      /* not ours to judge */
    assert_true(ash_path_exists(scratch_path(".step-mine.old")));   /* not a save */
    assert_true(ash_path_exists(scratch_path(".step-mine.tmp-x"))); /* not a name of ours */
    assert_true(ash_path_exists(scratch_path("other-1")));
    assert_int_equal(count_entries(), 6);

    overwrite("step-000005/weights", "", 0);
    overwrite("step-000004/weights", "", 0);
    assert_int_equal(ash_commit_prune(scratch_dir, "step-", 1, &err), 0);
    assert_int_equal(count_entries(), 6); /* damaged, but there is nothing better */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_save_and_verify, scratch_open, scratch_close),
        cmocka_unit_test_setup_teardown(test_save_over_an_older_one, scratch_open, scratch_close),
        cmocka_unit_test_setup_teardown(test_abort_leaves_nothing, scratch_open, scratch_close),
        cmocka_unit_test_setup_teardown(test_refused_saves, scratch_open, scratch_close),
        cmocka_unit_test_setup_teardown(test_a_file_in_the_way, scratch_open, scratch_close),
        cmocka_unit_test_setup_teardown(test_damage_anywhere_is_found, scratch_open, scratch_close),
        cmocka_unit_test_setup_teardown(test_missing_files_are_found, scratch_open, scratch_close),
        cmocka_unit_test_setup_teardown(test_manifests_that_make_no_sense, scratch_open, scratch_close),
        cmocka_unit_test_setup_teardown(test_latest, scratch_open, scratch_close),
        cmocka_unit_test_setup_teardown(test_a_save_aside_is_found_and_put_back, scratch_open, scratch_close),
        cmocka_unit_test_setup_teardown(test_prune, scratch_open, scratch_close),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
