/* Room is made before it is taken: a model that requests wait for is loaded when those that leave for it have ended.
 * The idle model that was used longest ago leaves first. If all are in use the one used longest ago leaves after its
 * running requests; those that come later wait, so that no model is kept out for good. */
#include "serve/route/models.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/math.h"
#include "record/metrics.h"

#define OLLAMA_TAG ":latest"

ASH_COUNTER(loads_family, "ashlar_route_model_loads_total", "how often a model was loaded");
ASH_COUNTER(failures_family, "ashlar_route_model_failures_total", "how often a model could not be loaded");
ASH_GAUGE(bytes_family, "ashlar_route_model_bytes", "bytes of a model in memory; 0 if it is not loaded");

struct model {
    struct ash_route_model facts;
    char *path;
    struct ash_metric *loads_total, *failures_total, *bytes_gauge;
    bool is_wanted; /* without a request */
    bool leaves;    /* as soon as no request waits */
    uint64_t wanted_turn, used_turn, used_ns, restart_ns;
    double idle_seconds;
};

struct ash_route_models {
    struct ash_route_models_opts opts;
    struct model *items;
    size_t count, capacity;
    pthread_mutex_t lock; /* guards all of it once there is more than one thread */
    uint64_t turn, changes;
};

int ash_route_models_open(const struct ash_route_models_opts *opts, struct ash_route_models **models_out)
{
    struct ash_route_models *models = calloc(1, sizeof(*models));

    if (models == NULL) return -ENOMEM;
    models->opts = *opts;
    pthread_mutex_init(&models->lock, NULL);
    *models_out = models;
    return 0;
}

void ash_route_models_close(struct ash_route_models *models)
{
    if (models == NULL) return;
    for (size_t i = 0; i < models->count; i++)
        free(models->items[i].path);
    free(models->items);
    pthread_mutex_destroy(&models->lock);
    free(models);
}

static void open_metrics(struct model *model, const char *name)
{
    struct ash_str labels = {0};

    if (ash_metric_add_label(&labels, "model", name) == 0) {
        model->loads_total = ash_metric_with(&loads_family, labels.data);
        model->failures_total = ash_metric_with(&failures_family, labels.data);
        model->bytes_gauge = ash_metric_with(&bytes_family, labels.data);
        ash_metric_set(model->bytes_gauge, 0);
    }
    ash_str_fini(&labels);
}

int ash_route_models_add(struct ash_route_models *models, const char *name, const char *path, uint64_t bytes,
                         int64_t created_s, struct ash_err *err)
{
    struct model *model;

    if (name[0] == '\0' || strlen(name) >= ASH_ROUTE_MODEL_NAME_BYTES)
        return ash_err_set(err, -EINVAL, "the name of a model has 1 to %d bytes: '%.160s'",
                           ASH_ROUTE_MODEL_NAME_BYTES - 1, name);
    for (size_t i = 0; i < models->count; i++)
        if (strcmp(models->items[i].facts.name, name) == 0)
            return ash_err_set(err, -EEXIST, "two models are named %s: %.100s and %.100s", name, models->items[i].path,
                               path);
    if (ash_array_reserve(&models->items, &models->capacity, models->count + 1, sizeof(*models->items)) < 0)
        return ash_err_set(err, -ENOMEM, "no memory for the list of models");
    model = &models->items[models->count];
    *model = (struct model){.path = strdup(path), .idle_seconds = models->opts.idle_seconds};
    if (model->path == NULL) return ash_err_set(err, -ENOMEM, "no memory for the list of models");
    open_metrics(model, name);
    memcpy(model->facts.name, name, strlen(name) + 1);
    model->facts.path = model->path;
    model->facts.bytes = bytes;
    model->facts.created_s = created_s;
    models->count++;
    return 0;
}

size_t ash_route_models_count(const struct ash_route_models *models)
{
    return models->count;
}

size_t ash_route_models_find(const struct ash_route_models *models, const char *name)
{
    size_t bytes = strlen(name), tag = strlen(OLLAMA_TAG);

    if (bytes == 0) return models->count == 1 ? 0 : ASH_ROUTE_NO_MODEL;
    for (size_t i = 0; i < models->count; i++)
        if (strcmp(models->items[i].facts.name, name) == 0) return i;
    if (bytes <= tag || strcmp(name + bytes - tag, OLLAMA_TAG) != 0) return ASH_ROUTE_NO_MODEL;
    for (size_t i = 0; i < models->count; i++) {
        const char *own = models->items[i].facts.name;

        if (strlen(own) == bytes - tag && memcmp(own, name, bytes - tag) == 0) return i;
    }
    return ASH_ROUTE_NO_MODEL;
}

/* ---- one model; under the lock ----------------------------------------------------------------------------------- */

