/* Safetensors, one file written: header first, then every tensor streamed through one small buffer into a temporary
 * file that takes the name only when all of it is on disk. */
#include "storage/safetensors/safetensors_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/math.h"
#include "base/utf8.h"
#include "storage/io/io_priv.h"

#define CHUNK_BYTES ((size_t)4 << 20) /* a multiple of every element size: a chunk never cuts an element */
#define HEADER_ALIGN 8
#define TEMP_TRIES 100

/* The header's contents, computed before a byte is written. */
struct plan {
    const struct ash_tensor_source *source;
    size_t *order; /* place in the file -> index into source->specs */
    size_t *bytes; /* of spec i */
    char *header;  /* malloc'd, padded */
    size_t header_bytes;
};

static int check_spec(const struct ash_tensor_spec *spec, bool filled, size_t *bytes_out, struct ash_err *err)
{
    char label[ASH_LABEL_BYTES];

    if (spec->name == NULL) return ash_err_set(err, -EINVAL, "a tensor has no name");
    ash_tensor_label(spec->name, label);
    if (strcmp(spec->name, ASH_SAFETENSORS_METADATA) == 0 ||
        ash_utf8_valid_prefix(spec->name, strlen(spec->name)) != strlen(spec->name))
        return ash_err_set(err, -EINVAL, "a tensor cannot be named '%s'", label);
    if ((int)spec->dtype < 0 || spec->dtype >= ASH_DTYPE_COUNT || ash_dtype_block(spec->dtype) != 1 ||
        spec->dim_count < 0 || spec->dim_count > ASH_TENSOR_DIMS_MAX)
        return ash_err_set(err, -EINVAL, "tensor '%s': a dtype of %d or %d dimensions cannot be written", label,
                           (int)spec->dtype, spec->dim_count);
    if (ash_tensor_bytes(spec->dtype, spec->dims, spec->dim_count, bytes_out) < 0)
        return ash_err_set(err, -EOVERFLOW, "tensor '%s': its shape overflows: no file can hold it", label);
    if (!filled && spec->data == NULL && *bytes_out > 0)
        return ash_err_set(err, -EINVAL, "tensor '%s': there are no bytes to write", label);
    return 0;
}

int ash_tensor_source_bytes(const struct ash_tensor_source *source, size_t *bytes, struct ash_err *err)
{
    size_t total = 0;

    for (size_t i = 0; i < source->count; i++) {
        int rc = check_spec(&source->specs[i], source->fill != NULL, &bytes[i], err);
        if (rc < 0) return rc;
        if (__builtin_add_overflow(total, bytes[i], &total) || total > INT64_MAX)
            return ash_err_set(err, -EOVERFLOW, "the tensors together are larger than any file can be");
    }
    return 0;
}

/* The format has no room for padding between tensors, so large elements go first: then every tensor is aligned. */
static void make_order(struct plan *plan)
{
    size_t place = 0;

    for (size_t width = 8; width > 0; width /= 2)
        for (size_t i = 0; i < plan->source->count; i++)
            if (ash_dtype_bytes(plan->source->specs[i].dtype) == width) plan->order[place++] = i;
    ash_assert(place == plan->source->count); /* every width is one of these four */
}

static json_t *describe_tensor(const struct ash_tensor_spec *spec, size_t begin, size_t end)
{
    json_t *shape = json_array();

    for (int i = 0; i < spec->dim_count; i++)
        if (json_array_append_new(shape, json_integer((json_int_t)spec->dims[i])) < 0) {
            json_decref(shape);
            return NULL;
        }
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", ash_dtype_name(spec->dtype), "shape", shape, "data_offsets",
                     (json_int_t)begin, (json_int_t)end);
}

static int describe_tensors(const struct plan *plan, json_t *root, struct ash_err *err)
{
    char label[ASH_LABEL_BYTES];
    size_t at = 0;

    for (size_t place = 0; place < plan->source->count; place++) {
        size_t i = plan->order[place];
        const struct ash_tensor_spec *spec = &plan->source->specs[i];
        if (json_object_get(root, spec->name) != NULL)
            return ash_err_set(err, -EINVAL, "two tensors are named '%s'", ash_tensor_label(spec->name, label));
        if (json_object_set_new(root, spec->name, describe_tensor(spec, at, at + plan->bytes[i])) < 0)
            return ash_err_set(err, -ENOMEM, "no memory for the header");
        at += plan->bytes[i];
    }
    return 0;
}

