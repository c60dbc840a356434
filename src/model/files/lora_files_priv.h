/* lora_files_priv - between the files of adapters: config and base. */
#ifndef ASH_MODEL_FILES_LORA_FILES_PRIV_H
#define ASH_MODEL_FILES_LORA_FILES_PRIV_H

#include "model/files/lora_folder.h"
#include "model/lora_priv.h"

/* As ash_lora_load, over a base that is open: borrowed until the adapters are closed. */
int ash_lora_load_over(const char *dir, const struct ash_model *base, struct ash_lora **lora_out, struct ash_err *err);
/* lora_base.c: open the base and read its parameters there, quantised where config.lora says so. Returns 0,
 * -EINVAL, -ENOMEM or a file's error. */
int ash_lora_bind_base(struct ash_model *model, struct ash_err *err);
/* lora_rows.c: adapters just read from a PEFT folder get the order of the base's rows of q and k, which is another one
 * in some GGUF files. Returns 0, -ENOMEM, or -ENOTSUP if q or k was trained whole. */
int ash_lora_follow_rows(struct ash_model *adapters, const struct ash_model *base, struct ash_err *err);
/* Hold the matrices of the base's layers as config.lora->quant, in the model's own memory. Returns 0, -ENOTSUP, -EINVAL
 * (it is quantised already), -ERANGE or -ENOMEM. */
int ash_lora_quantise_base(struct ash_model *model, struct ash_err *err);

#endif
