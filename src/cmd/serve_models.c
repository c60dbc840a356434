/* `ashlar serve` with several models: a server for each one that is in memory, started when a request asks for it and
 * ended when another needs the room, behind a router. A process that ends has certainly given its memory back, and one
 * that crashes takes no other model with it. */
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/socket.h"
#include "cmd/cmd.h"
#include "cmd/serve_children.h"
#include "model/files/find.h"
#include "model/files/open.h"

#define FIELD(name) offsetof(struct ash_serve_models, name)
#define POLL_NS 20000000
#define MEASURE_NS 1000000000ull /* between two looks at the servers' memory */
#define END_SPARE_S 5            /* for a server to end after --shutdown-timeout */

static const struct ash_opt opts[] = {
    {"models_dir", ASH_OPT_STRING, FIELD(dir), NULL,
     "serve every model in this folder by its name: model folders and GGUF files; --model NAME=PATH adds others", 0, 0,
     NULL},
    {"max_models", ASH_OPT_INT, FIELD(loaded_max), "4",
     "of several models, so many are in memory; the one used longest ago is put away for another; 0: no limit", 0,
     65536, NULL},
    {"memory", ASH_OPT_INT, FIELD(bytes_max), "0",
     "bytes of memory for several models together: their weights, or what their servers were seen to need; 0: no limit",
     0, INFINITY, NULL},
    {"load_seconds", ASH_OPT_DOUBLE, FIELD(load_seconds), "300",
     "a request waits so long for its model to be loaded, then it gets 503", 0, 86400, NULL},
    {"idle_seconds", ASH_OPT_DOUBLE, FIELD(idle_seconds), "0",
     "a model without a request for so long is put away; 0: when another needs the room", 0, INFINITY, NULL},
};

const struct ash_opt_table ash_serve_models_table = {
    .section = "", .help = "several models", .opts = opts, .count = ASH_COUNT(opts)};

struct group {
    const struct ash_serve_flags *flags;
    struct ash_serve_words words;
    struct ash_route_models *models;
    struct ash_serve_child *children; /* one for each model */
    uint64_t *end_ns;                 /* when they are killed, if they were asked to end; else 0 */
    size_t count;
    struct ash_keys *keys;
    struct ash_router *router;
    struct ash_http *http;
    uint64_t measure_ns;
};

/* ---- which models ------------------------------------------------------------------------------------------------ */

/* NAME=PATH. A path as it is has no name; a name has no slash. */
static const char *find_path(const char *item)
{
    const char *equals = strchr(item, '='), *slash = strchr(item, '/');

    if (equals == NULL || equals == item || (slash != NULL && slash < equals) || ash_path_exists(item)) return NULL;
    return equals + 1;
}

bool ash_serve_models_wanted(const struct ash_serve_flags *flags)
{
    bool has_dir = flags->several.dir != NULL && flags->several.dir[0] != '\0';

    return has_dir || flags->models.count > 1 ||
           (flags->models.count == 1 && find_path(flags->models.items[0]) != NULL);
}

static int add_model(struct group *group, const char *name, const char *path, struct ash_err *err)
{
    struct ash_model_config config;
    struct stat facts;
    int rc = 0;

    if (strstr(path, "://") == NULL) {
        rc = ash_model_config_load(path, &config, err);
        if (rc < 0) return rc;
        ash_model_config_fini(&config);
    }
    return ash_route_models_add(group->models, name, path, ash_model_weight_bytes(path),
                                stat(path, &facts) == 0 ? (int64_t)facts.st_mtime : (int64_t)ash_clock_wall_s(), err);
}

/* A folder may hold other things, and models of other programs: they are left out with a warning. */
static int add_found(void *ctx, const char *name, const char *path)
{
    struct ash_err err = {0};
    int rc = add_model(ctx, name, path, &err);

    if (rc == -ENOMEM) return rc;
    if (rc < 0) ash_log(ASH_LOG_WARN, "%s is left out: %s", path, err.text);
    return 0;
}

static int add_item(struct group *group, const char *item, struct ash_err *err)
{
    const char *path = find_path(item);
    char *name = path != NULL ? strndup(item, (size_t)(path - 1 - item)) : ash_model_default_name(item);
    int rc = name != NULL ? add_model(group, name, path != NULL ? path : item, err) : -ENOMEM;

    free(name);
    return rc < 0 ? ash_err_prefix(err, rc, "--model") : 0;
}

