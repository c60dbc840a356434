/* `ashlar serve --replicas N`: N servers of one model on ports of this machine that only it reaches, and a router in
 * front of them. A server that ends is started again; together they end as one server does. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/cores.h"
#include "base/log.h"
#include "base/math.h"
#include "base/socket.h"
#include "cmd/cmd.h"
#include "cmd/serve_priv.h"

#define FIELD(name) offsetof(struct ash_serve_replicas, name)
#define REPLICAS_MAX 256
#define POLL_NS 20000000
#define OWN_WORDS 24       /* that every replica gets after the user's */
#define PAUSE_MIN_S 0.1    /* before a replica is started again, */
#define PAUSE_MAX_S 10.0   /* twice as long each time that it ends */
#define WELL_S 30.0        /* after so long it was well, and the pause is short again */
#define SHUTDOWN_SPARE_S 5 /* for replicas to end after --shutdown-timeout */

static const struct ash_opt opts[] = {
    {"replicas", ASH_OPT_INT, FIELD(count), "1",
     "servers of this model on this machine, behind one address: requests are shared as by `ashlar route`, and answers "
     "outlive the server that began them",
     1, REPLICAS_MAX, NULL},
};

const struct ash_opt_table ash_serve_replicas_table = {
    .section = "", .help = "replicas", .opts = opts, .count = ASH_COUNT(opts)};

struct child {
    size_t index;
    pid_t pid; /* 0: it does not run */
    int port, port_fd;
    uint64_t start_ns, restart_ns;
    double pause_s;
};

struct group {
    const struct ash_serve_flags *flags;
    int argc;
    char **argv;
    struct child *children;
    size_t count;
    struct ash_keys *keys;
    struct ash_router *router;
    struct ash_http *http;
    bool was_up; /* once a replica was ready: before that an end is a mistake, after it an accident */
};

/* ---- one replica ------------------------------------------------------------------------------------------------- */

/* Threads of one process of one replica, if the flags leave them to us: its share of the cores. */
static long long thread_count(const struct ash_serve_flags *flags)
{
    long long processes = (long long)(flags->replicas.count * flags->tp);

    if (flags->computing.threads > 0) return flags->computing.threads;
    return ash_max(ash_cores_usable() / processes, 1);
}

/* The words of a replica: the user's, and then those that make it one of several. In the child alone. */
static void become(const struct group *group, const struct child *child)
{
    const char **words = calloc((size_t)group->argc + OWN_WORDS, sizeof(*words));
    char port[32], threads[40], timeout[48];
    const char *own[] = {
        "--replicas=1",    "--host=127.0.0.1",        port, threads, timeout, "--no-access-log", "--ssl-keyfile=",
        "--ssl-certfile=", "--max-connections=100000"};
    size_t count = 0;
    sigset_t none;

    if (words == NULL) _exit(ENOMEM);
    snprintf(port, sizeof(port), "--port=%d", child->port);
    snprintf(threads, sizeof(threads), "--threads=%lld", thread_count(group->flags));
    snprintf(timeout, sizeof(timeout), "--shutdown-timeout=%g", group->flags->http.shutdown_timeout);
    words[count++] = "ashlar";
    words[count++] = "serve";
    for (int i = 1; i < group->argc; i++)
        words[count++] = group->argv[i];
    for (size_t i = 0; i < ASH_COUNT(own); i++)
        words[count++] = own[i];
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGPIPE, SIG_DFL);
    setpgid(0, 0); /* Ctrl-C is for the router, which ends them after their last answer */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    execv("/proc/self/exe", (char *const *)(void *)words);
    _exit(127);
}

static int start_child(struct group *group, struct child *child, struct ash_err *err)
{
    pid_t parent = getpid(), pid = fork();

    if (pid < 0) return ash_err_set(err, -errno, "replica %zu cannot be started: %s", child->index, strerror(errno));
    if (pid == 0 && getppid() == parent) become(group, child);
    if (pid == 0) _exit(1);
    child->pid = pid;
    child->start_ns = ash_clock_ns();
    ash_log(ASH_LOG_INFO, "replica %zu is process %ld, port %d", child->index, (long)pid, child->port);
    return 0;
}

/* It has ended: when does it start again? */
static void note_end(struct child *child, int status)
{
    double ran_s = (double)(ash_clock_ns() - child->start_ns) / 1e9;

    child->pid = 0;
    child->pause_s = ran_s > WELL_S ? PAUSE_MIN_S : ash_min(2 * child->pause_s, PAUSE_MAX_S);
    child->restart_ns = ash_clock_ns() + (uint64_t)(child->pause_s * 1e9);
    if (WIFSIGNALED(status))
        ash_log(ASH_LOG_ERROR, "replica %zu was ended by signal %d; it starts again in %.1f s", child->index,
                WTERMSIG(status), child->pause_s);
    else
        ash_log(ASH_LOG_ERROR, "replica %zu ended with code %d; it starts again in %.1f s", child->index,
                WEXITSTATUS(status), child->pause_s);
}

/* ---- all of them ------------------------------------------------------------------------------------------------- */

static int set_targets(struct group *group, struct ash_err *err)
{
    struct ash_route_targets targets = {0};
    int rc = 0;

    for (size_t i = 0; i < group->count && rc == 0; i++) {
        char url[64];

        snprintf(url, sizeof(url), "http://127.0.0.1:%d", group->children[i].port);
        rc = ash_route_targets_add(&targets, url, err);
    }
    if (rc == 0) rc = ash_router_set_targets(group->router, &targets);
    ash_route_targets_fini(&targets);
    return rc;
}

