/* Recurrent states in GGUF files. A file has the rate that a state decays by, -exp of the value in a folder; the vector
 * here is the logarithm that gives the rate again, to the bit where one does. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "base/assert.h"
#include "compute/mathf.h"
#include "model/files/gguf_reader.h"
#include "model/weight.h"

#define SEARCHED 16             /* floats on either side of a logarithm */
#define ANY_POSITIONS (1 << 20) /* llama.cpp's word for no limit */

int ash_gguf_add_states(struct ash_gguf_reader *reader, json_t *json, struct ash_err *err)
{
    static const struct {
        const char *key, *config_key;
    } sizes[] = {{"ssm.time_step_rank", "num_heads"},
                 {"ssm.state_size", "state_size"},
                 {"ssm.group_count", "n_groups"},
                 {"ssm.conv_kernel", "conv_kernel"}};
    int64_t inner = 0, heads = 0;
    int rc = ash_gguf_get_int(reader, "ssm.inner_size", &inner, err);

    for (size_t i = 0; rc >= 0 && i < ASH_COUNT(sizes); i++) {
        int64_t value = 0;

        rc = ash_gguf_get_int(reader, sizes[i].key, &value, err);
        if (rc == 0) rc = ash_err_set(err, -EINVAL, "the metadata lack '%s'", reader->key);
        if (rc == 1) json_object_set_new(json, sizes[i].config_key, json_integer(value));
        if (i == 0) heads = value;
    }
    if (rc < 0) return rc;
    if (heads <= 0 || reader->hidden <= 0 || inner % heads != 0 || inner % reader->hidden != 0)
        return ash_err_set(err, -EINVAL, "states of %d values are not %d heads, or not a multiple of %d", (int)inner,
                           (int)heads, (int)reader->hidden);
    json_object_set_new(json, "head_dim", json_integer(inner / heads));
    json_object_set_new(json, "expand", json_integer(inner / reader->hidden));
    if (json_integer_value(json_object_get(json, "max_position_embeddings")) >= ANY_POSITIONS)
        json_object_del(json, "max_position_embeddings");
    return 0;
}

/* The float near log(rate) whose power is the rate, or the nearest. */
static float logarithm(float rate)
{
    float at = logf(rate), best = at;

    for (int i = 0; i < SEARCHED; i++)
        at = nextafterf(at, -INFINITY);
    for (int i = 0; i <= 2 * SEARCHED; i++, at = nextafterf(at, INFINITY))
        if (fabsf(ash_expf(at) - rate) < fabsf(ash_expf(best) - rate)) best = at;
    return best;
}

int ash_gguf_join_states(struct ash_model *model, struct ash_err *err)
{
    size_t heads = model->whole.state.heads;
    float *values;

    if (heads == 0) return 0;
    ash_assert(model->joined == NULL);
    model->joined = values = calloc(model->config.layers, heads * sizeof(*values));
    if (values == NULL) return ash_err_set(err, -ENOMEM, "out of memory for what states decay by");
    for (size_t i = 0; i < model->config.layers; i++, values += heads) {
        int32_t index = model->layers[i].param[ASH_ROLE_STATE_DECAY];
        struct ash_param *param = index != ASH_NO_PARAM ? &model->params[index] : NULL;

        if (param == NULL) continue;
        ash_weights_to_f32(param->data, param->dtype, 0, heads, values);
        for (size_t h = 0; h < heads; h++) {
            if (!(values[h] < 0 && isfinite(values[h])))
                return ash_err_set(err, -EINVAL, "a rate of decay in layer %zu is not below 0", i);
            values[h] = logarithm(-values[h]);
        }
        param->data = values;
        param->dtype = ASH_F32;
    }
    return 0;
}
