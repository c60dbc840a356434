/* Reward programs: what they say, and that whatever they do is bounded, ends with them and is told in a sentence. This
 * program is its own reward program: a first word names what it does wrong. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/assert.h"
#include "base/clock.h"
#include "post/reward/program.h"
#include "unit/sanitized.h"

#define SANITIZED_BYTES ((size_t)1 << 62) /* sanitizers want address space: there is no limit for them */

/* ---- the programs ------------------------------------------------------------------------------------------------ */

static int say(const char *text)
{
    printf("%s\n", text);
    return fflush(stdout);
}

static void flood(void)
{
    char block[4096];

    memset(block, 'x', sizeof(block));
    while (write(1, block, sizeof(block)) > 0)
        continue;
}

/* 1 where something worked that must not. */
static int misbehave(const char *how)
{
    int fd;

    if (strcmp(how, "fork") == 0) return fork() >= 0;
    if (strcmp(how, "socket") == 0) return socket(AF_INET, SOCK_STREAM, 0) >= 0 || socket(AF_UNIX, SOCK_STREAM, 0) >= 0;
    if (strcmp(how, "write") == 0) {
        fd = open("/var/tmp/ashlar-reward-was-here", O_CREAT | O_WRONLY, 0600);
        return fd >= 0 || open("/etc/passwd", O_RDWR) >= 0;
    }
    if (strcmp(how, "fill") == 0) {
        char block[4096] = {0};
        size_t written = 0;

        fd = open("/tmp/mine", O_CREAT | O_WRONLY, 0600);
        while (fd >= 0 && written < (size_t)1 << 30 && write(fd, block, sizeof(block)) > 0)
            written += sizeof(block);
        return fd < 0 || written > (size_t)32 << 20; /* its own /tmp is there, and small */
    }
    if (strcmp(how, "device") == 0) return open("/dev/null", O_RDWR) < 0 || open("/dev/zero", O_RDONLY) >= 0;
    return malloc((size_t)8 << 30) != NULL;
}

static int reward(const char *how)
{
    char line[4096];

    while (fgets(line, sizeof(line), stdin) != NULL) {
        if (strcmp(how, "good") == 0) {
            if (say(strstr(line, "right") != NULL ? "1" : "{\"reward\": -0.25, \"why\": \"no\"}") != 0) return 1;
        } else if (strcmp(how, "hang") == 0) {
            for (;;)
                pause();
        } else if (strcmp(how, "flood") == 0) {
            flood();
        } else if (strcmp(how, "die") == 0) {
            fprintf(stderr, "no grammar\nno idea\n");
            _exit(3); /* at once: a sanitizer would have something to add */
        } else if (strcmp(how, "words") == 0) {
            if (say("rather good") != 0) return 1;
        } else if (strcmp(how, "nan") == 0) {
            if (say("NaN") != 0) return 1;
        } else if (strcmp(how, "twice") == 0) {
            printf("1\n2\n");
            if (fflush(stdout) != 0) return 1;
        } else if (say(misbehave(how) ? "1" : "0") != 0) {
            return 1;
        }
    }
    return 0;
}

/* ---- the tests --------------------------------------------------------------------------------------------------- */

static struct ash_program *start(const char *how, double line_s)
{
    const struct ash_program_limits limits = {.line_s = line_s, .memory_bytes = SANITIZED ? SANITIZED_BYTES : 0};
    struct ash_program *program = NULL;
    struct ash_err err = {0};
    char command[4200], path[4096];
    ssize_t size = readlink("/proc/self/exe", path, sizeof(path) - 1);

    assert_true(size > 0);
    path[size] = '\0';
    snprintf(command, sizeof(command), "%s %s", path, how);
    if (ash_program_open(command, &limits, &program, &err) == -ENOTSUP) {
        print_message("skipped: %s\n", err.text);
        skip();
    }
    if (program == NULL) fail_msg("%s", err.text);
    return program;
}

