/* family_state: readers of recurrent states. */
#include <errno.h>
#include <math.h>
#include <string.h>

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

/* Sizes of a scan under the names that a family has for them. inner: what the heads have together; 0: expand times
 * hidden_size. */
struct scan_keys {
    const char *heads, *head_dim, *size, *groups, *taps, *expand;
};

static const struct scan_keys mamba2_keys = {"num_heads", "head_dim",    "state_size",
                                             "n_groups",  "conv_kernel", "expand"};
static const struct scan_keys hybrid_keys = {"mamba_n_heads",  "mamba_d_head", "mamba_d_state",
                                             "mamba_n_groups", "mamba_d_conv", "mamba_expand"};

static int check_scan(const struct ash_state_config *state, size_t inner, struct ash_err *err)
{
    if (state->heads == 0 || state->heads * state->head_dim != inner)
        return ash_err_set(err, -EINVAL, "%zu heads of %zu dimensions are not the %zu that expand makes of hidden_size",
                           state->heads, state->head_dim, inner);
    if (state->heads % state->groups != 0)
        return ash_err_set(err, -EINVAL, "%zu heads do not fall into %zu groups", state->heads, state->groups);
    return 0;
}

/* Sizes that the file leaves out stay; head_dim 0 or heads 0 follow from the other. */
static int read_scan(const json_t *json, const struct scan_keys *keys, struct ash_model_config *config, size_t inner,
                     struct ash_err *err)
{
    struct ash_state_config *state = &config->state;
    bool is_auto = json_is_string(json_object_get(json, keys->head_dim)); /* "auto" */
    size_t expand = 2;
    const struct {
        const char *key;
        size_t max, *value;
    } sizes[] = {{keys->expand, 64, &expand},
                 {keys->size, STATE_SIZE_MAX, &state->size},
                 {keys->groups, STATE_SIZE_MAX, &state->groups},
                 {keys->taps, ASH_STATE_TAPS_MAX, &state->taps},
                 {keys->heads, (size_t)1 << 20, &state->heads},
                 {keys->head_dim, STATE_SIZE_MAX, &state->head_dim}};

    for (size_t i = 0; i < ASH_COUNT(sizes) - is_auto; i++) {
        int rc = ash_config_size(json, sizes[i].key, 1, sizes[i].max, sizes[i].value, err);
        if (rc < 0) return rc;
    }
    if (inner == 0) inner = expand * config->hidden;
    if (state->heads == 0) state->heads = inner / state->head_dim;
    if (state->head_dim == 0 || is_auto) state->head_dim = inner / state->heads;
    if (state->head_dim > STATE_SIZE_MAX)
        return ash_err_set(err, -EINVAL, "a state of %zu dimensions is not supported (1 to %d are)", state->head_dim,
                           STATE_SIZE_MAX);
    return check_scan(state, inner, err);
}

int ash_read_mamba2(const json_t *json, struct ash_model_config *config, struct ash_err *err)
{
    struct ash_state_config *state = &config->state;
    int rc;

    *state = (struct ash_state_config){
        .head_dim = 64, .size = 128, .groups = 8, .taps = 4, .norm_groups = 1, .conv_bias = true};
    rc = read_scan(json, &mamba2_keys, config, 0, err);
    if (rc < 0) return rc;
    rc = ash_json_bool(json, "use_bias", &state->in_bias, err);
    if (rc < 0) return rc;
    state->out_bias = state->in_bias;
    rc = ash_json_bool(json, "use_conv_bias", &state->conv_bias, err);
    if (rc < 0) return rc;
    rc = read_limits(json, state, err);
    if (rc < 0) return rc;
    config->ffn = 0; /* there is no attention, and no feed-forward */
    config->head_dim = 2;
    if (json_object_get(json, "max_position_embeddings") == NULL) config->max_positions = STATE_POSITIONS;
    for (size_t i = 0; i < config->layers; i++) {
        config->rope_at[i] = ASH_ROPE_AT_NONE;
        config->mixer[i] = ASH_MIXER_STATE;
    }
    return 0;
}

/* ---- hybrids ----------------------------------------------------------------------------------------------------- */

/* The scan of a family that has attention as well. */
static int read_hybrid_scan(const json_t *json, struct ash_model_config *config, size_t inner, struct ash_err *err)
{
    struct ash_state_config *state = &config->state;
    int rc;

    *state = (struct ash_state_config){
        .heads = 128, .size = 256, .groups = 1, .taps = 4, .norm_groups = 1, .conv_bias = true};
    rc = read_scan(json, &hybrid_keys, config, inner, err);
    if (rc < 0) return rc;
    rc = ash_json_bool(json, "mamba_proj_bias", &state->in_bias, err);
    if (rc < 0) return rc;
    state->out_bias = state->in_bias;
    rc = ash_json_bool(json, "mamba_conv_bias", &state->conv_bias, err);
    return rc < 0 ? rc : read_limits(json, state, err);
}

