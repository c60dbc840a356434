/* Rotary positions: tables of cosines and sines for the scaling rules of the field, computed the way the reference
 * library does (float32 frequencies and angles), so that long positions agree with it. */
#include "model/pass/pass_priv.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#define PI 3.14159265358979323846

static double llama3_frequency(const struct ash_rope_config *rope, double freq)
{
    double wavelength = 2 * PI / freq;
    double low = rope->original_positions / rope->low_freq_factor,
           high = rope->original_positions / rope->high_freq_factor;

    if (wavelength < high) return freq;
    if (wavelength > low) return freq / rope->factor;
    double smooth = (rope->original_positions / wavelength - rope->low_freq_factor) /
                    (rope->high_freq_factor - rope->low_freq_factor);
    return (1 - smooth) * freq / rope->factor + smooth * freq;
}

/* The dimension whose wavelength makes `rotations` turns over the original context. */
static double yarn_dimension(const struct ash_rope_config *rope, size_t dims, double rotations)
{
    return (double)dims * log(rope->original_positions / (rotations * 2 * PI)) / (2 * log(rope->theta));
}

/* Share of extrapolation for pair i: 1 for fast dimensions, 0 for slow ones, a ramp between. */
static double yarn_share(const struct ash_rope_config *rope, size_t dims, size_t i)
{
    double low = yarn_dimension(rope, dims, rope->beta_fast), high = yarn_dimension(rope, dims, rope->beta_slow);

    if (rope->truncate) {
        low = floor(low);
        high = ceil(high);
    }
    if (low < 0) low = 0;
    if (high > (double)dims - 1) high = (double)dims - 1;
    if (low == high) high += 0.001;
    double ramp = ((double)i - low) / (high - low);
    return 1 - (ramp < 0 ? 0 : ramp > 1 ? 1 : ramp);
}

static double yarn_mscale(double factor, double mscale)
{
    return factor <= 1 ? 1 : 0.1 * mscale * log(factor) + 1;
}

/* The factor that yarn puts on cosines and sines. */
static double attention_factor(const struct ash_rope_config *rope)
{
    if (rope->kind != ASH_ROPE_YARN) return 1;
    if (rope->attention_factor != 0) return rope->attention_factor;
    if (rope->mscale != 0 && rope->mscale_all_dim != 0)
        return yarn_mscale(rope->factor, rope->mscale) / yarn_mscale(rope->factor, rope->mscale_all_dim);
    return yarn_mscale(rope->factor, 1);
}

static float frequency(const struct ash_rope_config *rope, size_t dims, size_t i)
{
    double freq = 1 / pow(rope->theta, (double)(2 * i) / (double)dims);

    switch (rope->kind) {
    case ASH_ROPE_LINEAR:
        return (float)(freq / rope->factor);
    case ASH_ROPE_LLAMA3:
        return (float)llama3_frequency(rope, freq);
    case ASH_ROPE_FACTORS:
        return (float)(freq / (double)rope->factors[i]);
    case ASH_ROPE_YARN: {
        double share = yarn_share(rope, dims, i);
        return (float)(freq / rope->factor * (1 - share) + freq * share);
    }
    default:
        return (float)freq;
    }
}

float ash_rope_llama3_factor(const struct ash_rope_config *rope, size_t dims, size_t i)
{
    double freq = 1 / pow(rope->theta, (double)(2 * i) / (double)dims);

    return (float)(freq / llama3_frequency(rope, freq));
}

static void fill_tables(const struct ash_rope_config *rope, size_t dims, size_t count, float *cos_table,
                        float *sin_table)
{
    size_t half = dims / 2;
    double factor = attention_factor(rope);

    for (size_t i = 0; i < half; i++) {
        float freq = frequency(rope, dims, i);
        for (size_t pos = 0; pos < count; pos++) {
            float angle = (float)pos * freq;
            cos_table[pos * half + i] = (float)(cos((double)angle) * factor);
            sin_table[pos * half + i] = (float)(sin((double)angle) * factor);
        }
    }
}

int ash_pass_rope_reserve(struct ash_pass *pass, size_t count, struct ash_err *err)
{
    const struct ash_model_config *c = &pass->model->config;
    size_t dims = c->attn == ASH_ATTN_LATENT ? c->rope_dim : c->head_dim;
    size_t positions = pass->rope_positions == 0 ? 256 : pass->rope_positions;
    struct ash_buffer tables = {0};
    float *host;
    int rc;

    if (c->rope.kind == ASH_ROPE_NONE || count <= pass->rope_positions) return 0;
    while (positions < count)
        positions *= 2;
    size_t elements = positions * (dims / 2);
    if ((rc = ash_buffer_init(&tables, pass->exec->memory, 2 * elements * sizeof(float), "rotary tables", err)) < 0)
        return rc;
    host = malloc(2 * elements * sizeof(float));
    if (host == NULL) {
        ash_buffer_fini(&tables);
        return ash_err_set(err, -ENOMEM, "out of memory for rotary tables of %zu positions", positions);
    }
    fill_tables(&c->rope, dims, positions, host, host + elements);
    rc = pass->exec->memory->copy(tables.data, host, 2 * elements * sizeof(float));
    free(host);
    ash_buffer_fini(&pass->rope);
    pass->rope = tables;
    pass->rope_positions = positions;
    pass->rope_dims = dims;
    return rc < 0 ? ash_err_set(err, rc, "cannot copy the rotary tables") : 0;
}

void ash_pass_rope(struct ash_pass *pass, float *x, size_t heads, size_t head_stride, size_t row_stride, bool inverse)
{
    const float *tables = pass->rope.data;

    if (pass->model->config.rope.kind == ASH_ROPE_NONE) return;
    struct ash_rope_args args = {.rows = pass->rows,
                                 .heads = heads,
                                 .head_stride = head_stride,
                                 .row_stride = row_stride,
                                 .dims = pass->rope_dims,
                                 .interleaved_in = pass->model->config.rope.interleaved,
                                 .positions = pass->positions,
                                 .cos = tables,
                                 .sin = tables + pass->rope_positions * (pass->rope_dims / 2),
                                 .x = x,
                                 .inverse = inverse};
    pass->exec->ops->rope->apply(pass->exec, &args);
}
