/* A quantization_config as a scheme: the method, and what the shapes of tensors do not say. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/assert.h"
#include "base/math.h"
#include "model/quantised/quantised_priv.h"

#define GROUP_MAX ((int64_t)1 << 24)

typedef int read_fn(const json_t *config, struct ash_quant_scheme *scheme, struct ash_err *err);

/* A string that config may have: one of choices, in any case. */
static int check_choice(const json_t *config, const char *key, const char *const *choices, size_t count,
                        struct ash_err *err)
{
    const char *value = NULL;
    int rc = ash_json_string(config, key, &value, err);

    if (rc <= 0) return rc;
    for (size_t i = 0; i < count; i++)
        if (strcasecmp(value, choices[i]) == 0) return 0;
    return ash_err_set(err, -ENOTSUP, "'%s' is '%.40s', which cannot be read ('%s'%s%s%s can)", key, value, choices[0],
                       count > 1 ? ", '" : "", count > 1 ? choices[1] : "", count > 1 ? "'" : "");
}

/* [rows, columns] at key. */
static int read_block(const json_t *config, const char *key, struct ash_quant_scheme *scheme, struct ash_err *err)
{
    const json_t *block = NULL;
    int rc = ash_json_array(config, key, &block, err);

    if (rc <= 0) return rc;
    for (size_t i = 0; i < 2; i++) {
        json_int_t size = json_integer_value(json_array_get(block, i));

        if (json_array_size(block) != 2 || size < 1 || size > GROUP_MAX)
            return ash_err_set(err, -EINVAL, "'%s' is not two sizes, rows and columns", key);
        scheme->block[i] = (size_t)size;
    }
    return 0;
}

static int read_fp8(const json_t *config, struct ash_quant_scheme *scheme, struct ash_err *err)
{
    static const char *const formats[] = {"e4m3", "float8_e4m3fn"};
    int rc = check_choice(config, "fmt", formats, ASH_COUNT(formats), err);

    return rc < 0 ? rc : read_block(config, "weight_block_size", scheme, err);
}

#define MIXED_BITS SIZE_MAX /* groups differ: shapes have to say it */

static int read_group(const json_t *weights, struct ash_quant_scheme *scheme, struct ash_err *err)
{
    int64_t bits = 8;
    int rc = ash_json_int(weights, "num_bits", 1, 32, &bits, err);

    if (rc < 0) return rc;
    scheme->bits = scheme->bits == 0 || scheme->bits == (size_t)bits ? (size_t)bits : MIXED_BITS;
    return read_block(weights, "block_structure", scheme, err);
}

/* Sizes of scale blocks are those of the first group of modules that has them: tensors' shapes say the rest. */
static int read_compressed(const json_t *config, struct ash_quant_scheme *scheme, struct ash_err *err)
{
    static const char *const formats[] = {
        "dense",          "float-quantized",      "int-quantized",        "naive-quantized",
        "pack-quantized", "nvfp4-pack-quantized", "mxfp4-pack-quantized", "mixed-precision"};
    const json_t *groups = NULL, *weights = NULL, *sparsity = json_object_get(config, "sparsity_config");
    const char *key, *sparse = json_string_value(json_object_get(sparsity, "format"));
    json_t *group;
    int rc = check_choice(config, "format", formats, ASH_COUNT(formats), err);

    if (rc < 0) return rc;
    if (sparse != NULL && strcmp(sparse, "dense") != 0)
        return ash_err_set(err, -ENOTSUP, "sparse weights ('%.40s') cannot be read", sparse);
    if (json_object_size(json_object_get(config, "transform_config")) > 0)
        return ash_err_set(err, -ENOTSUP, "weights that were rotated ('transform_config') cannot be read");
    rc = ash_json_object(config, "config_groups", &groups, err);
    if (rc <= 0) return rc;
    json_object_foreach((json_t *)(uintptr_t)groups, key, group) {
        if (!json_is_object(group)) return ash_err_set(err, -EINVAL, "'config_groups' has '%.40s', no group", key);
        rc = ash_json_object(group, "weights", &weights, err);
        if (rc > 0) rc = read_group(weights, scheme, err);
        if (rc < 0) return rc;
    }
    if (scheme->bits == MIXED_BITS) scheme->bits = 0;
    return 0;
}

static int read_modelopt(const json_t *config, struct ash_quant_scheme *scheme, struct ash_err *err)
{
    static const char *const algorithms[] = {"FP8", "NVFP4"};

    (void)scheme;
    return check_choice(config, "quant_algo", algorithms, ASH_COUNT(algorithms), err);
}

static int read_mxfp4(const json_t *config, struct ash_quant_scheme *scheme, struct ash_err *err)
{
    (void)config;
    (void)scheme;
    (void)err;
    return 0;
}