static int describe_metadata(const struct ash_metadata *metadata, size_t count, json_t *root, struct ash_err *err)
{
    json_t *object = json_object();

    if (count == 0) {
        json_decref(object);
        return 0;
    }
    for (size_t i = 0; i < count; i++)
        if (json_object_set_new(object, metadata[i].key, json_string(metadata[i].value)) < 0) {
            json_decref(object);
            return ash_err_set(err, -EINVAL, "metadata %zu is not valid UTF-8", i);
        }
    if (json_object_set_new(root, ASH_SAFETENSORS_METADATA, object) < 0)
        return ash_err_set(err, -ENOMEM, "no memory for the header");
    return 0;
}

/* The 8 bytes of length and the JSON text, padded with spaces so that the data begins aligned. */
static int print_header(struct plan *plan, const json_t *root, struct ash_err *err)
{
    size_t text_bytes = json_dumpb(root, NULL, 0, JSON_COMPACT);
    size_t padded = ash_round_up(text_bytes, HEADER_ALIGN);

    if (text_bytes == 0) return ash_err_set(err, -ENOMEM, "no memory for the header");
    if (padded > ASH_SAFETENSORS_HEADER_MAX)
        return ash_err_set(err, -EFBIG,
                           "a header of %zu bytes is over the format's limit of %zu: write fewer tensors to a file",
                           padded, ASH_SAFETENSORS_HEADER_MAX);
    plan->header_bytes = ASH_SAFETENSORS_LENGTH_BYTES + padded;
    plan->header = malloc(plan->header_bytes);
    if (plan->header == NULL) return ash_err_set(err, -ENOMEM, "no memory for the header");
    for (size_t i = 0; i < ASH_SAFETENSORS_LENGTH_BYTES; i++)
        plan->header[i] = (char)(padded >> (8 * i));
    memset(plan->header + ASH_SAFETENSORS_LENGTH_BYTES, ' ', padded);
    json_dumpb(root, plan->header + ASH_SAFETENSORS_LENGTH_BYTES, padded, JSON_COMPACT);
    return 0;
}

static void plan_fini(struct plan *plan)
{
    free(plan->order);
    free(plan->bytes);
    free(plan->header);
}

static int plan_init(struct plan *plan, const struct ash_tensor_source *source, const struct ash_metadata *metadata,
                     size_t metadata_count, struct ash_err *err)
{
    json_t *root = json_object();
    int rc = -ENOMEM;

    *plan = (struct plan){.source = source};
    plan->order = calloc(source->count + 1, sizeof(*plan->order));
    plan->bytes = calloc(source->count + 1, sizeof(*plan->bytes));
    if (root == NULL || plan->order == NULL || plan->bytes == NULL)
        ash_err_set(err, rc, "no memory to list %zu tensors", source->count);
    else
        rc = ash_tensor_source_bytes(source, plan->bytes, err);
    if (rc < 0) goto fail;
    make_order(plan);
    rc = describe_metadata(metadata, metadata_count, root, err);
    if (rc < 0) goto fail;
    rc = describe_tensors(plan, root, err);
    if (rc < 0) goto fail;
    rc = print_header(plan, root, err);
    if (rc < 0) goto fail;
    json_decref(root);
    return 0;

fail:
    json_decref(root);
    plan_fini(plan);
    return rc;
}

/* Of a layout, nothing is read: no tensor needs data. */
static int no_fill(void *ctx, size_t index, size_t first_byte, void *buf, size_t size_bytes)
{
    (void)ctx;
    (void)index;
    (void)first_byte;
    (void)buf;
    (void)size_bytes;
    return -EINVAL;
}

int ash_safetensors_layout_init(struct ash_safetensors_layout *layout, const struct ash_tensor_spec *specs,
                                size_t count, const struct ash_metadata *metadata, size_t metadata_count,
                                struct ash_err *err)
{
    struct ash_tensor_source source = {.specs = specs, .count = count, .fill = no_fill};
    struct plan plan;
    int rc = plan_init(&plan, &source, metadata, metadata_count, err);

    if (rc < 0) return rc;
    *layout = (struct ash_safetensors_layout){.header = plan.header, .header_bytes = plan.header_bytes};
    plan.header = NULL;
    layout->offsets = calloc(count + 1, sizeof(*layout->offsets));
    layout->size_bytes = layout->header_bytes;
    if (layout->offsets == NULL) {
        plan_fini(&plan);
        ash_safetensors_layout_fini(layout);
        return ash_err_set(err, -ENOMEM, "no memory to list %zu tensors", count);
    }
    for (size_t place = 0; place < count; place++) {
        layout->offsets[plan.order[place]] = layout->size_bytes;
        layout->size_bytes += plan.bytes[plan.order[place]];
    }
    plan_fini(&plan);
    return 0;
}

void ash_safetensors_layout_fini(struct ash_safetensors_layout *layout)
{
    free(layout->header);
    free(layout->offsets);
    *layout = (struct ash_safetensors_layout){0};
}

