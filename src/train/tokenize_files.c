/* What lies beside a tokenizer.json: copied with it, and asked which token ends a text. */
#include "train/tokenize_files.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/assert.h"
#include "base/file.h"
#include "base/json.h"

#define TOKENIZER_FILE "tokenizer.json"

static bool is_dir(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* The path of file name beside the tokenizer that from names. */
static int beside(const char *from, const char *name, char *path, struct ash_err *err)
{
    char dir[PATH_MAX];
    const char *slash = strrchr(from, '/');
    size_t length = slash == NULL ? 0 : slash == from ? 1 : (size_t)(slash - from);
    int rc;

    if (is_dir(from)) {
        rc = ash_path_join(path, PATH_MAX, from, name);
    } else if (length >= sizeof(dir)) {
        rc = -ENAMETOOLONG;
    } else {
        memcpy(dir, from, length);
        dir[length] = '\0';
        rc = ash_path_join(path, PATH_MAX, length == 0 ? "." : dir, name);
    }
    if (rc < 0) return ash_err_set(err, rc, "%s: the path is too long", from);
    return 0;
}

static int copy_file(const char *from, const char *to_dir, const char *name, struct ash_err *err)
{
    char path[PATH_MAX], *data = NULL;
    size_t size_bytes = 0;
    int rc = ash_path_join(path, sizeof(path), to_dir, name);

    if (rc < 0) return ash_err_set(err, rc, "%s: the path is too long", to_dir);
    rc = ash_file_read(from, ASH_JSON_MAX_BYTES, &data, &size_bytes, err);
    if (rc < 0) return rc;
    rc = ash_file_replace(path, data, size_bytes, err);
    free(data);
    return rc;
}

int ash_tokenizer_copy(const char *from, const char *to_dir, struct ash_err *err)
{
    static const char *const extras[] = {"tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja"};
    char path[PATH_MAX];
    int rc;

    for (size_t i = 0; i < ASH_COUNT(extras); i++) {
        rc = beside(from, extras[i], path, err);
        if (rc < 0) return rc;
        if (!ash_path_exists(path)) continue;
        rc = copy_file(path, to_dir, extras[i], err);
        if (rc < 0) return rc;
    }
    if (!is_dir(from)) return copy_file(from, to_dir, TOKENIZER_FILE, err);
    rc = beside(from, TOKENIZER_FILE, path, err);
    if (rc < 0) return rc;
    return copy_file(path, to_dir, TOKENIZER_FILE, err);
}

/* eos_token_id: a number, or a list whose first counts. */
static int read_id(const json_t *json, const struct ash_tokenizer *tokenizer, int32_t *id_out, struct ash_err *err)
{
    const json_t *value = json_object_get(json, "eos_token_id");

    if (json_is_array(value)) value = json_array_get(value, 0);
    if (value == NULL || json_is_null(value)) return 0;
    if (!json_is_integer(value) || json_integer_value(value) < 0 || json_integer_value(value) > INT32_MAX ||
        ash_tokenizer_content(tokenizer, (int32_t)json_integer_value(value)) == NULL)
        return ash_err_set(err, -EINVAL, "'eos_token_id' is no id of the tokenizer; name the token with --eos");
    *id_out = (int32_t)json_integer_value(value);
    return 1;
}

/* eos_token: a token, or an object that holds it as content. */
static int read_token(const json_t *json, const struct ash_tokenizer *tokenizer, int32_t *id_out, struct ash_err *err)
{
    const json_t *value = json_object_get(json, "eos_token");
    int32_t id;

    if (json_is_object(value)) value = json_object_get(value, "content");
    if (value == NULL || json_is_null(value)) return 0;
    id = json_is_string(value) ? ash_tokenizer_id(tokenizer, json_string_value(value)) : -1;
    if (id < 0) return ash_err_set(err, -EINVAL, "'eos_token' is no token of the tokenizer; name the token with --eos");
    *id_out = id;
    return 1;
}

/* 1 when the file is there and names the token. */
static int ask_file(const char *from, const char *name, const struct ash_tokenizer *tokenizer, int32_t *id_out,
                    struct ash_err *err)
{
    char path[PATH_MAX];
    json_t *json = NULL;
    int rc = beside(from, name, path, err);

    if (rc < 0) return rc;
    if (!ash_path_exists(path)) return 0;
    rc = ash_json_load(path, &json, err);
    if (rc < 0) return rc;
    rc = read_id(json, tokenizer, id_out, err);
    if (rc == 0) rc = read_token(json, tokenizer, id_out, err);
    json_decref(json);
    return rc < 0 ? ash_err_prefix(err, rc, "%s", path) : rc;
}

static int find_auto(const char *from, const struct ash_tokenizer *tokenizer, int32_t *id_out, struct ash_err *err)
{
    static const char *const files[] = {"generation_config.json", "config.json", "tokenizer_config.json"};
    static const char *const usual[] = {"<|endoftext|>", "</s>", "<|end_of_text|>", "<eos>"};

    for (size_t i = 0; i < ASH_COUNT(files); i++) {
        int rc = ask_file(from, files[i], tokenizer, id_out, err);

        if (rc != 0) return rc < 0 ? rc : 0;
    }
    for (size_t i = 0; i < ASH_COUNT(usual); i++) {
        int32_t id = ash_tokenizer_id(tokenizer, usual[i]);

        if (id < 0) continue;
        *id_out = id;
        return 0;
    }
    return ash_err_set(err, -EINVAL,
                       "%s: nothing says which token ends a text; name it with --eos TOKEN, or use --eos none", from);
}

int ash_tokenizer_find_eos(const char *from, const struct ash_tokenizer *tokenizer, const char *eos, int32_t *id_out,
                           struct ash_err *err)
{
    int32_t id;

    if (eos == NULL || strcmp(eos, "auto") == 0) return find_auto(from, tokenizer, id_out, err);
    if (strcmp(eos, "none") == 0) {
        *id_out = -1;
        return 0;
    }
    id = ash_tokenizer_id(tokenizer, eos);
    if (id < 0) return ash_err_set(err, -EINVAL, "--eos: the tokenizer has no token '%s'", eos);
    *id_out = id;
    return 0;
}
