/* Finding a tokenizer: a folder with a tokenizer.json, that file itself, a GGUF file, or SentencePiece's file. */
#include "text/tokenizer/tokenizer_priv.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "text/tokenizer/sentencepiece.h"

#define FILE_NAME "tokenizer.json"
#define CONFIG_NAME "tokenizer_config.json"
#define MODEL_SUFFIX ".model"
#define MODEL_BYTES_MAX ((size_t)256 << 20)

static bool is_kind(const char *kind, const char *wanted)
{
    return kind != NULL && strncmp(kind, wanted, strlen(wanted)) == 0;
}

/* The transformers library builds the post-processor of its LlamaTokenizer from add_bos_token, whether tokenizer.json
 * has one or not. Folders of DeepSeek have none. */
static const char *added_bos(const json_t *config, bool is_default)
{
    const char *kind = json_string_value(json_object_get(config, "tokenizer_class"));
    const json_t *bos = json_object_get(config, "bos_token");

    if (!is_kind(kind, "LlamaTokenizer") && !(is_default && is_kind(kind, "GemmaTokenizer"))) return NULL;
    if (!is_default && !json_is_true(json_object_get(config, "add_bos_token"))) return NULL;
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
    bos = added_bos(config, false);
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

/* A tokenizer.json next to the file goes first: it is the tokenizer itself. */
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

/* ---- SentencePiece's files --------------------------------------------------------------------------------------- */

/* The file in a folder, or path itself; NULL if there is none. */
static const char *locate_model(const char *path, char *buf, size_t buf_bytes)
{
    static const char *const names[] = {"tokenizer.model", "spiece.model", "sentencepiece.bpe.model"};
    size_t length = strlen(path), suffix = strlen(MODEL_SUFFIX);

    if (length > suffix && strcmp(path + length - suffix, MODEL_SUFFIX) == 0) return path;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (ash_path_join(buf, buf_bytes, path, names[i]) == 0 && ash_path_exists(buf)) return buf;
    return NULL;
}

/* tokenizer_config.json's tokens, as a tokenizer.json lists them. The caller owns it. */
static json_t *tokens_of(json_t *config)
{
    json_t *list = json_array(), *token;
    const char *id;

    json_object_foreach(json_object_get(config, "added_tokens_decoder"), id, token)
        if (json_is_object(token) && json_is_string(json_object_get(token, "content"))) {
            json_t *added = json_copy(token);

            json_object_set_new(added, "id", json_integer(strtoll(id, NULL, 10)));
            json_array_append_new(list, added);
        }
    return list;
}

/* Some families give pieces other ids than the file has, in code of their own. */
static int check_kind(const json_t *config, const char *path, struct ash_err *err)
{
    static const char *const kinds[] = {"LlamaTokenizer", "CodeLlamaTokenizer", "GemmaTokenizer",
                                        "PreTrainedTokenizerFast"};
    const char *kind = json_string_value(json_object_get(config, "tokenizer_class"));

    for (size_t i = 0; kind != NULL && i < sizeof(kinds) / sizeof(kinds[0]); i++)
        if (is_kind(kind, kinds[i])) return 0;
    if (kind == NULL) return 0;
    return ash_err_set(err, -ENOTSUP,
                       "'%.200s': the ids of a %.60s are not those of this file: make a tokenizer.json of it (the "
                       "transformers library does when it saves the tokenizer)",
                       path, kind);
}

/* The ids that the library's classes put around a text, which the file does not have. */
static int add_around(struct ash_tokenizer *tokenizer, const json_t *config, struct ash_err *err)
{
    const json_t *wanted = json_object_get(config, "add_bos_token");
    const char *bos = added_bos(config, wanted == NULL || json_is_true(wanted));

    return bos != NULL ? ash_tok_post_begin(tokenizer, ash_tokenizer_id(tokenizer, bos), err) : 0;
}

static int open_model(const char *path, struct ash_tokenizer **tokenizer_out, struct ash_err *err)
{
    const char *slash = strrchr(path, '/');
    char config_path[PATH_MAX], *data = NULL;
    struct ash_tokenizer *tokenizer = NULL;
    json_t *config = NULL, *more = NULL;
    size_t size_bytes = 0;
    int rc = 0, length = snprintf(config_path, sizeof(config_path), "%.*s" CONFIG_NAME,
                                  slash != NULL ? (int)(slash + 1 - path) : 0, path);

    if (length < (int)sizeof(config_path) && ash_path_exists(config_path))
        rc = ash_json_load(config_path, &config, err);
    if (rc == 0) rc = check_kind(config, path, err);
    if (rc == 0) rc = ash_file_read(path, MODEL_BYTES_MAX, &data, &size_bytes, err);
    if (rc == 0) more = tokens_of(config);
    if (rc == 0) rc = ash_tokenizer_from_sentencepiece(data, size_bytes, more, path, &tokenizer, err);
    if (rc == 0) rc = add_around(tokenizer, config, err);
    json_decref(config);
    json_decref(more);
    free(data);
    if (rc == 0)
        *tokenizer_out = tokenizer;
    else
        ash_tokenizer_close(tokenizer);
    return rc;
}

int ash_tokenizer_open(const char *dir, struct ash_tokenizer **tokenizer_out, struct ash_err *err)
{
    char path[PATH_MAX], gguf[ASH_GGUF_PATH_BYTES], model[PATH_MAX];
    const char *pieces;
    int rc = ash_path_join(path, sizeof(path), dir, FILE_NAME);

    if (rc < 0) return ash_err_set(err, rc, "'%.200s': the path is too long", dir);
    if (ash_gguf_locate(dir, gguf)) return open_gguf(gguf, tokenizer_out, err);
    pieces = ash_path_exists(path) ? NULL : locate_model(dir, model, sizeof(model));
    if (pieces != NULL) return open_model(pieces, tokenizer_out, err);
    rc = open_json(ash_path_exists(path) ? path : dir, tokenizer_out, err);
    return rc == -EISDIR ? ash_err_set(err, -ENOENT, "'%s' holds no " FILE_NAME, dir) : rc;
}
