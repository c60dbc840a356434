/* The inside of quantised weights: how config.json describes them, how a tensor is put together, and the table of
 * layouts. */
#ifndef ASH_MODEL_QUANTISED_QUANTISED_PRIV_H
#define ASH_MODEL_QUANTISED_QUANTISED_PRIV_H

#include <stdatomic.h>
#include <stdbool.h>

#include "model/quantised/quantised.h"
#include "storage/io/remote_file.h"

/* Who wrote the weights: quant_method. A layout names those that use it. */
enum ash_quant_method {
    ASH_QUANT_FP8 = 1,
    ASH_QUANT_FBGEMM_FP8 = 2,
    ASH_QUANT_COMPRESSED = 4,
    ASH_QUANT_MODELOPT = 8,
    ASH_QUANT_MXFP4 = 16,
    ASH_QUANT_AWQ = 32,
    ASH_QUANT_GPTQ = 64,
    ASH_QUANT_BNB = 128
};

/* What quantization_config says. */
struct ash_quant_scheme {
    enum ash_quant_method method;
    const char *name;        /* of the method */
    size_t block[2];         /* rows and columns that share a scale in FP8 blocks; 0: not said */
    size_t bits, group;      /* of integers, and inputs that share a scale; group 0: all inputs */
    bool zeros_are_less_one; /* gptq's first format stores a zero point less 1 */
};

/* The parts that a weight is stored as. */
enum ash_quant_part {
    ASH_PART_CODES,
    ASH_PART_SCALES,
    ASH_PART_ZEROS,
    ASH_PART_GROUPS, /* of each input: gptq's g_idx */
    ASH_PART_GLOBAL, /* one factor for all scales */
    ASH_PART_MAP,    /* value of each code */
    ASH_PART_SCALE_MAP,
    ASH_PART_SCALE_SCALES,
    ASH_PART_STATE, /* a JSON text */
    ASH_PART_COUNT
};

struct ash_stored_layout;

/* A weight of rows x cols, which reads as floats row by row. */
struct ash_quant_tensor {
    const struct ash_stored_layout *layout;
    char name[96];
    const struct ash_tensor_view *parts[ASH_PART_COUNT];
    size_t rows, cols;
    size_t outer; /* of a transposed layout: matrices one after the other; rows are outer * rows of one */
    size_t bits, group;
    size_t block_rows, block_cols;         /* that share a scale */
    size_t scale_row_step, scale_col_step; /* from the scale of a block to those of its neighbours */
    bool zeros_are_less_one;
    bool divides_global;             /* scales are divided by the global factor */
    float state_offset;              /* bitsandbytes: added to its scales */
    size_t state_block, scale_block; /* bitsandbytes: elements and scales that share a scale */
    size_t begin, size_bytes;        /* among the floats of all tensors */
    atomic_bool is_ready;            /* its parts are in memory and were checked */
};

struct ash_stored_layout {
    const char *name;
    unsigned methods; /* that use it */
    /* Find the parts of tensor (rows, cols and name are there) and check their types and shapes. Returns 1, 0 if it is
     * not stored like this, -EINVAL or -ENOTSUP. */
    int (*bind)(const struct ash_quant_scheme *scheme, const struct ash_safetensors *files,
                struct ash_quant_tensor *tensor, struct ash_err *err);
    /* Check the values that decode relies on; NULL: it relies on none. Returns 0 or -EINVAL. */
    int (*check)(struct ash_quant_tensor *tensor, struct ash_err *err);
    /* Columns [first, first + count) of a row. */
    void (*decode)(const struct ash_quant_tensor *tensor, size_t row, size_t first, size_t count, float *out);
};

/* layouts.c: all of them; NULL after the last. */
extern const struct ash_stored_layout *const ash_stored_layouts[];
/* fp8.c: floats of 8 bits and integers of 8 bits with scales of blocks. */
extern const struct ash_stored_layout ash_quant_fp8, ash_quant_int8;
/* fp4.c: NVFP4, MXFP4, and gpt-oss's experts, which are transposed. */
extern const struct ash_stored_layout ash_quant_nvfp4, ash_quant_mxfp4, ash_quant_mxfp4_experts;
/* packed.c: integers of 2 to 8 bits with zero points, packed into words of 32. */
extern const struct ash_stored_layout ash_quant_packed, ash_quant_awq, ash_quant_gptq;
/* bnb.c: codes of bitsandbytes. */
extern const struct ash_stored_layout ash_quant_bnb4, ash_quant_bnb8;

/* scheme.c: read a quantization_config. Returns 0, -EINVAL or -ENOTSUP. */
int ash_quant_scheme_read(const json_t *config, struct ash_quant_scheme *scheme_out, struct ash_err *err);

/* layouts.c. The tensor called as tensor is, with suffix in the place of a last ".weight"; NULL if there is none. */
const struct ash_tensor_view *ash_quant_part_find(const struct ash_safetensors *files,
                                                  const struct ash_quant_tensor *tensor, const char *suffix);
/* Is view of dtype and [rows, cols] (cols 0: rows elements in any shape)? -EINVAL names the right type. */
int ash_quant_part_check(const struct ash_quant_tensor *tensor, const struct ash_tensor_view *view,
                         enum ash_dtype dtype, size_t rows, size_t cols, struct ash_err *err);
/* The scales of blocks of block_rows x block_cols, in a type of floats; also their steps. As ash_quant_part_check. */
int ash_quant_scales_bind(struct ash_quant_tensor *tensor, const struct ash_tensor_view *view, struct ash_err *err);
/* Multiply columns [first, first + count) of a row by the scales of their blocks. */
void ash_quant_scale_row(const struct ash_quant_tensor *tensor, size_t row, size_t first, size_t count, float *out);
/* Element index of a part of floats. */
float ash_quant_float_at(const struct ash_tensor_view *view, size_t index);

#endif
