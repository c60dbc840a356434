/* Saves that do not come to their end: the process is killed at every system call and at many bytes, or the disk fills
 * up. Each time a complete save must be found: the one before or the new one, never a mixture. */
#include "unit/storage/scratch.h"

#include <dirent.h>
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/assert.h"
#include "storage/commit/commit.h"
#include "storage/io/piece_writer.h"
#include "storage/safetensors/safetensors.h"

#define CALLS_MAX 2000

static const unsigned char weights[70000];

/* Is the folder written in place, or as a whole? */
static bool is_in_place;

/* The same as save, in place, as ranks do it. */
static int save_in_place(const char *name, int step, struct ash_err *err)
{
    struct ash_piece_writer_opts opts = {.wants_uring = true}; /* no thread: a kill hits one place */
    struct ash_piece_file file = {"weights", sizeof(weights)};
    struct ash_commit_sums known = {.name = file.name};
    struct ash_piece_writer *writer = NULL;
    struct ash_piece_set *set = NULL;
    struct ash_pieces pieces = {0};
    char path[PATH_MAX];
    const char *dir = scratch_path(name);
    struct ash_piece_set_opts set_opts = {dir, &file, 1, true};
    json_t *state = json_pack("{s:i}", "step", step);
    void *room;
    int rc = ash_piece_writer_open(&opts, &writer, err);

    if (rc == 0) rc = ash_commit_claim(dir, err);
    if (rc == 0) rc = ash_piece_set_open(writer, &set_opts, &set, err);
    if (rc == 0) {
        if (ash_piece_set_room(set, 0, 0, sizeof(weights), &room, err) == sizeof(weights)) {
            memcpy(room, weights, sizeof(weights));
            ash_piece_set_filled(set);
        }
        rc = ash_piece_set_close(set, &pieces, err);
    }
    if (rc == 0) rc = ash_path_join(path, sizeof(path), dir, "note");
    if (rc == 0) rc = ash_file_replace(path, "note", 4, err);
    known.pieces = &pieces;
    if (rc == 0) rc = ash_commit_seal(dir, &known, 1, state, err);
    ash_pieces_fini(&pieces);
    ash_piece_writer_close(writer);
    json_decref(state);
    return rc;
}

/* Save weights and a note as `name`, with {"step": step} as the state. */
static int save(const char *name, int step, struct ash_err *err)
{
    const struct ash_tensor_spec spec = {
        .name = "w", .dtype = ASH_U8, .dim_count = 1, .dims = {sizeof(weights)}, .data = weights};
    struct ash_commit *commit = NULL;
    char path[PATH_MAX];
    json_t *state;
    int rc;

    if (is_in_place) return save_in_place(name, step, err);
    rc = ash_commit_begin(scratch_path(name), &commit, err);
    if (rc < 0) return rc;
    rc = ash_path_join(path, sizeof(path), ash_commit_dir(commit), "model");
    if (rc == 0) rc = ash_safetensors_write_folder(path, &spec, 1, 0, NULL, NULL, err);
    if (rc == 0) rc = ash_path_join(path, sizeof(path), ash_commit_dir(commit), "note");
    if (rc == 0) rc = ash_file_replace(path, "note", 4, err);
    if (rc < 0) {
        ash_commit_abort(commit);
        return rc;
    }
    state = json_pack("{s:i}", "step", step);
    rc = ash_commit_finish(commit, state, err);
    json_decref(state);
    return rc;
}

/* The step of the newest save, whose every byte must be right. */
static int64_t newest_step(void)
{
    struct ash_commit_found found = {0};
    struct ash_err err = {0};
    int64_t step;

    if (ash_commit_latest(scratch_dir, "step-", true, &found, &err) != 0) fail_msg("%s", err.text);
    step = json_integer_value(json_object_get(json_object_get(found.manifest, "state"), "step"));
    ash_commit_found_fini(&found);
    return step;
}