/* The kind of a layer by its name, of which there are two; or -ENOTSUP. */
static int mixer_of(const char *name, struct ash_err *err)
{
    static const char *const names[] = {"attention", "full_attention", "mamba", "linear_attention"};

    for (size_t i = 0; name != NULL && i < ASH_COUNT(names); i++)
        if (strcmp(name, names[i]) == 0) return i < 2 ? ASH_MIXER_ATTENTION : ASH_MIXER_STATE;
    return ash_err_set(err, -ENOTSUP,
                       "layer type '%.40s' is not supported (attention, full_attention, mamba, "
                       "linear_attention are)",
                       name != NULL ? name : "");
}

/* Which layers attend: by name, or every n-th (0: none). The others have states. */
static int read_mixers(const json_t *json, struct ash_model_config *config, size_t every, struct ash_err *err)
{
    const json_t *types = NULL;
    int rc = ash_json_array(json, "layer_types", &types, err);

    if (rc < 0) return rc;
    if (rc == 1 && json_array_size(types) != config->layers)
        return ash_err_set(err, -EINVAL, "layer_types has %zu entries for %zu layers", json_array_size(types),
                           config->layers);
    for (size_t i = 0; i < config->layers; i++) {
        rc = every > 0 && (i + 1) % every == 0 ? ASH_MIXER_ATTENTION : ASH_MIXER_STATE;
        if (types != NULL) rc = mixer_of(json_string_value(json_array_get(types, i)), err);
        if (rc < 0) return rc;
        config->mixer[i] = (uint8_t)rc;
    }
    return 0;
}

int ash_read_granite_hybrid(const json_t *json, struct ash_model_config *config, struct ash_err *err)
{
    const char *positions = json_string_value(json_object_get(json, "position_embedding_type"));
    const json_t *experts = json_object_get(json, "num_local_experts");
    size_t shared = 1024;
    int rc = read_hybrid_scan(json, config, 0, err);

    if (rc < 0) return rc;
    rc = read_mixers(json, config, 0, err);
    if (rc < 0) return rc;
    for (size_t i = 0; i < config->layers && (positions == NULL || strcmp(positions, "rope") != 0); i++)
        config->rope_at[i] = ASH_ROPE_AT_NONE;
    rc = ash_config_size(json, "shared_intermediate_size", 1, (size_t)1 << 20, &shared, err);
    if (rc < 0) return rc;
    if (json_is_integer(experts) && json_integer_value(experts) == 0) {
        config->ffn = shared;
        return 0;
    }
    rc = ash_read_experts(json, config, err);
    config->expert.shared_ffn = shared;
    return rc;
}

int ash_read_qwen3_next(const json_t *json, struct ash_model_config *config, struct ash_err *err)
{
    struct ash_state_config *state = &config->state;
    size_t every = 4;
    const struct {
        const char *key;
        size_t max, *value;
    } sizes[] = {{"linear_num_key_heads", (size_t)1 << 16, &state->groups},
                 {"linear_num_value_heads", (size_t)1 << 16, &state->heads},
                 {"linear_key_head_dim", STATE_SIZE_MAX, &state->size},
                 {"linear_value_head_dim", STATE_SIZE_MAX, &state->head_dim},
                 {"linear_conv_kernel_dim", ASH_STATE_TAPS_MAX, &state->taps},
                 {"shared_expert_intermediate_size", (size_t)1 << 20, &config->expert.shared_ffn},
                 {"full_attention_interval", ASH_MODEL_LAYERS_MAX, &every}};

    *state = (struct ash_state_config){.is_delta = true,
                                       .heads = 32,
                                       .head_dim = 128,
                                       .groups = 16,
                                       .size = 128,
                                       .taps = 4,
                                       .step_max = INFINITY,
                                       .norm = ASH_STATE_NORM_BEFORE_GATE,
                                       .norm_shares_weight = true};
    config->expert.shared_ffn = 512;
    for (size_t i = 0; i < ASH_COUNT(sizes); i++) {
        int rc = ash_config_size(json, sizes[i].key, 1, sizes[i].max, sizes[i].value, err);
        if (rc < 0) return rc;
    }
    state->norm_groups = state->heads;
    if (state->heads % state->groups != 0)
        return ash_err_set(err, -EINVAL,
                           "linear_num_value_heads is %zu, which linear_num_key_heads (%zu) does not divide",
                           state->heads, state->groups);
    return read_mixers(json, config, every, err);
}

/* ---- falcon_h1 --------------------------------------------------------------------------------------------------- */

