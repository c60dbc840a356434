/* Tasks of lm-evaluation-harness: documents from local files, put to the model, scored, and written as it writes
 * them. */
#include "cmd/eval_priv.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/math.h"
#include "base/table.h"
#include "cmd/cmd.h"
#include "base/csv.h"
#include "post/eval/ask.h"

/* ---- documents --------------------------------------------------------------------------------------------------- */

static bool ends_with(const char *text, const char *end)
{
    size_t size = strlen(text), end_size = strlen(end);

    return size >= end_size && strcmp(text + size - end_size, end) == 0;
}

/* Every column of every row, as text. */
static int load_csv(const char *path, json_t *docs, struct ash_err *err)
{
    struct ash_csv *csv = NULL;
    int rc = ash_csv_load(path, &csv, err);

    for (size_t row = 0; rc == 0 && row < ash_csv_rows(csv); row++) {
        json_t *doc = json_object();

        for (size_t column = 0; column < ash_csv_columns(csv); column++)
            json_object_set_new(doc, ash_csv_column(csv, column),
                                json_string(ash_csv_field(csv, row, ash_csv_column(csv, column))));
        json_array_append_new(docs, doc);
    }
    ash_csv_close(csv);
    return rc;
}

static int load_lines(const char *path, json_t *docs, struct ash_err *err)
{
    struct ash_map map = {0};
    uint64_t line = 0;
    int rc = ash_map_open(path, &map, err);

    for (size_t at = 0; rc == 0 && at < map.size_bytes;) {
        const char *text = (const char *)map.base + at, *end = memchr(text, '\n', map.size_bytes - at);
        size_t size = end != NULL ? (size_t)(end - text) : map.size_bytes - at;
        json_t *doc = NULL;

        line++;
        at += size + 1;
        if (size == 0) continue;
        rc = ash_json_parse_line(text, size, path, line, &doc, err);
        if (rc == 0) json_array_append_new(docs, doc);
    }
    ash_map_close(&map);
    return rc;
}

/* A list of objects, or an object that has it in `field`. */
static int load_json(const char *path, const char *field, json_t *docs, struct ash_err *err)
{
    json_t *json = NULL, *list;
    int rc = ash_json_load(path, &json, err);

    if (rc < 0) return rc;
    list = field != NULL ? json_object_get(json, field) : json;
    if (json_is_array(list))
        json_array_extend(docs, list);
    else
        rc = ash_err_set(err, -EINVAL, "%s: a list of documents is missing", path);
    json_decref(json);
    return rc;
}

/* The documents of a split: next to the task's file, or at an absolute path. */
static int load_split(const struct ash_task *task, const char *task_path, const char *split, json_t **docs_out,
                      struct ash_err *err)
{
    const char *file = ash_task_data_file(task, split), *slash = strrchr(task_path, '/'),
               *field = json_string_value(json_object_get(json_object_get(task->json, "dataset_kwargs"), "field"));
    json_t *docs = json_array();
    char path[PATH_MAX];
    int rc;

    if (file == NULL) {
        json_decref(docs);
        return ash_err_set(err, -EINVAL,
                           "%s: split '%s' has no local file: give dataset_path: json and dataset_kwargs.data_files",
                           task_path, split);
    }
    if (file[0] == '/' || slash == NULL || ash_path_exists(file))
        snprintf(path, sizeof(path), "%s", file);
    else
        snprintf(path, sizeof(path), "%.*s/%s", (int)(slash - task_path), task_path, file);
    rc = ends_with(path, ".csv")    ? load_csv(path, docs, err)
         : ends_with(path, ".json") ? load_json(path, field, docs, err)
                                    : load_lines(path, docs, err);
    if (rc == 0 && json_array_size(docs) == 0) rc = ash_err_set(err, -EINVAL, "%s has no documents", path);
    if (rc < 0)
        json_decref(docs);
    else
        *docs_out = docs;
    return rc;
}

/* ---- asking ------------------------------------------------------------------------------------------------------ */

static int ask(struct ash_eval *eval, const struct ash_task *task, const json_t *docs, const json_t *few,
               struct ash_task_answers *answers, struct ash_err *err)
{
    const struct ash_defaults *defaults = ash_engine_defaults(eval->engine);
    const struct ash_model_config *config = ash_model_get_config(ash_engine_model(eval->engine));
    struct ash_core_opts opts = {.max_seqs = (size_t)eval->batch,
                                 .max_tokens = ash_engine_context(eval->engine),
                                 .ranks = ash_engine_ranks(eval->engine)};
    struct ash_eval_watch watch;
    size_t count = json_array_size(docs);
    struct ash_think_words words = {0};
    struct ash_task_model model = {.think_min = (size_t)eval->think_min,
                                   .think_max = (size_t)eval->think_max,
                                   .tokenizer = ash_engine_tokenizer(eval->engine),
                                   .prefix = config->bos >= 0 ? config->bos : config->eos[0],
                                   .eos = defaults->eos,
                                   .eos_count = defaults->eos_count,
                                   .progress = ash_eval_watch_start(&watch, "documents")};
    int rc = ash_eval_find_words(eval, &words, err);

    if (rc < 0) return rc;
    if (words.more.count > 0) model.words = &words;
    if (eval->limit > 0) count = ash_min(count, (size_t)eval->limit);
    rc = ash_core_open(ash_engine_model(eval->engine), ash_engine_exec(eval->engine), &opts, &model.core, err);
    if (rc < 0) {
        ash_think_words_fini(&words);
        return rc;
    }
    rc = ash_task_ask(&(struct ash_task_asked){task, &model, docs, few, count}, answers, err);
    ash_progress_bar_clear(&watch.bar);
    ash_core_close(model.core);
    ash_think_words_fini(&words);
    return rc;
}

