/* ashlar route: one address for many servers. */
#include "cmd/cmd.h"

#include <errno.h>
#include <malloc.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "cmd/http_flags.h"
#include "cmd/route_flags.h"
#include "serve/api/api.h"
#include "serve/route/router.h"

#define POLL_NS 100000000
#define FILE_BYTES_MAX ((size_t)1 << 20)

struct flags {
    struct ash_opt_list to;
    const char *to_file, *replica_key, *replica_admin_key;
    double refresh_seconds;
    struct ash_route_flags route;
    struct ash_http_flags http;
};

#define FIELD(name) offsetof(struct flags, name)
static const struct ash_opt to_opts[] = {
    {"to", ASH_OPT_LIST, FIELD(to), NULL,
     "the replicas: http://HOST:PORT each; dns://HOST:PORT is one for every address that the name has", 0, 0, NULL},
    {"to_file", ASH_OPT_STRING, FIELD(to_file), NULL,
     "a file with one of them on each line; # begins a comment. It is read again when it changes", 0, 0, NULL},
    {"refresh_seconds", ASH_OPT_DOUBLE, FIELD(refresh_seconds), "2", "names and --to-file are looked up this often",
     0.1, 86400, NULL},
    {"replica_key", ASH_OPT_STRING, FIELD(replica_key), NULL,
     "API key that replicas get instead of the client's; @FILE: its first line", 0, 0, NULL},
    {"replica_admin_key", ASH_OPT_STRING, FIELD(replica_admin_key), NULL,
     "admin key of replicas that need keys: it opens the events of their caches; @FILE: its first line", 0, 0, NULL},
};
static const struct ash_opt_table to_table = {"", "flags", to_opts, ASH_COUNT(to_opts)};

static const struct ash_cmd_usage usage = {
    .synopsis = "ashlar route --to http://HOST:PORT,... [--port 8000] [flags]",
    .about = "One address for many servers of OpenAI\'s API: `ashlar serve`, llama.cpp, vLLM, SGLang. A request goes\n"
             "to the replica that knows most of its prompt, or has the least to do. If a replica is lost, requests\n"
             "without an answer go to another one, and streams of `ashlar serve` continue there with the same text.\n"
             "GET /replicas lists them; with --admin-key, POST /replicas adds and drains them. SIGTERM finishes\n"
             "what is being answered and ends.",
    .examples = "  ashlar route --to http://127.0.0.1:8001,http://127.0.0.1:8002\n"
                "  ashlar route --to dns://llama.default.svc:8000 --host 0.0.0.0 --policy least-loaded\n"
                "  ashlar route --to-file replicas.txt --admin-key @admin.txt\n"
                "  curl localhost:8000/replicas",
};

struct route {
    const struct flags *flags;
    struct ash_keys *keys;
    struct ash_router *router;
    struct ash_http *http;
    uint64_t refresh_ns;
    char said[ASH_ERR_TEXT_BYTES]; /* the last thing that was wrong with the list */
};

/* ---- the list of replicas ---------------------------------------------------------------------------------------- */

static int read_targets(const struct flags *flags, struct ash_route_targets *targets, struct ash_err *err)
{
    char *text = NULL;
    size_t size_bytes = 0;
    int rc = 0;

    for (size_t i = 0; i < flags->to.count && rc == 0; i++)
        rc = ash_route_targets_add(targets, flags->to.items[i], err);
    if (rc < 0 || flags->to_file == NULL) return rc;
    rc = ash_file_read(flags->to_file, FILE_BYTES_MAX, &text, &size_bytes, err);
    if (rc == 0) rc = ash_route_targets_add_lines(targets, text, flags->to_file, err);
    free(text);
    return rc;
}

/* Look the replicas up. If that fails they stay as they are. */
static int refresh(struct route *route, struct ash_err *err)
{
    struct ash_route_targets targets = {0};
    int rc = read_targets(route->flags, &targets, err);

    if (rc == 0) rc = ash_router_set_targets(route->router, &targets);
    ash_route_targets_fini(&targets);
    return rc;
}

/* Once in a while; each new mistake is logged once. */
static void refresh_again(struct route *route)
{
    struct ash_err err = {0};

    if (ash_clock_ns() < route->refresh_ns) return;
    route->refresh_ns = ash_clock_ns() + (uint64_t)(route->flags->refresh_seconds * 1e9);
    if (refresh(route, &err) == 0)
        route->said[0] = '\0';
    else if (strcmp(route->said, err.text) != 0)
        ash_log(ASH_LOG_WARN, "the replicas stay as they are: %s", err.text);
    snprintf(route->said, sizeof(route->said), "%s", err.text);
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

static int open_route(struct route *route, struct ash_err *err)
{
    const struct flags *flags = route->flags;
    struct ash_router_opts opts = ash_route_flags_opts(&flags->route);
    int rc = ash_http_flags_open_keys(&flags->http, false, &route->keys, err);

    opts.replica_key = flags->replica_key;
    opts.replica_admin_key = flags->replica_admin_key;
    if (rc == 0) rc = ash_router_open(&opts, &route->router, err);
    if (rc == 0) rc = refresh(route, err);
    return rc < 0 ? rc : ash_route_serve(&flags->http, route->router, route->keys, &route->http, err);
}

static void wait_for_end(struct route *route, const sigset_t *signals)
{
    const struct timespec poll = {.tv_nsec = POLL_NS};

    for (;;) {
        int number = sigtimedwait(signals, NULL, &poll);

        if (number == SIGHUP)
            ash_http_flags_reload_keys(route->keys);
        else if (number > 0)
            return;
        refresh_again(route);
    }
}

static int serve(const struct flags *flags)
{
    struct route route = {.flags = flags};
    struct ash_err err = {0};
    sigset_t signals;
    int rc;

    ash_route_block_signals(&signals);
    ash_http_flags_raise_limit(&flags->http, 2); /* one to the client, one to the replica */
    rc = open_route(&route, &err);
    if (rc == 0) {
        wait_for_end(&route, &signals);
        ash_route_finish(&flags->http, route.http, route.router, &signals);
    }
    ash_http_close(route.http);
    ash_router_close(route.router);
    ash_keys_close(route.keys);
    return rc < 0 ? ash_cmd_fail(&err) : 0;
}

static int run(int argc, char **argv)
{
    struct flags flags = {0};
    struct ash_opt_binding bindings[] = {
        {&to_table, &flags}, {&ash_route_flags_table, &flags.route}, {&ash_http_flags_table, &flags.http}};
    struct ash_opts *opts = NULL;
    struct ash_err err = {0};
    size_t positional_count = 0;
    int code;

    if (ash_opts_open(bindings, ASH_COUNT(bindings), &opts, &err) < 0) return ash_cmd_fail(&err);
    code = ash_cmd_parse(&usage, opts, argc, argv, NULL, 0, &positional_count);
    if (code == ASH_CMD_GO && flags.to.count == 0 && flags.to_file == NULL)
        code = ash_cmd_misuse("route", "--to http://HOST:PORT,... or --to-file is missing");
    if (code == ASH_CMD_GO &&
        (ash_cmd_read_secret(&flags.replica_key, &err) < 0 || ash_cmd_read_secret(&flags.replica_admin_key, &err) < 0))
        code = ash_cmd_fail(&err);
    if (code == ASH_CMD_GO) code = serve(&flags);
    ash_opts_close(opts);
    return code;
}

const struct ash_cmd ash_cmd_route = {"route", "one address for many servers, by prompt, load and health", run};
