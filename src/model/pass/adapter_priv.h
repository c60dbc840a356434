/* adapter_priv - the products of an adapter that its sums over ranks of tp and its gradients take too. */
#ifndef ASH_MODEL_PASS_ADAPTER_PRIV_H
#define ASH_MODEL_PASS_ADAPTER_PRIV_H

#include "model/lora_priv.h"
#include "model/pass/adapter.h"

/* c [rows, N] = (add: +=) a [rows, K] w, w the matrix of param as [K, N]. */
void ash_adapter_product(const struct ash_model *model, struct ash_exec *exec, size_t rows, struct ash_mat a,
                         int32_t param, bool transposed, struct ash_mat c, bool add);
/* io with the input that the adapter sees: where a batch drops values, a copy without them. */
struct ash_linear_io ash_adapter_seen(const struct ash_pass_step *step, int32_t weight,
                                      const struct ash_adapter *adapter, const struct ash_linear_io *io);
/* low [rows, rank] = scale * x A^T. */
float *ash_adapter_lower(const struct ash_model *model, struct ash_exec *exec, const struct ash_adapter *adapter,
                         const struct ash_linear_io *io);
/* dlow [rows, rank] = scale * dy B, beside low. */
float *ash_adapter_lower_gradient(const struct ash_model *model, struct ash_exec *exec,
                                  const struct ash_adapter *adapter, const struct ash_linear_io *io);

#endif