static void test_a_program_says_what_answers_are_worth(void **state)
{
    struct ash_program *program = start("good", 60);
    struct ash_err err = {0};
    double value = 0;

    (void)state;
    for (int i = 0; i < 100; i++) {
        assert_int_equal(ash_program_ask(program, "{\"answer\": \"right\"}", &value, &err), 0);
        assert_true(value > 0.99);
        assert_int_equal(ash_program_ask(program, "{\"answer\": \"other\"}", &value, &err), 0);
        assert_true(value < -0.2 && value > -0.3);
    }
    ash_program_close(program);
}

static void fails(const char *how, double line_s, int code, const char *said)
{
    struct ash_program *program = start(how, line_s);
    struct ash_err err = {0};
    double value = 0;

    assert_int_equal(ash_program_ask(program, "{}", &value, &err), code);
    if (strstr(err.text, said) == NULL) fail_msg("'%s' does not say '%s'", err.text, said);
    assert_int_equal(ash_program_ask(program, "{}", &value, &err), -EPIPE); /* dead it stays */
    ash_program_close(program);
}

static void test_what_goes_wrong_is_told(void **state)
{
    (void)state;
    fails("hang", 0.2, -ETIMEDOUT, "took too long");
    fails("flood", 60, -EFBIG, "printed too much");
    fails("die", 60, -EPIPE, "it said: no idea");
    fails("words", 60, -EBADMSG, "rather good");
    fails("nan", 60, -EBADMSG, "NaN");
    fails("twice", 60, -EBADMSG, "more than a line");
}

static void test_it_can_do_nothing_else(void **state)
{
    static const char *const deeds[] = {"fork", "socket", "write", "fill", "device", "memory"};

    (void)state;
    for (size_t i = 0; i < ASH_COUNT(deeds) - (SANITIZED ? 1 : 0); i++) {
        struct ash_program *program = start(deeds[i], 60);
        struct ash_err err = {0};
        double value = 1;

        if (ash_program_ask(program, "{}", &value, &err) < 0) fail_msg("%s: %s", deeds[i], err.text);
        if (value > 0.5) fail_msg("a reward program can %s", deeds[i]);
        ash_program_close(program);
    }
    assert_int_equal(access("/var/tmp/ashlar-reward-was-here", F_OK), -1);
}

/* A shim starts the real interpreter, which needs a process. */
static void test_a_shim(void **state)
{
    struct ash_program *program = NULL;
    struct ash_err err = {0};
    char path[] = "/var/tmp/ashlar-test-shim-XXXXXX" /* /tmp of a program is private */;
    int fd = mkstemp(path), rc;
    static const char script[] = "#!/bin/sh\nv=$(/bin/true)\nexec /bin/cat\n";
    double value;

    (void)state;
    assert_true(fd >= 0);
    assert_int_equal(write(fd, script, sizeof(script) - 1), sizeof(script) - 1);
    assert_int_equal(fchmod(fd, 0755), 0);
    close(fd);
    rc = ash_program_open(path, NULL, &program, &err);
    if (rc == 0) rc = ash_program_ask(program, "{}", &value, &err);
    ash_program_close(program);
    unlink(path);
    if (rc == -ENOTSUP) skip();
    assert_true(rc < 0);
    if (strstr(err.text, "name the interpreter itself") == NULL) fail_msg("%s", err.text);
}

static void test_a_program_that_is_not_there(void **state)
{
    struct ash_program *program = NULL;
    struct ash_err err = {0};
    int rc = ash_program_open("/nowhere/at-all", NULL, &program, &err);

    (void)state;
    if (rc == -ENOTSUP) skip();
    assert_int_equal(rc, -ENOENT);
    assert_non_null(strstr(err.text, "/nowhere/at-all"));
    assert_int_equal(ash_program_open("  ", NULL, &program, &err), -EINVAL);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_program_says_what_answers_are_worth),
        cmocka_unit_test(test_what_goes_wrong_is_told),
        cmocka_unit_test(test_it_can_do_nothing_else),
        cmocka_unit_test(test_a_shim),
        cmocka_unit_test(test_a_program_that_is_not_there),
    };

    if (argc > 1) return reward(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
