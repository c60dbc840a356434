/* `ashlar serve --replicas N`: N servers of one model on ports of this machine that only it reaches, and a router in
 * front of them. A server that ends is started again; together they end as one server does. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/cores.h"
#include "base/log.h"
#include "base/math.h"
#include "cmd/cmd.h"
#include "cmd/rank_flags.h"
#include "cmd/serve_children.h"

#define FIELD(name) offsetof(struct ash_serve_replicas, name)
#define REPLICAS_MAX 256
#define POLL_NS 20000000

static const struct ash_opt opts[] = {
    {"replicas", ASH_OPT_INT, FIELD(count), "1",
     "servers of this model on this machine, behind one address: requests are shared as by `ashlar route`, and answers "
     "outlive the server that began them",
     1, REPLICAS_MAX, NULL},
};

const struct ash_opt_table ash_serve_replicas_table = {
    .section = "", .help = "replicas", .opts = opts, .count = ASH_COUNT(opts)};

struct group {
    const struct ash_serve_flags *flags;
    struct ash_serve_words words;
    struct ash_serve_child *children;
    size_t count;
    const char *admin_key; /* of the router and of all replicas, or NULL */
    struct ash_keys *keys;
    struct ash_router *router;
    struct ash_http *http;
    bool was_up; /* once a replica was ready: before that an end is a mistake, after it an accident */
};

/* ---- one replica ------------------------------------------------------------------------------------------------- */

/* Threads of one process of one replica, if the flags leave them to us: its share of the cores. */
static long long thread_count(const struct ash_serve_flags *flags)
{
    long long processes = (long long)(flags->replicas.count * (int64_t)ash_cmd_ranks_count(&flags->computing));

    if (flags->computing.threads > 0) return flags->computing.threads;
    return ash_max(ash_cores_usable() / processes, 1);
}

static int start_replica(const struct group *group, struct ash_serve_child *child, struct ash_err *err)
{
    char threads[40];
    const char *const own[] = {threads};

    snprintf(threads, sizeof(threads), "--threads=%lld", thread_count(group->flags));
    return ash_serve_child_start(child, &group->words, own, ASH_COUNT(own), err);
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

    group->admin_key = flags->http.admin_key;
    if (rc == 0) rc = ash_cmd_read_secret(&group->admin_key, err);
    router.replica_admin_key = group->admin_key;
    group->children = calloc((size_t)flags->replicas.count, sizeof(*group->children));
    if (group->children == NULL) return ash_err_set(err, -ENOMEM, "out of memory");
    for (; rc == 0 && group->count < (size_t)flags->replicas.count; group->count++) {
        struct ash_serve_child *child = &group->children[group->count];

        snprintf(child->name, sizeof(child->name), "replica %zu", group->count);
        rc = ash_serve_child_open(child, err);
    }
    if (rc == 0) rc = ash_router_open(&router, &group->router, err);
    if (rc == 0) rc = set_targets(group, err);
    if (rc == 0) rc = ash_route_serve(&flags->http, group->router, group->keys, &group->http, err);
    for (size_t i = 0; i < group->count && rc == 0; i++)
        rc = start_replica(group, &group->children[i], err);
    return rc;
}

static void log_end(const struct ash_serve_child *child)
{
    bool is_signal = child->exit_code > ASH_CMD_EXIT_SIGNAL;

    ash_log(ASH_LOG_ERROR, "%s %s %d; it starts again in %.1f s", child->name,
            is_signal ? "was ended by signal" : "ended with code",
            child->exit_code - (is_signal ? ASH_CMD_EXIT_SIGNAL : 0), child->pause_s);
}

/* Take note of those that have ended, and start them again. */
static int tend(struct group *group, struct ash_err *err)
{
    const struct ash_serve_child *ended;
    uint64_t now_ns;
    int rc = 0;

    while ((ended = ash_serve_children_reap(group->children, group->count)) != NULL) {
        log_end(ended);
        if (!group->was_up) return ash_err_set(err, -ECHILD, "%s cannot serve: see above", ended->name);
    }
    now_ns = ash_clock_ns();
    for (size_t i = 0; i < group->count && rc == 0; i++)
        if (group->children[i].pid == 0 && now_ns >= group->children[i].restart_ns)
            rc = start_replica(group, &group->children[i], err);
    return rc;
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
            ash_serve_children_signal(group->children, group->count, SIGHUP);
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

static void close_group(struct group *group)
{
    ash_serve_children_end(group->children, group->count, group->flags);
    ash_http_close(group->http);
    ash_router_close(group->router);
    ash_keys_close(group->keys);
    for (size_t i = 0; i < group->count; i++)
        ash_serve_child_close(&group->children[i]);
    free(group->children);
}

int ash_serve_replicas_run(const struct ash_serve_flags *flags, int argc, char **argv)
{
    struct group group = {.flags = flags, .words = {flags, argc, argv}};
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
