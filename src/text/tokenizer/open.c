/* Finding a tokenizer: a folder with a tokenizer.json, that file itself, or a GGUF file. */
#include "text/tokenizer/tokenizer_priv.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"

#define FILE_NAME "tokenizer.json"
#define CONFIG_NAME "tokenizer_config.json"

/* The transformers library builds the post-processor of its LlamaTokenizer from add_bos_token, whether tokenizer.json
 * has one or not. Folders of DeepSeek have none. */
static const char *added_bos(const json_t *config)
{
    const char *kind = json_string_value(json_object_get(config, "tokenizer_class"));
    const json_t *bos = json_object_get(config, "bos_token");

    if (kind == NULL || strncmp(kind, "LlamaTokenizer", strlen("LlamaTokenizer")) != 0) return NULL;
    if (!json_is_true(json_object_get(config, "add_bos_token"))) return NULL;
    return json_string_value(json_is_object(bos) ? json_object_get(bos, "content") : bos);
}

/* What tokenizer_config.json, next to tokenizer.json, says of the ids around a text. */
static int apply_config(struct ash_tokenizer *tokenizer, const char *path, struct ash_err *err)
{
    const char *slash = strrchr(path, '/'), *bos;
    char config_path[PATH_MAX];
    json_t *config = NULL;
    int length, rc;

    if (tokenizer->post.has_template) return 0;
    length = snprintf(config_path, sizeof(config_path), "%.*s" CONFIG_NAME, slash != NULL ? (int)(slash + 1 - path) : 0,
                      path);
    if (length >= (int)sizeof(config_path) || !ash_path_exists(config_path)) return 0;
    rc = ash_json_load(config_path, &config, err);
    if (rc < 0) return rc;
    bos = added_bos(config);
    if (bos != NULL) rc = ash_tok_post_begin(tokenizer, ash_tokenizer_id(tokenizer, bos), err);
    json_decref(config);
    return rc;
}

static int open_json(const char *path, struct ash_tokenizer **tokenizer_out, struct ash_err *err)
{
    struct ash_tokenizer *tokenizer = NULL;
    char *text = NULL;
    size_t size_bytes = 0;
    int rc = ash_file_read(path, ASH_JSON_MAX_BYTES, &text, &size_bytes, err);

    if (rc < 0) return rc;
    rc = ash_tokenizer_parse(text, size_bytes, path, &tokenizer, err);
    free(text);
    if (rc == 0) rc = apply_config(tokenizer, path, err);
    if (rc < 0) {
        ash_tokenizer_close(tokenizer);
        return rc;
    }
    *tokenizer_out = tokenizer;
    return 0;
}

/* A tokenizer.json next to the file goes first: it is the tokenizer itself, not what such a file can say of it. */
static int open_gguf(const char *path, struct ash_tokenizer **tokenizer_out, struct ash_err *err)
{
    char home[PATH_MAX], json[PATH_MAX];
    struct ash_gguf *file = NULL;
    int rc = ash_gguf_home(path, home, sizeof(home));

    if (rc == 0) rc = ash_path_join(json, sizeof(json), home, FILE_NAME);
    if (rc < 0) return ash_err_set(err, rc, "'%.200s': the path is too long", path);
    if (ash_path_exists(json)) return open_json(json, tokenizer_out, err);
    rc = ash_gguf_open(path, &file, err);
    if (rc < 0) return rc;
    rc = ash_tokenizer_from_gguf(file, path, tokenizer_out, err);
    ash_gguf_close(file);
    return rc;
}

int ash_tokenizer_open(const char *dir, struct ash_tokenizer **tokenizer_out, struct ash_err *err)
{
    char path[PATH_MAX], gguf[ASH_GGUF_PATH_BYTES];
    int rc = ash_path_join(path, sizeof(path), dir, FILE_NAME);

    if (rc < 0) return ash_err_set(err, rc, "'%.200s': the path is too long", dir);
    if (ash_gguf_locate(dir, gguf)) return open_gguf(gguf, tokenizer_out, err);
    rc = open_json(ash_path_exists(path) ? path : dir, tokenizer_out, err);
    return rc == -EISDIR ? ash_err_set(err, -ENOENT, "'%s' holds no " FILE_NAME, dir) : rc;
}
