/* quantised - weights of a folder as others publish them: FP8, FP4 and integers with scales, named by config.json's
 * quantization_config. They read as float tensors, which are computed where a reader brings them into memory. */
#ifndef ASH_MODEL_QUANTISED_QUANTISED_H
#define ASH_MODEL_QUANTISED_QUANTISED_H

#include "ashlar/err.h"
#include "base/json.h"
#include "storage/safetensors/safetensors.h"

struct ash_quantised;

/* Read the quantization_config of config (a config.json); files (borrowed until close) has the tensors. Without one
 * *quantised_out is NULL. Returns 0, -EINVAL for a damaged one, -ENOTSUP for a method that cannot be read, or
 * -ENOMEM. */
int ash_quantised_open(const json_t *config, const struct ash_safetensors *files, struct ash_quantised **quantised_out,
                       struct ash_err *err);
/* NULL is a no-op. Views of it are invalid. */
void ash_quantised_close(struct ash_quantised *quantised);

/* Look for the tensor that would be called name if the weights were not quantised. dims are its sizes then. Returns 1
 * with *index_out its number, 0 if no quantised tensor has that name, or -EINVAL, -ENOTSUP or -ENOMEM. */
int ash_quantised_find(struct ash_quantised *quantised, const char *name, const size_t *dims, int dim_count,
                       size_t *index_out, struct ash_err *err);
/* Take address space for the tensors found. Once, after the last find. Returns 0 or -ENOMEM. */
int ash_quantised_map(struct ash_quantised *quantised, struct ash_err *err);
/* Where tensor index (of find) will be, and as what. It is there after ash_remote_file_bring of its range. */
const void *ash_quantised_data(const struct ash_quantised *quantised, size_t index);
/* The type that all of them read as: the one that config.json says. */
enum ash_dtype ash_quantised_dtype(const struct ash_quantised *quantised);
/* The mapping that data lies in, or NULL if it is none of these tensors. */
const struct ash_map *ash_quantised_holds(const struct ash_quantised *quantised, const void *data);

/* "fp8", "gptq", ...: for people. */
const char *ash_quantised_method(const struct ash_quantised *quantised);
/* How many tensors were found, and their bytes: as stored, with scales, and as floats. */
size_t ash_quantised_count(const struct ash_quantised *quantised);
/* Their bytes in the files. */
size_t ash_quantised_stored_bytes(const struct ash_quantised *quantised);
/* Their bytes as floats. */
size_t ash_quantised_float_bytes(const struct ash_quantised *quantised);
/* "fp8, compressed-tensors, ...": the methods that can be read, for messages and pages. */
const char *ash_quantised_methods(void);

#endif
