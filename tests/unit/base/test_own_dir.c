/* own_dir: what a command made is removed, and nothing else. */
#include "base/own_dir.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/file.h"

static char root[] = "/tmp/ashlar-own-dir-test-XXXXXX";

static int make_root(void **state)
{
    (void)state;
    return mkdtemp(root) != NULL ? 0 : -1;
}

static int remove_root(void **state)
{
    (void)state;
    return ash_dir_remove(root, NULL);
}

static const char *below(const char *dir, const char *name)
{
    static char paths[4][512];
    static int next;
    char *path = paths[next++ % 4];

    snprintf(path, sizeof(paths[0]), "%s/%s", dir, name);
    return path;
}

static void test_a_new_folder_is_removed_and_its_parent_stays(void **state)
{
    char path[200];

    (void)state;
    assert_int_equal(ash_file_replace(below(root, "thesis.txt"), "important", 9, NULL), 0);
    assert_int_equal(ash_own_dir_new(root, "trial", path, sizeof(path), NULL, NULL), 0);
    assert_int_equal(ash_file_replace(below(path, "data"), "x", 1, NULL), 0);
    assert_int_equal(ash_own_dir_remove(path, "trial", NULL), 0);
    assert_false(ash_path_exists(path));
    assert_true(ash_path_exists(below(root, "thesis.txt")));
}

static void test_others_are_neither_removed_nor_emptied(void **state)
{
    const char *kinds[] = {"trial", "other"};
    struct ash_err err = {0};
    char path[200];

    (void)state;
    snprintf(path, sizeof(path), "%s", below(root, "mine"));
    assert_int_equal(ash_dir_make(path, NULL), 0);
    assert_int_equal(ash_file_replace(below(path, "notes"), "x", 1, NULL), 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ash_own_dir_renew(path, kinds[i], &err), -EEXIST);
        assert_int_equal(ash_own_dir_remove(path, kinds[i], &err), -EEXIST);
    }
    assert_true(ash_path_exists(below(path, "notes")));
    snprintf(path, sizeof(path), "%s", below(root, "ours"));
    assert_int_equal(ash_own_dir_renew(path, "trial", NULL), 0);
    assert_int_equal(ash_own_dir_remove(path, "other", NULL), -EEXIST);
    assert_int_equal(ash_own_dir_renew(path, "other", NULL), -EEXIST);
    assert_int_equal(ash_file_replace(below(path, "left"), "x", 1, NULL), 0);
    assert_int_equal(ash_own_dir_renew(path, "trial", NULL), 0);
    assert_false(ash_path_exists(below(path, "left")));
    assert_true(ash_own_dir_is(path, "trial"));
}

/* A folder is held by its maker and by what that has started; when all have ended it is swept. */
static void test_what_nobody_holds_is_swept(void **state)
{
    char path[200], kept[200];
    int hold = -1, words[2];
    pid_t child;

    (void)state;
    assert_int_equal(pipe(words), 0);
    assert_int_equal(ash_own_dir_new(root, "job", path, sizeof(path), &hold, NULL), 0);
    assert_int_equal(ash_own_dir_new(root, "other", kept, sizeof(kept), NULL, NULL), 0);
    ash_own_dir_sweep(root, "job");
    assert_true(ash_path_exists(path));
    child = fork();
    if (child == 0) {
        char word;

        close(words[1]);
        _exit(read(words[0], &word, 1) == 0 ? 0 : 1); /* until the pipe is closed */
    }
    close(hold);
    ash_own_dir_renew(path, "job", NULL);
    ash_own_dir_sweep(root, "job");
    assert_true(ash_path_exists(path)); /* the child holds it, too, and keeps it after it was emptied */
    close(words[1]);
    assert_int_equal(waitpid(child, NULL, 0), child);
    ash_own_dir_sweep(root, "job");
    assert_false(ash_path_exists(path));
    assert_true(ash_path_exists(kept));
    close(words[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_new_folder_is_removed_and_its_parent_stays),
        cmocka_unit_test(test_others_are_neither_removed_nor_emptied),
        cmocka_unit_test(test_what_nobody_holds_is_swept),
    };

    return cmocka_run_group_tests(tests, make_root, remove_root);
}
