/* weight - how products read a parameter: the one place that turns a parameter's index into a matrix in memory. */
#ifndef ASH_MODEL_WEIGHT_H
#define ASH_MODEL_WEIGHT_H

#include "model/model_priv.h"

/* Sizes of a stored matrix as the product y = x W^T sees it. */
struct ash_weight_shape {
    size_t in, out;
    bool transposed; /* stored [in, out] */
};

/* The shape of a 2-D parameter. */
struct ash_weight_shape ash_weight_shape_of(const struct ash_model *model, int32_t weight);
/* Its values as the [in, out] operand of x W, or (out_by_in) the [out, in] one of dy W^T, from the file or the owned
 * buffer. */
struct ash_mat ash_weight_matrix(const struct ash_model *model, int32_t weight, bool out_by_in);
/* The weight as it lies in the file (or in the owned buffer); *in_out gets its inputs. */
struct ash_weight ash_weight_stored(const struct ash_model *model, int32_t weight, size_t *in_out);
/* The same as the products of exec read it: packed, where ash_model_pack has done so for exec's backend. */
struct ash_weight ash_weight_for(const struct ash_model *model, const struct ash_exec *exec, int32_t weight,
                                 size_t *in_out);
/* Elements [first, first + count) of data (F32, BF16 or F16) as float32. */
void ash_weights_to_f32(const void *data, enum ash_dtype dtype, size_t first, size_t count, float *out);

#endif
