/* ashlar scaling run: the runs of a ladder, one after the other, and their table. A ladder is a job and the settings of
 * each of its runs. A finished run is not repeated; one that was stopped continues. */
#include "cmd/scaling_priv.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/file.h"
#include "base/interrupt.h"
#include "base/number.h"
#include "base/yaml.h"
#include "cmd/chaos_job.h"
#include "model/files/open.h"
#include "model/model.h"
#include "post/scaling/law.h"

#define WORDS_MAX 128
#define RUN_LIMIT_S 1e8
#define TAIL_SHARE 0.05 /* of a run without validation: the mean of its last losses counts */

static const struct ash_cmd_usage usage = {
    .synopsis = "ashlar scaling run LADDER.yaml --out DIR",
    .about = "Makes the training runs of a ladder and writes their table, DIR/runs.csv, for `ashlar scaling fit`.\n"
             "A ladder has a job (a file for `ashlar train`) and a list of runs, each with a name and settings.\n"
             "The loss of a run is its last validation loss, or the mean of its last losses.",
    .examples = "  ashlar scaling run ladder.yaml --out runs/ladder\n"
                "  ashlar scaling fit runs/ladder/runs.csv --tied",
};

struct settings {
    const char *out;
};

static const struct ash_opt opts_list[] = {
    {"out", ASH_OPT_STRING, offsetof(struct settings, out), NULL, "folder for the runs and their table", 0, 0, NULL},
};

/* ---- one run ----------------------------------------------------------------------------------------------------- */

/* Arguments of a run: "key=value" of its settings. Returns how many, or -EINVAL. */
static int add_words(const json_t *set, char **words, size_t count, struct ash_err *err)
{
    const char *key;
    json_t *value;

    json_object_foreach((json_t *)(uintptr_t)set, key, value) {
        struct ash_str word = {0};
        char number[ASH_NUMBER_BYTES];
        int rc = ash_str_adds(&word, key);

        if (count + 1 >= WORDS_MAX) return ash_err_set(err, -EINVAL, "a run sets more than %d things", WORDS_MAX);
        if (rc == 0) rc = ash_str_adds(&word, "=");
        if (json_is_string(value))
            rc = rc < 0 ? rc : ash_str_adds(&word, json_string_value(value));
        else if (json_is_boolean(value))
            rc = rc < 0 ? rc : ash_str_adds(&word, json_is_true(value) ? "true" : "false");
        else if (json_is_number(value))
            rc = rc < 0 ? rc : ash_str_adds(&word, ash_number_format(json_number_value(value), number));
        else
            rc = ash_err_set(err, -EINVAL, "'%s' is set to a list or a mapping: numbers, words and booleans can be",
                             key);
        words[count] = word.data;
        if (rc < 0) return rc;
        count++;
    }
    return (int)count;
}

static int train(const char *job, const json_t *set, const char *dir, struct ash_err *err)
{
    char *words[WORDS_MAX] = {strdup("ashlar"), strdup("train"), strdup("--out"), strdup(dir)};
    struct ash_chaos_job process = {0};
    char started[PATH_MAX];
    int rc = ash_path_join(started, sizeof(started), dir, "job.yaml"), count = 4;

    if (rc == 0 && ash_path_exists(started))
        words[count++] = strdup("--resume");
    else
        words[count++] = strdup(job);
    if (rc == 0) rc = add_words(set, words, (size_t)count, err);
    if (rc > 0) rc = ash_chaos_job_start(&process, words, NULL, err);
    if (rc == 0) rc = ash_chaos_job_wait(&process, RUN_LIMIT_S);
    if (rc == 0 && process.code != 0)
        rc = ash_interrupt_requested()
                 ? -ECANCELED
                 : ash_err_set(err, -EIO, "the run in %s ended with exit code %d", dir, process.code);
    for (size_t i = 0; i < WORDS_MAX; i++)
        free(words[i]);
    return rc;
}

/* ---- results ----------------------------------------------------------------------------------------------------- */

/* Add a line of the log: the last validation loss, or a sum of the last losses. */
struct reached {
    double tokens, valid_loss;
    double *losses;
    size_t count;
};

static int add_line(struct reached *reached, const char *text, size_t size, const char *path, struct ash_err *err)
{
    json_t *json = NULL, *valid;
    double *more;
    int rc = ash_json_parse_line(text, size, path, reached->count + 1, &json, err);

    if (rc < 0) return rc;
    more = realloc(reached->losses, (reached->count + 1) * sizeof(*more));
    if (more == NULL) {
        json_decref(json);
        return ash_err_set(err, -ENOMEM, "out of memory for %s", path);
    }
    reached->losses = more;
    reached->losses[reached->count++] = json_number_value(json_object_get(json, "loss"));
    reached->tokens = json_number_value(json_object_get(json, "tokens"));
    valid = json_object_get(json, "valid_loss");
    if (json_is_number(valid)) reached->valid_loss = json_number_value(valid);
    json_decref(json);
    return 0;
}

