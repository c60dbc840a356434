/* See ex2.h. ex2_steps.gz holds the first answer (4 bytes) and the differences between neighbours (a byte each). */
#include "compute/ref/ex2.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <zlib.h>
#include "base/assert.h"
#include "base/bits.h"
#include "compute/ref/wgmma.h"

#define FRACTION_BITS 23
#define COUNT (1u << FRACTION_BITS)
#define ONE_BITS 0x3f800000u
#define BIAS 127

extern const char ash_embed_ex2_steps_gz[];
extern const unsigned long ash_embed_ex2_steps_gz_bytes;

static uint32_t *table; /* [COUNT]: bits of 2^(i / COUNT); lives as long as the process */
static pthread_once_t table_once = PTHREAD_ONCE_INIT;

static void unpack_table(void)
{
    unsigned char *steps = malloc(COUNT + 4);
    z_stream stream = {.next_in = (Bytef *)ash_embed_ex2_steps_gz, .avail_in = (uInt)ash_embed_ex2_steps_gz_bytes};

    table = malloc(COUNT * sizeof(*table));
    ash_assert(steps != NULL && table != NULL);
    stream.next_out = steps;
    stream.avail_out = COUNT + 4;
    ash_assert(inflateInit2(&stream, 15 + 16) == Z_OK); /* 16: gzip's header */
    ash_assert(inflate(&stream, Z_FINISH) == Z_STREAM_END && stream.total_out == COUNT + 3);
    inflateEnd(&stream);
    table[0] = (uint32_t)steps[0] | (uint32_t)steps[1] << 8 | (uint32_t)steps[2] << 16 | (uint32_t)steps[3] << 24;
    for (uint32_t i = 1; i < COUNT; i++)
        table[i] = table[i - 1] + steps[3 + i];
    free(steps);
}

float ash_ex2(float x)
{
    uint32_t bits = ash_f32_bits(x), fraction;
    int exponent = (int)(bits >> FRACTION_BITS & 255) - BIAS, whole;
    bool is_negative = (bits & ASH_F32_SIGN_BIT) != 0;
    uint64_t mantissa = (bits & (COUNT - 1)) | COUNT, fixed;

    if (x != x) return ash_f32_from_bits(ASH_WGMMA_NAN_BITS);
    if (exponent > 7) return is_negative ? 0.0f : INFINITY;
    if (exponent < -FRACTION_BITS) return 1.0f; /* denormals, too */
    fixed = exponent >= 0 ? mantissa << exponent : mantissa >> -exponent;
    whole = (int)(fixed >> FRACTION_BITS);
    fraction = (uint32_t)(fixed & (COUNT - 1));
    if (is_negative) {
        whole = -whole - (fraction != 0);
        fraction = fraction != 0 ? COUNT - 1 - fraction : 0;
    }
    if (whole > BIAS) return INFINITY;
    if (whole < 1 - BIAS) return 0.0f;
    pthread_once(&table_once, unpack_table);
    return ash_f32_from_bits(table[fraction] - ONE_BITS + ((uint32_t)(whole + BIAS) << FRACTION_BITS));
}
