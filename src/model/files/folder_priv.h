/* folder - a model's weights in a Hugging Face folder: mapped for reading, converted for writing. */
#ifndef ASH_MODEL_FILES_FOLDER_PRIV_H
#define ASH_MODEL_FILES_FOLDER_PRIV_H

#include "model/model_priv.h"

/* Bind every parameter of model to the files in dir, checking names, shapes and dtypes. model keeps the mapping. */
int ash_folder_map(struct ash_model *model, const char *dir, struct ash_err *err);

/* Elements [first, first + count) of data (F32, BF16 or F16) as float32. */
void ash_weights_to_f32(const void *data, enum ash_dtype dtype, size_t first, size_t count, float *out);

#endif
