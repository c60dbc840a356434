/* Where a model keeps its chat template, and the special tokens that it may name: files of its folder, or the metadata
 * of its GGUF file. What lies next to a GGUF file goes first, as for its tokenizer. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "text/chat_template/jinja_priv.h"
#include "storage/gguf/gguf.h"

const char *const ash_jinja_token_names[ASH_JINJA_TOKENS] = {"bos_token", "eos_token", "unk_token", "pad_token"};

#define TEMPLATE_FILE "chat_template.jinja"
#define CONFIG_FILE "tokenizer_config.json"
#define GGUF_KEY "tokenizer.chat_template"

static int out_of_memory(struct ash_err *err)
{
    return ash_err_set(err, -ENOMEM, "out of memory for a chat template");
}

static int no_template(const char *path, struct ash_err *err)
{
    return ash_err_set(err, -ENOENT, "'%s' has no chat template (neither " TEMPLATE_FILE " nor one in " CONFIG_FILE ")",
                       path);
}

/* ---- a folder ---------------------------------------------------------------------------------------------------- */

/* A special token is a string, or an object that holds it as "content". */
static const char *token_of(const json_t *config, const char *key)
{
    const json_t *value = json_object_get(config, key);

    return json_is_object(value) ? json_string_value(json_object_get(value, "content")) : json_string_value(value);
}

/* The template of a tokenizer_config.json, or NULL. */
static const char *template_of(const json_t *config)
{
    const json_t *value = json_object_get(config, "chat_template");
    size_t index;
    json_t *item;

    if (!json_is_array(value)) return json_string_value(value);
    json_array_foreach(value, index, item) {
        const char *name = json_string_value(json_object_get(item, "name"));
        if (name != NULL && strcmp(name, "default") == 0) return json_string_value(json_object_get(item, "template"));
    }
    return NULL;
}

static int take_tokens(struct ash_jinja_source *source, const json_t *config, struct ash_err *err)
{
    for (size_t i = 0; i < ASH_JINJA_TOKENS; i++) {
        const char *token = token_of(config, ash_jinja_token_names[i]);

        if (token == NULL) continue;
        source->tokens[i] = strdup(token);
        if (source->tokens[i] == NULL) return out_of_memory(err);
    }
    return 0;
}

/* The template's own file, or else the one in the config (NULL: none). */
static int take_text(struct ash_jinja_source *source, const char *dir, const json_t *config, struct ash_err *err)
{
    const char *text = template_of(config);
    char path[PATH_MAX];
    int rc = ash_path_join(path, sizeof(path), dir, TEMPLATE_FILE);

    if (rc < 0) return ash_err_set(err, rc, "'%.200s': the path is too long", dir);
    if (ash_path_exists(path)) {
        memcpy(source->name, path, sizeof(path));
        return ash_file_read(path, ASH_JINJA_SOURCE_BYTES_MAX, &source->text, &source->size_bytes, err);
    }
    if (text == NULL) return no_template(dir, err);
    source->text = strdup(text);
    source->size_bytes = strlen(text);
    return source->text != NULL ? 0 : out_of_memory(err);
}

static int find_in_folder(struct ash_jinja_source *source, const char *dir, bool wants_text, struct ash_err *err)
{
    json_t *config = NULL;
    int rc = ash_path_join(source->name, sizeof(source->name), dir, CONFIG_FILE);

    if (rc < 0) return ash_err_set(err, rc, "'%.200s': the path is too long", dir);
    if (ash_path_exists(source->name)) rc = ash_json_load(source->name, &config, err);
    if (rc == 0) rc = take_tokens(source, config, err);
    if (rc == 0 && wants_text) rc = take_text(source, dir, config, err);
    json_decref(config);
    return rc;
}

/* ---- a GGUF file ------------------------------------------------------------------------------------------------- */

/* The text of the token that key names, or NULL. */
static char *gguf_token(const struct ash_gguf *file, const char *key)
{
    const struct ash_gguf_value *tokens = NULL;
    const char *text = NULL;
    size_t bytes = 0, at = 0;
    int64_t id = -1;

    if (ash_gguf_int(file, key, 0, INT32_MAX, &id, NULL) != 1) return NULL;
    if (ash_gguf_array(file, "tokenizer.ggml.tokens", ASH_GGUF_STRING, &tokens, NULL) != 1) return NULL;
    for (int64_t i = 0; i <= id; i++)
        if (!ash_gguf_next_text(tokens, &at, &text, &bytes)) return NULL;
    return strndup(text, bytes);
}

