/* flops - the operations of a model: what a token costs in training, by the model's sizes alone. */
#ifndef ASH_MODEL_FLOPS_H
#define ASH_MODEL_FLOPS_H

#include "model/config.h"

/* Operations of one token's forward and backward pass: matrix products, and the computed half of causal attention in
 * sequences of seq_tokens. Twice the forward pass for the backward one; once where only adapters are trained, whose
 * own few are left out. Recomputation does not count. */
double ash_model_train_flops(const struct ash_model_config *config, double seq_tokens);

#endif