static int find_models(struct group *group, struct ash_err *err)
{
    const struct ash_serve_flags *flags = group->flags;
    const char *dir = flags->several.dir;
    int rc = 0;

    for (size_t i = 0; i < flags->models.count && rc == 0; i++)
        rc = add_item(group, flags->models.items[i], err);
    if (rc == 0 && dir != NULL && dir[0] != '\0') {
        rc = ash_model_find_in(dir, add_found, group, err);
        if (rc < 0) rc = ash_err_prefix(err, rc, "--models-dir");
    }
    group->count = ash_route_models_count(group->models);
    if (rc == 0 && group->count == 0) return ash_err_set(err, -ENOENT, "--models-dir: there is no model in '%s'", dir);
    return rc;
}

/* Flags that belong to one model. */
static int check_flags(const struct ash_serve_flags *flags, struct ash_err *err)
{
    const char *name = NULL;

    if (flags->lora_modules.count > 0) name = "lora-modules";
    if (flags->served_model_name.count > 0) name = "served-model-name";
    if (flags->draft_model != NULL) name = "draft-model";
    if (flags->replicas.count > 1) name = "replicas";
    if (name == NULL) return 0;
    return ash_err_set(err, -EINVAL, "--%s is for a server of one model: leave it out, or serve that model alone",
                       name);
}

/* ---- servers ----------------------------------------------------------------------------------------------------- */

/* The router gets those that run and may be used. */
static int set_targets(struct group *group, struct ash_err *err)
{
    struct ash_route_targets targets = {0};
    int rc = 0;

    for (size_t i = 0; i < group->count && rc == 0; i++) {
        char url[64];

        if (group->children[i].pid == 0 || group->end_ns[i] != 0) continue;
        snprintf(url, sizeof(url), "http://127.0.0.1:%d", group->children[i].port);
        rc = ash_route_targets_add(&targets, url, err);
        if (rc == 0) targets.items[targets.count - 1].model = i;
    }
    if (rc == 0) rc = ash_router_set_targets(group->router, &targets);
    ash_route_targets_fini(&targets);
    return rc;
}

/* The words that make a server one of this model alone. A relative path with a '=' would be a NAME=PATH. */
static int start_server(struct group *group, size_t model, struct ash_err *err)
{
    struct ash_route_model facts = ash_route_models_get(group->models, model);
    struct ash_serve_child *child = &group->children[model];
    struct ash_str path = {0}, name = {0};
    int rc = ash_serve_child_open(child, err);

    ash_str_addf(&path, "--model=%s%s", strchr(facts.path, '/') == NULL ? "./" : "", facts.path);
    ash_str_addf(&name, "--served-model-name=%s", facts.name);
    if (rc == 0 && (path.rc < 0 || name.rc < 0)) rc = ash_err_set(err, -ENOMEM, "out of memory");
    if (rc == 0) {
        const char *const own[] = {"--model=", path.data, name.data, "--models-dir="};

        snprintf(child->name, sizeof(child->name), "model %s", facts.name);
        group->end_ns[model] = 0;
        rc = ash_serve_child_start(child, &group->words, own, ASH_COUNT(own), err);
    }
    ash_str_fini(&path);
    ash_str_fini(&name);
    return rc;
}

static void start_model(struct group *group, size_t model)
{
    struct ash_serve_child *child = &group->children[model];
    struct ash_err err = {0};

    if (start_server(group, model, &err) == 0) return;
    ash_log(ASH_LOG_ERROR, "%s", err.text);
    ash_serve_child_close(child);
    ash_route_models_note_ended(group->models, model, 1, ash_clock_ns() + (uint64_t)(child->pause_s * 1e9));
}

static void end_model(struct group *group, size_t model)
{
    ash_log(ASH_LOG_INFO, "%s is put away", group->children[model].name);
    group->end_ns[model] = ash_deadline_in(group->flags->http.shutdown_timeout + END_SPARE_S);
    if (group->children[model].pid > 0) kill(group->children[model].pid, SIGTERM);
}

/* A server that was asked to end may start again at once; others after a pause. */
static void note_end(struct group *group, struct ash_serve_child *child)
{
    size_t model = (size_t)(child - group->children);
    bool was_asked = group->end_ns[model] != 0;

    if (was_asked)
        ash_log(ASH_LOG_INFO, "%s has ended: its memory is free", child->name);
    else
        ash_log(ASH_LOG_ERROR, "%s has ended with code %d", child->name, child->exit_code);
    if (was_asked) child->pause_s = 0;
    ash_serve_child_close(child);
    ash_route_models_note_ended(group->models, model, child->exit_code, was_asked ? 0 : child->restart_ns);
}

