/* Policies from YAML, as changes of a preset. Unknown keys are refused, with the nearest known. */
#include "queue/policy/conf_priv.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/number.h"
#include "base/spelling.h"
#include "base/yaml.h"

#define DAY_S 86400.0
#define GPU_MILLI 1000.0
#define AMOUNT_MAX 1e12

/* ---- values ------------------------------------------------------------------------------------------------------ */

static int check_keys(const json_t *object, const char *const *known, const char *where, struct ash_err *err)
{
    const char *key;
    json_t *value;

    if (!json_is_object(object)) return ash_err_set(err, -EINVAL, "%s: expected keys and values", where);
    json_object_foreach((json_t *)object, key, value) {
        const char *nearest = NULL;
        size_t best = SIZE_MAX;
        char buf[400];

        if (ash_policy_name_index(known, key) >= 0) continue;
        for (int i = 0; known[i] != NULL; i++) {
            size_t near = ash_spelling_nearness(key, known[i]);

            if (near >= best) continue;
            best = near;
            nearest = known[i];
        }
        if (nearest != NULL)
            return ash_err_set(err, -EINVAL, "%s: '%.40s' is not known; did you mean '%s'?", where, key, nearest);
        return ash_err_set(err, -EINVAL, "%s: '%.40s' is not known; there are %s", where, key,
                           ash_policy_names_text(known, buf, sizeof(buf)));
    }
    return 0;
}

/* One of names, as its index. */
static int read_choice(const json_t *object, const char *key, const char *const *names, int *value_out,
                       struct ash_err *err)
{
    const char *text = NULL;
    char buf[200];
    int rc = ash_json_string(object, key, &text, err), found;

    if (rc <= 0) return rc;
    found = ash_policy_name_index(names, text);
    if (found < 0)
        return ash_err_set(err, -EINVAL, "%s is one of %s, not '%.40s'", key,
                           ash_policy_names_text(names, buf, sizeof(buf)), text);
    *value_out = found;
    return 1;
}

/* Seconds: a number, or one with s, m, h or d. */
static int read_seconds(const json_t *object, const char *key, double *value_out, struct ash_err *err)
{
    const json_t *value = json_object_get(object, key);
    const char *text = json_string_value(value);
    double factor = 1, number = json_number_value(value);
    char digits[32];
    size_t length;

    if (value == NULL || json_is_null(value)) return 0;
    if (text != NULL) {
        static const char units[] = "smhd";
        static const double seconds[] = {1, 60, 3600, DAY_S};
        const char *unit;

        length = strlen(text);
        unit = length > 1 ? strchr(units, text[length - 1]) : NULL;
        if (unit == NULL || length > sizeof(digits)) number = -1;
        snprintf(digits, sizeof(digits), "%.*s", (int)length - 1, text);
        if (unit != NULL && ash_number_parse(digits, &number) < 0) number = -1;
        if (unit != NULL) factor = seconds[unit - units];
    }
    if ((text == NULL && !json_is_number(value)) || !(number >= 0) || number * factor > 1e10)
        return ash_err_set(err, -EINVAL, "%s is a time such as 90s, 30m, 2h or 7d", key);
    *value_out = number * factor;
    return 1;
}

/* An amount of a resource in thousandths (GPUs, processors) or MiB of GiB. */
static int read_amount(const json_t *object, const char *key, double scale, int64_t *value_out, struct ash_err *err)
{
    double number = 0;
    int rc = ash_json_double(object, key, 0, AMOUNT_MAX, &number, err);

    if (rc > 0) *value_out = llround(number * scale);
    return rc;
}

/* ---- parts of the file ------------------------------------------------------------------------------------------- */

static int read_class(const json_t *object, struct ash_policy_class *class, struct ash_err *err)
{
    static const char *const known[] = {"name", "priority", "preempts", "preemptible", NULL};
    const char *name = NULL;
    int rc = check_keys(object, known, "classes", err);

    *class = (struct ash_policy_class){.is_preemptible = true, .may_preempt = true};
    if (rc >= 0) rc = ash_json_string(object, "name", &name, err);
    if (rc >= 0 && (name == NULL || strlen(name) >= ASH_POLICY_NAME_BYTES))
        rc = ash_err_set(err, -EINVAL, "classes: each needs a short name");
    if (rc < 0) return rc;
    ash_policy_set_name(class->name, name);
    rc = ash_json_double(object, "priority", 0, 1e9, &class->priority, err);
    if (rc >= 0) rc = ash_json_bool(object, "preempts", &class->may_preempt, err);
    if (rc >= 0) rc = ash_json_bool(object, "preemptible", &class->is_preemptible, err);
    return rc < 0 ? ash_err_prefix(err, rc, "class %s", name) : 0;
}