static int open_group(struct group *group, struct ash_err *err)
{
    const struct ash_serve_flags *flags = group->flags;
    struct ash_router_opts router = ash_route_flags_opts(&flags->replicas.route);
    int rc = ash_http_flags_open_keys(&flags->http, ash_serve_kv_lasts(flags), &group->keys, err);

    group->children = calloc((size_t)flags->replicas.count, sizeof(*group->children));
    if (group->children == NULL) return ash_err_set(err, -ENOMEM, "out of memory");
    for (; rc == 0 && group->count < (size_t)flags->replicas.count; group->count++) {
        struct child *child = &group->children[group->count];

        *child = (struct child){.index = group->count, .pause_s = PAUSE_MIN_S / 2, .port_fd = -1};
        child->port_fd = ash_socket_reserve(&child->port, err);
        if (child->port_fd < 0) rc = child->port_fd;
    }
    if (rc == 0) rc = ash_router_open(&router, &group->router, err);
    if (rc == 0) rc = set_targets(group, err);
    if (rc == 0) rc = ash_route_serve(&flags->http, group->router, group->keys, &group->http, err);
    for (size_t i = 0; i < group->count && rc == 0; i++)
        rc = start_child(group, &group->children[i], err);
    return rc;
}

static struct child *find_child(struct group *group, pid_t pid)
{
    for (size_t i = 0; i < group->count; i++)
        if (group->children[i].pid == pid) return &group->children[i];
    return NULL;
}

/* Take note of those that have ended, and start them again. */
static int tend(struct group *group, struct ash_err *err)
{
    uint64_t now_ns;
    int status = 0, rc = 0;
    pid_t pid;

    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        struct child *child = find_child(group, pid);

        if (child == NULL) continue;
        note_end(child, status);
        if (!group->was_up) return ash_err_set(err, -ECHILD, "replica %zu cannot serve: see above", child->index);
    }
    now_ns = ash_clock_ns();
    for (size_t i = 0; i < group->count && rc == 0; i++)
        if (group->children[i].pid == 0 && now_ns >= group->children[i].restart_ns)
            rc = start_child(group, &group->children[i], err);
    return rc;
}

static void signal_all(const struct group *group, int number)
{
    for (size_t i = 0; i < group->count; i++)
        if (group->children[i].pid > 0) kill(group->children[i].pid, number);
}

/* Until a signal ends it. Returns 0, or a negative errno if nothing can be served. */
static int run_group(struct group *group, const sigset_t *signals, struct ash_err *err)
{
    const struct timespec poll = {.tv_nsec = POLL_NS};
    uint64_t start_ns = ash_clock_ns();
    int rc = 0;

    while (rc == 0) {
        int number = sigtimedwait(signals, NULL, &poll);

        if (number == SIGHUP) {
            ash_http_flags_reload_keys(group->keys);
            signal_all(group, SIGHUP);
        } else if (number > 0) {
            return 0;
        }
        rc = tend(group, err);
        if (group->was_up || ash_router_usable(group->router) < group->count) continue;
        group->was_up = true;
        ash_log(ASH_LOG_INFO, "ready after %.2f s: %zu replicas", (double)(ash_clock_ns() - start_ns) / 1e9,
                group->count);
    }
    return rc;
}

/* SIGTERM to all, and SIGKILL to those that do not end. */
static void end_children(struct group *group)
{
    const struct timespec poll = {.tv_nsec = POLL_NS};
    uint64_t end_ns = ash_deadline_in(group->flags->http.shutdown_timeout + SHUTDOWN_SPARE_S);
    bool is_forced = false;
    size_t left = 1;

    signal_all(group, SIGTERM);
    while (left > 0) {
        pid_t pid;

        while ((pid = waitpid(-1, NULL, WNOHANG)) > 0)
            if (find_child(group, pid) != NULL) find_child(group, pid)->pid = 0;
        left = 0;
        for (size_t i = 0; i < group->count; i++)
            left += group->children[i].pid > 0;
        if (!is_forced && ash_clock_ns() > end_ns) {
            signal_all(group, SIGKILL);
            is_forced = true;
        }
        if (left > 0) nanosleep(&poll, NULL);
    }
}

static void close_group(struct group *group)
{
    end_children(group);
    ash_http_close(group->http);
    ash_router_close(group->router);
    ash_keys_close(group->keys);
    for (size_t i = 0; i < group->count; i++)
        if (group->children[i].port_fd >= 0) close(group->children[i].port_fd);
    free(group->children);
}

int ash_serve_replicas_run(const struct ash_serve_flags *flags, int argc, char **argv)
{
    struct group group = {.flags = flags, .argc = argc, .argv = argv};
    struct ash_err err = {0};
    sigset_t signals;
    int rc;

    if (flags->replicas.count == 1) return ASH_CMD_GO;
    ash_route_block_signals(&signals);
    ash_http_flags_raise_limit(&flags->http, 2); /* one to the client, one to the replica */
    rc = open_group(&group, &err);
    if (rc == 0) rc = run_group(&group, &signals, &err);
    if (rc == 0) ash_route_finish(&flags->http, group.http, group.router, &signals);
    close_group(&group);
    return rc < 0 ? ash_cmd_fail(&err) : 0;
}
