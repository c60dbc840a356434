/* SIGTERM and SIGINT end waits for ranks that do not come: after a grace, or at once when they come twice. Ranks that
 * do come are waited for, so that a step can be finished. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>

#include "base/interrupt.h"
#include "collective/channel.h"
#include "harness/group_ranks.h"

#define GRACE_S 0.5
#define LIMIT_S 30.0 /* far more than the rest takes, far less than other limits */

enum wait_kind { ALL_REDUCE, LARGE, RECEIVE, CHANNEL, WINDOW };

/* One rank waits, the other does not come, or comes late_s after the signal. */
struct visit {
    enum wait_kind kind;
    double late_s;    /* negative: never */
    bool taken_up;    /* the job ends in good order: no grace counts */
    bool is_repeated; /* the first rank gets the signal until its call has ended */
    double grace_s;
};

static int make_call(struct ash_group *group, enum wait_kind kind, struct ash_err *err)
{
    static float data[1000000];
    struct ash_channel *channel = NULL;
    struct ash_window *window = NULL;
    size_t rank = ash_group_rank(group);
    int rc;

    switch (kind) {
    case ALL_REDUCE:
        return ash_group_all_reduce(group, data, data, 1, ASH_COLL_F32, ASH_COLL_SUM, err);
    case LARGE:
        return ash_group_all_reduce(group, data, data, 1000000, ASH_COLL_F32, ASH_COLL_SUM, err);
    case RECEIVE:
        return rank == 0 ? ash_group_recv(group, 1, data, 8, err) : ash_group_send(group, 0, data, 8, err);
    case CHANNEL:
        rc = ash_channel_open(group, 1, 0, 4096, 2, &channel, err);
        if (rc == 0) rc = rank == 0 ? ash_channel_recv(channel, data, 8, err) : ash_channel_send(channel, data, 8, err);
        ash_channel_close(channel);
        return rc;
    default:
        rc = ash_group_window_open(group, 4096, &window, err);
        if (rc == 0) rc = ash_group_window_wait(group, window, 1 - rank, 0, 1, err);
        return rc;
    }
}

static int visit_rank(struct ash_group *group, struct shared *shared, const void *arg)
{
    const struct visit *visit = arg;
    size_t rank = ash_group_rank(group);
    struct ash_err err = {0};
    int rc;

    ash_interrupt_install();
    if (ash_group_barrier(group, NULL) < 0) return 1;
    if (visit->taken_up) ash_interrupt_take_up();
    if (visit->kind == WINDOW && rank == 1) { /* it opens the window and says nothing */
        struct ash_window *window = NULL;

        if (ash_group_window_open(group, 4096, &window, NULL) < 0) return 2;
    }
    atomic_fetch_add(&shared->calls[rank], 1);
    if (rank == 1) { /* until it is told to come, or the other has ended */
        while (atomic_load(&shared->calls[2]) == 0)
            usleep(1000);
        if (visit->late_s < 0) return 0;
    }
    rc = make_call(group, visit->kind, &err);
    atomic_store(&shared->noticed_ns[rank], ash_clock_ns());
    memcpy(shared->text[rank], err.text, sizeof(err.text));
    atomic_store(&shared->code[rank], rc);
    if (rank == 0 && rc < 0) atomic_store(&shared->calls[2], 1);
    return 0;
}

/* What the first rank got from its call; seconds_out: how long after the first signal. */
static int run_visit(const struct visit *visit, const char *nodes, double *seconds_out, char *text_out)
{
    struct job job = {.size = 2,
                      .silent_s = 120,
                      .call_s = 120,
                      .stop_grace_s = visit->grace_s,
                      .run = visit_rank,
                      .arg = visit,
                      .nodes = nodes};
    struct shared *shared = start(&job);
    uint64_t hit_ns;
    int code;

    while (atomic_load(&shared->calls[0]) == 0 || atomic_load(&shared->calls[1]) == 0)
        usleep(1000);
    usleep(50000); /* into the wait */
    hit_ns = ash_clock_ns();
    kill(shared->pids[0], SIGTERM);
    while (visit->is_repeated && atomic_load(&shared->code[0]) == 0 &&
           (double)(ash_clock_ns() - hit_ns) * 1e-9 < LIMIT_S) { /* two within half a second count as one */
        usleep(100000);
        kill(shared->pids[0], SIGTERM);
    }
    if (visit->late_s >= 0) {
        usleep((unsigned)(visit->late_s * 1e6));
        atomic_store(&shared->calls[2], 1);
    }
    assert_int_equal(finish(&job, shared, SIZE_MAX), 0);
    *seconds_out = (double)(shared->noticed_ns[0] - hit_ns) * 1e-9;
    memcpy(text_out, shared->text[0], ASH_ERR_TEXT_BYTES);
    code = shared->code[0];
    end(shared);
    return code;
}

