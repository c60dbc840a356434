/* GGUF files: the header, the list of tensors and where their bytes are. */
#include "storage/gguf/gguf_priv.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/math.h"
#include "storage/io/remote_file.h"

#define SUFFIX ".gguf"
#define MAGIC 0x46554747u /* "GGUF", little endian */
#define VERSION_MIN 2
#define VERSION_MAX 3
#define ALIGNMENT_MIN 8
#define ALIGNMENT_MAX 65536
#define COUNT_MAX ((uint64_t)1 << 20) /* tensors, or values: far beyond any model */
#define VALUE_BYTES_MIN 14            /* the shortest value: key length, a byte of key, type, a byte */
#define TENSOR_BYTES_MIN 33 /* the shortest tensor: name length, a byte of name, dims, one dim, type, offset */
#define TENSOR_NAME_MAX 255
#define TENSOR_DIMS_MAX 4
#define ARENA_BLOCK_BYTES 16384

/* Q8_W is written like Q8_0; it is read as Q8_0 unless metadata override it. */
static const struct {
    uint32_t number;
    enum ash_dtype dtype;
} tensor_types[] = {
    {0, ASH_F32},     {1, ASH_F16},     {2, ASH_Q4_0},   {3, ASH_Q4_1},  {6, ASH_Q5_0},  {7, ASH_Q5_1},
    {8, ASH_Q8_0},    {10, ASH_Q2_K},   {11, ASH_Q3_K},  {12, ASH_Q4_K}, {13, ASH_Q5_K}, {14, ASH_Q6_K},
    {20, ASH_IQ4_NL}, {23, ASH_IQ4_XS}, {39, ASH_MXFP4}, {30, ASH_BF16}, {8, ASH_Q8_W},
};

/* The names of all of GGML's types by their numbers, for messages; NULL: the number is not, or no longer, used. */
static const char *const ggml_names[] = {
    [0] = "F32",         [1] = "F16",       [2] = "Q4_0",     [3] = "Q4_1",    [6] = "Q5_0",        [7] = "Q5_1",
    [8] = "Q8_0",        [9] = "Q8_1",      [10] = "Q2_K",    [11] = "Q3_K",   [12] = "Q4_K",       [13] = "Q5_K",
    [14] = "Q6_K",       [15] = "Q8_K",     [16] = "IQ2_XXS", [17] = "IQ2_XS", [18] = "IQ3_XXS",    [19] = "IQ1_S",
    [20] = "IQ4_NL",     [21] = "IQ3_S",    [22] = "IQ2_S",   [23] = "IQ4_XS", [24] = "I8",         [25] = "I16",
    [26] = "I32",        [27] = "I64",      [28] = "F64",     [29] = "IQ1_M",  [30] = "BF16",       [31] = "Q4_0_4_4",
    [32] = "Q4_0_4_8",   [33] = "Q4_0_8_8", [34] = "TQ1_0",   [35] = "TQ2_0",  [36] = "IQ4_NL_4_4", [37] = "IQ4_NL_4_8",
    [38] = "IQ4_NL_8_8", [39] = "MXFP4",    [40] = "NVFP4",   [41] = "Q1_0",   [42] = "Q2_0",
};

/* ---- tensors ----------------------------------------------------------------------------------------------------- */

static int read_type(uint64_t number, enum ash_dtype *dtype_out, struct ash_err *err)
{
    char name[40];

    for (size_t i = 0; i < ASH_COUNT(tensor_types); i++) {
        if (tensor_types[i].number != number) continue;
        *dtype_out = tensor_types[i].dtype;
        return 0;
    }
    if (number < ASH_COUNT(ggml_names) && ggml_names[number] != NULL)
        snprintf(name, sizeof(name), "%s", ggml_names[number]);
    else
        snprintf(name, sizeof(name), "GGML's number %" PRIu64, number);
    return ash_err_set(
        err, -ENOTSUP,
        "its type, %s, is not read; F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q2_K to Q6_K, IQ4_NL, "
        "IQ4_XS and MXFP4 are: take a file of these (Q4_K_M, say), or make one of the Hugging Face folder (`ashlar "
        "model convert --quant`)",
        name);
}

int ash_gguf_tensor_type(enum ash_dtype dtype)
{
    for (size_t i = 0; i < ASH_COUNT(tensor_types); i++)
        if (tensor_types[i].dtype == dtype) return (int)tensor_types[i].number;
    return -1;
}

