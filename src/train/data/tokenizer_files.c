/* tokenizer_files: plain copies, plus the one small file that data folders lack. */
#include "train/data/tokenizer_files.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>

#include "base/assert.h"
#include "base/file.h"
#include "base/json.h"
#include "text/tokenizer/tokenizer.h"

#define CONFIG_FILE "tokenizer_config.json"

static const char *const names[] = {
    "tokenizer.json", CONFIG_FILE,  "special_tokens_map.json", "added_tokens.json",   "vocab.json",
    "vocab.txt",      "merges.txt", "tokenizer.model",         "chat_template.jinja", "chat_template.json",
};

int ash_tokenizer_files_dir(const char *name, char *dir, struct ash_err *err)
{
    const char *slash = strrchr(name, '/');
    size_t length = strlen(name);
    struct stat st;

    if (stat(name, &st) == 0 && S_ISREG(st.st_mode))
        length = slash == NULL ? 0 : slash == name ? 1 : (size_t)(slash - name);
    if (length >= PATH_MAX) return ash_err_set(err, -ENAMETOOLONG, "%s: the path is too long", name);
    memcpy(dir, length == 0 ? "." : name, length == 0 ? 1 : length);
    dir[length == 0 ? 1 : length] = '\0';
    return 0;
}

/* Copy a file that may be missing. Returns 1 when it was there. */
static int copy_file(const char *from_dir, const char *to_dir, const char *name, struct ash_err *err)
{
    char from[PATH_MAX], to[PATH_MAX];
    struct ash_map map = {0};
    int rc;

    if (ash_path_join(from, sizeof(from), from_dir, name) < 0 || ash_path_join(to, sizeof(to), to_dir, name) < 0)
        return ash_err_set(err, -ENAMETOOLONG, "%s: the path is too long", to_dir);
    if (!ash_path_exists(from)) return 0;
    rc = ash_map_open(from, &map, err);
    if (rc < 0) return rc;
    rc = ash_file_replace(to, map.base, map.size_bytes, err);
    ash_map_close(&map);
    return rc < 0 ? rc : 1;
}

const char *ash_tokenizer_files_at(size_t index)
{
    return index < ASH_COUNT(names) ? names[index] : NULL;
}

const char *ash_tokenizer_files_first(const char *dir)
{
    char path[PATH_MAX];

    for (size_t i = 0; i < ASH_COUNT(names); i++)
        if (ash_path_join(path, sizeof(path), dir, names[i]) == 0 && ash_path_exists(path)) return names[i];
    return NULL;
}

static int write_config(const char *from_dir, const char *to_dir, const struct ash_model_config *config,
                        struct ash_err *err)
{
    struct ash_tokenizer *tokenizer = NULL;
    char path[PATH_MAX];
    json_t *json;
    int rc = ash_tokenizer_open(from_dir, &tokenizer, err);

    if (rc < 0) return rc;
    json = json_pack("{s:s, s:b, s:s*}", "tokenizer_class", "PreTrainedTokenizerFast", "clean_up_tokenization_spaces",
                     0, "eos_token", config->eos_count > 0 ? ash_tokenizer_content(tokenizer, config->eos[0]) : NULL);
    ash_tokenizer_close(tokenizer);
    rc = ash_path_join(path, sizeof(path), to_dir, CONFIG_FILE);
    if (json == NULL || rc < 0)
        rc = ash_err_set(err, json == NULL ? -ENOMEM : rc, "%s: cannot describe the tokenizer", to_dir);
    else
        rc = ash_json_save(path, json, err);
    json_decref(json);
    return rc;
}

int ash_tokenizer_files_copy(const char *from_dir, const char *to_dir, const struct ash_model_config *config,
                             struct ash_err *err)
{
    bool has_json = false, has_config = false;

    if (from_dir == NULL) return 0;
    for (size_t i = 0; i < ASH_COUNT(names); i++) {
        int rc = copy_file(from_dir, to_dir, names[i], err);
        if (rc < 0) return rc;
        if (i == 0) has_json = rc == 1;
        if (i == 1) has_config = rc == 1;
    }
    return has_json && !has_config && config != NULL ? write_config(from_dir, to_dir, config, err) : 0;
}
