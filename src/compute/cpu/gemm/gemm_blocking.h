/* gemm_blocking - how a product is cut for caches and threads: which operand is shared, and the sizes of blocks. */
#ifndef ASH_COMPUTE_GEMM_BLOCKING_H
#define ASH_COMPUTE_GEMM_BLOCKING_H

#include "compute/cpu/gemm/gemm_blocks.h"

/* One operand. */
struct gemm_side {
    const struct ash_mat *mat;
    size_t line_stride, k_stride;
    size_t lines;    /* M or N */
    size_t width;    /* lines of a panel */
    size_t together; /* lines that are packed at once; whole panels */
};

/* Both operands, and their roles. */
struct gemm_operands {
    struct gemm_side rows, cols;
    size_t threads;                 /* that multiply */
    bool share_rows;                /* the shared operand is the left one */
    struct gemm_side *shared, *own; /* one of rows and cols each */
};

/* How the product is cut, the same for all blocks. */
struct gemm_blocking {
    size_t block_k;         /* k of a block */
    size_t shared_lines;    /* lines of the shared operand in a block */
    size_t shared_bytes;    /* of their panels */
    size_t part_lines;      /* own lines that a thread packs and multiplies at once; whole panels */
    size_t own_bytes;       /* of their panels */
    size_t threads, levels; /* of units: see unit_start in gemm_blocks.c */
    bool passing;           /* panels of the shared operand stream past the own lines, see tile_ahead */
    bool alone;             /* every thread packs the shared operand for itself, see packs_alone in gemm_blocking.c */
};

/* The operands of args and their roles, for this many threads. in must not move afterwards: it points into itself. */
void ash_gemm_operands_init(struct gemm_operands *in, const struct ash_gemm_args *args,
                            const struct gemm_kernel *kernel, size_t threads);
/* Choose all sizes of *cut. */
void ash_gemm_choose_blocking(struct gemm_blocking *cut, const struct gemm_operands *in,
                              const struct ash_gemm_args *args, const struct gemm_kernel *kernel);

#endif
