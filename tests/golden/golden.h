/* golden.h - what the checks of model folders and those of post-training share. */
#ifndef TESTS_GOLDEN_GOLDEN_H
#define TESTS_GOLDEN_GOLDEN_H

#include "base/json.h"
#include "model/model.h"
#include "storage/safetensors/safetensors.h"

#define LOGITS_LIMIT 2e-4
#define LOSS_LIMIT 1e-5
#define GRAD_LIMIT 1e-4
#define ADAMW_LIMIT 1e-4

struct golden {
    const char *name;
    const char *dir;
    struct ash_exec exec;
    struct ash_model *model;
    struct ash_safetensors *tensors;
    json_t *json;
    int checks, failures;
};

/* Print one check, and count it. */
void golden_report(struct golden *g, const char *what, double value, double limit);
void golden_report_equal(struct golden *g, const char *what, int equal, const char *detail);
void golden_broken(struct golden *g, const char *what, const struct ash_err *err);
/* Relative L2 difference of a reference gradient named PREFIX<parameter>, or NaN when we have no such parameter. */
double golden_grad_difference(const struct golden *g, const struct ash_tensor_view *want, const char *prefix,
                              const float *grads);
/* Losses of short AdamW runs: json's "adamw". */
void golden_check_adamw(struct golden *g);
/* Logits of "input_ids" against the tensor of that name. */
void golden_check_logits(struct golden *g, const char *name);
/* Loss and gradients of the mean over "input_ids". */
void golden_check_grads(struct golden *g);

/* golden_eval.c: scores of a harness; published fits. */
void golden_check_eval(struct golden *g);
void golden_check_scaling(struct golden *g);

/* golden_encoder.c: is the model an encoder? Then its states are checked. */
bool golden_encoder(struct golden *g);

/* A folder of post-training: sft, dpo, rl, reward, lora, masks, arrays, eval or scaling. Returns 0 where dir is
 * none. */
int golden_post(struct golden *g, const char *dir);

#endif
