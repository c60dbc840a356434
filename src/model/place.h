/* place - what putting a model's weights into a device's memory takes (ash_model_place of model.h does it). */
#ifndef ASH_MODEL_PLACE_H
#define ASH_MODEL_PLACE_H

#include <stddef.h>

struct ash_exec;
struct ash_model;

/* Bytes that ash_model_place would allocate on exec's device; 0 if the weights are on one. */
size_t ash_model_unplaced_bytes(const struct ash_model *model, const struct ash_exec *exec);

#endif
