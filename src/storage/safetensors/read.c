/* Safetensors, one file: checks every byte of the header before a tensor is returned.
 * The rules are the reference library's: tensors tile the data exactly, without overlap, hole or rest. */
#include "storage/safetensors/safetensors_priv.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/json.h"
#include "storage/io/remote_file.h"

#define ARENA_BLOCK_BYTES ((size_t)64 << 10)

const char *ash_tensor_label(const char *name, char buf[ASH_LABEL_BYTES])
{
    size_t length = 0;

    while (length < ASH_LABEL_BYTES - 4 && name[length] != '\0') {
        unsigned char c = (unsigned char)name[length];
        buf[length++] = c < 0x20 || c == 0x7f ? '?' : (char)c;
    }
    snprintf(buf + length, ASH_LABEL_BYTES - length, "%s", name[length] != '\0' ? "..." : "");
    return buf;
}

int ash_tensor_bytes(enum ash_dtype dtype, const size_t *dims, int dim_count, size_t *bytes_out)
{
    size_t bytes = ash_dtype_bytes(dtype);

    ash_assert(dim_count >= 0 && (dim_count == 0 || dims != NULL));
    for (int i = 0; i < dim_count; i++)
        if (__builtin_mul_overflow(bytes, dims[i], &bytes) || bytes > INT64_MAX) return -EOVERFLOW;
    *bytes_out = bytes;
    return 0;
}

size_t ash_tensor_count(const struct ash_tensor_view *view)
{
    size_t count = 1;

    for (int i = 0; i < view->dim_count; i++)
        count *= view->dims[i]; /* checked when the view was made */
    return count;
}

/* The JSON text of the header: data + 8, *bytes_out long. */
static int check_length(const char *file, const uint8_t *data, size_t size_bytes, size_t *bytes_out,
                        struct ash_err *err)
{
    uint64_t length = 0;

    if (size_bytes < ASH_SAFETENSORS_LENGTH_BYTES)
        return ash_err_set(err, -EINVAL, "%s: %zu bytes are too few for a safetensors file", file, size_bytes);
    for (int i = ASH_SAFETENSORS_LENGTH_BYTES - 1; i >= 0; i--)
        length = length << 8 | data[i];
    if (length > ASH_SAFETENSORS_HEADER_MAX)
        return ash_err_set(err, -EINVAL,
                           "%s: a header of %" PRIu64 " bytes is over the limit of %zu: this is not a safetensors file",
                           file, length, ASH_SAFETENSORS_HEADER_MAX);
    if (length > size_bytes - ASH_SAFETENSORS_LENGTH_BYTES)
        return ash_err_set(err, -EINVAL,
                           "%s: the header needs %" PRIu64 " bytes but the file ends after %zu: it is truncated", file,
                           length, size_bytes - ASH_SAFETENSORS_LENGTH_BYTES);
    if (length == 0 || data[ASH_SAFETENSORS_LENGTH_BYTES] != '{')
        return ash_err_set(err, -EINVAL, "%s: the header does not begin with '{': this is not a safetensors file",
                           file);
    *bytes_out = (size_t)length;
    return 0;
}

static int read_metadata(struct ash_safetensors *set, const char *file, json_t *metadata, struct ash_err *err)
{
    char label[ASH_LABEL_BYTES];
    const char *key;
    json_t *value;

    if (json_is_null(metadata)) return 0;
    if (!json_is_object(metadata))
        return ash_err_set(err, -EINVAL, "%s: " ASH_SAFETENSORS_METADATA " is not an object", file);
    json_object_foreach(metadata, key, value) {
        if (!json_is_string(value))
            return ash_err_set(err, -EINVAL, "%s: " ASH_SAFETENSORS_METADATA ": '%s' is not a string", file,
                               ash_tensor_label(key, label));
    }
    if (set->file_count == 1) set->metadata = json_incref(metadata);
    return 0;
}

static int read_dtype(const json_t *json, enum ash_dtype *dtype_out, struct ash_err *err)
{
    const char *text = json_string_value(json_object_get(json, "dtype"));
    char label[ASH_LABEL_BYTES];
    int dtype;

    if (text == NULL) return ash_err_set(err, -EINVAL, "it has no \"dtype\" string");
    dtype = ash_dtype_parse(text);
    if (dtype < 0) return ash_err_set(err, -EINVAL, "dtype '%s' is not known", ash_tensor_label(text, label));
    *dtype_out = (enum ash_dtype)dtype;
    return 0;
}

