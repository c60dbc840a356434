/* quantization_config of a published folder: compressed-tensors' groups, or gpt-oss's list of what is not quantised. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/file.h"
#include "base/json.h"
#include "base/math.h"
#include "model/files/publish_priv.h"
#include "model/model_priv.h"

/* Layers that stay as they are, by the names of their modules. */
static json_t *ignored(const struct ash_model *model, const struct ash_encoding *encoding)
{
    json_t *names = json_array();

    for (size_t i = 0; i < model->param_count; i++) {
        const char *name = model->params[i].name;

        if (!ash_publish_is_linear(model, i) || ash_publish_is_quantised(model, encoding, i)) continue;
        json_array_append_new(names, json_stringn(name, strlen(name) - strlen(".weight")));
    }
    if (model->top.param[ASH_ROLE_HEAD] == ASH_NO_PARAM ||
        model->top.param[ASH_ROLE_HEAD] == model->top.param[ASH_ROLE_EMBED])
        json_array_append_new(names, json_string("lm_head"));
    return names;
}

static json_t *weights_of(const struct ash_encoding *encoding)
{
    const char *strategy = encoding->block == 0 ? "channel" : encoding->tensor_top > 0 ? "tensor_group" : "group";
    json_t *weights = json_pack("{s:i, s:s, s:s, s:b, s:b}", "num_bits", (int)encoding->code_bits, "type", "float",
                                "strategy", strategy, "symmetric", 1, "dynamic", 0);

    if (encoding->block > 0) json_object_set_new(weights, "group_size", json_integer((json_int_t)encoding->block));
    return weights;
}

/* Inputs of FP8 layers are rounded by those who compute in FP8: a scale for each token, found as they come. */
static json_t *inputs_of(const struct ash_encoding *encoding)
{
    if (encoding != &ash_encoding_fp8) return json_null();
    return json_pack("{s:i, s:s, s:s, s:b, s:b}", "num_bits", 8, "type", "float", "strategy", "token", "symmetric", 1,
                     "dynamic", 1);
}

static json_t *compressed(const struct ash_model *model, const struct ash_encoding *encoding)
{
    static const struct {
        const struct ash_encoding *encoding;
        const char *format;
    } formats[] = {{&ash_encoding_fp8, "float-quantized"},
                   {&ash_encoding_nvfp4, "nvfp4-pack-quantized"},
                   {&ash_encoding_mxfp4, "mxfp4-pack-quantized"}};
    const char *format = NULL;

    for (size_t i = 0; i < ASH_COUNT(formats); i++)
        if (formats[i].encoding == encoding) format = formats[i].format;
    ash_assert(format != NULL);
    return json_pack("{s:s, s:s, s:s, s:{s:{s:[s], s:s, s:o, s:o, s:n}}, s:o, s:n}", "quant_method",
                     "compressed-tensors", "format", format, "quantization_status", "compressed", "config_groups",
                     "group_0", "targets", "Linear", "format", format, "weights", weights_of(encoding),
                     "input_activations", inputs_of(encoding), "output_activations", "ignore", ignored(model, encoding),
                     "kv_cache_scheme");
}

int ash_publish_write_config(const struct ash_model *model, const struct ash_encoding *encoding, const char *dir,
                             struct ash_err *err)
{
    json_t *config = NULL, *settings;
    char path[PATH_MAX];
    int rc;

    if (ash_path_join(path, sizeof(path), dir, "config.json") < 0)
        return ash_err_set(err, -ENAMETOOLONG, "'%s' is too long a path", dir);
    rc = ash_json_load(path, &config, err);
    if (rc < 0) return rc;
    if (encoding->has_zeros)
        settings = json_pack("{s:s, s:i, s:i, s:b, s:s, s:o}", "quant_method", "awq", "bits", (int)encoding->code_bits,
                             "group_size", (int)encoding->block, "zero_point", 1, "version", "gemm",
                             "modules_to_not_convert", ignored(model, encoding));
    else
        settings =
            ash_publish_has_stacked(model)
                ? json_pack("{s:s, s:[s, s, s, s]}", "quant_method", "mxfp4", "modules_to_not_convert",
                            "model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head")
                : compressed(model, encoding);
    if (settings == NULL || json_object_set_new(config, "quantization_config", settings) < 0)
        rc = ash_err_set(err, -ENOMEM, "out of memory for config.json");
    if (rc == 0) rc = ash_json_save(path, config, err);
    json_decref(config);
    return rc;
}