/* count numbers at key; an absent list keeps them. */
static int read_factors(const json_t *json, const char *key, size_t count, double *values, struct ash_err *err)
{
    const json_t *list = NULL;
    int rc = json_is_null(json_object_get(json, key)) ? 0 : ash_json_array(json, key, &list, err);

    if (rc <= 0) return rc;
    if (json_array_size(list) != count)
        return ash_err_set(err, -EINVAL, "%s has %zu entries, not %zu", key, json_array_size(list), count);
    for (size_t i = 0; i < count; i++) {
        values[i] = json_number_value(json_array_get(list, i));
        if (values[i] == 0 || !isfinite(values[i])) return ash_err_set(err, -EINVAL, "%s[%zu] is no factor", key, i);
    }
    return 0;
}

struct falcon_factors {
    double attn_in, attn_out, key, state_in, state_out, head, embed, zones[ASH_STATE_ZONES], mlp[2];
};

static int read_falcon_factors(const json_t *json, struct falcon_factors *f, struct ash_err *err)
{
    const struct {
        const char *key;
        double *value;
    } rows[] = {{"attention_in_multiplier", &f->attn_in},
                {"attention_out_multiplier", &f->attn_out},
                {"key_multiplier", &f->key},
                {"ssm_in_multiplier", &f->state_in},
                {"ssm_out_multiplier", &f->state_out},
                {"lm_head_multiplier", &f->head},
                {"embedding_multiplier", &f->embed}};
    int rc;

    *f = (struct falcon_factors){1, 1, 1, 1, 1, 1, 1, {1, 1, 1, 1, 1}, {1, 1}};
    for (size_t i = 0; i < ASH_COUNT(rows); i++) {
        if (json_is_null(json_object_get(json, rows[i].key))) continue;
        rc = ash_json_double(json, rows[i].key, 1e-9, 1e9, rows[i].value, err);
        if (rc < 0) return rc;
    }
    rc = read_factors(json, "ssm_multipliers", ASH_STATE_ZONES, f->zones, err);
    return rc < 0 ? rc : read_factors(json, "mlp_multipliers", 2, f->mlp, err);
}

/* Factors of a block's input are those of its products: attention's are in its scale and its output. */
static int set_falcon_factors(const struct falcon_factors *f, struct ash_model_config *config, struct ash_err *err)
{
    struct ash_model_form *form = &config->form;
    struct ash_state_config *state = &config->state;

    if ((form->qkv_bias && f->attn_in != 1) || (state->in_bias && f->state_in != 1))
        return ash_err_set(err, -ENOTSUP, "biases with attention_in_multiplier or ssm_in_multiplier are not supported");
    config->attn_scale = f->attn_in * f->attn_in * f->key / sqrt((double)config->head_dim);
    form->block_scale[ASH_BLOCK_ATTN] = f->attn_in * f->attn_out;
    form->block_scale[ASH_BLOCK_STATE] = f->state_out;
    form->block_scale[ASH_BLOCK_FFN] = f->mlp[1];
    form->gate_scale = f->mlp[0] == 1 ? 0 : f->mlp[0];
    form->embed_scale = f->embed == 1 ? 0 : f->embed;
    form->logit_scale = f->head == 1 ? 0 : f->head;
    for (size_t i = 0; i < ASH_BLOCKS; i++)
        if (form->block_scale[i] == 1) form->block_scale[i] = 0;
    for (size_t i = 0; i < ASH_STATE_ZONES; i++) {
        state->zone_scale[i] = f->state_in * f->zones[i];
        state->scales_zones = state->scales_zones || state->zone_scale[i] != 1;
    }
    return 0;
}

int ash_read_falcon_h1(const json_t *json, struct ash_model_config *config, struct ash_err *err)
{
    struct ash_state_config *state = &config->state;
    struct falcon_factors factors;
    size_t inner = json_is_null(json_object_get(json, "mamba_d_ssm")) ? 0 : 1024;
    bool has_norm = false, is_before = true;
    int rc = ash_config_size(json, "mamba_d_ssm", 1, (size_t)1 << 20, &inner, err);

    if (rc < 0) return rc;
    rc = read_hybrid_scan(json, config, inner, err);
    if (rc < 0) return rc;
    rc = ash_json_bool(json, "projectors_bias", &state->out_bias, err);
    if (rc < 0) return rc;
    if (rc == 0) state->out_bias = false;
    rc = ash_json_bool(json, "mamba_rms_norm", &has_norm, err);
    if (rc < 0) return rc;
    rc = ash_json_bool(json, "mamba_norm_before_gate", &is_before, err);
    if (rc < 0) return rc;
    state->norm = !has_norm ? ASH_STATE_NORM_NONE : is_before ? ASH_STATE_NORM_BEFORE_GATE : ASH_STATE_NORM_GATED;
    state->norm_groups = state->groups;
    memset(config->mixer, ASH_MIXER_BOTH, config->layers);
    rc = read_falcon_factors(json, &factors, err);
    return rc < 0 ? rc : set_falcon_factors(&factors, config, err);
}
