/* Policies as data: queues, classes and presets by name. */
#include "queue/policy/conf_priv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/yaml.h"

#define DAY_S 86400.0

const char *const ash_policy_backfill_names[] = {"none", "greedy", "easy", "conservative", "replan", NULL};
const char *const ash_policy_fair_names[] = {"none", "multifactor", "fair_tree", "dominant", "over_quota", NULL};
const char *const ash_policy_place_names[] = {"pack",     "random", "dot_product", "clustering", "gpu_packing",
                                              "best_fit", "fgd",    "fgd_fit",     NULL};
const char *const ash_policy_reclaim_names[] = {"never", "lower", "any", NULL};
const char *const ash_policy_victims_names[] = {"order", "cheapest", NULL};
const char *const ash_policy_preset_names[] = {"fifo", "greedy", "easy", "conservative", "slurm", "kueue",
                                               "kai",  "ashlar", NULL};

/* ---- queues and classes ------------------------------------------------------------------------------------------ */

void ash_policy_set_name(char *name, const char *text)
{
    snprintf(name, ASH_POLICY_NAME_BYTES, "%s", text);
}

int ash_policy_conf_queue(const struct ash_policy_conf *conf, const char *name)
{
    for (int i = 0; i < conf->queue_count; i++)
        if (strcmp(conf->queues[i].name, name) == 0) return i;
    return -1;
}

int ash_policy_conf_class(const struct ash_policy_conf *conf, const char *name)
{
    for (int i = 0; i < conf->class_count; i++)
        if (strcmp(conf->classes[i].name, name) == 0) return i;
    return -1;
}

int ash_policy_conf_add_queue(struct ash_policy_conf *conf, const char *name, int parent, struct ash_err *err)
{
    struct ash_policy_queue queue = {.parent = parent, .shares = 1, .weight = 1}, *queues;

    if (name[0] == '\0' || strlen(name) >= ASH_POLICY_NAME_BYTES)
        return ash_err_set(err, -EINVAL, "a queue needs a name of at most %d bytes", ASH_POLICY_NAME_BYTES - 1);
    if (ash_policy_conf_queue(conf, name) >= 0) return ash_err_set(err, -EINVAL, "queue '%s' is there twice", name);
    if (conf->queue_count >= ASH_POLICY_QUEUES_MAX)
        return ash_err_set(err, -EINVAL, "more than %d queues", ASH_POLICY_QUEUES_MAX);
    queues = realloc(conf->queues, ((size_t)conf->queue_count + 1) * sizeof(*queues));
    if (queues == NULL) return ash_err_set(err, -ENOMEM, "out of memory");
    conf->queues = queues;
    ash_policy_set_name(queue.name, name);
    for (int r = 0; r < ASH_POLICY_RESOURCES; r++)
        queue.nominal[r] = queue.borrow[r] = queue.lend[r] = ASH_POLICY_UNLIMITED;
    queue.gpus_max = queue.user_gpus_max = queue.job_gpus_max = ASH_POLICY_UNLIMITED;
    queues[conf->queue_count] = queue;
    return conf->queue_count++;
}

void ash_policy_conf_fini(struct ash_policy_conf *conf)
{
    free(conf->queues);
    conf->queues = NULL;
    conf->queue_count = 0;
}

/* ---- presets ----------------------------------------------------------------------------------------------------- */

static void set_slurm(struct ash_policy_conf *conf)
{
    conf->backfill = ASH_POLICY_BACKFILL_EASY;
    conf->fair = ASH_POLICY_FAIR_TREE;
    conf->class_weight = 10000; /* QOS, age and fair share as in AWS's example of Slurm on ParallelCluster */
    conf->age_weight = 1000;
    conf->fair_weight = 100000;
    conf->within = conf->cohort = ASH_POLICY_RECLAIM_LOWER;
}

static void set_kueue(struct ash_policy_conf *conf)
{
    conf->backfill = ASH_POLICY_BACKFILL_GREEDY; /* BestEffortFIFO */
    conf->fair = ASH_POLICY_FAIR_DOMINANT;
    conf->class_weight = 1;
    conf->within = ASH_POLICY_RECLAIM_LOWER;
    conf->cohort = ASH_POLICY_RECLAIM_ANY;
}

static void set_kai(struct ash_policy_conf *conf)
{
    conf->backfill = ASH_POLICY_BACKFILL_GREEDY;
    conf->fair = ASH_POLICY_FAIR_OVER_QUOTA;
    conf->class_weight = 1;
    conf->within = ASH_POLICY_RECLAIM_LOWER;
    conf->cohort = ASH_POLICY_RECLAIM_ANY;
}

/* What we would set: reservations for the first, classes and fair share, the cheapest victims, two hours of peace. */
static void set_ashlar(struct ash_policy_conf *conf)
{
    set_slurm(conf);
    conf->victims = ASH_POLICY_VICTIMS_CHEAPEST;
    conf->protect_s = 7200;
    conf->run_max_s = 7 * DAY_S;
    conf->failures_max = 2;
    conf->placement = ASH_POLICY_PLACE_PACK;
}

int ash_policy_name_index(const char *const *names, const char *name)
{
    for (int i = 0; names[i] != NULL; i++)
        if (strcmp(names[i], name) == 0) return i;
    return -1;
}

const char *ash_policy_names_text(const char *const *names, char *buf, size_t buf_bytes)
{
    size_t length = 0;

    buf[0] = '\0';
    for (int i = 0; names[i] != NULL && length < buf_bytes; i++)
        length += (size_t)snprintf(buf + length, buf_bytes - length, "%s%s", i > 0 ? ", " : "", names[i]);
    return buf;
}

int ash_policy_conf_preset(const char *name, struct ash_policy_conf *conf_out, struct ash_err *err)
{
    struct ash_policy_conf conf = {.class_count = 1,
                                   .depth = 1000,
                                   .interval_s = 30,
                                   .age_max_s = 7 * DAY_S,
                                   .half_life_s = 7 * DAY_S,
                                   .restart_s = 120,
                                   .seed = 1};
    char buf[256];
    int which = ash_policy_name_index(ash_policy_preset_names, name), rc;

    if (which < 0)
        return ash_err_set(err, -ENOENT, "there is no policy '%.60s': a file, or one of %s", name,
                           ash_policy_names_text(ash_policy_preset_names, buf, sizeof(buf)));
    ash_policy_set_name(conf.name, name);
    ash_policy_set_name(conf.classes[0].name, "normal");
    conf.classes[0].is_preemptible = conf.classes[0].may_preempt = true;
    if (which < 4) conf.backfill = (enum ash_policy_backfill)which;
    if (which == 0) conf.is_topology_blind = true;
    if (which == 4) set_slurm(&conf);
    if (which == 5) set_kueue(&conf);
    if (which == 6) set_kai(&conf);
    if (which == 7) set_ashlar(&conf);
    rc = ash_policy_conf_add_queue(&conf, "all", -1, err);
    if (rc < 0) return rc;
    *conf_out = conf;
    return 0;
}

int ash_policy_conf_open(const char *path, struct ash_policy_conf *conf_out, struct ash_err *err)
{
    char *text = NULL;
    size_t bytes = 0;
    int rc;

    if (ash_policy_name_index(ash_policy_preset_names, path) >= 0 || !ash_path_exists(path))
        return ash_policy_conf_preset(path, conf_out, err); /* the program beside us may be called ashlar, too */
    rc = ash_file_read(path, ASH_YAML_MAX_BYTES, &text, &bytes, err);
    if (rc < 0) return rc;
    rc = ash_policy_conf_parse(text, bytes, path, conf_out, err);
    free(text);
    return rc;
}
