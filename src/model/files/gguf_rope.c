/* Rotary positions of a GGUF file's metadata, and of the tensors that scale them. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "model/files/gguf_reader.h"
#include "model/rope_freq.h"
#include "storage/io/remote_file.h"

#define LLAMA3_POSITIONS 8192 /* what Llama 3 was trained on before its frequencies were scaled */

static json_t *factor_list(const float *factors, size_t count)
{
    json_t *list = json_array();

    for (size_t i = 0; i < count; i++)
        json_array_append_new(list, json_real(ash_gguf_widen((double)factors[i])));
    return list;
}

/* A vector of float32 in memory, or NULL if there is none of this name. */
static int read_vector(struct ash_gguf_reader *reader, const char *name, const struct ash_tensor_view **view_out,
                       struct ash_err *err)
{
    const struct ash_tensor_view *view = ash_gguf_find(reader->file, name);

    *view_out = view;
    if (view == NULL) return 0;
    if (view->dtype != ASH_F32 || view->dim_count != 1)
        return ash_err_set(err, -EINVAL, "tensor '%s' is no vector of float32 values", name);
    return ash_remote_file_bring(
        &(struct ash_direct_range){ash_gguf_map(reader->file, view->data), view->data, view->size_bytes}, 1, err);
}

/* longrope: divisors of frequencies, for short and for long contexts. */
static int add_longrope(struct ash_gguf_reader *reader, json_t *json, struct ash_err *err)
{
    const struct ash_tensor_view *longer = NULL, *shorter = NULL;
    int64_t positions = 0;
    json_t *scaling;
    int rc = read_vector(reader, ASH_GGUF_ROPE_LONG, &longer, err);

    if (rc == 0) rc = read_vector(reader, ASH_GGUF_ROPE_SHORT, &shorter, err);
    if (rc < 0 || longer == NULL || shorter == NULL) return rc;
    rc = ash_gguf_get_int(reader, "rope.scaling.original_context_length", &positions, err);
    if (rc < 0) return rc;
    scaling =
        json_pack("{s:s, s:o, s:o}", "rope_type", "longrope", "long_factor", factor_list(longer->data, longer->dims[0]),
                  "short_factor", factor_list(shorter->data, shorter->dims[0]));
    if (positions > 0)
        json_object_set_new(json, "original_max_position_embeddings", json_integer((json_int_t)positions));
    json_object_set_new(json, "rope_scaling", scaling);
    return 0;
}

static int add_yarn(struct ash_gguf_reader *reader, json_t *scaling, struct ash_err *err)
{
    static const char *const names[][2] = {{"rope.scaling.yarn_beta_fast", "beta_fast"},
                                           {"rope.scaling.yarn_beta_slow", "beta_slow"}};
    int64_t positions = 0;
    double log_scale = 0;
    int rc = ash_gguf_get_int(reader, "rope.scaling.original_context_length", &positions, err);

    if (rc >= 0)
        rc = ash_gguf_double(reader->file, ash_gguf_key_of(reader, "rope.scaling.yarn_log_multiplier"), 0, 1e3,
                             &log_scale, err);
    if (log_scale > 0) { /* llama.cpp takes both to be equal */
        json_object_set_new(scaling, "mscale", json_real(ash_gguf_widen(10 * log_scale)));
        json_object_set_new(scaling, "mscale_all_dim", json_real(ash_gguf_widen(10 * log_scale)));
    }
    for (size_t i = 0; i < ASH_COUNT(names) && rc >= 0; i++) {
        double value = 0;

        rc = ash_gguf_double(reader->file, ash_gguf_key_of(reader, names[i][0]), 1e-6, 1e6, &value, err);
        if (rc == 1) json_object_set_new(scaling, names[i][1], json_real(ash_gguf_widen(value)));
    }
    if (rc < 0) return rc;
    if (positions > 0)
        json_object_set_new(scaling, "original_max_position_embeddings", json_integer((json_int_t)positions));
    if (reader->arch->traits & ASH_GGUF_UNTRUNCATED) json_object_set_new(scaling, "truncate", json_false());
    return 0;
}

