/* config_rope: rotary positions of a config.json. Newer files hold all of it in rope_parameters, perhaps one object for
 * each kind of layer; older ones have rope_theta and an optional rope_scaling. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "base/assert.h"
#include "model/family.h"

static int read_kind(const char *name, enum ash_rope_kind *kind_out, struct ash_err *err)
{
    static const struct {
        const char *name;
        enum ash_rope_kind kind;
    } kinds[] = {
        {"default", ASH_ROPE_DEFAULT},
        /* dynamic scaling changes nothing up to max_position_embeddings, and beyond that Ashlar does not go */
        {"dynamic", ASH_ROPE_DEFAULT},
        {"linear", ASH_ROPE_LINEAR},
        {"llama3", ASH_ROPE_LLAMA3},
        {"yarn", ASH_ROPE_YARN},
        {"longrope", ASH_ROPE_LONG},
        {"su", ASH_ROPE_LONG},
    };

    for (size_t i = 0; i < ASH_COUNT(kinds); i++) {
        if (strcmp(name, kinds[i].name) != 0) continue;
        *kind_out = kinds[i].kind;
        return 0;
    }
    return ash_err_set(err, -ENOTSUP,
                       "rope type '%s' is not supported (default, linear, dynamic, llama3, yarn, longrope are)", name);
}

/* The numbers of an object; absent ones keep what they are. */
static int read_numbers(const json_t *object, struct ash_rope_config *rope, struct ash_err *err)
{
    const struct {
        const char *key;
        double *value, min, max;
    } fields[] = {
        {"rope_theta", &rope->theta, 1e-3, 1e15},
        {"factor", &rope->factor, 1e-3, 1e6},
        {"low_freq_factor", &rope->low_freq_factor, 1e-6, 1e6},
        {"high_freq_factor", &rope->high_freq_factor, 1e-6, 1e6},
        {"original_max_position_embeddings", &rope->original_positions, 1, 1e9},
        {"beta_fast", &rope->beta_fast, 1e-6, 1e6},
        {"beta_slow", &rope->beta_slow, 1e-6, 1e6},
        {"mscale", &rope->mscale, 0, 1e3},
        {"mscale_all_dim", &rope->mscale_all_dim, 0, 1e3},
        {"attention_factor", &rope->attention_factor, 1e-6, 1e3},
        {"partial_rotary_factor", &rope->share, 1e-3, 1},
    };

    for (size_t i = 0; i < ASH_COUNT(fields); i++) {
        int rc = ash_json_double(object, fields[i].key, fields[i].min, fields[i].max, fields[i].value, err);
        if (rc < 0) return rc;
    }
    return ash_json_bool(object, "truncate", &rope->truncate, err);
}

static int read_object(const json_t *object, struct ash_rope_config *rope, struct ash_err *err)
{
    const char *kind = "default";
    int rc = ash_json_string(object, "type", &kind, err);

    if (rc < 0) return rc;
    rc = ash_json_string(object, "rope_type", &kind, err);
    if (rc < 0) return rc;
    rc = read_kind(kind, &rope->kind, err);
    if (rc < 0) return rc;
    return read_numbers(object, rope, err);
}

/* The layers under a window have other positions, where the file says so. */
static int read_local(const json_t *json, const json_t *local, struct ash_model_config *config, struct ash_err *err)
{
    config->local_rope.kind = ASH_ROPE_DEFAULT; /* scaling is for the others */
    if (local != NULL) return read_object(local, &config->local_rope, err);
    return ash_json_double(json, "rope_local_base_freq", 1e-3, 1e15, &config->local_rope.theta, err);
}

/* What stands outside of the objects, under the names of several families. */
static int read_top(const json_t *json, struct ash_rope_config *rope, struct ash_err *err)
{
    int rc = ash_json_double(json, "rope_theta", 1e-3, 1e15, &rope->theta, err);

    if (rc < 0) return rc;
    rc = ash_json_double(json, "partial_rotary_factor", 1e-3, 1, &rope->share, err);
    if (rc < 0) return rc;
    return ash_json_double(json, "original_max_position_embeddings", 1, 1e9, &rope->original_positions, err);
}

int ash_config_rope(const json_t *json, struct ash_model_config *config, struct ash_err *err)
{
    const json_t *scaling = NULL, *all, *local;
    int rc;

    config->rope = (struct ash_rope_config){.kind = ASH_ROPE_DEFAULT,
                                            .theta = config->form.theta > 0 ? config->form.theta : 10000,
                                            .factor = 1,
                                            .low_freq_factor = 1,
                                            .high_freq_factor = 4,
                                            .original_positions = (double)config->max_positions,
                                            .beta_fast = 32,
                                            .beta_slow = 1,
                                            .share = config->form.rotary_share > 0 ? config->form.rotary_share : 1,
                                            .interleaved = config->form.interleaved,
                                            .truncate = true};
    rc = read_top(json, &config->rope, err);
    if (rc < 0) return rc;
    config->local_rope = config->rope;
    if (config->form.local_theta > 0) config->local_rope.theta = config->form.local_theta;
    rc = ash_json_object(json, "rope_scaling", &scaling, err);
    if (rc < 0) return rc;
    rc = ash_json_object(json, "rope_parameters", &scaling, err);
    if (rc < 0) return rc;
    all = json_object_get(scaling, "full_attention");
    local = json_object_get(scaling, "sliding_attention");
    if (scaling != NULL) rc = read_object(all != NULL ? all : scaling, &config->rope, err);
    return rc < 0 ? rc : read_local(json, local, config, err);
}

/* longrope: the list of divisors is in the config that the model keeps. */
static int find_divisors(struct ash_model_config *config, struct ash_err *err)
{
    const json_t *scaling = json_object_get(config->source, "rope_parameters"), *list;
    bool is_long = (double)config->max_positions > config->rope.original_positions;

    if (!json_is_object(scaling)) scaling = json_object_get(config->source, "rope_scaling");
    list = json_object_get(scaling, is_long ? "long_factor" : "short_factor");
    if (json_array_size(list) != config->rotary_dims / 2)
        return ash_err_set(err, -EINVAL, "%s of rope has %zu factors for %zu pairs of dimensions",
                           is_long ? "long_factor" : "short_factor", json_array_size(list), config->rotary_dims / 2);
    for (size_t i = 0; i < json_array_size(list); i++)
        if (!(json_number_value(json_array_get(list, i)) > 0))
            return ash_err_set(err, -EINVAL, "factor %zu of rope is not a positive number", i);
    config->rope.divisors = list;
    if (config->rope.attention_factor == 0) /* phimoe's files have it */
        config->rope.attention_factor =
            json_number_value(json_object_get(scaling, is_long ? "long_mscale" : "short_mscale"));
    if (config->rope.attention_factor == 0 && is_long)
        config->rope.attention_factor = sqrt(1 + log((double)config->max_positions / config->rope.original_positions) /
                                                     log(config->rope.original_positions));
    return 0;
}

int ash_config_rope_finish(struct ash_model_config *config, struct ash_err *err)
{
    if (config->rotary_dims == 0) {
        config->rotary_dims = (size_t)((double)config->head_dim * config->rope.share);
        config->rope.is_odd = config->rope.share < 1 && config->rotary_dims % 2 != 0;
        config->rotary_dims += config->rope.is_odd;
    }
    return config->rope.kind == ASH_ROPE_LONG ? find_divisors(config, err) : 0;
}
