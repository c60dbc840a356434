/* The end of a text is named in up to three files next to the tokenizer; where none does, a usual token will do. */
#include "train/data/tokenize_eos.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

#include "base/assert.h"
#include "base/file.h"
#include "base/json.h"

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
static int ask_file(const char *dir, const char *name, const struct ash_tokenizer *tokenizer, int32_t *id_out,
                    struct ash_err *err)
{
    char path[PATH_MAX];
    json_t *json = NULL;
    int rc = ash_path_join(path, sizeof(path), dir, name);

    if (rc < 0) return ash_err_set(err, rc, "%s: the path is too long", dir);
    if (!ash_path_exists(path)) return 0;
    rc = ash_json_load(path, &json, err);
    if (rc < 0) return rc;
    rc = read_id(json, tokenizer, id_out, err);
    if (rc == 0) rc = read_token(json, tokenizer, id_out, err);
    json_decref(json);
    return rc < 0 ? ash_err_prefix(err, rc, "%s", path) : rc;
}

static int find_auto(const char *dir, const struct ash_tokenizer *tokenizer, int32_t *id_out, struct ash_err *err)
{
    static const char *const files[] = {"generation_config.json", "config.json", "tokenizer_config.json"};
    static const char *const usual[] = {"<|endoftext|>", "</s>", "<|end_of_text|>", "<eos>"};

    for (size_t i = 0; i < ASH_COUNT(files); i++) {
        int rc = ask_file(dir, files[i], tokenizer, id_out, err);

        if (rc != 0) return rc < 0 ? rc : 0;
    }
    for (size_t i = 0; i < ASH_COUNT(usual); i++) {
        int32_t id = ash_tokenizer_id(tokenizer, usual[i]);

        if (id < 0) continue;
        *id_out = id;
        return 0;
    }
    return ash_err_set(err, -EINVAL,
                       "%s: nothing says which token ends a text; name it with --eos TOKEN, or use --eos none", dir);
}

int ash_tokenizer_find_eos(const char *dir, const struct ash_tokenizer *tokenizer, const char *eos, int32_t *id_out,
                           struct ash_err *err)
{
    int32_t id;

    if (eos == NULL || strcmp(eos, "auto") == 0) return find_auto(dir, tokenizer, id_out, err);
    if (strcmp(eos, "none") == 0) {
        *id_out = -1;
        return 0;
    }
    id = ash_tokenizer_id(tokenizer, eos);
    if (id < 0) return ash_err_set(err, -EINVAL, "--eos: the tokenizer has no token '%s'", eos);
    *id_out = id;
    return 0;
}
