/* lora - adapters of low rank on the matrices of a frozen model: y = x W^T + scale * (x A^T) B^T. A config that
 * names adapters makes a model whose parameters are those of the adapters (and modules that are trained whole); the
 * base's follow them, mapped from their own file, for passes alone. PEFT's folders are read and written. */
#ifndef ASH_MODEL_LORA_H
#define ASH_MODEL_LORA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ashlar/err.h"
#include "base/json.h"
#include "model/config.h"

struct ash_exec;
struct ash_model;

/* Which biases of the base are trained: none, those of modules with adapters, or all. */
enum ash_lora_bias { ASH_LORA_BIAS_NONE, ASH_LORA_BIAS_ADAPTED, ASH_LORA_BIAS_ALL };
extern const char *const ash_lora_bias_names[]; /* PEFT's, by that enum; NULL ends them */

#define ASH_LORA_PREFIX "base_model.model."

/* One module with an adapter, or one that is trained whole (rank 0). */
struct ash_lora_module {
    char name[96]; /* as its weight is called, without ".weight" */
    size_t rank;
    float scale;
};

/* Adapters of a base. Shared by all models made of a config that points to it: close it last. */
struct ash_lora {
    char *base_dir;               /* empty with a base that is open already */
    const struct ash_model *base; /* that one, borrowed; NULL: models open base_dir */
    bool base_is_gguf;            /* base_dir is a GGUF file */
    enum ash_dtype quant;         /* what models hold the base's matrices as; ASH_F32: as its files have them */
    double dropout;               /* share of an adapter's inputs that training batches leave out */
    enum ash_lora_bias bias;
    bool follows_rows; /* factors have the order of a GGUF file's rows; they cannot be written then */
    struct ash_lora_module *modules;
    size_t count;
    json_t *config; /* adapter_config.json, to be written */
};

/* NULL is a no-op. */
void ash_lora_close(struct ash_lora *lora);

/* Where sums over inputs of the base may be cut: at multiples of it. */
size_t ash_lora_group(const struct ash_lora *lora);
/* Give the adapters of a model made of such a config new values: A uniform, B zero, modules and biases that are trained
 * whole the base's; functions of (seed, name, element). */
int ash_lora_init(struct ash_model *model, uint64_t seed, struct ash_err *err);
/* values [count of parameter index of the base's outline, as its file has it] += the adapter of the base's tensor of
 * this name; nothing if it has none. Values that were trained whole replace it. */
void ash_lora_merge(const struct ash_model *adapted, const char *name, float *values);

#endif