/* bits and group_size, of which -1 means all inputs. */
static int read_integers(const json_t *config, struct ash_quant_scheme *scheme, struct ash_err *err)
{
    int64_t bits = 4, group = 128;
    int rc = ash_json_int(config, json_object_get(config, "bits") == NULL ? "w_bit" : "bits", 1, 32, &bits, err);

    if (rc < 0) return rc;
    rc = ash_json_int(config, json_object_get(config, "group_size") == NULL ? "q_group_size" : "group_size", -1,
                      GROUP_MAX, &group, err);
    if (rc < 0) return rc;
    if (group == 0) return ash_err_set(err, -EINVAL, "'group_size' is 0");
    scheme->bits = (size_t)bits;
    scheme->group = group < 0 ? 0 : (size_t)group;
    return 0;
}

static int read_awq(const json_t *config, struct ash_quant_scheme *scheme, struct ash_err *err)
{
    static const char *const versions[] = {"gemm"};
    int rc = read_integers(config, scheme, err);

    if (rc < 0) return rc;
    if (scheme->bits != 4) return ash_err_set(err, -ENOTSUP, "%zu bits cannot be read (4 can)", scheme->bits);
    return check_choice(config, "version", versions, ASH_COUNT(versions), err);
}

static int read_gptq(const json_t *config, struct ash_quant_scheme *scheme, struct ash_err *err)
{
    static const char *const formats[] = {"gptq", "gptq_v2"};
    const char *format = json_string_value(json_object_get(config, "checkpoint_format"));
    int rc = read_integers(config, scheme, err);

    if (rc == 0) rc = check_choice(config, "checkpoint_format", formats, ASH_COUNT(formats), err);
    if (rc < 0) return rc;
    if (scheme->bits != 2 && scheme->bits != 3 && scheme->bits != 4 && scheme->bits != 8)
        return ash_err_set(err, -ENOTSUP, "%zu bits cannot be read (2, 3, 4 and 8 can)", scheme->bits);
    if (json_is_true(json_object_get(config, "is_marlin_format")))
        return ash_err_set(err, -ENOTSUP, "weights in the order of the Marlin kernel cannot be read");
    scheme->zeros_are_less_one = format == NULL || strcasecmp(format, "gptq_v2") != 0;
    return 0;
}

static int read_bnb(const json_t *config, struct ash_quant_scheme *scheme, struct ash_err *err)
{
    static const char *const types[] = {"nf4", "fp4"};

    (void)scheme;
    return check_choice(config, "bnb_4bit_quant_type", types, ASH_COUNT(types), err);
}

static const struct {
    const char *name;
    enum ash_quant_method method;
    read_fn *read;
} methods[] = {{"fp8", ASH_QUANT_FP8, read_fp8},
               {"fbgemm_fp8", ASH_QUANT_FBGEMM_FP8, read_fp8},
               {"compressed-tensors", ASH_QUANT_COMPRESSED, read_compressed},
               {"modelopt", ASH_QUANT_MODELOPT, read_modelopt},
               {"mxfp4", ASH_QUANT_MXFP4, read_mxfp4},
               {"awq", ASH_QUANT_AWQ, read_awq},
               {"gptq", ASH_QUANT_GPTQ, read_gptq},
               {"bitsandbytes", ASH_QUANT_BNB, read_bnb}};

const char *ash_quantised_methods(void)
{
    return "fp8, fbgemm_fp8, compressed-tensors, modelopt, mxfp4, awq, gptq and bitsandbytes";
}

int ash_quant_scheme_read(const json_t *config, struct ash_quant_scheme *scheme_out, struct ash_err *err)
{
    struct ash_quant_scheme scheme = {0};
    const char *name = NULL;
    int rc = ash_json_string(config, "quant_method", &name, err);

    if (rc == 0) rc = ash_err_set(err, -EINVAL, "it has no 'quant_method'");
    if (rc < 0) return ash_err_prefix(err, rc, "config.json: quantization_config");
    for (size_t i = 0; i < ASH_COUNT(methods); i++) {
        if (strcmp(methods[i].name, name) != 0) continue;
        scheme.method = methods[i].method;
        scheme.name = methods[i].name;
        rc = methods[i].read(config, &scheme, err);
        if (rc < 0) return ash_err_prefix(err, rc, "config.json: quantization_config");
        *scheme_out = scheme;
        return 0;
    }
    return ash_err_set(
        err, -ENOTSUP,
        "the weights are quantised with '%.40s', which cannot be read (%s can): take such a folder, that "
        "of the original weights, or a GGUF file",
        name, ash_quantised_methods());
}