/* One tensor through buf (CHUNK_BYTES, NULL if there is no fill). *fill_failed_out: the failure is fill's, not the
 * disk's. */
static int write_tensor(int fd, const struct plan *plan, size_t i, void *buf, bool *fill_failed_out)
{
    const struct ash_tensor_source *source = plan->source;

    if (source->fill == NULL) return ash_io_write(fd, source->specs[i].data, plan->bytes[i]);
    for (size_t at = 0; at < plan->bytes[i]; at += CHUNK_BYTES) {
        size_t size = ash_min(plan->bytes[i] - at, CHUNK_BYTES);
        int rc = source->fill(source->ctx, source->first + i, at, buf, size);
        if (rc < 0) {
            *fill_failed_out = true;
            return rc;
        }
        rc = ash_io_write(fd, buf, size);
        if (rc < 0) return rc;
    }
    return 0;
}

static int write_content(int fd, const char *path, const struct plan *plan, struct ash_err *err)
{
    char label[ASH_LABEL_BYTES], reason[128];
    bool fill_failed = false;
    void *buf = NULL;
    int rc = 0;

    if (plan->source->fill != NULL) {
        buf = malloc(CHUNK_BYTES);
        if (buf == NULL) return ash_err_set(err, -ENOMEM, "%s: no memory to write it", path);
    }
    rc = ash_io_write(fd, plan->header, plan->header_bytes);
    for (size_t place = 0; place < plan->source->count && rc == 0; place++) {
        size_t i = plan->order[place];
        rc = write_tensor(fd, plan, i, buf, &fill_failed);
        if (fill_failed)
            ash_err_set(err, rc, "%s: tensor '%s': its content could not be produced: %s", path,
                        ash_tensor_label(plan->source->specs[i].name, label), strerror_r(-rc, reason, sizeof(reason)));
    }
    free(buf);
    if (rc < 0 && !fill_failed) ash_io_fail(err, rc, path, "write");
    return rc;
}

/* A new file in the folder of path, its name in temp (PATH_MAX). Returns the descriptor. */
static int open_temp(const char *path, char *temp, struct ash_err *err)
{
    static atomic_uint serial;

    for (int i = 0; i < TEMP_TRIES; i++) {
        unsigned number = atomic_fetch_add_explicit(&serial, 1, memory_order_relaxed);
        int fd, length = snprintf(temp, PATH_MAX, "%s.tmp-%ld-%u", path, (long)getpid(), number);
        if (length < 0 || length >= PATH_MAX) return ash_io_fail(err, -ENAMETOOLONG, path, "create");
        fd = open(temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd >= 0) return fd;
        if (errno != EEXIST) return ash_io_fail(err, -errno, path, "create");
    }
    return ash_io_fail(err, -EEXIST, path, "create a temporary file for");
}

static int sync_parent(const char *path, struct ash_err *err)
{
    char parent[PATH_MAX];
    int rc = ash_io_parent(parent, sizeof(parent), path);

    if (rc < 0) return ash_io_fail(err, rc, path, "flush");
    return ash_dir_sync(parent, err);
}

int ash_safetensors_write_source(const char *path, const struct ash_tensor_source *source,
                                 const struct ash_metadata *metadata, size_t metadata_count, struct ash_err *err)
{
    char temp[PATH_MAX];
    struct plan plan;
    int fd, rc;

    ash_assert(source->count == 0 || source->specs != NULL);
    rc = plan_init(&plan, source, metadata, metadata_count, err);
    if (rc < 0) return ash_err_prefix(err, rc, "%s", path);
    fd = open_temp(path, temp, err);
    if (fd < 0) {
        plan_fini(&plan);
        return fd;
    }
    rc = write_content(fd, path, &plan, err);
    plan_fini(&plan);
    if (rc < 0) {
        close(fd);
        goto fail;
    }
    rc = ash_io_flush_close(fd);
    if (rc == 0 && rename(temp, path) != 0) rc = -errno;
    if (rc < 0) {
        ash_io_fail(err, rc, path, "write");
        goto fail;
    }
    return sync_parent(path, err);

fail:
    unlink(temp);
    return rc;
}

int ash_safetensors_write(const char *path, const struct ash_tensor_spec *specs, size_t count,
                          const struct ash_metadata *metadata, size_t metadata_count, ash_tensor_fill_fn fill,
                          void *ctx, struct ash_err *err)
{
    struct ash_tensor_source source = {.specs = specs, .count = count, .fill = fill, .ctx = ctx};

    return ash_safetensors_write_source(path, &source, metadata, metadata_count, err);
}
