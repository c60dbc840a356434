/* lora_folder - adapters from PEFT's folders, or as a user names them. */
#ifndef ASH_MODEL_FILES_LORA_FOLDER_H
#define ASH_MODEL_FILES_LORA_FOLDER_H

#include "model/lora.h"

#define ASH_LORA_CONFIG_FILE "adapter_config.json"
#define ASH_LORA_WEIGHTS_FILE "adapter_model.safetensors"

/* What a user asks for; PEFT's meanings. Borrowed. */
struct ash_lora_opts {
    const char *base_dir;
    size_t rank;
    double alpha;
    bool rslora;
    const char *const *targets; /* ends of module names, one regular expression, or "all-linear" */
    size_t target_count;
    const char *const *rank_pattern; /* "NAME:RANK" */
    size_t rank_pattern_count;
    const char *const *saved; /* modules that are trained whole */
    size_t saved_count;
    enum ash_lora_bias bias;
    enum ash_dtype quant; /* as in struct ash_lora, and so is dropout */
    double dropout;
};

/* The modules of the base in opts->base_dir that opts name. -EINVAL where a name fits none. */
int ash_lora_open(const struct ash_lora_opts *opts, struct ash_lora **lora_out, struct ash_err *err);
/* The same of a PEFT folder. base_dir NULL: the base that its config names, relative to the folder or the working
 * folder. Another method than LoRA (DoRA, and so on) is -ENOTSUP by name; another base than the tensors fit is -EINVAL
 * with the tensor. */
int ash_lora_load(const char *dir, const char *base_dir, struct ash_lora **lora_out, struct ash_err *err);
/* Is dir a PEFT folder? */
bool ash_lora_exists(const char *dir);
/* Give the adapters of a model the values in the adapter_model.safetensors of dir. -EINVAL names a tensor that is
 * missing or has another shape. Biases of modules with adapters may be missing (PEFT leaves them out with lora_only):
 * they are the base's. */
int ash_lora_read(struct ash_model *model, const char *dir, struct ash_err *err);
/* A model with the adapters of a PEFT folder, ready to compute and to be trained. Closes with ash_model_close, which
 * leaves *lora_out (the caller's) alone. base_dir as in ash_lora_load. */
int ash_lora_open_model(const char *dir, const char *base_dir, struct ash_lora **lora_out, struct ash_model **model_out,
                        struct ash_err *err);
/* The base of lora as those models hold it, quantised or not: a model with adapters that add nothing. Closes before
 * lora does. */
int ash_lora_open_base(const struct ash_lora *lora, struct ash_model **model_out, struct ash_err *err);

/* Adapters that documents of a batch may go through (model/pass/pass.h). */
struct ash_lora_set {
    struct ash_lora *lora;
    struct ash_model *adapters;
};
/* Those of a PEFT folder for passes of exec over model, which stays as it is, with batches of max_rows rows at most.
 * Borrows model until detached. -ENOTSUP if modules or biases were trained whole; else as ash_lora_load and
 * ash_lora_read. Any thread. */
int ash_lora_attach(const char *dir, const struct ash_model *model, struct ash_exec *exec, size_t max_rows,
                    struct ash_lora_set *set_out, struct ash_err *err);
/* Free them; no batch has them any more. A zeroed set is a no-op. */
void ash_lora_detach(struct ash_lora_set *set);
/* Write adapter_config.json into dir. */
int ash_lora_save_config(const struct ash_lora *lora, const char *dir, struct ash_err *err);

#endif
