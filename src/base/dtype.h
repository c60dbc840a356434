/* dtype - element types of tensors in memory and in files. */
#ifndef ASH_BASE_DTYPE_H
#define ASH_BASE_DTYPE_H

#include <stddef.h>

enum ash_dtype {
    ASH_F32,
    ASH_BF16,
    ASH_F16,
    ASH_F64,
    ASH_I8,
    ASH_U8,
    ASH_I16,
    ASH_U16,
    ASH_I32,
    ASH_U32,
    ASH_I64,
    ASH_U64,
    ASH_BOOL,
    ASH_F8_E4M3,
    ASH_F8_E5M2,
    /* Blocks of 32 elements with one scale d (IEEE half, first); GGUF's layouts. Never in safetensors files. */
    ASH_Q8_0, /* 34 bytes: element i is d * int8 i */
    ASH_Q4_0, /* 18 bytes: element i is d * (low nibble of byte i - 8), element i + 16 the same of its high nibble */
    ASH_Q8_W, /* as ASH_Q8_0, but the blocks of a row have one scale per 256 elements (its last group may be shorter) */
    /* The same with nibbles of 0 to 15, or a fifth bit each in 4 bytes before them; _1: plus a minimum, a half. */
    ASH_Q4_1, /* 20 bytes */
    ASH_Q5_0, /* 22 bytes, minus 16 */
    ASH_Q5_1, /* 24 bytes */
    /* Blocks of 256 elements in sub-blocks with integer scales, and perhaps minimums: compute/quant_open.h. */
    ASH_Q2_K, /* 84 bytes, sub-blocks of 16, minimums */
    ASH_Q3_K, /* 110 bytes, sub-blocks of 16 */
    ASH_Q4_K, /* 144 bytes, sub-blocks of 32, minimums */
    ASH_Q5_K, /* 176 bytes, sub-blocks of 32, minimums */
    ASH_Q6_K, /* 210 bytes, sub-blocks of 16 */
    /* Nibbles that stand for integers of a table, in blocks of 32 or 256 (compute/quant_open.h). */
    ASH_IQ4_NL, /* 18 bytes */
    ASH_IQ4_XS, /* 136 bytes, sub-blocks of 32 */
    ASH_MXFP4,  /* 17 bytes; the scale is a power of two */
    ASH_DTYPE_COUNT
};

/* Bytes of one element, or of one block of a type that stores blocks. */
size_t ash_dtype_bytes(enum ash_dtype dtype);
/* Elements of one block: 1 but for the ASH_Q types. */
size_t ash_dtype_block(enum ash_dtype dtype);
/* Bytes of count elements; count is whole blocks, and the product does not overflow. */
size_t ash_dtype_size(enum ash_dtype dtype, size_t count);
/* The name in safetensors files: "F32", "BF16", ...; of a block type, its name in GGUF files. */
const char *ash_dtype_name(enum ash_dtype dtype);
/* The dtype of a safetensors name, or -1: for the name of a block type too. */
int ash_dtype_parse(const char *name);

#endif