static int read_log(const char *dir, struct ash_scaling_run *run, struct ash_err *err)
{
    struct reached reached = {.valid_loss = NAN};
    struct ash_map map = {0};
    char path[PATH_MAX];
    int rc = ash_path_join(path, sizeof(path), dir, "log.jsonl");

    if (rc == 0) rc = ash_map_open(path, &map, err);
    for (size_t at = 0; rc == 0 && at < map.size_bytes;) {
        const char *text = (const char *)map.base + at, *end = memchr(text, '\n', map.size_bytes - at);
        size_t size = end != NULL ? (size_t)(end - text) : map.size_bytes - at;

        rc = add_line(&reached, text, size, path, err);
        at += size + 1;
    }
    ash_map_close(&map);
    if (rc == 0 && reached.count == 0) rc = ash_err_set(err, -EBADMSG, "%s has no step", path);
    if (rc == 0) {
        size_t last = (size_t)(TAIL_SHARE * (double)reached.count) + 1;

        run->tokens = reached.tokens;
        run->loss = 0.0;
        for (size_t i = reached.count - last; i < reached.count; i++)
            run->loss += reached.losses[i] / (double)last;
        if (!isnan(reached.valid_loss)) run->loss = reached.valid_loss;
    }
    free(reached.losses);
    return rc;
}

static int count_params(const char *dir, struct ash_scaling_run *run, struct ash_err *err)
{
    struct ash_model *model = NULL;
    int rc = ash_model_open(dir, &model, err);

    run->params = 0.0;
    for (size_t i = 0; rc == 0 && i < ash_model_param_count(model); i++)
        run->params += (double)ash_param_full_count(ash_model_param(model, i));
    ash_model_close(model);
    return rc;
}

static int make_run(const char *job, const json_t *entry, const char *out, struct ash_scaling_run *run,
                    struct ash_err *err)
{
    const char *name = json_string_value(json_object_get(entry, "name"));
    json_t *set = json_object_get(entry, "set");
    char dir[PATH_MAX], model[PATH_MAX];
    int rc;

    if (name == NULL || name[0] == '\0' || strchr(name, '/') != NULL || name[0] == '.')
        return ash_err_set(err, -EINVAL, "a run needs a name that can be a folder's");
    if (!json_is_object(set)) return ash_err_set(err, -EINVAL, "run %s: 'set' is missing: its settings", name);
    rc = ash_path_join(dir, sizeof(dir), out, name);
    if (rc == 0) rc = ash_path_join(model, sizeof(model), dir, "model");
    if (rc < 0) return ash_err_set(err, rc, "run %s: the path is too long", name);
    if (!ash_path_exists(model)) {
        printf("run       %s\n", name);
        fflush(stdout);
        rc = train(job, set, dir, err);
    }
    if (rc == 0) rc = read_log(dir, run, err);
    if (rc == 0) rc = count_params(model, run, err);
    if (rc == 0) printf("%-9s %.0f parameters, %.0f tokens: loss %.4f\n", name, run->params, run->tokens, run->loss);
    return rc;
}

/* ---- the ladder -------------------------------------------------------------------------------------------------- */

static int make_all(const json_t *ladder, const char *path, const char *out, struct ash_err *err)
{
    const char *job = json_string_value(json_object_get(ladder, "job"));
    json_t *runs = json_object_get(ladder, "runs"), *entry;
    struct ash_str table = {0};
    char csv[PATH_MAX];
    size_t i;
    int rc = ash_str_adds(&table, "name,params,tokens,loss\n");

    if (job == NULL || json_array_size(runs) == 0)
        rc = ash_err_set(err, -EINVAL, "%s: a ladder has 'job' (a file) and 'runs' (a list)", path);
    if (rc == 0) rc = ash_dir_make(out, err);
    json_array_foreach(runs, i, entry) {
        struct ash_scaling_run run = {0};

        if (rc == 0) rc = make_run(job, entry, out, &run, err);
        if (rc == 0)
            rc = ash_str_addf(&table, "%s,%.0f,%.0f,%.9g\n", json_string_value(json_object_get(entry, "name")),
                              run.params, run.tokens, run.loss);
    }
    if (rc == 0) rc = ash_path_join(csv, sizeof(csv), out, "runs.csv");
    if (rc == 0) rc = ash_file_replace(csv, table.data, table.size_bytes, err);
    if (rc == 0) printf("table     %s\n", csv);
    ash_str_fini(&table);
    return rc;
}

static int respond(const void *ctx, const struct ash_opts *opts, const char *word)
{
    const struct settings *settings = ctx;
    struct ash_err err = {0};
    json_t *ladder = NULL;
    int rc;

    (void)opts;
    if (settings->out == NULL) return ash_cmd_misuse("scaling run", "--out is missing: name a folder for the runs");
    ash_interrupt_install();
    rc = ash_yaml_load(word, &ladder, &err);
    if (rc == 0) rc = make_all(ladder, word, settings->out, &err);
    json_decref(ladder);
    if (rc == -ECANCELED) return ash_cmd_stopped();
    return rc < 0 ? ash_cmd_fail(&err) : 0;
}

static int run(int argc, char **argv)
{
    const struct ash_opt_table table = {"", "flags", opts_list, ASH_COUNT(opts_list)};
    struct settings settings = {0};
    const struct ash_cmd_form form = {.usage = &usage,
                                      .bindings = {{&table, &settings}},
                                      .takes_word = true,
                                      .missing_word = "which ladder?",
                                      .respond = respond,
                                      .flags = &settings};

    return ash_cmd_run(&form, argc, argv);
}

const struct ash_cmd ash_cmd_scaling_run = {"run", "the training runs of a ladder, and their table", run};
