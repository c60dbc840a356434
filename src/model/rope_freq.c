/* rope_freq: one rule per kind of scaling, then tables of cosines and sines. */
#include "model/rope_freq.h"

#include <math.h>

#include "base/assert.h"

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

    ash_assert(2 * i < dims);
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

/* The factor that yarn and longrope put on cosines and sines. */
static double attention_factor(const struct ash_rope_config *rope)
{
    if (rope->kind != ASH_ROPE_YARN && rope->kind != ASH_ROPE_LONG) return 1;
    if (rope->attention_factor != 0) return rope->attention_factor;
    if (rope->kind == ASH_ROPE_LONG) return 1;
    if (rope->mscale != 0 && rope->mscale_all_dim != 0)
        return yarn_mscale(rope->factor, rope->mscale) / yarn_mscale(rope->factor, rope->mscale_all_dim);
    return yarn_mscale(rope->factor, 1);
}

static float frequency(const struct ash_rope_config *rope, size_t dims, size_t i)
{
    double freq = 1 / pow(rope->theta, (double)(2 * i) / (double)dims);

    ash_assert(2 * i < dims);
    switch (rope->kind) {
    case ASH_ROPE_LINEAR:
        return (float)(freq / rope->factor);
    case ASH_ROPE_LLAMA3:
        return (float)llama3_frequency(rope, freq);
    case ASH_ROPE_FACTORS:
        return (float)(freq / (double)rope->factors[i]);
    case ASH_ROPE_LONG:
        return (float)(freq / json_number_value(json_array_get(rope->divisors, i)));
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

void ash_rope_fill_tables(const struct ash_rope_config *rope, size_t dims, size_t count, float *cos_table,
                          float *sin_table)
{
    size_t half = dims / 2;
    double factor = attention_factor(rope);

    ash_assert(dims % 2 == 0);
    for (size_t i = 0; i < half; i++) {
        float freq = frequency(rope, dims - rope->is_odd, i);
        for (size_t pos = 0; pos < count; pos++) {
            float angle = (float)pos * freq;
            cos_table[pos * half + i] = (float)(cos((double)angle) * factor);
            sin_table[pos * half + i] = (float)(sin((double)angle) * factor);
        }
    }
}
