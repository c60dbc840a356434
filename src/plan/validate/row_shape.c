/* Models of published measurements, from columns, names and the number of parameters. */
#include "plan/validate/row_shape.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define WIDTH_OVER_DEPTH 110.0 /* of models of 1 to 70 billion */
#define VOCAB_UNSTATED 50304   /* GPT-2's, rounded up to whole tiles */

/* Gated or not, tied or not, and how many layers have experts: whatever comes nearest to the parameters that the row
 * gives. */
static void fit_params(struct ash_shape *shape, double params)
{
    struct ash_shape best = *shape;
    double nearest = INFINITY;

    for (int kind = 0; kind < 4; kind++) {
        for (double sparse = 0; sparse <= (shape->experts > 0 ? shape->layers : 0); sparse++) {
            struct ash_shape trial = *shape;
            double off;

            trial.gated = kind % 2 == 0;
            trial.tied = kind >= 2;
            trial.attn_layers = shape->layers;
            trial.sparse_layers = sparse;
            trial.dense_layers = shape->layers - sparse;
            off = fabs(ash_shape_params(&trial) - params);
            if (off >= nearest || (trial.dense_layers > 0 && trial.ffn <= 0)) continue;
            nearest = off;
            best = trial;
        }
    }
    *shape = best;
}

/* "Some-Model-13B-v2": 13e9, "350m": 350e6; 0 where the name has no size. The last one counts, but "a3b" (active) does
 * not. */
static double params_in_name(const char *name)
{
    double params = 0;

    for (const char *at = name; *at != '\0'; at++) {
        bool starts = isdigit((unsigned char)*at) && (at == name || !isalnum((unsigned char)at[-1]));
        char *end = NULL;
        double value = starts ? strtod(at, &end) : 0;

        if (!starts) continue;
        if ((*end == 'B' || *end == 'b') && !isalnum((unsigned char)end[1])) params = value * 1e9;
        if ((*end == 'M' || *end == 'm') && !isalnum((unsigned char)end[1])) params = value * 1e6;
        if ((*end == 'T' || *end == 't') && !isalnum((unsigned char)end[1])) params = value * 1e12;
        at = end - 1;
    }
    return params;
}

/* Billions, unless the number is so large that it must count them one by one. */
static double params_of(const struct ash_csv *csv, size_t row)
{
    double params = ash_csv_number(csv, row, "params_b", 0);

    if (params <= 0) params = params_in_name(ash_csv_field(csv, row, "params_b"));
    return params > 0 && params < 1e5 ? params * 1e9 : params;
}

static bool is_latent(const char *name)
{
    return strcasestr(name, "deepseek") != NULL || strcasestr(name, "kimi") != NULL;
}

static int from_columns(const struct ash_csv *csv, size_t row, struct ash_shape *shape_out, struct ash_err *err)
{
    struct ash_shape shape = {
        .layers = ash_csv_number(csv, row, "layers", 0),
        .hidden = ash_csv_number(csv, row, "hidden", 0),
        .heads = ash_csv_number(csv, row, "heads", 0),
        .kv_heads = ash_csv_number(csv, row, "kv_heads", 0),
        .head_dim = ash_csv_number(csv, row, "head_dim", 0),
        .ffn = ash_csv_number(csv, row, "ffn", 0),
        .gated = true,
        .vocab = ash_csv_number(csv, row, "vocab", VOCAB_UNSTATED),
        .experts = ash_csv_number(csv, row, "experts", 0),
        .choices = ash_csv_number(csv, row, "topk", 0),
        .expert_ffn = ash_csv_number(csv, row, "moe_ffn", 0),
    };
    double params = params_of(csv, row);

    snprintf(shape.name, sizeof(shape.name), "%s", ash_csv_field(csv, row, "model"));
    if (shape.layers == 0 || shape.hidden == 0)
        return ash_err_set(err, -EINVAL, "no layers and width, and '%.60s' is not well known", shape.name);
    if (shape.heads == 0) shape.heads = fmax(1, round(shape.hidden / (shape.head_dim > 0 ? shape.head_dim : 128)));
    if (shape.experts <= 1) shape.experts = shape.choices = shape.expert_ffn = 0;
    if (shape.experts > 0 && shape.expert_ffn == 0) shape.expert_ffn = shape.ffn;
    shape.shared_ffn = shape.expert_ffn * ash_csv_number(csv, row, "shared_experts", 0);
    if (is_latent(shape.name)) {
        shape.q_rank = 1536; /* as in DeepSeek-V3's config.json */
        shape.kv_rank = 512;
        shape.rope_dim = 64;
        shape.nope_dim = shape.v_dim = 128;
    }
    if (shape.kv_heads == 0) shape.kv_heads = shape.heads;
    if (shape.head_dim == 0) shape.head_dim = shape.hidden / shape.heads;
    if (params > 0 && shape.layers > 0 && shape.layers < 1e4) fit_params(&shape, params);
    if (ash_shape_complete(&shape, err) < 0) return ash_err_prefix(err, -EINVAL, "sizes of the model");
    *shape_out = shape;
    return 0;
}

