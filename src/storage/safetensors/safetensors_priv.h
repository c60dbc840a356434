/* The set of tensors that a reader builds: file by file (read.c), folder by folder (folder.c). */
#ifndef ASH_STORAGE_SAFETENSORS_SAFETENSORS_PRIV_H
#define ASH_STORAGE_SAFETENSORS_SAFETENSORS_PRIV_H

#include <jansson.h>
#include "base/arena.h"
#include "base/file.h"
#include "storage/safetensors/safetensors.h"

#define ASH_SAFETENSORS_METADATA "__metadata__"
#define ASH_SAFETENSORS_FILE "model.safetensors"
#define ASH_SAFETENSORS_INDEX "model.safetensors.index.json"

struct ash_safetensors_file {
    char *name;         /* for messages; owned by the set */
    struct ash_map map; /* empty where the bytes are borrowed */
};

struct ash_safetensors_entry {
    struct ash_tensor_view view; /* its name lives in the set's arena */
    size_t begin;                /* first byte in the data of its file */
    size_t file;                 /* index into the set's files */
    void *copy;                  /* where the file leaves the tensor unaligned: the bytes that view points to */
};

struct ash_safetensors {
    struct ash_arena *arena;
    struct ash_safetensors_file *files;
    size_t file_count;
    struct ash_safetensors_entry *entries;
    size_t entry_count;
    json_t *metadata; /* the first file's, or NULL */
};

/* An empty set with room for file_count files, or NULL when out of memory. */
struct ash_safetensors *ash_safetensors_new(size_t file_count);
/* Name the set's next file. Returns 0 or -ENOMEM. */
int ash_safetensors_name_file(struct ash_safetensors *set, const char *name, struct ash_err *err);
/* Check the last named file's bytes, whole, and append its tensors. */
int ash_safetensors_read(struct ash_safetensors *set, const uint8_t *data, size_t size_bytes, struct ash_err *err);
/* Sort by name once all files are read. -EINVAL names a tensor that is in two files. */
int ash_safetensors_sort(struct ash_safetensors *set, struct ash_err *err);

/* product(dims) * element bytes. Returns 0, or -EOVERFLOW if no file can hold that. */
int ash_tensor_bytes(enum ash_dtype dtype, const size_t *dims, int dim_count, size_t *bytes_out);

/* Tensors to be written: specs[0 .. count), which are number first, first + 1, ... to fill. */
struct ash_tensor_source {
    const struct ash_tensor_spec *specs;
    size_t first, count;
    ash_tensor_fill_fn fill;
    void *ctx;
};

/* Check every spec and set bytes[i] to its size. */
int ash_tensor_source_bytes(const struct ash_tensor_source *source, size_t *bytes, struct ash_err *err);
/* ash_safetensors_write of a part of a longer list. */
int ash_safetensors_write_source(const char *path, const struct ash_tensor_source *source,
                                 const struct ash_metadata *metadata, size_t metadata_count, struct ash_err *err);

#define ASH_LABEL_BYTES 100

/* A name fit for a message: shortened, control characters replaced. Returns buf. */
const char *ash_tensor_label(const char *name, char buf[ASH_LABEL_BYTES]);

#endif
