/* eagle - a folder with a head of EAGLE-3: a layer that drafts for another model, from the streams of three of its
 * layers. It may have fewer outputs than the model has tokens. If it lacks the embedding, it borrows the model's. */
#ifndef ASH_MODEL_FILES_EAGLE_H
#define ASH_MODEL_FILES_EAGLE_H

#include "model/model.h"

struct ash_eagle {
    struct ash_model *model;
    int32_t *ids;                      /* [outputs of the model]: the token of each, of the model that it drafts for */
    size_t layers[ASH_MODEL_CAPTURES]; /* of that model: the streams before them are captured */
};

/* Is it such a folder? False for what cannot be read, too. */
bool ash_eagle_is(const char *dir);
/* Open it for target, whose embedding it may borrow: target outlives it. Weights are mapped, without remote matrices:
 * ash_model_prefetch must follow. Returns 0, -EINVAL (it does not fit the target), -ENOTSUP or another negative errno;
 * the caller closes *eagle_out, whose pointers are NULL on an error. */
int ash_eagle_open(const char *dir, const struct ash_model *target, struct ash_eagle *eagle_out, struct ash_err *err);
/* A zeroed one is a no-op. */
void ash_eagle_close(struct ash_eagle *eagle);

#endif