static size_t count_hidden(void)
{
    DIR *entries = opendir(scratch_dir);
    size_t count = 0;

    assert_non_null(entries);
    for (struct dirent *e = readdir(entries); e != NULL; e = readdir(entries))
        count += e->d_name[0] == '.' && strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
    closedir(entries);
    return count;
}

/* From now on this process cannot exchange two names in one step, as on file systems that do not know how. */
static int forbid_exchange(void)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_renameat2, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[4])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = ASH_COUNT(filter), .filter = filter};

    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return -errno;
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0 ? -errno : 0;
}

/* A child that saves and is traced from its first system call. */
static pid_t start_traced_save(const char *name, int step, bool exchange)
{
    pid_t child = fork();

    assert_true(child >= 0);
    if (child > 0) return child;
    if (!exchange && forbid_exchange() < 0) _exit(77);
    if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0) _exit(77);
    raise(SIGSTOP);
    _exit(save(name, step, NULL) == 0 ? 0 : 1);
}

/* Let it make `calls` system calls, then kill it. Returns true when it was killed, false when it had finished
 * before. */
static bool run_and_kill(pid_t child, int calls)
{
    int status = 0;

    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) skip(); /* tracing is forbidden here */
    for (int i = 0; i < 2 * calls && WIFSTOPPED(status); i++) { /* it stops before and after each */
        assert_int_equal(ptrace(PTRACE_SYSCALL, child, NULL, NULL), 0);
        assert_int_equal(waitpid(child, &status, 0), child);
    }
    if (!WIFSTOPPED(status)) {
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
        return false;
    }
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    return true;
}

/* Save step 2 as `name` over and over, killed one system call later each time, until it gets through. */
static void kill_at_every_call(const char *name, bool exchange)
{
    int calls = 0, old_found = 0, new_found = 0, left_behind = 0;

    for (bool killed = true; killed; calls++) {
        struct ash_err err = {0};
        int64_t step;

        assert_true(calls < CALLS_MAX);
        assert_int_equal(ash_dir_remove(scratch_path("step-2"), NULL), 0);
        if (save("step-1", 1, &err) != 0) fail_msg("%s", err.text);
        killed = run_and_kill(start_traced_save(name, 2, exchange), calls);
        step = newest_step();
        assert_true(step == 1 || step == 2);
        if (step == 1) old_found++;
        if (step == 2) new_found++;
        left_behind += count_hidden() > 0 || ash_commit_is_unfinished(scratch_path("step-2"));
        assert_int_equal(ash_commit_prune(scratch_dir, "step-", 2, NULL), 0);
        assert_int_equal(newest_step(), step);
        assert_int_equal(count_hidden(), 0);
        if (!killed) assert_int_equal(step, 2);
    }
    print_message("killed at %d places: %d times the old save, %d times the new one, %d times something to tidy up\n",
                  calls - 1, old_found, new_found, left_behind);
    assert_true(old_found > 30);
    assert_true(new_found > 1);
    assert_true(left_behind > 30);
}

static void test_killed_while_writing_in_place(void **state)
{
    (void)state;
    is_in_place = true;
    kill_at_every_call("step-2", true);
    is_in_place = false;
}

static void test_killed_while_adding(void **state)
{
    (void)state;
    kill_at_every_call("step-2", true);
}

static void test_killed_while_replacing(void **state)
{
    (void)state;
    kill_at_every_call("step-1", true);
}

static void test_killed_while_replacing_in_two_steps(void **state)
{
    (void)state;
    kill_at_every_call("step-1", false);
}

/* A child that saves step 2 with files limited to `bytes`: killed by the signal, or told by an error when that is
 * ignored. */