/* A JSON whole number >= 0, at most SIZE_MAX. */
static bool is_size(const json_t *json)
{
    return json_is_integer(json) && json_integer_value(json) >= 0 && (uint64_t)json_integer_value(json) <= SIZE_MAX;
}

static int read_shape(const json_t *json, struct ash_tensor_view *view, struct ash_err *err)
{
    const json_t *shape = json_object_get(json, "shape");

    if (!json_is_array(shape)) return ash_err_set(err, -EINVAL, "it has no \"shape\" list");
    if (json_array_size(shape) > ASH_TENSOR_DIMS_MAX)
        return ash_err_set(err, -EINVAL, "a shape of %zu dimensions is over the limit of %d", json_array_size(shape),
                           ASH_TENSOR_DIMS_MAX);
    view->dim_count = (int)json_array_size(shape);
    for (int i = 0; i < view->dim_count; i++) {
        const json_t *dim = json_array_get(shape, (size_t)i);
        if (!is_size(dim)) return ash_err_set(err, -EINVAL, "dimension %d of its shape is not a whole number >= 0", i);
        view->dims[i] = (size_t)json_integer_value(dim);
    }
    return 0;
}

static int read_offsets(const json_t *json, size_t data_bytes, size_t *begin_out, size_t *end_out, struct ash_err *err)
{
    const json_t *offsets = json_object_get(json, "data_offsets");
    const json_t *first = json_array_get(offsets, 0), *second = json_array_get(offsets, 1);
    size_t begin, end;

    if (json_array_size(offsets) != 2 || !is_size(first) || !is_size(second))
        return ash_err_set(err, -EINVAL, "\"data_offsets\" is not a list of two whole numbers >= 0");
    begin = (size_t)json_integer_value(first);
    end = (size_t)json_integer_value(second);
    if (begin > end) return ash_err_set(err, -EINVAL, "data_offsets end (%zu) before they begin (%zu)", end, begin);
    if (end > data_bytes)
        return ash_err_set(err, -EINVAL,
                           "it ends at byte %zu of the data but the file has %zu: it is truncated or damaged", end,
                           data_bytes);
    *begin_out = begin;
    *end_out = end;
    return 0;
}

static int read_entry(const json_t *json, size_t data_bytes, struct ash_safetensors_entry *entry, struct ash_err *err)
{
    struct ash_tensor_view *view = &entry->view;
    size_t end = 0, need;
    int rc;

    if (!json_is_object(json)) return ash_err_set(err, -EINVAL, "its description is not an object");
    rc = read_dtype(json, &view->dtype, err);
    if (rc < 0) return rc;
    rc = read_shape(json, view, err);
    if (rc < 0) return rc;
    rc = read_offsets(json, data_bytes, &entry->begin, &end, err);
    if (rc < 0) return rc;
    if (ash_tensor_bytes(view->dtype, view->dims, view->dim_count, &need) < 0)
        return ash_err_set(err, -EINVAL, "its shape overflows: no file can hold it");
    view->size_bytes = end - entry->begin;
    if (view->size_bytes != need)
        return ash_err_set(err, -EINVAL, "its shape of %s needs %zu bytes but data_offsets give %zu",
                           ash_dtype_name(view->dtype), need, view->size_bytes);
    return 0;
}

static int compare_places(const void *left, const void *right)
{
    const struct ash_safetensors_entry *a = left, *b = right;

    if (a->begin != b->begin) return a->begin < b->begin ? -1 : 1;
    return (a->view.size_bytes > b->view.size_bytes) - (a->view.size_bytes < b->view.size_bytes);
}

/* The entries of one file must tile its data. Sorts them by place. */
static int check_tiling(const char *file, struct ash_safetensors_entry *entries, size_t count, size_t data_bytes,
                        struct ash_err *err)
{
    char label[ASH_LABEL_BYTES], other[ASH_LABEL_BYTES];
    size_t at = 0;

