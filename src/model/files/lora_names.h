/* lora_names - what users call the modules of adapters, and what PEFT calls them. */
#ifndef ASH_MODEL_FILES_LORA_NAMES_H
#define ASH_MODEL_FILES_LORA_NAMES_H

#include "model/lora.h"

/* The value of the first key of a pattern that fits the end of the name, or NULL. */
const json_t *ash_lora_pattern_value(const json_t *patterns, const char *name);
/* Is the matrix `name` of a layer (-1: of none) one of the targets? targets: an array of names, or a string; layers:
 * layers_to_transform, which is null, a number or an array. */
bool ash_lora_is_target(const json_t *targets, const json_t *layers, const char *name, int layer);
/* Is an item of the list the name's end? */
bool ash_lora_is_listed(const json_t *list, const char *name);
/* Is end the end of a module's name, from a dot on? */
bool ash_lora_name_ends(const char *name, const char *end);
/* -EINVAL with the name if no module of lora is saved whole, or has the rank, that these ask for. saved: names or NULL;
 * ranks: an object by name, or NULL. */
int ash_lora_check_names(const struct ash_lora *lora, const json_t *saved, const json_t *ranks, struct ash_err *err);
/* -EINVAL with the name if a user's list of targets has one that no module with an adapter is called. */
int ash_lora_check_targets(const struct ash_lora *lora, const json_t *targets, struct ash_err *err);
/* The modules with adapters as PEFT lists them: ends of names that mean no other matrix of base, or whole names. */
json_t *ash_lora_list_targets(const struct ash_lora *lora, const struct ash_model *base);

#endif
