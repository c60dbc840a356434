/* family_state: readers of recurrent states. */
#include <errno.h>
#include <math.h>

#include "base/assert.h"
#include "compute/ops_state.h"
#include "model/family_priv.h"

#define STATE_POSITIONS 8192 /* where the config has no limit: a cache has room for as many */
#define STATE_SIZE_MAX 1024

/* Limits of steps: two numbers; anything else (JSON has no infinity) is no limit. */
static int read_limits(const json_t *json, struct ash_state_config *state, struct ash_err *err)
{
    const json_t *list = NULL;
    int rc = ash_json_array(json, "time_step_limit", &list, err);

    state->step_min = 0;
    state->step_max = INFINITY;
    if (rc <= 0) return rc;
    if (json_array_size(list) != 2)
        return ash_err_set(err, -EINVAL, "time_step_limit has %zu entries, not 2", json_array_size(list));
    if (json_is_number(json_array_get(list, 0))) state->step_min = json_number_value(json_array_get(list, 0));
    if (json_is_number(json_array_get(list, 1))) state->step_max = json_number_value(json_array_get(list, 1));
    if (state->step_min < 0 || state->step_max <= state->step_min)
        return ash_err_set(err, -EINVAL, "time_step_limit leaves no steps");
    return 0;
}

static int check(const struct ash_state_config *state, size_t inner, struct ash_err *err)
{
    if (state->heads == 0 || state->heads * state->head_dim != inner)
        return ash_err_set(err, -EINVAL, "%zu heads of %zu dimensions are not the %zu that expand makes of hidden_size",
                           state->heads, state->head_dim, inner);
    if (state->heads % state->groups != 0)
        return ash_err_set(err, -EINVAL, "%zu heads do not fall into %zu groups", state->heads, state->groups);
    return 0;
}

int ash_read_mamba2(const json_t *json, struct ash_model_config *config, struct ash_err *err)
{
    struct ash_state_config *state = &config->state;
    size_t expand = 2;
    const struct {
        const char *key;
        size_t max, *value;
    } sizes[] = {{"expand", 64, &expand},
                 {"head_dim", STATE_SIZE_MAX, &state->head_dim},
                 {"state_size", STATE_SIZE_MAX, &state->size},
                 {"n_groups", STATE_SIZE_MAX, &state->groups},
                 {"conv_kernel", ASH_STATE_TAPS_MAX, &state->taps}};
    int rc;

    *state = (struct ash_state_config){.head_dim = 64, .size = 128, .groups = 8, .taps = 4};
    for (size_t i = 0; i < ASH_COUNT(sizes); i++) {
        rc = ash_config_size(json, sizes[i].key, 1, sizes[i].max, sizes[i].value, err);
        if (rc < 0) return rc;
    }
    state->heads = expand * config->hidden / state->head_dim;
    rc = ash_config_size(json, "num_heads", 1, (size_t)1 << 20, &state->heads, err);
    if (rc < 0) return rc;
    rc = ash_json_bool(json, "use_bias", &config->form.mlp_bias, err);
    if (rc < 0) return rc;
    config->form.qkv_bias = true; /* the convolution's */
    rc = ash_json_bool(json, "use_conv_bias", &config->form.qkv_bias, err);
    if (rc < 0) return rc;
    rc = read_limits(json, state, err);
    if (rc < 0) return rc;
    config->ffn = 0; /* there is no attention, and no feed-forward */
    config->head_dim = 2;
    if (json_object_get(json, "max_position_embeddings") == NULL) config->max_positions = STATE_POSITIONS;
    for (size_t i = 0; i < config->layers; i++)
        config->rope_at[i] = ASH_ROPE_AT_NONE;
    return check(state, expand * config->hidden, err);
}
