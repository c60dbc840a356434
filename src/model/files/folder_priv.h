/* folder - a model's weights in a Hugging Face folder: mapped for reading, converted for writing. */
#ifndef ASH_MODEL_FILES_FOLDER_PRIV_H
#define ASH_MODEL_FILES_FOLDER_PRIV_H

#include "model/model_priv.h"

/* Where ModelOpt says how weights are quantised, in folders whose config.json does not. */
#define ASH_FOLDER_MODELOPT "hf_quant_config.json"

/* Bind every parameter of model to the files in dir, checking names, shapes and dtypes. model keeps the mapping. */
int ash_folder_map(struct ash_model *model, const char *dir, struct ash_err *err);

#endif