static int run_limited_save(rlim_t bytes, bool killed)
{
    pid_t child = fork();
    int status = 0;

    assert_true(child >= 0);
    if (child == 0) {
        const struct rlimit no_core = {0}, limit = {.rlim_cur = bytes, .rlim_max = bytes};
        struct ash_err err = {0};
        int rc;

        signal(SIGXFSZ, killed ? SIG_DFL : SIG_IGN);
        if (setrlimit(RLIMIT_CORE, &no_core) != 0 || setrlimit(RLIMIT_FSIZE, &limit) != 0) _exit(2);
        rc = save("step-2", 2, &err);
        if (rc == 0) _exit(0);
        _exit(rc == -EFBIG && err.text[0] != '\0' && count_hidden() == 0 ? 1 : 2);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

static void test_killed_after_so_many_bytes(void **state)
{
    int through = 0, cut = 0;

    (void)state;
    assert_int_equal(save("step-1", 1, NULL), 0);
    for (rlim_t bytes = 1; through == 0; bytes += bytes < 1000 ? 37 : 7001) {
        int status = run_limited_save(bytes, true);
        if (WIFEXITED(status)) assert_int_equal(WEXITSTATUS(status), 0);
        if (WIFEXITED(status))
            through++;
        else
            cut++;
        assert_int_equal(newest_step(), WIFEXITED(status) ? 2 : 1);
        assert_int_equal(ash_commit_prune(scratch_dir, "step-", 2, NULL), 0);
        assert_int_equal(count_hidden(), 0);
    }
    assert_true(cut > 20);
}

static void test_full_disk_by_file_limit(void **state)
{
    int refused = 0;

    (void)state;
    assert_int_equal(save("step-1", 1, NULL), 0);
    for (rlim_t bytes = 0;; bytes += bytes < 1000 ? 37 : 7001) {
        int status = run_limited_save(bytes, false);
        assert_true(WIFEXITED(status));
        assert_int_not_equal(WEXITSTATUS(status), 2);
        assert_int_equal(newest_step(), WEXITSTATUS(status) == 0 ? 2 : 1);
        assert_int_equal(count_hidden(), 0);
        if (WEXITSTATUS(status) == 0) break;
        refused++;
    }
    assert_true(refused > 20);
}

/* Fill a small file system of its own, save by save, in a child that alone sees the mount. Exit 77: not allowed to
 * mount. */
static void fill_small_disk(void)
{
    struct ash_err err = {0};
    int rc = 0, step = 0;

    if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0) _exit(77);
    if (mount("tmpfs", scratch_dir, "tmpfs", 0, "size=512k") != 0) _exit(77);
    while (rc == 0 && step < 20) {
        char name[32];
        snprintf(name, sizeof(name), "step-%d", ++step);
        rc = save(name, step, &err);
    }
    if (rc != -ENOSPC || strstr(err.text, "full") == NULL) _exit(3);
    if (newest_step() != step - 1 || count_hidden() != 0) _exit(4);
    if (ash_commit_prune(scratch_dir, "step-", 1, NULL) != 0 || newest_step() != step - 1) _exit(5);
    if (save("step-1000", 1000, NULL) != 0 || newest_step() != 1000) _exit(6);
    _exit(0);
}

static void test_full_disk(void **state)
{
    pid_t child = fork();
    int status = 0;

    (void)state;
    assert_true(child >= 0);
    if (child == 0) fill_small_disk();
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77) skip();
    assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_killed_while_writing_in_place, scratch_open, scratch_close),
        cmocka_unit_test_setup_teardown(test_killed_while_adding, scratch_open, scratch_close),
        cmocka_unit_test_setup_teardown(test_killed_while_replacing, scratch_open, scratch_close),
        cmocka_unit_test_setup_teardown(test_killed_while_replacing_in_two_steps, scratch_open, scratch_close),
        cmocka_unit_test_setup_teardown(test_killed_after_so_many_bytes, scratch_open, scratch_close),
        cmocka_unit_test_setup_teardown(test_full_disk_by_file_limit, scratch_open, scratch_close),
        cmocka_unit_test_setup_teardown(test_full_disk, scratch_open, scratch_close),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
