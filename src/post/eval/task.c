/* task: the file, its includes, its keys. */
#include "post/eval/task.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/file.h"
#include "base/math.h"
#include "base/yaml.h"

#define INCLUDES_MAX 8
#define TOKENS_DEFAULT 256

/* ---- files ------------------------------------------------------------------------------------------------------- */

/* Python in the file: named, with its line. */
static int refuse_functions(const char *path, const char *text, struct ash_err *err)
{
    const char *found = strstr(text, "!function");
    size_t line = 1, skip, size;

    if (found == NULL) return 0;
    for (const char *c = text; c < found; c++)
        line += *c == '\n';
    found += strlen("!function");
    skip = strspn(found, " \t");
    size = strcspn(found + skip, " \t\r\n,}#");
    return ash_err_set(err, -ENOTSUP, "%s, line %zu: !function %.*s is Python, which is not run: write it as Jinja",
                       path, line, (int)ash_min(size, 80), found + skip);
}

static int parse_text(const char *text, size_t size, const char *path, json_t **json_out, struct ash_err *err)
{
    int rc = refuse_functions(path, text, err);

    if (rc == 0) rc = ash_yaml_parse(text, size, path, json_out, err);
    if (rc == 0 && !json_is_object(*json_out)) {
        json_decref(*json_out);
        return ash_err_set(err, -EINVAL, "%s: a task is a mapping", path);
    }
    return rc;
}

static int load_file(const char *path, json_t **json_out, struct ash_err *err)
{
    struct ash_map map = {0};
    struct ash_str text = {0};
    int rc = ash_map_open(path, &map, err);

    if (rc < 0) return rc;
    rc = ash_str_add(&text, map.base, map.size_bytes);
    if (rc == 0) rc = ash_str_adds(&text, "");
    ash_map_close(&map);
    if (rc < 0) {
        ash_str_fini(&text);
        return ash_err_set(err, -ENOMEM, "out of memory for %s", path);
    }
    rc = parse_text(text.data, text.size_bytes, path, json_out, err);
    ash_str_fini(&text);
    return rc;
}

/* A path that a file names: as it is, or next to the file. */
static int beside(const char *path, const char *name, char out[PATH_MAX])
{
    const char *slash = strrchr(path, '/');

    if (name[0] == '/' || slash == NULL || ash_path_exists(name))
        return snprintf(out, PATH_MAX, "%s", name) < PATH_MAX ? 0 : -ENAMETOOLONG;
    return snprintf(out, PATH_MAX, "%.*s/%s", (int)(slash - path), path, name) < PATH_MAX ? 0 : -ENAMETOOLONG;
}

/* Included files come first; the file's own keys win. */
static int load_task(const char *path, size_t depth, json_t **json_out, struct ash_err *err)
{
    json_t *json = NULL, *base = NULL;
    const char *include;
    char other[PATH_MAX];
    int rc = load_file(path, &json, err);

    if (rc < 0) return rc;
    include = json_string_value(json_object_get(json, "include"));
    if (include != NULL) {
        rc = depth == INCLUDES_MAX ? ash_err_set(err, -ELOOP, "%s: too many files include each other", path)
                                   : beside(path, include, other);
        if (rc == 0) rc = load_task(other, depth + 1, &base, err);
        if (rc == 0) json_object_update(base, json);
        json_decref(json);
        json = base;
        if (rc < 0) return rc;
        json_object_del(json, "include");
    }
    *json_out = json;
    return 0;
}

/* ---- keys -------------------------------------------------------------------------------------------------------- */

/* Jinja as the harness sets it up: line ends after blocks and blanks before them are text. Our engine, as chat
 * templates want it, drops both: an empty expression between them keeps them. */
static int keep_blanks(const char *source, struct ash_str *out)
{
    int rc = ash_str_adds(out, "");

    for (const char *c = source; rc == 0 && *c != '\0'; c++) {
        if (c[0] == '{' && c[1] == '%' && c[2] != '-') rc = ash_str_adds(out, "{{ '' }}");
        if (rc == 0) rc = ash_str_add(out, c, 1);
        if (rc == 0 && c > source + 1 && c[0] == '}' && c[-1] == '%' && c[-2] != '-')
            rc = ash_str_adds(out, "{{ '' }}");
    }
    return rc;
}

static int open_field(const struct ash_task *task, const char *key, struct ash_task_field *field, struct ash_err *err)
{
    json_t *value = json_object_get(task->json, key);
    struct ash_str text = {0};
    size_t size;
    int rc;

    if (value == NULL) return 0;
    if (json_is_integer(value)) {
        char number[32];

        snprintf(number, sizeof(number), "%lld", (long long)json_integer_value(value));
        json_object_set_new(task->json, key, json_string(number));
        value = json_object_get(task->json, key);
    }
    if (json_is_array(value)) {
        field->list = value;
        return 0;
    }
    if (!json_is_string(value)) return ash_err_set(err, -EINVAL, "%s must be a column, a template or a list", key);
    field->source = json_string_value(value);
    size = strlen(field->source);
    field->ends_line = size > 0 && field->source[size - 1] == '\n';
    rc = keep_blanks(field->source, &text);
    if (rc == 0) rc = ash_chat_template_parse(text.data, text.size_bytes, key, NULL, NULL, &field->template, err);
    ash_str_fini(&text);
    return rc;
}