/* A dense model known by its size only: as wide and deep as others of that size are. */
static int from_params(const char *name, double params, struct ash_shape *shape_out, struct ash_err *err)
{
    struct ash_shape shape = {.gated = true, .vocab = VOCAB_UNSTATED, .head_dim = 128};

    snprintf(shape.name, sizeof(shape.name), "%s", name);
    shape.hidden = fmax(512, 128 * round(cbrt(params / 12 * WIDTH_OVER_DEPTH) / 128));
    shape.ffn = 128 * round(shape.hidden * 8 / 3 / 128);
    shape.layers = fmax(1, round((params - 2 * shape.hidden * shape.vocab) / (12 * shape.hidden * shape.hidden)));
    shape.heads = shape.hidden / shape.head_dim;
    if (ash_shape_complete(&shape, err) < 0) return -EINVAL;
    *shape_out = shape;
    return 0;
}

int ash_row_shape(const struct ash_csv *csv, size_t row, struct ash_shape *shape_out, struct ash_err *err)
{
    const char *name = ash_csv_field(csv, row, "model"), *arch = ash_csv_field(csv, row, "arch_type");
    double params = params_of(csv, row), layers = ash_csv_number(csv, row, "layers", 0);
    const struct ash_shape *known = ash_shape_named(name);
    bool dense = ash_csv_number(csv, row, "experts", 0) <= 1 && (arch[0] == '\0' || strcasestr(arch, "dense") != NULL);

    if (known != NULL && (params <= 0 || fabs(ash_shape_params(known) / params - 1) < 0.1) &&
        (layers <= 0 || layers == known->layers)) {
        *shape_out = *known;
        return 0;
    }
    if (layers <= 0 && params <= 0 && strchr(name, '-') != NULL) params = params_in_name(name);
    if (layers <= 0 && dense && params >= 1e7) return from_params(name, params, shape_out, err);
    return from_columns(csv, row, shape_out, err);
}

enum ash_gpu_precision ash_row_precision(const struct ash_csv *csv, size_t row, const char *column)
{
    static const char *const four[] = {"fp4", "int4", "w4", "awq", "gptq", "q4", "4bit", "4-bit", "e2m1", NULL};
    static const char *const eight[] = {"fp8", "float8", "int8", "w8", "q8", "8bit", "8-bit", "e4m3", NULL};
    const char *text = ash_csv_field(csv, row, column);

    for (size_t i = 0; four[i] != NULL; i++)
        if (strcasestr(text, four[i]) != NULL) return ASH_GPU_FP4;
    for (size_t i = 0; eight[i] != NULL; i++)
        if (strcasestr(text, eight[i]) != NULL) return ASH_GPU_FP8;
    return ASH_GPU_BF16;
}
