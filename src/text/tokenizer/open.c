/* Finding a tokenizer: a folder with a tokenizer.json, that file itself, or a GGUF file. */
#include "text/tokenizer.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>

#include "base/file.h"
#include "base/json.h"

#define FILE_NAME "tokenizer.json"

static int open_json(const char *path, struct ash_tokenizer **tokenizer_out, struct ash_err *err)
{
    char *text = NULL;
    size_t size_bytes = 0;
    int rc = ash_file_read(path, ASH_JSON_MAX_BYTES, &text, &size_bytes, err);

    if (rc < 0) return rc;
    rc = ash_tokenizer_parse(text, size_bytes, path, tokenizer_out, err);
    free(text);
    return rc;
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
