/* The configuration of a model, wherever it is written: config.json of a folder, or the metadata of a GGUF file. */
#include "model/files/open.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "model/files/gguf_model_priv.h"

static int select_gguf(const struct dirent *entry)
{
    size_t length = strlen(entry->d_name);

    return length > 5 && strcmp(entry->d_name + length - 5, ".gguf") == 0;
}

/* Folders of GGUF files often hold one model in several precisions: say that one of them is to be named. Returns
 * -ENOENT, or 0 where dir holds none. */
static int explain_ggufs(const char *dir, struct ash_err *err)
{
    struct dirent **entries = NULL;
    int count = scandir(dir, &entries, select_gguf, alphasort), rc = 0;

    if (count == 1)
        rc = ash_err_set(err, -ENOENT, "'%s' holds a GGUF file: give its name, '%s/%s'", dir, dir, entries[0]->d_name);
    else if (count > 1)
        rc = ash_err_set(err, -ENOENT, "'%s' holds %d GGUF files: give the name of one, such as '%s/%s'", dir, count,
                         dir, entries[0]->d_name);
    for (int i = 0; i < count; i++)
        free(entries[i]);
    free(entries);
    return rc;
}

/* OWNER/NAME as on Hugging Face, or NULL: one slash, and no path. */
static const char *hub_name(const char *dir)
{
    const char *name = strncmp(dir, "hf://", 5) == 0 ? dir + 5 : dir, *slash = strchr(name, '/');

    if (slash == NULL || slash == name || slash[1] == '\0' || strchr(slash + 1, '/') != NULL) return NULL;
    return name[0] != '.' && name[0] != '~' ? name : NULL;
}

/* There is no config.json: suggest a path. */
static int explain_missing(const char *dir, struct ash_err *err)
{
    char inner[4096];

    if (!ash_path_exists(dir) && hub_name(dir) != NULL)
        return ash_err_set(
            err, -ENOENT,
            "there is no model folder or .gguf file '%.100s'; if that is a name on Hugging Face, fetch the "
            "folder first (hf download %.100s --local-dir DIR) and take --model DIR",
            dir, hub_name(dir));
    if (!ash_path_exists(dir)) return ash_err_set(err, -ENOENT, "there is no model folder or .gguf file '%s'", dir);
    if (ash_path_join(inner, sizeof(inner), dir, "model/config.json") == 0 && ash_path_exists(inner))
        return ash_err_set(err, -ENOENT, "'%s' is the folder of a run: its model is '%s/model'", dir, dir);
    if (explain_ggufs(dir, err) < 0) return -ENOENT;
    return ash_err_set(err, -ENOENT,
                       "'%s' is not a model: it takes a folder with a config.json or a " ASH_GGUF_MODEL
                       ", or a file whose name ends in .gguf",
                       dir);
}

static int load_folder(const char *dir, struct ash_model_config *config_out, struct ash_err *err)
{
    char path[4096];
    json_t *json = NULL;
    int rc = ash_path_join(path, sizeof(path), dir, "config.json");

    if (rc < 0) return ash_err_set(err, rc, "%s: the path is too long", dir);
    if (!ash_path_exists(path)) return explain_missing(dir, err);
    rc = ash_json_load(path, &json, err);
    if (rc < 0) return rc;
    rc = ash_model_config_parse(json, config_out, err);
    json_decref(json);
    return rc < 0 ? ash_err_prefix(err, rc, "%s", path) : 0;
}

static int load_gguf(const char *path, struct ash_model_config *config_out, struct ash_err *err)
{
    struct ash_gguf *file = NULL;
    int rc = ash_gguf_open(path, &file, err);

    if (rc < 0) return rc;
    rc = ash_gguf_model_config(file, config_out, err);
    if (rc == 0) config_out->rope.factors = NULL; /* they are in the file */
    ash_gguf_close(file);
    return rc < 0 ? ash_err_prefix(err, rc, "%s", path) : 0;
}

int ash_model_config_load(const char *path, struct ash_model_config *config_out, struct ash_err *err)
{
    char file[ASH_GGUF_PATH_BYTES];

    return ash_gguf_locate(path, file) ? load_gguf(file, config_out, err) : load_folder(path, config_out, err);
}