    qsort(entries, count, sizeof(*entries), compare_places);
    for (size_t i = 0; i < count; i++) {
        if (entries[i].begin < at)
            return ash_err_set(err, -EINVAL, "%s: tensors '%s' and '%s' overlap", file,
                               ash_tensor_label(entries[i - 1].view.name, other),
                               ash_tensor_label(entries[i].view.name, label));
        if (entries[i].begin > at)
            return ash_err_set(err, -EINVAL, "%s: tensor '%s': a hole of %zu bytes comes before it", file,
                               ash_tensor_label(entries[i].view.name, label), entries[i].begin - at);
        at += entries[i].view.size_bytes;
    }
    if (at != data_bytes)
        return ash_err_set(err, -EINVAL, "%s: the last %zu bytes belong to no tensor", file, data_bytes - at);
    return 0;
}

/* Point the views at their bytes; a tensor that the file leaves unaligned (the format allows it) gets an aligned
 * copy. */
static int place_views(struct ash_safetensors_entry *entries, size_t count, const uint8_t *data,
                       const struct ash_map *map, struct ash_err *err)
{
    for (size_t i = 0; i < count; i++) {
        struct ash_tensor_view *view = &entries[i].view;
        struct ash_direct_range range;
        int rc;

        view->data = data + entries[i].begin;
        if ((uintptr_t)view->data % ash_dtype_bytes(view->dtype) == 0 || view->size_bytes == 0) continue;
        range = (struct ash_direct_range){map, view->data, view->size_bytes};
        rc = ash_remote_file_bring(&range, 1, err);
        if (rc < 0) return rc;
        entries[i].copy = malloc(view->size_bytes);
        if (entries[i].copy == NULL) return ash_err_set(err, -ENOMEM, "no memory to align its tensors");
        memcpy(entries[i].copy, view->data, view->size_bytes);
        view->data = entries[i].copy;
    }
    return 0;
}

static int read_header(struct ash_safetensors *set, const char *file, json_t *root, size_t data_bytes,
                       struct ash_err *err)
{
    const char *key;
    json_t *value;

    json_object_foreach(root, key, value) {
        struct ash_safetensors_entry entry = {.file = set->file_count - 1};
        char label[ASH_LABEL_BYTES];
        int rc;

        if (strcmp(key, ASH_SAFETENSORS_METADATA) == 0) {
            rc = read_metadata(set, file, value, err);
            if (rc < 0) return rc;
            continue;
        }
        rc = read_entry(value, data_bytes, &entry, err);
        if (rc < 0) return ash_err_prefix(err, rc, "%s: tensor '%s'", file, ash_tensor_label(key, label));
        entry.view.name = ash_arena_strdup(set->arena, key);
        if (entry.view.name == NULL) return ash_err_set(err, -ENOMEM, "%s: no memory for the list of tensors", file);
        set->entries[set->entry_count++] = entry;
    }
    return 0;
}

static int grow_entries(struct ash_safetensors *set, size_t more)
{
    struct ash_safetensors_entry *entries;

    entries = reallocarray(set->entries, set->entry_count + more + 1, sizeof(*entries)); /* never of size 0 */
    if (entries == NULL) return -ENOMEM;
    set->entries = entries;
    return 0;
}

int ash_safetensors_read(struct ash_safetensors *set, const uint8_t *data, size_t size_bytes, struct ash_err *err)
{
    const char *file = set->files[set->file_count - 1].name;
    size_t first = set->entry_count, header_bytes = 0, data_bytes;
    json_t *root = NULL;
    int rc;

    ash_assert(set->file_count > 0); /* ash_safetensors_name_file() comes first */
    rc = check_length(file, data, size_bytes, &header_bytes, err);
    if (rc < 0) return rc;
    rc = ash_json_parse_unique((const char *)data + ASH_SAFETENSORS_LENGTH_BYTES, header_bytes, file, &root, err);
    if (rc < 0) return rc;
    data += ASH_SAFETENSORS_LENGTH_BYTES + header_bytes;
    data_bytes = size_bytes - ASH_SAFETENSORS_LENGTH_BYTES - header_bytes;

    rc = grow_entries(set, json_object_size(root));
    if (rc < 0) ash_err_set(err, rc, "%s: no memory for the list of tensors", file);
    if (rc == 0) rc = read_header(set, file, root, data_bytes, err);
    json_decref(root);
    if (rc < 0) return rc;

    rc = check_tiling(file, set->entries + first, set->entry_count - first, data_bytes, err);
    if (rc < 0) return rc;
    rc = place_views(set->entries + first, set->entry_count - first, data, &set->files[set->file_count - 1].map, err);
    return rc < 0 ? ash_err_prefix(err, rc, "%s", file) : 0;
}