/* Scaled positions. A tensor of factors, which some files have for llama 3, is looked at later. */
int ash_gguf_add_rope_scaling(struct ash_gguf_reader *reader, json_t *json, struct ash_err *err)
{
    const char *type = "none";
    double factor = 1;
    json_t *scaling;
    int rc = ash_gguf_string(reader->file, ash_gguf_key_of(reader, "rope.scaling.type"), &type, err);

    if (rc < 0) return rc;
    rc = ash_gguf_double(reader->file, ash_gguf_key_of(reader, "rope.scaling.factor"), 1e-3, 1e6, &factor, err);
    if (rc < 0) return rc;
    if (strcmp(type, "none") == 0 || strcmp(type, "longrope") == 0) return add_longrope(reader, json, err);
    if (strcmp(type, "linear") != 0 && strcmp(type, "yarn") != 0)
        return ash_err_set(
            err, -ENOTSUP,
            "rotary positions scaled by '%.40s' cannot be read from a GGUF file (none, linear, yarn and longrope can): "
            "use the model's Hugging Face folder",
            type);
    scaling = json_pack("{s:s, s:f}", "type", type, "factor", ash_gguf_widen(factor));
    json_object_set_new(json, "rope_scaling", scaling);
    return strcmp(type, "yarn") == 0 ? add_yarn(reader, scaling, err) : 0;
}

/* The share of a head's dims that is rotated. */
int ash_gguf_add_rotary_share(struct ash_gguf_reader *reader, json_t *json, struct ash_err *err)
{
    int64_t head = json_integer_value(json_object_get(json, "head_dim")), dims = 0;
    int rc = ash_gguf_get_int(reader, "rope.dimension_count", &dims, err);

    if (ash_gguf_is_latent(reader)) return rc < 0 ? rc : 0; /* a part of each head */
    if (head == 0 && reader->heads > 0) head = reader->hidden / reader->heads;
    if (json_object_get(json, "head_dim") == NULL) json_object_set_new(json, "head_dim", json_integer(head));
    if (rc != 1) return rc;
    if (dims > head || (dims > 0 && dims < head && (reader->arch->traits & ASH_GGUF_PERMUTED)))
        return ash_err_set(err, -ENOTSUP, "'%s' is %d but a head has %d dims: that is not supported", reader->key,
                           (int)dims, (int)head);
    if (dims > 0)
        json_object_set_new(json, "partial_rotary_factor",
                            json_real(dims == head ? 1 : ((double)dims + 0.25) / (double)head));
    return 0;
}

/* Are these the factors of Llama 3's rule? Then the rule itself is used, as it is for a folder. */
static bool is_llama3(const struct ash_rope_config *rule, const float *factors, size_t dims)
{
    for (size_t i = 0; i < dims / 2; i++)
        if (fabsf(ash_rope_llama3_factor(rule, dims, i) / factors[i] - 1) > 1e-6f) return false;
    return true;
}

int ash_gguf_read_factors(struct ash_gguf_reader *reader, struct ash_model_config *config, struct ash_err *err)
{
    const struct ash_tensor_view *view;
    size_t count = config->rotary_dims / 2;
    struct ash_rope_config rule = config->rope;
    int64_t positions = LLAMA3_POSITIONS;
    const char *key = ash_gguf_key_of(reader, "rope.scaling.original_context_length");
    int rc = read_vector(reader, ASH_GGUF_ROPE_FREQS, &view, err);

    if (view == NULL || rc < 0) return rc;
    rc = ash_gguf_int(reader->file, key, 1, INT32_MAX, &positions, err);
    if (rc < 0) return rc;
    if (view->dims[0] != count)
        return ash_err_set(err, -EINVAL, "tensor '" ASH_GGUF_ROPE_FREQS "' is not %zu float32 values", count);
    config->rope.factors = view->data;
    for (size_t i = 0; i < count; i++)
        if (!(config->rope.factors[i] > 0 && isfinite(config->rope.factors[i])))
            return ash_err_set(err, -EINVAL, "tensor '" ASH_GGUF_ROPE_FREQS "' has a value that is not above 0");
    if (config->rope.kind != ASH_ROPE_DEFAULT)
        return ash_err_set(err, -ENOTSUP, "rotary positions scaled twice are not supported");
    rule.kind = ASH_ROPE_LLAMA3;
    rule.factor = ash_gguf_widen((double)config->rope.factors[count - 1]);
    rule.low_freq_factor = 1;
    rule.high_freq_factor = 4;
    rule.original_positions = (double)positions;
    if (is_llama3(&rule, config->rope.factors, config->rotary_dims))
        config->rope = rule;
    else
        config->rope.kind = ASH_ROPE_FACTORS;
    return 0;
}