static const char *text_or(const json_t *json, const char *key, const char *otherwise)
{
    const char *text = json_string_value(json_object_get(json, key));

    return text != NULL ? text : otherwise;
}

static int read_output(struct ash_task *task, struct ash_err *err)
{
    static const char *const names[] = {"multiple_choice", "loglikelihood", "loglikelihood_rolling", "generate_until"};
    const char *name = text_or(task->json, "output_type", "generate_until");

    for (size_t i = 0; i < ASH_COUNT(names); i++) {
        if (strcmp(names[i], name) != 0) continue;
        task->output = (enum ash_task_output)i;
        return 0;
    }
    return ash_err_set(err, -ENOTSUP,
                       "output_type %s is not known; multiple_choice, loglikelihood, loglikelihood_rolling and "
                       "generate_until are",
                       name);
}

static void read_generation(struct ash_task *task)
{
    const json_t *settings = json_object_get(task->json, "generation_kwargs");
    const json_t *most = json_object_get(settings, "max_gen_toks");

    task->until = json_object_get(settings, "until");
    task->max_tokens = json_integer_value(most) > 0 ? (size_t)json_integer_value(most) : (size_t)TOKENS_DEFAULT;
    if (json_is_true(json_object_get(settings, "do_sample")))
        task->temperature = json_number_value(json_object_get(settings, "temperature"));
}

static int open_fields(struct ash_task *task, struct ash_err *err)
{
    int rc = open_field(task, "doc_to_text", &task->text, err);

    if (rc == 0) rc = open_field(task, "doc_to_target", &task->target, err);
    if (rc == 0) rc = open_field(task, "doc_to_choice", &task->choice, err);
    if (rc == 0 && task->target.source == NULL) rc = ash_err_set(err, -EINVAL, "doc_to_target is missing");
    if (rc == 0 && task->output == ASH_TASK_MULTIPLE_CHOICE && task->choice.source == NULL && task->choice.list == NULL)
        rc = ash_err_set(err, -EINVAL, "doc_to_choice is missing");
    return rc;
}

static int read_keys(struct ash_task *task, struct ash_err *err)
{
    static const char *const unknown[] = {"process_docs", "process_results", "custom_dataset", "group", "class"};
    const json_t *json = task->json, *fewshot = json_object_get(json, "num_fewshot"),
                 *repeats = json_object_get(json, "repeats");
    int rc = read_output(task, err);

    for (size_t i = 0; i < ASH_COUNT(unknown); i++)
        if (json_object_get(json, unknown[i]) != NULL)
            return ash_err_set(err, -ENOTSUP, "%s is not supported", unknown[i]);
    task->name = text_or(json, "task", NULL);
    if (task->name == NULL) return ash_err_set(err, -EINVAL, "'task' is missing, its name");
    task->description = text_or(json, "description", "");
    task->target_delimiter = text_or(json, "target_delimiter", " ");
    task->fewshot_delimiter = text_or(json, "fewshot_delimiter", "\n\n");
    task->test_split = text_or(json, "test_split", text_or(json, "validation_split", "train"));
    task->fewshot_split = text_or(json, "fewshot_split", text_or(json, "training_split", task->test_split));
    task->fewshot = json_integer_value(fewshot) > 0 ? (size_t)json_integer_value(fewshot) : 0;
    task->repeats = json_integer_value(repeats) > 0 ? (size_t)json_integer_value(repeats) : 1;
    task->takes_first_examples =
        strcmp(text_or(json_object_get(json, "fewshot_config"), "sampler", ""), "first_n") == 0;
    task->filters = json_object_get(json, "filter_list");
    task->metrics = json_object_get(json, "metric_list");
    read_generation(task);
    if (rc == 0) rc = open_fields(task, err);
    return rc < 0 ? rc : ash_task_check(task, err);
}

/* A task of json, which it takes over. */
static int make_task(json_t *json, const char *path, struct ash_task **task_out, struct ash_err *err)
{
    struct ash_task *task = calloc(1, sizeof(*task));
    int rc;

    if (task == NULL) {
        json_decref(json);
        return ash_err_set(err, -ENOMEM, "out of memory for a task");
    }
    task->json = json;
    rc = read_keys(task, err);
    if (rc < 0) {
        ash_task_close(task);
        return ash_err_prefix(err, rc, "%s", path);
    }
    *task_out = task;
    return 0;
}

int ash_task_open(const char *path, struct ash_task **task_out, struct ash_err *err)
{
    json_t *json = NULL;
    int rc = load_task(path, 0, &json, err);

    return rc < 0 ? rc : make_task(json, path, task_out, err);
}

int ash_task_parse(const char *text, const char *name, struct ash_task **task_out, struct ash_err *err)
{
    json_t *json = NULL;
    int rc = parse_text(text, strlen(text), name, &json, err);

    return rc < 0 ? rc : make_task(json, name, task_out, err);
}

void ash_task_close(struct ash_task *task)
{
    if (task == NULL) return;
    ash_chat_template_close(task->text.template);
    ash_chat_template_close(task->target.template);
    ash_chat_template_close(task->choice.template);
    json_decref(task->json);
    free(task);
}

const char *ash_task_data_file(const struct ash_task *task, const char *split)
{
    const json_t *files = json_object_get(json_object_get(task->json, "dataset_kwargs"), "data_files"), *file;

    if (json_is_string(files)) return json_string_value(files);
    file = json_object_get(files, split);
    if (json_is_array(file)) file = json_array_get(file, 0);
    return json_string_value(file);
}
