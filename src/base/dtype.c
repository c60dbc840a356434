/* Element types: sizes and the names that safetensors files use. */
#include "base/dtype.h"
#include "base/assert.h"

#include <string.h>

static const struct {
    const char *name;
    size_t bytes, block; /* bytes of a block, and its elements */
} dtypes[ASH_DTYPE_COUNT] = {
    [ASH_F32] = {"F32", 4, 1},           [ASH_BF16] = {"BF16", 2, 1},       [ASH_F16] = {"F16", 2, 1},
    [ASH_F64] = {"F64", 8, 1},           [ASH_I8] = {"I8", 1, 1},           [ASH_U8] = {"U8", 1, 1},
    [ASH_I16] = {"I16", 2, 1},           [ASH_U16] = {"U16", 2, 1},         [ASH_I32] = {"I32", 4, 1},
    [ASH_U32] = {"U32", 4, 1},           [ASH_I64] = {"I64", 8, 1},         [ASH_U64] = {"U64", 8, 1},
    [ASH_BOOL] = {"BOOL", 1, 1},         [ASH_F8_E4M3] = {"F8_E4M3", 1, 1}, [ASH_F8_E5M2] = {"F8_E5M2", 1, 1},
    [ASH_Q8_0] = {"Q8_0", 34, 32},       [ASH_Q4_0] = {"Q4_0", 18, 32},     [ASH_Q8_W] = {"Q8_W", 34, 32},
    [ASH_Q4_1] = {"Q4_1", 20, 32},       [ASH_Q5_0] = {"Q5_0", 22, 32},     [ASH_Q5_1] = {"Q5_1", 24, 32},
    [ASH_Q2_K] = {"Q2_K", 84, 256},      [ASH_Q3_K] = {"Q3_K", 110, 256},   [ASH_Q4_K] = {"Q4_K", 144, 256},
    [ASH_Q5_K] = {"Q5_K", 176, 256},     [ASH_Q6_K] = {"Q6_K", 210, 256},   [ASH_IQ4_NL] = {"IQ4_NL", 18, 32},
    [ASH_IQ4_XS] = {"IQ4_XS", 136, 256}, [ASH_MXFP4] = {"MXFP4", 17, 32},
};

size_t ash_dtype_bytes(enum ash_dtype dtype)
{
    return dtypes[dtype].bytes;
}

size_t ash_dtype_block(enum ash_dtype dtype)
{
    return dtypes[dtype].block;
}

size_t ash_dtype_size(enum ash_dtype dtype, size_t count)
{
    return count / dtypes[dtype].block * dtypes[dtype].bytes;
}

const char *ash_dtype_name(enum ash_dtype dtype)
{
    ash_assert((size_t)dtype < ASH_COUNT(dtypes));
    return dtypes[dtype].name;
}

int ash_dtype_parse(const char *name)
{
    for (int i = 0; i < ASH_DTYPE_COUNT; i++)
        if (dtypes[i].block == 1 && strcmp(dtypes[i].name, name) == 0) return i;
    return -1;
}