static int read_classes(const json_t *list, struct ash_policy_conf *conf, struct ash_err *err)
{
    const json_t *item;
    size_t i;

    if (json_array_size(list) > ASH_POLICY_CLASSES_MAX)
        return ash_err_set(err, -EINVAL, "at most %d classes", ASH_POLICY_CLASSES_MAX);
    conf->class_count = 0;
    json_array_foreach(list, i, item) {
        struct ash_policy_class class;
        int rc = read_class(item, &class, err);

        if (rc < 0) return rc;
        if (ash_policy_conf_class(conf, class.name) >= 0)
            return ash_err_set(err, -EINVAL, "class '%s' is there twice", class.name);
        conf->classes[conf->class_count++] = class;
    }
    return conf->class_count > 0 ? 0 : ash_err_set(err, -EINVAL, "classes: at least one is needed");
}

static int read_limits(const json_t *object, struct ash_policy_queue *queue, struct ash_err *err)
{
    static const char *const resources[ASH_POLICY_RESOURCES] = {"gpus", "cpus", "memory_gib"};
    static const char *const borrows[ASH_POLICY_RESOURCES] = {"borrow", "borrow_cpus", "borrow_memory_gib"};
    static const char *const lends[ASH_POLICY_RESOURCES] = {"lend", "lend_cpus", "lend_memory_gib"};
    static const double scales[ASH_POLICY_RESOURCES] = {GPU_MILLI, 1000, 1024};
    int rc = 0;

    for (int r = 0; r < ASH_POLICY_RESOURCES && rc >= 0; r++) {
        rc = read_amount(object, resources[r], scales[r], &queue->nominal[r], err);
        if (rc > 0) queue->has_quota = true;
        if (rc >= 0) rc = read_amount(object, borrows[r], scales[r], &queue->borrow[r], err);
        if (rc >= 0) rc = read_amount(object, lends[r], scales[r], &queue->lend[r], err);
    }
    if (rc >= 0) rc = read_amount(object, "max_gpus", GPU_MILLI, &queue->gpus_max, err);
    if (rc >= 0) rc = read_amount(object, "max_user_gpus", GPU_MILLI, &queue->user_gpus_max, err);
    if (rc >= 0) rc = read_amount(object, "max_job_gpus", GPU_MILLI, &queue->job_gpus_max, err);
    return rc;
}

/* A queue of that name below its parent. Its index, -EINVAL or -ENOMEM. */
static int add_queue(const json_t *object, struct ash_policy_conf *conf, const char **name_out, struct ash_err *err)
{
    const char *parent = NULL;
    int rc = ash_json_string(object, "name", name_out, err), above = -1;

    if (rc >= 0) rc = ash_json_string(object, "parent", &parent, err);
    if (rc >= 0 && *name_out == NULL) rc = ash_err_set(err, -EINVAL, "queues: each needs a name");
    if (rc < 0) return rc;
    if (parent != NULL) {
        above = ash_policy_conf_queue(conf, parent);
        if (above < 0)
            return ash_err_set(err, -EINVAL, "queue %.60s: its parent '%.60s' must come before it", *name_out, parent);
    }
    return ash_policy_conf_add_queue(conf, *name_out, above, err);
}

static int read_queue(const json_t *object, struct ash_policy_conf *conf, struct ash_err *err)
{
    static const char *const known[] = {
        "name",       "parent",        "shares",       "weight",          "gpus",      "cpus",
        "memory_gib", "borrow",        "lend",         "borrow_cpus",     "lend_cpus", "borrow_memory_gib",
        "max_gpus",   "max_user_gpus", "max_job_gpus", "lend_memory_gib", "strict",    NULL};
    const char *name = NULL;
    struct ash_policy_queue *queue;
    int rc = check_keys(object, known, "queues", err), index;

    if (rc < 0) return rc;
    index = add_queue(object, conf, &name, err);
    if (index < 0) return index;
    queue = &conf->queues[index];
    rc = read_limits(object, queue, err);
    if (rc >= 0) rc = ash_json_double(object, "shares", 0, 1e9, &queue->shares, err);
    if (rc >= 0) rc = ash_json_double(object, "weight", 0, 1e9, &queue->weight, err);
    if (rc >= 0) rc = ash_json_bool(object, "strict", &queue->is_strict, err);
    if (rc >= 0 && queue->parent < 0 && queue->borrow[ASH_POLICY_GPU] != ASH_POLICY_UNLIMITED)
        rc = ash_err_set(err, -EINVAL, "a queue without a parent has no queue to borrow from");
    return rc < 0 ? ash_err_prefix(err, rc, "queue %s", name) : 0;
}