struct ash_safetensors *ash_safetensors_new(size_t file_count)
{
    struct ash_safetensors *set = calloc(1, sizeof(*set));

    if (set == NULL) return NULL;
    set->arena = ash_arena_open(ARENA_BLOCK_BYTES);
    set->files = calloc(file_count, sizeof(*set->files));
    if (set->arena != NULL && set->files != NULL) return set;
    ash_safetensors_close(set);
    return NULL;
}

int ash_safetensors_name_file(struct ash_safetensors *set, const char *name, struct ash_err *err)
{
    char *copy = ash_arena_strdup(set->arena, name);

    if (copy == NULL) return ash_err_set(err, -ENOMEM, "%s: no memory to open it", name);
    set->files[set->file_count++].name = copy;
    return 0;
}

void ash_safetensors_close(struct ash_safetensors *set)
{
    if (set == NULL) return;
    for (size_t i = 0; i < set->entry_count; i++)
        free(set->entries[i].copy);
    for (size_t i = 0; i < set->file_count; i++)
        ash_map_close(&set->files[i].map);
    json_decref(set->metadata);
    ash_arena_close(set->arena);
    free(set->entries);
    free(set->files);
    free(set);
}

const struct ash_map *ash_safetensors_map(const struct ash_safetensors *set, const void *data)
{
    for (size_t i = 0; i < set->file_count; i++)
        if (ash_map_holds(&set->files[i].map, data)) return &set->files[i].map;
    return NULL;
}

static int compare_names(const void *left, const void *right)
{
    const struct ash_safetensors_entry *a = left, *b = right;

    return strcmp(a->view.name, b->view.name);
}

int ash_safetensors_sort(struct ash_safetensors *set, struct ash_err *err)
{
    const struct ash_safetensors_entry *e = set->entries;
    char label[ASH_LABEL_BYTES];

    qsort(set->entries, set->entry_count, sizeof(*e), compare_names);
    for (size_t i = 1; i < set->entry_count; i++)
        if (compare_names(&e[i - 1], &e[i]) == 0)
            return ash_err_set(err, -EINVAL, "tensor '%s' is in both %s and %s",
                               ash_tensor_label(e[i].view.name, label), set->files[e[i - 1].file].name,
                               set->files[e[i].file].name);
    return 0;
}

int ash_safetensors_parse(const void *data, size_t size_bytes, const char *name, struct ash_safetensors **set_out,
                          struct ash_err *err)
{
    struct ash_safetensors *set = ash_safetensors_new(1);
    int rc;

    if (set == NULL) return ash_err_set(err, -ENOMEM, "%s: no memory to open it", name);
    rc = ash_safetensors_name_file(set, name, err);
    if (rc < 0) goto fail;
    rc = ash_safetensors_read(set, data, size_bytes, err);
    if (rc < 0) goto fail;
    rc = ash_safetensors_sort(set, err);
    if (rc < 0) goto fail;
    *set_out = set;
    return 0;

fail:
    ash_safetensors_close(set);
    return rc;
}

size_t ash_safetensors_size(const struct ash_safetensors *set)
{
    return set->entry_count;
}

const struct ash_tensor_view *ash_safetensors_at(const struct ash_safetensors *set, size_t index)
{
    return index < set->entry_count ? &set->entries[index].view : NULL;
}

const struct ash_tensor_view *ash_safetensors_find(const struct ash_safetensors *set, const char *name)
{
    struct ash_safetensors_entry key = {.view.name = name};
    const struct ash_safetensors_entry *found =
        bsearch(&key, set->entries, set->entry_count, sizeof(key), compare_names);

    return found != NULL ? &found->view : NULL;
}

const char *ash_safetensors_metadata(const struct ash_safetensors *set, const char *key)
{
    return json_string_value(json_object_get(set->metadata, key));
}