/* Dimensions in reverse: the file has the fastest first. */
static int read_dims(struct ash_gguf_cursor *cursor, struct ash_tensor_view *view, struct ash_err *err)
{
    uint64_t count = 0, dim = 0;

    if (ash_gguf_take(cursor, 4, &count) < 0) return ash_err_set(err, -EINVAL, "the file ends inside its description");
    if (count < 1 || count > TENSOR_DIMS_MAX)
        return ash_err_set(err, -EINVAL, "it has %" PRIu64 " dimensions; 1 to %d are allowed", count, TENSOR_DIMS_MAX);
    view->dim_count = (int)count;
    for (int i = view->dim_count - 1; i >= 0; i--) {
        if (ash_gguf_take(cursor, 8, &dim) < 0)
            return ash_err_set(err, -EINVAL, "the file ends inside its description");
        if (dim < 1 || dim > SIZE_MAX) return ash_err_set(err, -EINVAL, "a dimension of %" PRIu64 " cannot be", dim);
        view->dims[i] = (size_t)dim;
    }
    return 0;
}

/* The bytes that its shape needs. */
static int measure(struct ash_tensor_view *view, struct ash_err *err)
{
    size_t block = ash_dtype_block(view->dtype), width = view->dims[view->dim_count - 1], bytes;
    bool overflow;

    if (width % block != 0)
        return ash_err_set(err, -EINVAL, "rows of %zu elements are not whole blocks of %s (%zu elements)", width,
                           ash_dtype_name(view->dtype), block);
    overflow = __builtin_mul_overflow(width / block, ash_dtype_bytes(view->dtype), &bytes);
    for (int i = 0; i < view->dim_count - 1; i++)
        overflow |= __builtin_mul_overflow(bytes, view->dims[i], &bytes);
    if (overflow || bytes > INT64_MAX) return ash_err_set(err, -EINVAL, "its shape overflows: no file can hold it");
    view->size_bytes = bytes;
    return 0;
}

/* One tensor's description but for its name; its offset in the data goes to *offset_out. */
static int read_tensor(struct ash_gguf_cursor *cursor, struct ash_tensor_view *view, uint64_t *offset_out,
                       struct ash_err *err)
{
    uint64_t type = 0;
    int rc = read_dims(cursor, view, err);

    if (rc < 0) return rc;
    if (ash_gguf_take(cursor, 4, &type) < 0 || ash_gguf_take(cursor, 8, offset_out) < 0)
        return ash_err_set(err, -EINVAL, "the file ends inside its description");
    rc = read_type(type, &view->dtype, err);
    if (rc < 0) return rc;
    return measure(view, err);
}

static int read_tensors(struct ash_gguf *file, struct ash_gguf_cursor *cursor, size_t count, uint64_t *offsets,
                        struct ash_err *err)
{
    for (size_t i = 0; i < count; i++) {
        struct ash_tensor_view *view = &file->views[i];
        int rc = ash_gguf_take_name(file, cursor, TENSOR_NAME_MAX, "tensor", &view->name, err);

        if (rc < 0) return rc;
        rc = read_tensor(cursor, view, &offsets[i], err);
        if (rc < 0) return ash_err_prefix(err, rc, "%s: tensor '%.64s'", file->name, view->name);
        file->view_count++;
    }
    return 0;
}

/* Point the views at their bytes, now that it is known where the data begin. */
static int place_tensors(struct ash_gguf *file, const struct ash_gguf_cursor *cursor, size_t alignment,
                         const uint64_t *offsets, struct ash_err *err)
{
    size_t begin = ash_round_up(cursor->at, alignment);
    size_t data_bytes = begin <= cursor->size_bytes ? cursor->size_bytes - begin : 0;

    for (size_t i = 0; i < file->view_count; i++) {
        struct ash_tensor_view *view = &file->views[i];

        if (offsets[i] % alignment != 0)
            return ash_err_set(err, -EINVAL, "%s: tensor '%.64s' begins at %" PRIu64 ", which is no multiple of %zu",
                               file->name, view->name, offsets[i], alignment);
        if (offsets[i] > data_bytes || view->size_bytes > data_bytes - offsets[i])
            return ash_err_set(
                err, -EINVAL, "%s: tensor '%.64s' ends beyond the file's %zu bytes of data: it is truncated or damaged",
                file->name, view->name, data_bytes);
        view->data = cursor->base + begin + offsets[i];
    }
    return 0;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(((const struct ash_tensor_view *)a)->name, ((const struct ash_tensor_view *)b)->name);
}

