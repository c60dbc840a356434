/* part - what a slice of a model has of a tensor in a file: read where it lies if it is one run of neighbours, else
 * copied. */
#ifndef ASH_MODEL_FILES_PART_H
#define ASH_MODEL_FILES_PART_H

#include "model/model_priv.h"

/* Bytes that a copy of param's part of a tensor of dtype takes; 0 if it is read in place. */
size_t ash_part_bytes(const struct ash_param *param, enum ash_dtype dtype);
/* Read param from its part of the tensor at whole. *at: ash_part_bytes of memory, and moves past them. */
void ash_part_bind(struct ash_param *param, const void *whole, enum ash_dtype dtype, char **at);
/* The same for all parameters of a model whose slice gathers, which are bound to whole tensors. Returns 0, -ENOTSUP
 * (remote files) or -ENOMEM. */
int ash_part_bind_all(struct ash_model *model, struct ash_err *err);

#endif