static int read_queues(const json_t *list, struct ash_policy_conf *conf, struct ash_err *err)
{
    const json_t *item;
    size_t i;

    ash_policy_conf_fini(conf);
    json_array_foreach(list, i, item) {
        int rc = read_queue(item, conf, err);

        if (rc < 0) return rc;
    }
    return conf->queue_count > 0 ? 0 : ash_err_set(err, -EINVAL, "queues: at least one is needed");
}

static int read_levels(const json_t *list, struct ash_policy_conf *conf, struct ash_err *err)
{
    const json_t *item;
    size_t i;

    conf->level_count = 0;
    json_array_foreach(list, i, item) {
        const char *name = json_string_value(item);

        if (name == NULL || conf->level_count >= ASH_POLICY_LEVELS_MAX || strlen(name) >= ASH_POLICY_NAME_BYTES)
            return ash_err_set(err, -EINVAL, "levels: at most %d names from the lowest domain up",
                               ASH_POLICY_LEVELS_MAX);
        ash_policy_set_name(conf->levels[conf->level_count++], name);
    }
    return 0;
}

static int read_weights(const json_t *object, struct ash_policy_conf *conf, struct ash_err *err)
{
    static const char *const known[] = {"class", "age", "size", "fair_share", NULL};
    int rc = check_keys(object, known, "weights", err);

    if (rc >= 0) rc = ash_json_double(object, "class", 0, 1e12, &conf->class_weight, err);
    if (rc >= 0) rc = ash_json_double(object, "age", 0, 1e12, &conf->age_weight, err);
    if (rc >= 0) rc = ash_json_double(object, "size", 0, 1e12, &conf->size_weight, err);
    if (rc >= 0) rc = ash_json_double(object, "fair_share", 0, 1e12, &conf->fair_weight, err);
    return rc;
}

static int read_preempt(const json_t *object, struct ash_policy_conf *conf, struct ash_err *err)
{
    static const char *const known[] = {"within", "cohort", "victims", "protect", "failures", NULL};
    int rc = check_keys(object, known, "preempt", err), within = conf->within, cohort = conf->cohort;
    int victims = conf->victims;
    int64_t failures = conf->failures_max;

    if (rc >= 0) rc = read_choice(object, "within", ash_policy_reclaim_names, &within, err);
    if (rc >= 0) rc = read_choice(object, "cohort", ash_policy_reclaim_names, &cohort, err);
    if (rc >= 0) rc = read_choice(object, "victims", ash_policy_victims_names, &victims, err);
    if (rc >= 0) rc = read_seconds(object, "protect", &conf->protect_s, err);
    if (rc >= 0) rc = ash_json_int(object, "failures", 0, 1000, &failures, err);
    conf->within = (enum ash_policy_reclaim)within;
    conf->cohort = (enum ash_policy_reclaim)cohort;
    conf->victims = (enum ash_policy_victims)victims;
    conf->failures_max = (int)failures;
    return rc < 0 ? ash_err_prefix(err, rc, "preempt") : 0;
}

/* Keys whose values are times. */
static int read_times(const json_t *json, struct ash_policy_conf *conf, struct ash_err *err)
{
    int rc = read_seconds(json, "age_max", &conf->age_max_s, err);

    if (rc >= 0) rc = read_seconds(json, "half_life", &conf->half_life_s, err);
    if (rc >= 0) rc = read_seconds(json, "interval", &conf->interval_s, err);
    if (rc >= 0) rc = read_seconds(json, "run_max", &conf->run_max_s, err);
    if (rc >= 0) rc = read_seconds(json, "turnaround", &conf->turnaround_s, err);
    if (rc >= 0) rc = read_seconds(json, "restart", &conf->restart_s, err);
    return rc;
}