static struct model *lock_model(struct ash_route_models *models, size_t i)
{
    ash_assert(i < models->count);
    pthread_mutex_lock(&models->lock);
    return &models->items[i];
}

static bool is_idle(const struct model *model)
{
    return model->facts.uses[ASH_ROUTE_MODEL_WAITS] == 0 && model->facts.uses[ASH_ROUTE_MODEL_RUNS] == 0;
}

/* Seconds until it is put away for being idle; negative: never, or not while it is used. */
static double idle_left(const struct model *model, uint64_t now_ns)
{
    double left = model->idle_seconds - (double)(now_ns - ash_min(now_ns, model->used_ns)) / 1e9;

    if (model->idle_seconds < 0 || model->facts.state != ASH_ROUTE_MODEL_LOADED || !is_idle(model)) return -1;
    return fmax(left, 0);
}

struct ash_route_model ash_route_models_get(struct ash_route_models *models, size_t i)
{
    struct model *model = lock_model(models, i);
    struct ash_route_model facts = model->facts;

    facts.idle_s = idle_left(model, ash_clock_ns());
    pthread_mutex_unlock(&models->lock);
    return facts;
}

uint64_t ash_route_models_changes(struct ash_route_models *models)
{
    uint64_t changes;

    pthread_mutex_lock(&models->lock);
    changes = models->changes;
    pthread_mutex_unlock(&models->lock);
    return changes;
}

bool ash_route_models_use(struct ash_route_models *models, size_t i, enum ash_route_model_use from,
                          enum ash_route_model_use to)
{
    struct model *model = lock_model(models, i);
    bool may = to != ASH_ROUTE_MODEL_RUNS || model->facts.state == ASH_ROUTE_MODEL_LOADED;

    ash_assert(from == ASH_ROUTE_MODEL_UNUSED || model->facts.uses[from] > 0);
    if (may) {
        if (to == ASH_ROUTE_MODEL_WAITS && model->facts.uses[to] == 0) model->wanted_turn = ++models->turn;
        if (from != ASH_ROUTE_MODEL_UNUSED) model->facts.uses[from]--;
        if (to != ASH_ROUTE_MODEL_UNUSED) model->facts.uses[to]++;
        model->used_turn = ++models->turn;
        model->used_ns = ash_clock_ns();
    }
    pthread_mutex_unlock(&models->lock);
    return may;
}

void ash_route_models_keep(struct ash_route_models *models, size_t i, double idle_seconds)
{
    lock_model(models, i)->idle_seconds = isnan(idle_seconds) ? models->opts.idle_seconds : idle_seconds;
    pthread_mutex_unlock(&models->lock);
}

void ash_route_models_want(struct ash_route_models *models, size_t i, bool is_wanted)
{
    struct model *model = lock_model(models, i);
    bool is_loaded = model->facts.state == ASH_ROUTE_MODEL_LOADED || model->facts.state == ASH_ROUTE_MODEL_LOADING;

    if (is_wanted && !model->is_wanted) model->wanted_turn = ++models->turn;
    model->is_wanted = is_wanted && !is_loaded;
    model->leaves = !is_wanted && is_loaded;
    pthread_mutex_unlock(&models->lock);
}

/* ---- what to do next; under the lock ----------------------------------------------------------------------------- */

/* The one to load: requests have waited longest for it. */
static struct model *find_wanted(const struct ash_route_models *models, uint64_t now_ns)
{
    struct model *first = NULL;

    for (size_t i = 0; i < models->count; i++) {
        struct model *model = &models->items[i];

        if (model->facts.state != ASH_ROUTE_MODEL_UNLOADED || now_ns < model->restart_ns) continue;
        if (model->facts.uses[ASH_ROUTE_MODEL_WAITS] == 0 && !model->is_wanted) continue;
        if (first == NULL || model->wanted_turn < first->wanted_turn) first = model;
    }
    return first;
}

/* Is there room for one more (NULL: for those that are in memory)? A model alone always has room. */
static bool has_room(const struct ash_route_models *models, const struct model *more)
{
    size_t others = 0, limit = models->opts.loaded_max;
    uint64_t bytes = 0;

    for (size_t i = 0; i < models->count; i++) {
        if (models->items[i].facts.state == ASH_ROUTE_MODEL_UNLOADED) continue;
        others++;
        bytes += models->items[i].facts.bytes;
    }
    if (others == 0 || (more == NULL && others == 1)) return true;
    if (more != NULL && limit > 0 && others >= limit) return false;
    return models->opts.bytes_max == 0 || bytes + (more != NULL ? more->facts.bytes : 0) <= models->opts.bytes_max;
}

