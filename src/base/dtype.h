/* dtype - element types of tensors in memory and in files. */
#ifndef ASH_BASE_DTYPE_H
#define ASH_BASE_DTYPE_H

#include <stddef.h>

enum ash_dtype {
    ASH_F32, ASH_BF16, ASH_F16, ASH_F64, ASH_I8, ASH_U8, ASH_I16, ASH_U16, ASH_I32, ASH_U32, ASH_I64, ASH_U64,
    ASH_BOOL, ASH_F8_E4M3, ASH_F8_E5M2,
    ASH_DTYPE_COUNT
};

size_t ash_dtype_bytes(enum ash_dtype dtype);
/* The name in safetensors files: "F32", "BF16", ... */
const char *ash_dtype_name(enum ash_dtype dtype);
/* The dtype of a safetensors name, or -1. */
int ash_dtype_parse(const char *name);

#endif
