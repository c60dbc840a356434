/* See library_file.h. The file is a header, choices as they are in memory, and a checksum of both: only programs with
 * the same structs on the same kind of machine read each other's. */
#include "compute/cuda/gemm/library_file.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "base/assert.h"
#include "base/cache_dir.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/math.h"

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

/* Both with a NUL; the caller frees them. */
static int places_of(const struct ash_library_key *key, struct ash_str *folder, struct ash_str *path)
{
    int rc = ash_cache_dir(folder, NULL);

    if (rc < 0) return rc;
    return ash_str_addf(path, "%s/products-%016" PRIx64, folder->data, ash_hash_bytes(key, sizeof(*key), 0));
}

static void read_path(const char *path, const struct ash_library_key *key, struct ash_library_choices *choices_out)
{
    size_t size_bytes = 0;
    char *data = NULL;

    if (ash_file_read(path, ash_library_file_bytes(ASH_LIBRARY_CHOICES_MAX), &data, &size_bytes, NULL) < 0) return;
    ash_library_file_decode(data, size_bytes, key, choices_out);
    free(data);
}

void ash_library_file_read(const struct ash_library_key *key, struct ash_library_choices *choices_out)
{
    struct ash_str folder = {0}, path = {0};

    choices_out->count = 0;
    if (places_of(key, &folder, &path) == 0) read_path(path.data, key, choices_out);
    ash_str_fini(&folder);
    ash_str_fini(&path);
}

void ash_library_file_add(const struct ash_library_key *key, const struct ash_library_choice *more, size_t count)
{
    struct ash_str folder = {0}, path = {0};
    struct ash_library_choices choices = {0};
    void *data = NULL;

    if (places_of(key, &folder, &path) == 0 && ash_dir_make(folder.data, NULL) == 0) {
        read_path(path.data, key, &choices);
        ash_library_choices_merge(&choices, more, count);
        data = malloc(ash_library_file_bytes(choices.count));
    }
    if (data != NULL) {
        ash_library_file_encode(key, &choices, data);
        ash_file_replace(path.data, data, ash_library_file_bytes(choices.count), NULL);
    }
    free(data);
    ash_str_fini(&folder);
    ash_str_fini(&path);
}