static bool is_making_room(const struct ash_route_models *models)
{
    for (size_t i = 0; i < models->count; i++)
        if (models->items[i].facts.state == ASH_ROUTE_MODEL_LEAVING ||
            models->items[i].facts.state == ASH_ROUTE_MODEL_ENDING)
            return true;
    return false;
}

/* The one to put away: idle, else, if some model waits for the room, with running requests only. NULL: none. */
static struct model *find_victim(const struct ash_route_models *models, bool is_waited_for)
{
    struct model *victim = NULL;

    for (size_t i = 0; i < models->count; i++) {
        struct model *model = &models->items[i];

        if (model->facts.state != ASH_ROUTE_MODEL_LOADED || model->facts.uses[ASH_ROUTE_MODEL_WAITS] > 0) continue;
        if (!is_waited_for && !is_idle(model)) continue;
        if (victim == NULL || is_idle(model) > is_idle(victim) ||
            (is_idle(model) == is_idle(victim) && model->used_turn < victim->used_turn))
            victim = model;
    }
    return victim;
}

/* Those that were asked to leave, or were idle for long enough. */
static void mark_leaving(struct ash_route_models *models, uint64_t now_ns)
{
    for (size_t i = 0; i < models->count; i++) {
        struct model *model = &models->items[i];
        bool is_asked = model->leaves && model->facts.uses[ASH_ROUTE_MODEL_WAITS] == 0;

        if (model->facts.state != ASH_ROUTE_MODEL_LOADED) continue;
        if (is_asked || idle_left(model, now_ns) == 0) model->facts.state = ASH_ROUTE_MODEL_LEAVING;
    }
}

static struct model *find_left(const struct ash_route_models *models)
{
    for (size_t i = 0; i < models->count; i++)
        if (models->items[i].facts.state == ASH_ROUTE_MODEL_LEAVING &&
            models->items[i].facts.uses[ASH_ROUTE_MODEL_RUNS] == 0)
            return &models->items[i];
    return NULL;
}

enum ash_route_model_act ash_route_models_next(struct ash_route_models *models, uint64_t now_ns, size_t *model_out)
{
    enum ash_route_model_act act = ASH_ROUTE_MODEL_NOTHING;
    struct model *wanted, *found = NULL;

    pthread_mutex_lock(&models->lock);
    mark_leaving(models, now_ns);
    wanted = find_wanted(models, now_ns);
    if (!has_room(models, wanted) && !is_making_room(models)) {
        found = find_victim(models, wanted != NULL);
        if (found != NULL) found->facts.state = ASH_ROUTE_MODEL_LEAVING;
    }
    found = find_left(models);
    if (found != NULL) {
        found->facts.state = ASH_ROUTE_MODEL_ENDING;
        act = ASH_ROUTE_MODEL_END;
    } else if (wanted != NULL && has_room(models, wanted)) {
        found = wanted;
        found->facts.state = ASH_ROUTE_MODEL_LOADING;
        found->is_wanted = false;
        act = ASH_ROUTE_MODEL_START;
    }
    if (found != NULL) *model_out = (size_t)(found - models->items);
    pthread_mutex_unlock(&models->lock);
    return act;
}

/* ---- reports of servers ------------------------------------------------------------------------------------------ */

void ash_route_models_note_loaded(struct ash_route_models *models, size_t i)
{
    struct model *model = lock_model(models, i);

    if (model->facts.state == ASH_ROUTE_MODEL_LOADING) {
        model->facts.state = ASH_ROUTE_MODEL_LOADED;
        model->facts.loads++;
        ash_metric_add(model->loads_total, 1);
        ash_metric_set(model->bytes_gauge, (double)model->facts.bytes);
        model->used_ns = ash_clock_ns();
        models->changes++;
    }
    pthread_mutex_unlock(&models->lock);
}

void ash_route_models_note_bytes(struct ash_route_models *models, size_t i, uint64_t bytes)
{
    struct model *model = lock_model(models, i);

    model->facts.bytes = ash_max(model->facts.bytes, bytes);
    ash_metric_set(model->bytes_gauge, (double)model->facts.bytes);
    pthread_mutex_unlock(&models->lock);
}

void ash_route_models_note_ended(struct ash_route_models *models, size_t i, int exit_code, uint64_t restart_ns)
{
    struct model *model = lock_model(models, i);

    ash_assert(model->facts.state != ASH_ROUTE_MODEL_UNLOADED);
    if (model->facts.state == ASH_ROUTE_MODEL_LOADING) {
        model->facts.failures++;
        model->facts.exit_code = exit_code;
        ash_metric_add(model->failures_total, 1);
    }
    ash_metric_set(model->bytes_gauge, 0);
    model->facts.state = ASH_ROUTE_MODEL_UNLOADED;
    model->leaves = false;
    model->restart_ns = restart_ns;
    models->changes++;
    pthread_mutex_unlock(&models->lock);
}