/* Do texts of this file's model begin with bos_token? llama.cpp adds it to chats as to any text, so that the templates
 * of many files lack it. */
static bool gguf_adds_bos(struct ash_gguf *file)
{
    const char *kind = "";
    int64_t adds = 0;

    if (ash_gguf_string(file, "tokenizer.ggml.model", &kind, NULL) == 1) adds = strcmp(kind, "llama") == 0;
    (void)ash_gguf_int(file, "tokenizer.ggml.add_bos_token", 0, 1, &adds, NULL); /* if it says so itself */
    return adds != 0;
}

static int find_in_gguf(struct ash_jinja_source *source, const char *path, bool wants_text, struct ash_err *err)
{
    static const char *const keys[ASH_JINJA_TOKENS] = {"tokenizer.ggml.bos_token_id", "tokenizer.ggml.eos_token_id",
                                                       "tokenizer.ggml.unknown_token_id",
                                                       "tokenizer.ggml.padding_token_id"};
    const char *text = NULL;
    struct ash_gguf *file = NULL;
    int rc = ash_gguf_open(path, &file, err);

    if (rc < 0) return rc;
    for (size_t i = 0; i < ASH_JINJA_TOKENS; i++)
        source->tokens[i] = gguf_token(file, keys[i]);
    source->adds_bos = gguf_adds_bos(file);
    if (wants_text) rc = ash_gguf_string(file, GGUF_KEY, &text, err);
    if (wants_text && rc == 0) rc = ash_err_set(err, -ENOENT, "'%s' has no chat template", path);
    if (rc > 0) {
        source->text = strdup(text);
        source->size_bytes = strlen(text);
        rc = source->text != NULL ? 0 : out_of_memory(err);
    }
    ash_gguf_close(file);
    return rc;
}

/* ---- both -------------------------------------------------------------------------------------------------------- */

int ash_jinja_source_find(struct ash_jinja_source *source, const char *path, struct ash_err *err)
{
    struct ash_err cause = {0};
    char home[PATH_MAX], file[ASH_GGUF_PATH_BYTES];
    int rc;

    if (!ash_gguf_locate(path, file)) return find_in_folder(source, path, true, err);
    rc = ash_gguf_home(file, home, sizeof(home));
    if (rc < 0) return ash_err_set(err, rc, "'%.200s': the path is too long", path);
    rc = find_in_folder(source, home, true, &cause);
    if (rc == 0) return 0;
    if (rc != -ENOENT) return ash_err_set(err, rc, "%s", cause.text);
    ash_jinja_source_fini(source);
    snprintf(source->name, sizeof(source->name), "%s", file);
    return find_in_gguf(source, file, true, err);
}

int ash_jinja_source_read(struct ash_jinja_source *source, const char *path, const char *model, struct ash_err *err)
{
    char home[PATH_MAX], config[PATH_MAX], file[ASH_GGUF_PATH_BYTES];
    bool is_gguf = ash_gguf_locate(model, file);
    int rc = is_gguf ? ash_gguf_home(file, home, sizeof(home)) : ash_path_join(home, sizeof(home), model, ".");

    if (rc >= 0) rc = ash_path_join(config, sizeof(config), home, CONFIG_FILE);
    if (rc < 0) return ash_err_set(err, rc, "'%.200s': the path is too long", model);
    rc = is_gguf && !ash_path_exists(config) ? find_in_gguf(source, file, false, err)
                                             : find_in_folder(source, home, false, err);
    snprintf(source->name, sizeof(source->name), "%s", path);
    if (rc < 0) return rc;
    return ash_file_read(path, ASH_JINJA_SOURCE_BYTES_MAX, &source->text, &source->size_bytes, err);
}

void ash_jinja_source_fini(struct ash_jinja_source *source)
{
    free(source->text);
    for (size_t i = 0; i < ASH_JINJA_TOKENS; i++)
        free(source->tokens[i]);
    *source = (struct ash_jinja_source){0};
}
