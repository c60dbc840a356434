/* A server that is submitted: the section `serve` of the job file and serve.NAME=VALUE become words of `ashlar serve`,
 * judged here by its own table. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/str.h"
#include "base/yaml.h"
#include "cmd/jobs_priv.h"

#define SECTION "serve"
#define MODEL "model="

void ash_cmd_serve_words_free(struct ash_cmd_serve_words *words)
{
    for (size_t i = 0; i < words->count; i++)
        free(words->items[i]);
    words->count = 0;
}

/* A value as it is written on a command line; lists have commas. */
static int add_value(const json_t *value, struct ash_str *text)
{
    char *dumped;
    int rc = 0;

    if (json_is_string(value)) return ash_str_addf(text, "%s", json_string_value(value));
    if (json_is_array(value)) {
        for (size_t i = 0; i < json_array_size(value) && rc == 0; i++) {
            if (i > 0) rc = ash_str_addf(text, ",");
            if (rc == 0) rc = add_value(json_array_get(value, i), text);
        }
        return rc;
    }
    dumped = json_dumps(value, JSON_ENCODE_ANY);
    rc = dumped == NULL ? -ENOMEM : ash_str_addf(text, "%s", dumped);
    free(dumped);
    return rc;
}

static int add_section(const json_t *section, struct ash_cmd_serve_words *words)
{
    const char *key;
    json_t *value;

    json_object_foreach((json_t *)section, key, value) {
        struct ash_str text = {0};

        if (json_is_null(value)) continue;
        if (words->count == ASH_COUNT(words->items)) return -E2BIG;
        if (ash_str_addf(&text, "%s=", key) < 0 || add_value(value, &text) < 0) {
            ash_str_fini(&text);
            return -ENOMEM;
        }
        words->items[words->count++] = text.data;
    }
    return 0;
}

static void drop_model(struct ash_cmd_serve_words *words)
{
    size_t kept = 0;

    for (size_t i = 0; i < words->count; i++)
        if (strncmp(words->items[i], MODEL, strlen(MODEL)) == 0)
            free(words->items[i]);
        else
            words->items[kept++] = words->items[i];
    words->count = kept;
}

/* A server setting on the command line: serve.NAME=VALUE or NAME=VALUE. */
static int add_word(const char *word, struct ash_cmd_serve_words *words)
{
    size_t length = strlen(SECTION ".");

    if (strncmp(word, SECTION ".", length) == 0) word += length;
    if (strncmp(word, MODEL, strlen(MODEL)) == 0) drop_model(words); /* the setting replaces the file's */
    if (words->count == ASH_COUNT(words->items)) return -E2BIG;
    words->items[words->count] = strdup(word);
    return words->items[words->count++] == NULL ? -ENOMEM : 0;
}

static bool has_model(const struct ash_cmd_serve_words *words)
{
    for (size_t i = 0; i < words->count; i++)
        if (strncmp(words->items[i], MODEL, strlen(MODEL)) == 0) return true;
    return false;
}

int ash_cmd_serve_words_read(const char *job_file, const char *const *settings, size_t setting_count,
                             struct ash_cmd_serve_words *words_out, struct ash_err *err)
{
    json_t *file = NULL;
    int rc = ash_yaml_load(job_file, &file, err);

    *words_out = (struct ash_cmd_serve_words){0};
    if (rc < 0) return rc;
    rc = add_section(json_object_get(file, SECTION), words_out);
    for (size_t i = 0; i < setting_count && rc == 0; i++)
        rc = add_word(settings[i], words_out);
    json_decref(file);
    if (rc < 0)
        rc = ash_err_set(err, rc, rc == -E2BIG ? "more than %zu settings of a server" : "out of memory",
                         ASH_COUNT(words_out->items));
    if (rc == 0 && !has_model(words_out))
        rc = ash_err_set(err, -EINVAL, "job.command is serve: say which model, as the nodes see it: serve.model=/path");
    if (rc == 0) rc = ash_cmd_serve_check((const char *const *)words_out->items, words_out->count, err);
    if (rc < 0) ash_cmd_serve_words_free(words_out);
    return rc;
}