/* ---- results ----------------------------------------------------------------------------------------------------- */

/* Add a task to what the harness writes of a run. */
static int add_results(json_t *all, const struct ash_task *task, json_t *results, size_t original, size_t asked)
{
    int rc = json_object_set_new(json_object_get(all, "results"), task->name, results);

    rc |= json_object_set(json_object_get(all, "configs"), task->name, task->json);
    rc |= json_object_set_new(json_object_get(all, "n-shot"), task->name, json_integer((json_int_t)task->fewshot));
    rc |=
        json_object_set_new(json_object_get(all, "n-samples"), task->name,
                            json_pack("{s:I, s:I}", "original", (json_int_t)original, "effective", (json_int_t)asked));
    return rc == 0 ? 0 : -ENOMEM;
}

static void print_results(const struct ash_task *task, const json_t *results, size_t count)
{
    struct ash_table table = {.heads = "|>|"};
    const char *key;
    json_t *value;

    printf("task       %s, %zu documents, %zu examples before each\n", task->name, count, task->fewshot);
    json_object_foreach((json_t *)(uintptr_t)results, key, value) {
        const char *comma = strchr(key, ',');
        struct ash_str other = {0};
        const json_t *error = NULL;

        if (comma == NULL || strstr(key, "_stderr,") != NULL) continue;
        if (ash_str_addf(&other, "%.*s_stderr%s", (int)(comma - key), key, comma) == 0)
            error = json_object_get(results, other.data);
        ash_str_fini(&other);
        if (json_is_number(error))
            ash_table_row(&table, "%s|%.4f|(standard error %.4f)", key, json_number_value(value),
                          json_number_value(error));
        else
            ash_table_row(&table, "%s|%.4f|", key, json_number_value(value));
    }
    ash_table_print(&table, stdout);
}

/* ---- tasks ------------------------------------------------------------------------------------------------------- */

/* One of --tasks, with its documents. */
struct item {
    const char *path;
    struct ash_task *task;
    json_t *docs, *few; /* few: NULL where examples are other documents of docs */
};

static int open_item(const struct ash_eval *eval, struct item *item, struct ash_err *err)
{
    int rc = ash_task_open(item->path, &item->task, err);
    struct ash_task *task = item->task;

    if (rc < 0) return rc;
    if (eval->num_fewshot >= 0) task->fewshot = (size_t)eval->num_fewshot;
    rc = load_split(task, item->path, task->test_split, &item->docs, err);
    if (rc == 0 && task->fewshot > 0 && strcmp(task->fewshot_split, task->test_split) != 0)
        rc = load_split(task, item->path, task->fewshot_split, &item->few, err);
    return rc;
}

/* All of them before the first is asked: a misspelt file costs no hour. */
static int open_items(const struct ash_eval *eval, struct item *items, struct ash_err *err)
{
    for (size_t i = 0; i < eval->tasks.count; i++) {
        int rc;

        items[i].path = eval->tasks.items[i];
        rc = open_item(eval, &items[i], err);
        if (rc < 0) return rc;
        for (size_t k = 0; k < i; k++)
            if (strcmp(items[k].task->name, items[i].task->name) == 0)
                return ash_err_set(err, -EINVAL, "%s and %s are both called '%s': results go by name", items[k].path,
                                   items[i].path, items[i].task->name);
    }
    return 0;
}

static int run_item(struct ash_eval *eval, const struct item *item, json_t *all, struct ash_err *err)
{
    struct ash_task_answers answers = {0};
    json_t *results = NULL;
    int rc = ask(eval, item->task, item->docs, item->few != NULL ? item->few : item->docs, &answers, err);

    if (rc == 0) rc = ash_task_score(item->task, answers.answers, answers.count, &results, err);
    if (rc == 0 && !eval->json) print_results(item->task, results, answers.count);
    if (rc == 0 && add_results(all, item->task, results, json_array_size(item->docs), answers.count) < 0)
        rc = ash_err_set(err, -ENOMEM, "out of memory for results");
    ash_task_answers_fini(&answers);
    return rc;
}

static void close_items(struct item *items, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        json_decref(items[i].docs);
        json_decref(items[i].few);
        ash_task_close(items[i].task);
    }
    free(items);
}

int ash_eval_tasks(struct ash_eval *eval, struct ash_err *err)
{
    struct item *items = calloc(eval->tasks.count, sizeof(*items));
    json_t *all = json_pack("{s:{}, s:{}, s:{}, s:{}, s:s}", "results", "configs", "n-shot", "n-samples", "model_name",
                            eval->model);
    int rc = items != NULL && all != NULL ? open_items(eval, items, err)
                                          : ash_err_set(err, -ENOMEM, "out of memory for tasks");

    for (size_t i = 0; rc == 0 && i < eval->tasks.count; i++)
        rc = run_item(eval, &items[i], all, err);
    if (rc == 0 && eval->output != NULL) rc = ash_json_save(eval->output, all, err);
    if (rc == 0 && eval->json) rc = ash_cmd_print_json(json_incref(all), err);
    json_decref(all);
    if (items != NULL) close_items(items, eval->tasks.count);
    return rc;
}
