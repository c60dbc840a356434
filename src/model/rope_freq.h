/* rope_freq - frequencies of rotary positions under the scaling rules of the field, computed the way the reference
 * library does (float32 frequencies and angles), so that long positions agree with it. */
#ifndef ASH_MODEL_ROPE_FREQ_H
#define ASH_MODEL_ROPE_FREQ_H

#include <stddef.h>
#include "model/config.h"

/* What llama3's scaling divides the frequency of pair i (of dims / 2) by. */
float ash_rope_llama3_factor(const struct ash_rope_config *rope, size_t dims, size_t i);
/* cos_table, sin_table [count, dims / 2]: of positions 0 ... count - 1. */
void ash_rope_fill_tables(const struct ash_rope_config *rope, size_t dims, size_t count, float *cos_table,
                          float *sin_table);

#endif
