/* Models in a folder, as llama.cpp's server finds them, and folders of Hugging Face. */
#include "model/files/find.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "storage/gguf/gguf.h"

#define GGUF ".gguf"
#define PROJECTOR "mmproj" /* begins the name of a GGUF file that is a part of another model */

static bool ends_with(const char *name, const char *end)
{
    size_t bytes = strlen(name), end_bytes = strlen(end);

    return bytes > end_bytes && strcmp(name + bytes - end_bytes, end) == 0;
}

static uint64_t file_bytes(const char *dir, const char *name)
{
    char path[PATH_MAX];
    struct stat facts;

    if (ash_path_join(path, sizeof(path), dir, name) < 0 || stat(path, &facts) < 0) return 0;
    return (uint64_t)facts.st_size;
}

char *ash_model_default_name(const char *path)
{
    size_t bytes = strlen(path), begin;

    while (bytes > 1 && path[bytes - 1] == '/')
        bytes--;
    for (begin = bytes; begin > 0 && path[begin - 1] != '/'; begin--)
        ;
    if (bytes - begin > 5 && strncmp(path + bytes - 5, ".gguf", 5) == 0) bytes -= 5;
    return strndup(path + begin, bytes - begin);
}

uint64_t ash_model_weight_bytes(const char *path)
{
    char file[ASH_GGUF_PATH_BYTES];
    const struct dirent *entry;
    uint64_t bytes = 0;
    struct stat facts;
    DIR *dir;

    if (ash_gguf_locate(path, file)) return stat(file, &facts) == 0 ? (uint64_t)facts.st_size : 0;
    dir = opendir(path);
    while (dir != NULL && (entry = readdir(dir)) != NULL)
        if (ends_with(entry->d_name, ".safetensors")) bytes += file_bytes(path, entry->d_name);
    if (dir != NULL) closedir(dir);
    return bytes;
}

/* The only GGUF file of a folder, into path. */
static bool find_gguf(const char *dir, char path[PATH_MAX])
{
    const struct dirent *entry;
    DIR *opened = opendir(dir);
    size_t count = 0;

    while (opened != NULL && (entry = readdir(opened)) != NULL) {
        if (!ends_with(entry->d_name, GGUF) || strncmp(entry->d_name, PROJECTOR, strlen(PROJECTOR)) == 0) continue;
        if (ash_path_join(path, PATH_MAX, dir, entry->d_name) == 0) count++;
    }
    if (opened != NULL) closedir(opened);
    return count == 1;
}

/* Is there a model at path? A folder of one GGUF file is that file. */
static bool is_model(char path[PATH_MAX])
{
    static const char *const files[] = {"config.json", "adapter_config.json"};
    char inside[PATH_MAX];

    if (ash_gguf_named(path)) return true;
    for (size_t i = 0; i < 2; i++)
        if (ash_path_join(inside, sizeof(inside), path, files[i]) == 0 && ash_path_exists(inside)) return true;
    if (!find_gguf(path, inside)) return false;
    memcpy(path, inside, sizeof(inside));
    return true;
}

static int see_entry(const char *dir, char *name, int (*see)(void *ctx, const char *name, const char *path), void *ctx)
{
    char path[PATH_MAX];

    if (name[0] == '.' || strncmp(name, PROJECTOR, strlen(PROJECTOR)) == 0) return 0;
    if (ash_path_join(path, sizeof(path), dir, name) < 0 || !is_model(path)) return 0;
    if (ends_with(name, GGUF)) name[strlen(name) - strlen(GGUF)] = '\0';
    return see(ctx, name, path);
}

int ash_model_find_in(const char *dir, int (*see)(void *ctx, const char *name, const char *path), void *ctx,
                      struct ash_err *err)
{
    struct dirent **entries = NULL;
    int count = scandir(dir, &entries, NULL, alphasort), rc = 0;

    if (count < 0) return ash_err_set(err, -errno, "'%.200s' cannot be read: %s", dir, strerror(errno));
    for (int i = 0; i < count; i++) {
        if (rc == 0) rc = see_entry(dir, entries[i]->d_name, see, ctx);
        free(entries[i]);
    }
    free((void *)entries);
    return rc;
}
