/* file: mapping, reading, replacing (on a full disk too), folders. */
#include "base/assert.h"
#include "base/file.h"

#include <stdarg.h>
#include <setjmp.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

static char folder[64];

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof(folder), "/tmp/ashlar-file-XXXXXX");
    return mkdtemp(folder) == NULL ? -1 : 0;
}

static int remove_folder(void **state)
{
    (void)state;
    return ash_dir_remove(folder, NULL);
}

static const char *path_of(const char *name)
{
    static char paths[4][PATH_MAX];
    static int next;
    char *path = paths[next++ % 4];

    assert_int_equal(ash_path_join(path, PATH_MAX, folder, name), 0);
    return path;
}

static int entry_count(const char *path)
{
    DIR *dir = opendir(path);
    int count = 0;

    assert_non_null(dir);
    for (struct dirent *entry = readdir(dir); entry != NULL; entry = readdir(dir))
        count += entry->d_name[0] != '.';
    closedir(dir);
    return count;
}

static void check_holds(const char *path, const char *expected)
{
    char *data = NULL;
    size_t size_bytes = 0;

    assert_int_equal(ash_file_read(path, 1 << 20, &data, &size_bytes, NULL), 0);
    assert_int_equal(size_bytes, strlen(expected));
    assert_string_equal(data, expected);
    free(data);
}

static void test_replace_and_read(void **state)
{
    const char *path = path_of("a.txt");
    struct stat info;
    (void)state;

    assert_int_equal(ash_file_replace(path, "one", 3, NULL), 0);
    check_holds(path, "one");
    assert_int_equal(ash_file_replace(path, "second", 6, NULL), 0);
    check_holds(path, "second");
    assert_int_equal(ash_file_replace(path, NULL, 0, NULL), 0);
    check_holds(path, "");
    assert_int_equal(entry_count(folder), 1); /* no temporary file stays */
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 0600, 0600);
}

static void test_replace_in_the_current_folder(void **state)
{
    char before[PATH_MAX];
    (void)state;

    assert_non_null(getcwd(before, sizeof(before)));
    assert_int_equal(chdir(folder), 0);
    assert_int_equal(ash_file_replace("here.txt", "x", 1, NULL), 0);
    check_holds("here.txt", "x");
    assert_int_equal(chdir(before), 0);
}

/* A size limit on files stands for a full disk: the old file survives, no temporary file stays, the sentence says
 * so. */
static void test_replace_on_a_full_disk(void **state)
{
    const char *path = path_of("full.bin");
    struct rlimit before, small;
    struct ash_err err = {0};
    char *data = calloc(1, 1 << 20);
    int entries, rc;
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    (void)state;

    assert_non_null(data);
    assert_int_equal(ash_file_replace(path, "old", 3, NULL), 0);
    entries = entry_count(folder);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = before;
    small.rlim_cur = 4096;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    rc = ash_file_replace(path, data, 1 << 20, &err);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, handler);
    free(data);
    assert_int_equal(rc, -EFBIG);
    assert_non_null(strstr(err.text, "disk full"));
    assert_non_null(strstr(err.text, path));
    check_holds(path, "old");
    assert_int_equal(entry_count(folder), entries);
}

/* A missing folder, a folder in the way, a name that is too long: refused, and nothing is left behind. */
static void test_sweep(void **state)
{
    static const char *const rubbish[] = {"a.json.tmp-12-0", "b.tmp-4000000-17"};
    static const char *const kept[] = {"a.json", "c.tmp-", "d.tmp-1", "e.tmp-1-", "f.tmp-1-2x", "g.tmp-x-2", "tmp-1-2"};
    int before = entry_count(folder);

    (void)state;
    for (size_t i = 0; i < ASH_COUNT(rubbish); i++)
        assert_int_equal(ash_file_replace(path_of(rubbish[i]), "x", 1, NULL), 0);
    for (size_t i = 0; i < ASH_COUNT(kept); i++)
        assert_int_equal(ash_file_replace(path_of(kept[i]), "x", 1, NULL), 0);
    assert_int_equal(mkdir(path_of("model.tmp-7-1"), 0777), 0); /* a folder is not its business */
    assert_int_equal(ash_file_sweep(folder, NULL), 0);
    assert_int_equal(entry_count(folder), before + (int)ASH_COUNT(kept) + 1);
    assert_int_equal(rmdir(path_of("model.tmp-7-1")), 0);
    for (size_t i = 0; i < ASH_COUNT(kept); i++)
        assert_int_equal(unlink(path_of(kept[i])), 0);
    assert_int_equal(ash_file_sweep(path_of("nowhere"), NULL), -ENOENT);
}