/* Keys whose values are plain. */
static int read_plain(const json_t *json, struct ash_policy_conf *conf, struct ash_err *err)
{
    static const char *const topologies[] = {"aware", "blind", NULL};
    int backfill = conf->backfill, fair = conf->fair, placement = conf->placement, blind = conf->is_topology_blind;
    int64_t depth = conf->depth, starts = conf->queue_starts, seed = (int64_t)conf->seed;
    const char *name = NULL;
    int rc = read_choice(json, "backfill", ash_policy_backfill_names, &backfill, err);

    if (rc >= 0) rc = read_choice(json, "fair_share", ash_policy_fair_names, &fair, err);
    if (rc >= 0) rc = read_choice(json, "placement", ash_policy_place_names, &placement, err);
    if (rc >= 0) rc = read_choice(json, "topology", topologies, &blind, err);
    if (rc >= 0) rc = ash_json_int(json, "depth", 1, 1000000, &depth, err);
    if (rc >= 0) rc = ash_json_int(json, "queue_starts", 0, 1000000, &starts, err);
    if (rc >= 0) rc = ash_json_int(json, "seed", 0, INT64_MAX, &seed, err);
    if (rc >= 0) rc = ash_json_string(json, "name", &name, err);
    if (rc >= 0) rc = ash_json_bool(json, "favor_small", &conf->favors_small, err);
    if (rc >= 0) rc = read_times(json, conf, err);
    conf->backfill = (enum ash_policy_backfill)backfill;
    conf->fair = (enum ash_policy_fair)fair;
    conf->placement = (enum ash_policy_placement)placement;
    conf->is_topology_blind = blind != 0;
    conf->depth = (int)depth;
    conf->queue_starts = (int)starts;
    conf->seed = (uint64_t)seed;
    if (name != NULL) ash_policy_set_name(conf->name, name);
    return rc;
}

static int read_lists(const json_t *json, struct ash_policy_conf *conf, struct ash_err *err)
{
    const json_t *classes = NULL, *queues = NULL, *levels = NULL;
    int rc = ash_json_array(json, "classes", &classes, err);

    if (rc > 0) rc = read_classes(classes, conf, err);
    if (rc >= 0) rc = ash_json_array(json, "queues", &queues, err);
    if (rc > 0) rc = read_queues(queues, conf, err);
    if (rc >= 0) rc = ash_json_array(json, "levels", &levels, err);
    return rc > 0 ? read_levels(levels, conf, err) : rc;
}

static int read_objects(const json_t *json, struct ash_policy_conf *conf, struct ash_err *err)
{
    const json_t *weights = NULL, *preempt = NULL;
    int rc = ash_json_object(json, "weights", &weights, err);

    if (rc > 0) rc = read_weights(weights, conf, err);
    if (rc >= 0) rc = ash_json_object(json, "preempt", &preempt, err);
    return rc > 0 ? read_preempt(preempt, conf, err) : rc;
}

static int read_all(const json_t *json, struct ash_policy_conf *conf, struct ash_err *err)
{
    static const char *const known[] = {
        "preset",  "name",         "classes",    "queues",      "weights",    "age_max",   "half_life", "backfill",
        "depth",   "queue_starts", "interval",   "favor_small", "fair_share", "placement", "topology",  "preempt",
        "run_max", "restart",      "turnaround", "levels",      "seed",       NULL};
    int rc = check_keys(json, known, "policy", err);

    if (rc >= 0) rc = read_plain(json, conf, err);
    if (rc >= 0) rc = read_lists(json, conf, err);
    if (rc >= 0) rc = read_objects(json, conf, err);
    return rc < 0 ? rc : 0;
}

int ash_policy_conf_parse(const char *text, size_t size_bytes, const char *name, struct ash_policy_conf *conf_out,
                          struct ash_err *err)
{
    struct ash_policy_conf conf = {0};
    json_t *json = NULL;
    const char *preset = "ashlar";
    int rc = ash_yaml_parse(text, size_bytes, name, &json, err);

    if (rc < 0) return rc;
    if (!json_is_object(json)) rc = ash_err_set(err, -EINVAL, "expected keys such as `preset:` and `queues:`");
    if (rc >= 0) rc = ash_json_string(json, "preset", &preset, err);
    if (rc >= 0) rc = ash_policy_conf_preset(preset, &conf, err);
    if (rc >= 0) rc = read_all(json, &conf, err);
    json_decref(json);
    if (rc < 0) {
        ash_policy_conf_fini(&conf);
        return ash_err_prefix(err, rc, "%s", name);
    }
    *conf_out = conf;
    return 0;
}