static int sort_tensors(struct ash_gguf *file, struct ash_err *err)
{
    qsort(file->views, file->view_count, sizeof(*file->views), compare_names);
    for (size_t i = 1; i < file->view_count; i++)
        if (compare_names(&file->views[i - 1], &file->views[i]) == 0)
            return ash_err_set(err, -EINVAL, "%s: tensor '%.64s' is there twice", file->name, file->views[i].name);
    return 0;
}

/* ---- the file ---------------------------------------------------------------------------------------------------- */

static int read_header(const struct ash_gguf *file, struct ash_gguf_cursor *cursor, uint64_t *tensors_out,
                       uint64_t *values_out, struct ash_err *err)
{
    uint64_t magic = 0, version = 0;

    if (ash_gguf_take(cursor, 4, &magic) < 0 || magic != MAGIC)
        return ash_err_set(err, -EINVAL, "%s: this is not a GGUF file", file->name);
    if (ash_gguf_take(cursor, 4, &version) < 0)
        return ash_err_set(err, -EINVAL, "%s: the file ends inside its header: it is truncated", file->name);
    if (version != 0 && (version & 0xffff) == 0)
        return ash_err_set(err, -ENOTSUP, "%s: a big-endian GGUF file cannot be used", file->name);
    if (version < VERSION_MIN || version > VERSION_MAX)
        return ash_err_set(err, -ENOTSUP, "%s: GGUF version %" PRIu64 " is not supported (2 and 3 are)", file->name,
                           version);
    if (ash_gguf_take(cursor, 8, tensors_out) < 0 || ash_gguf_take(cursor, 8, values_out) < 0)
        return ash_err_set(err, -EINVAL, "%s: the file ends inside its header: it is truncated", file->name);
    if (*tensors_out > COUNT_MAX || *tensors_out > cursor->size_bytes / TENSOR_BYTES_MIN || *values_out > COUNT_MAX ||
        *values_out > cursor->size_bytes / VALUE_BYTES_MIN)
        return ash_err_set(err, -EINVAL,
                           "%s: %" PRIu64 " tensors and %" PRIu64
                           " values do not fit the file: it is truncated or damaged",
                           file->name, *tensors_out, *values_out);
    return 0;
}

static int read_alignment(const struct ash_gguf *file, size_t *alignment_out, struct ash_err *err)
{
    int64_t alignment = ASH_GGUF_ALIGNMENT;
    int rc = ash_gguf_int(file, "general.alignment", ALIGNMENT_MIN, ALIGNMENT_MAX, &alignment, err);

    if (rc < 0) return rc;
    if ((alignment & (alignment - 1)) != 0)
        return ash_err_set(err, -EINVAL, "%s: 'general.alignment' is %" PRId64 ", which is no power of two", file->name,
                           alignment);
    *alignment_out = (size_t)alignment;
    return 0;
}

static int read_outline(struct ash_gguf *file, struct ash_gguf_cursor *cursor, struct ash_err *err)
{
    uint64_t tensors = 0, values = 0, *offsets;
    size_t alignment = 0;
    int rc;

    rc = read_header(file, cursor, &tensors, &values, err);
    if (rc < 0) return rc;
    rc = ash_gguf_read_values(file, cursor, (size_t)values, err);
    if (rc < 0) return rc;
    rc = read_alignment(file, &alignment, err);
    if (rc < 0) return rc;
    file->views = calloc((size_t)tensors + 1, sizeof(*file->views)); /* never of size 0 */
    offsets = ash_arena_calloc(file->arena, (size_t)tensors, sizeof(*offsets));
    if (file->views == NULL || offsets == NULL)
        return ash_err_set(err, -ENOMEM, "%s: no memory for the list of tensors", file->name);
    rc = read_tensors(file, cursor, (size_t)tensors, offsets, err);
    if (rc < 0) return rc;
    rc = place_tensors(file, cursor, alignment, offsets, err);
    if (rc < 0) return rc;
    return sort_tensors(file, err);
}