static void test_replace_errors(void **state)
{
    struct ash_err err = {0};
    char name[PATH_MAX + 10];
    int entries = entry_count(folder);
    (void)state;

    assert_int_equal(ash_file_replace(path_of("missing/a.txt"), "x", 1, &err), -ENOENT);
    assert_non_null(strstr(err.text, "missing/a.txt"));
    assert_int_equal(ash_dir_make(path_of("sub/inner"), NULL), 0);
    assert_int_equal(ash_file_replace(path_of("sub"), "x", 1, &err), -EISDIR);
    assert_int_equal(entry_count(folder), entries + 1);
    memset(name, 'a', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    assert_int_equal(ash_file_replace(name, "x", 1, &err), -ENAMETOOLONG);
}

static void test_read_errors(void **state)
{
    struct ash_err err = {0};
    char *data = NULL;
    size_t size_bytes = 99;
    (void)state;

    assert_int_equal(ash_file_replace(path_of("big.txt"), "0123456789", 10, NULL), 0);
    assert_int_equal(ash_file_read(path_of("big.txt"), 9, &data, &size_bytes, &err), -EFBIG);
    assert_non_null(strstr(err.text, "10 bytes"));
    assert_int_equal(ash_file_read(path_of("none.txt"), 9, &data, &size_bytes, &err), -ENOENT);
    assert_int_equal(ash_file_read(folder, 9, &data, &size_bytes, &err), -EISDIR);
    assert_non_null(strstr(err.text, "folder"));
    assert_int_equal(mkfifo(path_of("pipe"), 0600), 0);
    assert_int_equal(ash_file_read(path_of("pipe"), 9, &data, &size_bytes, &err),
                     -EINVAL); /* at once, not waiting for a writer */
    assert_null(data);
    assert_int_equal(size_bytes, 99);
}

static void test_map(void **state)
{
    struct ash_map map = {0};
    struct ash_err err = {0};
    (void)state;

    assert_int_equal(ash_file_replace(path_of("map.bin"), "weights", 7, NULL), 0);
    assert_int_equal(ash_map_open(path_of("map.bin"), &map, &err), 0);
    assert_int_equal(map.size_bytes, 7);
    assert_memory_equal(map.base, "weights", 7);
    ash_map_close(&map);
    ash_map_close(&map);
    ash_map_close(NULL);
    assert_int_equal(ash_file_replace(path_of("empty.bin"), "", 0, NULL), 0);
    assert_int_equal(ash_map_open(path_of("empty.bin"), &map, &err), 0);
    assert_null(map.base);
    assert_int_equal(map.size_bytes, 0);
    ash_map_close(&map);
    assert_int_equal(ash_map_open(path_of("none.bin"), &map, &err), -ENOENT);
    assert_non_null(strstr(err.text, "none.bin"));
    assert_int_equal(ash_map_open(folder, &map, &err), -EISDIR);
}

static void test_folders(void **state)
{
    struct ash_err err = {0};
    (void)state;

    assert_int_equal(ash_dir_make(path_of("x/y/z"), &err), 0);
    assert_int_equal(ash_dir_make(path_of("x/y/z/"), &err), 0);
    assert_int_equal(ash_dir_make(path_of("x//y"), &err), 0);
    assert_true(ash_path_exists(path_of("x/y/z")));
    assert_int_equal(ash_file_replace(path_of("x/y/file"), "1", 1, NULL), 0);
    assert_int_equal(ash_dir_make(path_of("x/y/file/w"), &err), -ENOTDIR);
    assert_int_equal(ash_dir_make("", &err), -ENOENT);
    assert_int_equal(symlink(folder, path_of("x/link")), 0);
    assert_int_equal(ash_dir_sync(path_of("x"), &err), 0);
    assert_int_equal(ash_dir_sync(path_of("none"), &err), -ENOENT);
    assert_int_equal(ash_dir_remove(path_of("x"), &err), 0);
    assert_false(ash_path_exists(path_of("x")));
    assert_true(ash_path_exists(folder)); /* a link is removed, not followed */
    assert_int_equal(ash_dir_remove(path_of("x"), &err), 0);
}

static void test_join(void **state)
{
    char buf[8];
    (void)state;

    assert_int_equal(ash_path_join(buf, sizeof(buf), "a", "b"), 0);
    assert_string_equal(buf, "a/b");
    assert_int_equal(ash_path_join(buf, sizeof(buf), "a/", "b"), 0);
    assert_string_equal(buf, "a/b");
    assert_int_equal(ash_path_join(buf, sizeof(buf), "", "b"), 0);
    assert_string_equal(buf, "b");
    assert_int_equal(ash_path_join(buf, sizeof(buf), "abc", "def"), 0);
    assert_int_equal(ash_path_join(buf, sizeof(buf), "abcd", "def"), -ENAMETOOLONG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_replace_and_read),
        cmocka_unit_test(test_replace_in_the_current_folder),
        cmocka_unit_test(test_replace_on_a_full_disk),
        cmocka_unit_test(test_sweep),
        cmocka_unit_test(test_replace_errors),
        cmocka_unit_test(test_read_errors),
        cmocka_unit_test(test_map),
        cmocka_unit_test(test_folders),
        cmocka_unit_test(test_join),
    };

    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
