/* apart: its memory is closed to the host, open to ops and copies, and every op's time is measured where it is asked
 * for. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/json.h"
#include "compute/ops.h"
#include "compute/profile/profile.h"

#define COUNT 1000

static void open_exec(struct ash_exec *exec, const char *backend)
{
    struct ash_err err = {0};

    if (ash_exec_init(exec, backend, 2, &err) < 0) fail_msg("%s", err.text);
}

/* The signal that a read of *x by the host ends with; 0: none. */
static int signal_of_read(const volatile float *x)
{
    int status = 0;
    pid_t pid = fork();

    if (pid == 0) {
        signal(SIGSEGV, SIG_DFL);
        signal(SIGBUS, SIG_DFL);
        _exit(*x == 5.0f ? 1 : 0);
    }
    assert_true(pid > 0 && waitpid(pid, &status, 0) == pid);
    return WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status) == 0 ? 0 : -1;
}

static void test_closed(void **state)
{
    struct ash_exec exec;
    float host[COUNT], *x;

    (void)state;
    open_exec(&exec, "apart");
    x = exec.memory->alloc(sizeof(host));
    assert_non_null(x);
    for (size_t i = 0; i < COUNT; i++)
        host[i] = (float)i;
    assert_int_equal(exec.memory->copy(x, host, sizeof(host)), 0);
    assert_int_not_equal(signal_of_read(x), 0);
    exec.ops->row->scale(&exec, x, 2.0f, COUNT);
    assert_int_not_equal(signal_of_read(x), 0);
    assert_int_equal(exec.memory->copy(host, x, sizeof(host)), 0);
    for (size_t i = 0; i < COUNT; i++)
        assert_true(host[i] == 2.0f * (float)i);
    exec.memory->free(x, sizeof(host));
    x = exec.memory->alloc(sizeof(host)); /* the same place, and zeros again */
    assert_int_equal(exec.memory->copy(host, x, sizeof(host)), 0);
    for (size_t i = 0; i < COUNT; i++)
        assert_true(host[i] == 0.0f);
    exec.memory->free(x, sizeof(host));
    ash_exec_fini(&exec);
}

/* Two ops, one of them twice: the table and the trace have them all, and the exec computes as before. */
static void test_profile(void **state)
{
    char path[] = "/tmp/ashlar-profile-XXXXXX", text[4096] = {0};
    struct ash_exec exec;
    struct ash_profile *profile = NULL;
    const struct ash_ops *ops;
    struct ash_err err = {0};
    float x[COUNT] = {1.0f};
    json_t *json = NULL;
    FILE *screen = tmpfile();
    int fd = mkstemp(path);

    (void)state;
    assert_true(fd >= 0 && screen != NULL);
    close(fd);
    open_exec(&exec, "ref");
    ops = exec.ops;
    assert_int_equal(ash_profile_start(&exec, &profile, &err), 0);
    assert_string_equal(exec.ops->name, "ref");
    exec.ops->row->scale(&exec, x, 2.0f, COUNT);
    exec.ops->row->scale(&exec, x, 2.0f, COUNT);
    exec.ops->row->add(&exec, x, x, COUNT, x);
    assert_true(x[0] == 8.0f);
    assert_int_equal(ash_profile_finish(profile, path, screen, &err), 0);
    assert_ptr_equal(exec.ops, ops);
    rewind(screen);
    assert_true(fread(text, 1, sizeof(text) - 1, screen) > 0);
    assert_non_null(strstr(text, "row.scale"));
    assert_non_null(strstr(text, "row.add"));
    assert_int_equal(ash_json_load(path, &json, &err), 0);
    assert_int_equal(json_array_size(json_object_get(json, "traceEvents")), 3);
    json_decref(json);
    assert_int_equal(ash_profile_start(&exec, &profile, &err), 0);
    assert_true(ash_profile_finish(profile, "/nonexistent/trace.json", NULL, &err) < 0);
    assert_non_null(strstr(err.text, "/nonexistent/trace.json"));
    unlink(path);
    fclose(screen);
    ash_exec_fini(&exec);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_closed),
        cmocka_unit_test(test_profile),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