/* What the servers have in memory. */
static void measure(struct group *group, uint64_t now_ns)
{
    if (now_ns < group->measure_ns) return;
    group->measure_ns = now_ns + MEASURE_NS;
    for (size_t i = 0; i < group->count; i++) {
        long long pages = 0, resident = 0;
        char path[64];
        FILE *file;

        if (group->children[i].pid == 0) continue;
        snprintf(path, sizeof(path), "/proc/%ld/statm", (long)group->children[i].pid);
        file = fopen(path, "re");
        if (file != NULL && fscanf(file, "%lld %lld", &pages, &resident) == 2)
            ash_route_models_note_bytes(group->models, i, (uint64_t)resident * (uint64_t)sysconf(_SC_PAGESIZE));
        if (file != NULL) fclose(file);
    }
}

/* Take note of servers that have ended, then start and end those whose time has come. */
static int tend(struct group *group, struct ash_err *err)
{
    uint64_t now_ns = ash_clock_ns();
    struct ash_serve_child *ended;
    enum ash_route_model_act act;
    bool has_changed = false;
    size_t model = 0;

    for (; (ended = ash_serve_children_reap(group->children, group->count)) != NULL; has_changed = true)
        note_end(group, ended);
    measure(group, now_ns);
    for (size_t i = 0; i < group->count; i++)
        if (group->children[i].pid > 0 && group->end_ns[i] != 0 && now_ns > group->end_ns[i])
            kill(group->children[i].pid, SIGKILL);
    for (; (act = ash_route_models_next(group->models, now_ns, &model)) != ASH_ROUTE_MODEL_NOTHING; has_changed = true)
        if (act == ASH_ROUTE_MODEL_START)
            start_model(group, model);
        else
            end_model(group, model);
    return has_changed ? set_targets(group, err) : 0;
}

/* ---- together ---------------------------------------------------------------------------------------------------- */

static int open_group(struct group *group, struct ash_err *err)
{
    const struct ash_serve_flags *flags = group->flags;
    struct ash_router_opts router = ash_route_flags_opts(&flags->replicas.route);
    struct ash_route_models_opts limits = {.loaded_max = (size_t)flags->several.loaded_max,
                                           .bytes_max = (uint64_t)flags->several.bytes_max,
                                           .idle_seconds =
                                               flags->several.idle_seconds > 0 ? flags->several.idle_seconds : -1};
    int rc = check_flags(flags, err);

    if (rc < 0) return rc;
    if (ash_route_models_open(&limits, &group->models) < 0) return ash_err_set(err, -ENOMEM, "out of memory");
    rc = find_models(group, err);
    if (rc == 0) rc = ash_http_flags_open_keys(&flags->http, ash_serve_kv_lasts(flags), &group->keys, err);
    if (rc < 0) return rc;
    group->children = calloc(group->count, sizeof(*group->children));
    group->end_ns = calloc(group->count, sizeof(*group->end_ns));
    if (group->children == NULL || group->end_ns == NULL) return ash_err_set(err, -ENOMEM, "out of memory");
    router.models = group->models;
    router.load_seconds = flags->several.load_seconds;
    rc = ash_router_open(&router, &group->router, err);
    return rc < 0 ? rc : ash_route_serve(&flags->http, group->router, group->keys, &group->http, err);
}

/* Until a signal ends it. */
static int run_group(struct group *group, const sigset_t *signals, struct ash_err *err)
{
    const struct timespec poll = {.tv_nsec = POLL_NS};
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
    }
    return rc;
}

static void close_group(struct group *group)
{
    if (group->children != NULL) ash_serve_children_end(group->children, group->count, group->flags);
    ash_http_close(group->http);
    ash_router_close(group->router);
    ash_keys_close(group->keys);
    for (size_t i = 0; i < group->count && group->children != NULL; i++)
        ash_serve_child_close(&group->children[i]);
    ash_route_models_close(group->models);
    free(group->children);
    free(group->end_ns);
}

int ash_serve_models_run(const struct ash_serve_flags *flags, int argc, char **argv)
{
    struct group group = {.flags = flags, .words = {flags, argc, argv}};
    uint64_t start_ns = ash_clock_ns();
    struct ash_err err = {0};
    sigset_t signals;
    int rc;

    if (!ash_serve_models_wanted(flags)) return ASH_CMD_GO;
    ash_route_block_signals(&signals);
    ash_http_flags_raise_limit(&flags->http, 2); /* one to the client, one to the server */
    rc = open_group(&group, &err);
    if (rc == 0) {
        ash_log(ASH_LOG_INFO, "ready after %.2f s: models=%zu, each is loaded when a request names it",
                (double)(ash_clock_ns() - start_ns) / 1e9, group.count);
        rc = run_group(&group, &signals, &err);
    }
    if (rc == 0) ash_route_finish(&flags->http, group.http, group.router, &signals);
    close_group(&group);
    return rc < 0 ? ash_cmd_fail(&err) : 0;
}
