/* See library_file.h. The file is a header, choices as they are in memory, and a checksum of both: only programs with
 * the same structs on the same kind of machine read each other's. */
#include "compute/cuda/gemm/library_file.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/assert.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/math.h"
#include "base/opts.h"

#define MAGIC 0x31676c6168736100u /* "\0ashalg1": another layout has another one */

struct header {
    uint64_t magic, choice_bytes, count;
    struct ash_library_key key;
};

size_t ash_library_file_bytes(size_t count)
{
    return sizeof(struct header) + count * sizeof(struct ash_library_choice) + sizeof(uint64_t);
}

void ash_library_file_encode(const struct ash_library_key *key, const struct ash_library_choices *choices, void *out)
{
    struct header header = {MAGIC, sizeof(choices->list[0]), choices->count, *key};
    size_t list_bytes = choices->count * sizeof(choices->list[0]);
    unsigned char *at = out;
    uint64_t sum;

    ash_assert(choices->count <= ASH_LIBRARY_CHOICES_MAX);
    memcpy(at, &header, sizeof(header));
    memcpy(at + sizeof(header), choices->list, list_bytes);
    sum = ash_hash_bytes(at, sizeof(header) + list_bytes, 0);
    memcpy(at + sizeof(header) + list_bytes, &sum, sizeof(sum));
}

void ash_library_file_decode(const void *data, size_t size_bytes, const struct ash_library_key *key,
                             struct ash_library_choices *choices_out)
{
    const unsigned char *at = data;
    struct header header;
    uint64_t sum;

    choices_out->count = 0;
    if (size_bytes < ash_library_file_bytes(0)) return;
    memcpy(&header, at, sizeof(header));
    memcpy(&sum, at + size_bytes - sizeof(sum), sizeof(sum));
    if (header.magic != MAGIC || header.choice_bytes != sizeof(choices_out->list[0]) ||
        header.count > ASH_LIBRARY_CHOICES_MAX || size_bytes != ash_library_file_bytes((size_t)header.count) ||
        memcmp(&header.key, key, sizeof(*key)) != 0 || sum != ash_hash_bytes(data, size_bytes - sizeof(sum), 0))
        return;
    choices_out->count = (size_t)header.count;
    memcpy(choices_out->list, at + sizeof(header), choices_out->count * sizeof(choices_out->list[0]));
}

static bool has_shape(const struct ash_library_choice *list, size_t count, const struct ash_lt_shape *shape)
{
    for (size_t i = 0; i < count; i++)
        if (memcmp(&list[i].shape, shape, sizeof(*shape)) == 0) return true;
    return false;
}

void ash_library_choices_merge(struct ash_library_choices *choices, const struct ash_library_choice *more, size_t count)
{
    size_t kept = 0;

    ash_assert(count <= ASH_LIBRARY_CHOICES_MAX);
    for (size_t i = 0; i < choices->count; i++)
        if (!has_shape(more, count, &choices->list[i].shape)) choices->list[kept++] = choices->list[i];
    kept = ash_min(kept, ASH_LIBRARY_CHOICES_MAX - count);
    memmove(choices->list + count, choices->list, kept * sizeof(choices->list[0]));
    if (count > 0) memcpy(choices->list, more, count * sizeof(choices->list[0]));
    choices->count = count + kept;
}

/* ---- where it is ------------------------------------------------------------------------------------------------- */

/* The folder of the file. */
static int folder_of(char *path, size_t path_bytes)
{
    const char *cache = ash_env_get("XDG_CACHE_HOME"), *home = ash_env_get("HOME");
    int length;

    if (cache != NULL && cache[0] == '/')
        length = snprintf(path, path_bytes, "%s/ashlar", cache);
    else if (home != NULL && home[0] == '/')
        length = snprintf(path, path_bytes, "%s/.cache/ashlar", home);
    else
        return -ENOENT;
    return (size_t)length < path_bytes ? 0 : -ENAMETOOLONG;
}

int ash_library_file_path(const struct ash_library_key *key, char *path, size_t path_bytes)
{
    char folder[PATH_MAX], name[64];
    int rc = folder_of(folder, sizeof(folder));

    if (rc < 0) return rc;
    snprintf(name, sizeof(name), "products-%016" PRIx64, ash_hash_bytes(key, sizeof(*key), 0));
    return ash_path_join(path, path_bytes, folder, name);
}

void ash_library_file_read(const struct ash_library_key *key, struct ash_library_choices *choices_out)
{
    char path[PATH_MAX], *data = NULL;
    size_t size_bytes = 0;

    choices_out->count = 0;
    if (ash_library_file_path(key, path, sizeof(path)) < 0) return;
    if (ash_file_read(path, ash_library_file_bytes(ASH_LIBRARY_CHOICES_MAX), &data, &size_bytes, NULL) < 0) return;
    ash_library_file_decode(data, size_bytes, key, choices_out);
    free(data);
}

void ash_library_file_add(const struct ash_library_key *key, const struct ash_library_choice *more, size_t count)
{
    struct ash_library_choices choices;
    char path[PATH_MAX], folder[PATH_MAX];
    void *data;

    if (ash_library_file_path(key, path, sizeof(path)) < 0 || folder_of(folder, sizeof(folder)) < 0) return;
    ash_library_file_read(key, &choices);
    ash_library_choices_merge(&choices, more, count);
    data = malloc(ash_library_file_bytes(choices.count));
    if (data == NULL) return;
    ash_library_file_encode(key, &choices, data);
    if (ash_dir_make(folder, NULL) == 0) ash_file_replace(path, data, ash_library_file_bytes(choices.count), NULL);
    free(data);
}