static void wait_in_vain(const char *nodes, size_t kinds)
{
    for (enum wait_kind kind = ALL_REDUCE; kind < kinds; kind++) {
        struct visit visit = {.kind = kind, .late_s = -1, .grace_s = GRACE_S};
        char text[ASH_ERR_TEXT_BYTES];
        double seconds;

        assert_int_equal(run_visit(&visit, nodes, &seconds, text), -EINTR);
        if (strstr(text, "rank 1") == NULL || strstr(text, "was told to stop") == NULL) fail_msg("it says: %s", text);
        assert_true(seconds > GRACE_S && seconds < GRACE_S + LIMIT_S);
    }
}

static void test_grace(void **state)
{
    (void)state;
    wait_in_vain(NULL, WINDOW + 1);
}

static void test_grace_across(void **state)
{
    (void)state;
    if (!has_network()) skip();
    wait_in_vain("ab", WINDOW);
}

static void test_late(void **state)
{
    struct visit visit = {.late_s = 0.3, .grace_s = 30};
    char text[ASH_ERR_TEXT_BYTES];
    double seconds;

    (void)state;
    for (visit.kind = ALL_REDUCE; visit.kind < WINDOW; visit.kind++)
        assert_int_equal(run_visit(&visit, NULL, &seconds, text), 0);
    visit = (struct visit){.late_s = 1.5, .taken_up = true}; /* a save may take its time */
    assert_int_equal(run_visit(&visit, NULL, &seconds, text), 0);
}

static void test_twice(void **state)
{
    struct visit visit = {.late_s = -1, .is_repeated = true, .grace_s = 1000};
    char text[ASH_ERR_TEXT_BYTES];
    double seconds;

    (void)state;
    for (int i = 0; i < 2; i++) {
        visit.taken_up = i == 1;
        assert_int_equal(run_visit(&visit, NULL, &seconds, text), -EINTR);
        assert_true(seconds < LIMIT_S);
    }
}

/* The second Ctrl-C ends the process; the other hears of it. */
static void test_interrupted_twice(void **state)
{
    static const struct visit visit = {.late_s = 0, .grace_s = 1000};
    struct job job = {
        .size = 2, .silent_s = 120, .call_s = 120, .stop_grace_s = 1000, .run = visit_rank, .arg = &visit};
    struct shared *shared = start(&job);
    int status = 0;

    (void)state;
    while (atomic_load(&shared->calls[0]) == 0 || atomic_load(&shared->calls[1]) == 0)
        usleep(1000);
    usleep(50000);
    do {
        kill(shared->pids[0], SIGINT);
        usleep(20000); /* two at once would be one */
    } while (waitpid(shared->pids[0], &status, WNOHANG) == 0);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGINT);
    atomic_store(&shared->calls[2], 1);
    waitpid(shared->pids[1], &status, 0);
    assert_int_equal(status, 0);
    assert_int_equal(shared->code[1], -ECONNRESET);
    end(shared);
}

/* A rank that waits for others to join. */
static int join_alone(size_t rank, int port, _Atomic int *ready)
{
    struct ash_launch_env env = {
        .launcher = "test", .rank = rank, .size = 2, .host = "127.0.0.1", .port = port, .job = 7};
    struct ash_group_opts opts = {.join_timeout = 60, .silent_timeout = 10, .call_timeout = 60, .stop_grace = 60};
    struct ash_group *group = NULL;
    struct ash_err err = {0};
    int rc;

    ash_interrupt_install();
    atomic_store(ready, 1);
    rc = ash_group_open(&env, &opts, &group, &err);
    if (rc != -EINTR || strstr(err.text, "told to stop") == NULL) fprintf(stderr, "%d: %s\n", rc, err.text);
    return rc == -EINTR && strstr(err.text, "told to stop") != NULL ? 0 : 1;
}

static void test_join(void **state)
{
    _Atomic int *ready = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    (void)state;
    for (size_t rank = 0; rank < 2; rank++) {
        uint64_t hit_ns;
        int status = 0, port = 0, reserved = ash_socket_reserve(&port, NULL), pid;

        atomic_store(ready, 0);
        pid = fork();
        if (pid == 0) _exit(join_alone(rank, port, ready));
        while (atomic_load(ready) == 0)
            usleep(1000);
        usleep(50000);
        hit_ns = ash_clock_ns();
        kill(pid, SIGTERM);
        waitpid(pid, &status, 0);
        close(reserved);
        assert_int_equal(status, 0);
        assert_true((double)(ash_clock_ns() - hit_ns) * 1e-9 < LIMIT_S);
    }
    munmap(ready, 4096);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_grace), cmocka_unit_test(test_grace_across),      cmocka_unit_test(test_late),
        cmocka_unit_test(test_twice), cmocka_unit_test(test_interrupted_twice), cmocka_unit_test(test_join)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