static int read_file(struct ash_gguf *file, const uint8_t *data, size_t size_bytes, struct ash_err *err)
{
    struct ash_gguf_cursor cursor = {.base = data, .size_bytes = size_bytes, .map = &file->map};
    int rc = read_outline(file, &cursor, err);

    return cursor.rc < 0 ? ash_err_set(err, cursor.rc, "%s: %s", file->name, cursor.why.text) : rc;
}

static struct ash_gguf *file_new(const char *name)
{
    struct ash_gguf *file = calloc(1, sizeof(*file));

    if (file == NULL) return NULL;
    file->arena = ash_arena_open(ARENA_BLOCK_BYTES);
    if (file->arena != NULL) file->name = ash_arena_strdup(file->arena, name);
    if (file->name != NULL) return file;
    ash_gguf_close(file);
    return NULL;
}

int ash_gguf_open(const char *path, struct ash_gguf **file_out, struct ash_err *err)
{
    struct ash_gguf *file = file_new(path);
    int rc;

    if (file == NULL) return ash_err_set(err, -ENOMEM, "%s: no memory to open it", path);
    rc = ash_remote_file_map(path, &file->map, err);
    if (rc < 0) goto fail;
    rc = read_file(file, file->map.base, file->map.size_bytes, err);
    if (rc < 0) goto fail;
    *file_out = file;
    return 0;

fail:
    ash_gguf_close(file);
    return rc;
}

int ash_gguf_parse(const void *data, size_t size_bytes, const char *name, struct ash_gguf **file_out,
                   struct ash_err *err)
{
    struct ash_gguf *file = file_new(name);
    int rc = -ENOMEM;

    ash_assert(data != NULL || size_bytes == 0);
    if (file != NULL) file->copy = malloc(size_bytes + 1); /* aligned, which the caller's bytes need not be */
    if (file == NULL || file->copy == NULL) {
        ash_err_set(err, rc, "%s: no memory to open it", name);
        goto fail;
    }
    if (size_bytes > 0) memcpy(file->copy, data, size_bytes);
    rc = read_file(file, file->copy, size_bytes, err);
    if (rc < 0) goto fail;
    *file_out = file;
    return 0;

fail:
    ash_gguf_close(file);
    return rc;
}

void ash_gguf_close(struct ash_gguf *file)
{
    if (file == NULL) return;
    free(file->views);
    free(file->values);
    free(file->copy);
    ash_map_close(&file->map);
    ash_arena_close(file->arena);
    free(file);
}

const struct ash_map *ash_gguf_map(const struct ash_gguf *file, const void *data)
{
    return ash_map_holds(&file->map, data) ? &file->map : NULL;
}

bool ash_gguf_named(const char *path)
{
    size_t length = strlen(path), suffix = strlen(SUFFIX);

    return length > suffix && strcmp(path + length - suffix, SUFFIX) == 0;
}

bool ash_gguf_locate(const char *path, char *buf)
{
    char config[ASH_GGUF_PATH_BYTES];

    if (ash_gguf_named(path)) return (size_t)snprintf(buf, ASH_GGUF_PATH_BYTES, "%s", path) < ASH_GGUF_PATH_BYTES;
    if (ash_path_join(config, sizeof(config), path, "config.json") < 0 || ash_path_exists(config)) return false;
    return ash_path_join(buf, ASH_GGUF_PATH_BYTES, path, ASH_GGUF_MODEL) == 0 && ash_path_exists(buf);
}

int ash_gguf_home(const char *path, char *buf, size_t buf_bytes)
{
    const char *slash = strrchr(path, '/');
    int length = slash == path ? 1 : slash != NULL ? (int)(slash - path) : 0; /* the root stays */
    int used = slash == NULL ? snprintf(buf, buf_bytes, ".") : snprintf(buf, buf_bytes, "%.*s", length, path);

    return used >= 0 && (size_t)used < buf_bytes ? 0 : -ENAMETOOLONG;
}

size_t ash_gguf_size(const struct ash_gguf *file)
{
    return file->view_count;
}

const struct ash_tensor_view *ash_gguf_at(const struct ash_gguf *file, size_t index)
{
    return index < file->view_count ? &file->views[index] : NULL;
}

const struct ash_tensor_view *ash_gguf_find(const struct ash_gguf *file, const char *name)
{
    struct ash_tensor_view wanted = {.name = name};

    return bsearch(&wanted, file->views, file->view_count, sizeof(wanted), compare_names);
}
