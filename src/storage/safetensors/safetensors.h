/* safetensors - the tensor file of the field: read by mapping, written in one pass, replaced atomically.
 * A reader trusts nothing: the header's size, every offset, shape and dtype is checked before a pointer is returned. */
#ifndef ASH_STORAGE_SAFETENSORS_SAFETENSORS_H
#define ASH_STORAGE_SAFETENSORS_SAFETENSORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ashlar/err.h"
#include "base/dtype.h"
#include "base/file.h"

#define ASH_TENSOR_DIMS_MAX 8
#define ASH_SAFETENSORS_LENGTH_BYTES 8                 /* the little-endian header length that opens a file */
#define ASH_SAFETENSORS_HEADER_MAX ((size_t)100000000) /* the format's own limit */

/* A tensor in a mapped file; borrowed from the reader. */
struct ash_tensor_view {
    const char *name;
    enum ash_dtype dtype;
    int dim_count;
    size_t dims[ASH_TENSOR_DIMS_MAX];
    const void *data; /* little endian, row-major; aligned to its element size */
    size_t size_bytes;
};

size_t ash_tensor_count(const struct ash_tensor_view *view); /* number of elements */

struct ash_safetensors; /* one or many files as one set of names */

/* Open a file, or a Hugging Face folder: model.safetensors, or the shards that model.safetensors.index.json lists.
 * Weights stay on disk until they are touched (but for tensors that a file leaves unaligned: those are copied). */
int ash_safetensors_open(const char *path, struct ash_safetensors **set_out, struct ash_err *err);
/* The same without the bytes of tensors whose file is remote (remote_file.h): readers fetch them first. */
int ash_safetensors_open_lazy(const char *path, struct ash_safetensors **set_out, struct ash_err *err);
/* The same over bytes in memory (borrowed until close): for tests and fuzzing. */
int ash_safetensors_parse(const void *data, size_t size_bytes, const char *name, struct ash_safetensors **set_out,
                          struct ash_err *err);
/* Unmap and free; views of it are invalid. NULL is a no-op. */
void ash_safetensors_close(struct ash_safetensors *set);
/* The mapping that holds a tensor's data (its file's), or NULL where they are a copy. */
const struct ash_map *ash_safetensors_map(const struct ash_safetensors *set, const void *data);

size_t ash_safetensors_size(const struct ash_safetensors *set); /* number of tensors */
const struct ash_tensor_view *ash_safetensors_at(const struct ash_safetensors *set, size_t index); /* sorted by name */
/* By name, or NULL. */
const struct ash_tensor_view *ash_safetensors_find(const struct ash_safetensors *set, const char *name);
/* A value of the first file's __metadata__, or NULL. */
const char *ash_safetensors_metadata(const struct ash_safetensors *set, const char *key);

/* One tensor to be written. fill(ctx, index, first_byte, buf, size) produces bytes [first_byte, first_byte + size) of
 * tensor `index`, so that a writer never needs the whole tensor in another copy; where fill is NULL, data is written as
 * it is. Pieces come in order and never cut an element. fill returns 0, or a negative errno that ends the write. */
struct ash_tensor_spec {
    const char *name;
    enum ash_dtype dtype;
    int dim_count;
    size_t dims[ASH_TENSOR_DIMS_MAX];
    const void *data;
};
typedef int (*ash_tensor_fill_fn)(void *ctx, size_t index, size_t first_byte, void *buf, size_t size_bytes);

struct ash_metadata {
    const char *key, *value;
};

/* The layout of a file, before a byte of it is written: for writers of parts. Caller's storage;
 * free with ash_safetensors_layout_fini. */
struct ash_safetensors_layout {
    char *header; /* the first header_bytes of the file */
    size_t header_bytes;
    uint64_t *offsets; /* [count]: of each tensor's first byte in the file */
    uint64_t size_bytes;
};
/* Lay out the file that ash_safetensors_write would write. Returns 0, -EINVAL, -EOVERFLOW, -EFBIG or -ENOMEM. */
int ash_safetensors_layout_init(struct ash_safetensors_layout *layout, const struct ash_tensor_spec *specs,
                                size_t count, const struct ash_metadata *metadata, size_t metadata_count,
                                struct ash_err *err);
/* Free; a zeroed struct is a no-op. */
void ash_safetensors_layout_fini(struct ash_safetensors_layout *layout);

/* Write specs to path (through a temporary file, flushed and renamed; on error path is unchanged, and err has the
 * cause: "disk full", "no permission"...). Tensors are laid out in the order given, those with larger elements first:
 * the format allows no padding between tensors, and so each stays aligned. The header is padded to 8 bytes. */
int ash_safetensors_write(const char *path, const struct ash_tensor_spec *specs, size_t count,
                          const struct ash_metadata *metadata, size_t metadata_count, ash_tensor_fill_fn fill,
                          void *ctx, struct ash_err *err);
/* Write a folder's weights: model.safetensors, or, if they exceed max_shard_bytes (0: no limit),
 * model-0000i-of-0000n.safetensors and the index file, written last. Metadata is {"format": "pt"}, as transformers
 * expects it. Weights of an earlier write that would shadow these are removed at the end; a process killed before that
 * may leave old and new files side by side, so write into a commit (storage/commit/commit.h) if that matters. */
int ash_safetensors_write_folder(const char *dir, const struct ash_tensor_spec *specs, size_t count,
                                 size_t max_shard_bytes, ash_tensor_fill_fn fill, void *ctx, struct ash_err *err);

#endif
