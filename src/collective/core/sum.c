/* Sums over ranks, some hundred elements at a time, so that partial sums stay in the nearest cache. Two and four
 * parts, the common cases, are added straight from memory to memory. */
#include "collective/core/sum.h"

#include <stdint.h>
#include <string.h>

#include "base/assert.h"
#include "base/bf16.h"

#define BLOCK 512    /* elements of a partial sum */
#define DEPTH_MAX 33 /* partial sums that can wait: trees are no deeper */
#define NARROW_BYTES 16

size_t ash_coll_dtype_bytes(enum ash_coll_dtype dtype)
{
    static const size_t bytes[] = {4, 2, 8, 4, 8, 1};

    ash_assert((size_t)dtype < ASH_COUNT(bytes));
    return bytes[dtype];
}

const char *ash_coll_dtype_name(enum ash_coll_dtype dtype)
{
    static const char *const names[] = {"f32", "bf16", "f64", "i32", "i64", "u8"};

    ash_assert((size_t)dtype < ASH_COUNT(names));
    return names[dtype];
}

const char *ash_coll_op_name(enum ash_coll_op op)
{
    static const char *const names[] = {"sum", "max", "min"};

    ash_assert((size_t)op < ASH_COUNT(names));
    return names[op];
}

/* Four parts, (a + b) + (c + d): what four ranks have. */
static bool is_pair_of_pairs(const struct ash_tree *tree)
{
    return tree->part_count == 4 && tree->joins[1] == 1 && tree->joins[3] == 2;
}

/* Vectors of 16 bytes, and on x86-64 where the CPU has them of 64: a store of a whole line lets four times as many
 * lines be on their way from another core's cache. Which are used changes no bit. */
#if defined(__x86_64__)
#define WIDE_BYTES 64
#define WIDE_TARGET __attribute__((target("avx512f,avx512bw")))
static bool has_wide(void)
{
    return __builtin_cpu_supports("avx512bw");
}
#else
#define WIDE_BYTES NARROW_BYTES
#define WIDE_TARGET
static bool has_wide(void)
{
    return false;
}
#endif

/* ---- one type after the other ------------------------------------------------------------------------------------ */

#define NAME(x) f32_##x
#define TYPE float
#define ADD_TYPE float
#include "collective/core/sum_body.h"

#define NAME(x) f64_##x
#define TYPE double
#define ADD_TYPE double
#include "collective/core/sum_body.h"

#define NAME(x) i32_##x
#define TYPE int32_t
#define ADD_TYPE uint32_t
#include "collective/core/sum_body.h"

#define NAME(x) i64_##x
#define TYPE int64_t
#define ADD_TYPE uint64_t
#include "collective/core/sum_body.h"

#define NAME(x) u8_##x
#define TYPE uint8_t
#define ADD_TYPE uint8_t
#include "collective/core/sum_body.h"

/* bf16: the same over widened blocks; the sum is not rounded here. */
static void bf16_block(enum ash_coll_op op, const struct ash_tree *tree, const void *const *parts, size_t first,
                       size_t count, float *out)
{
    float sums[DEPTH_MAX][BLOCK];
    size_t depth = 0;

    for (size_t p = 0; p < tree->part_count; p++, depth++) {
        const uint16_t *part = (const uint16_t *)parts[p] + first;

        for (size_t i = 0; i < count; i++)
            sums[depth][i] = ash_bf16_to_f32(part[i]);
        for (unsigned j = 0; j < tree->joins[p]; j++, depth--)
            f32_join(op, sums[depth - 1], sums[depth], count, sums[depth - 1]);
    }
    ash_assert(depth == 1 && count <= BLOCK); /* the tree joins all parts into one sum */
    memcpy(out, sums[0], count * sizeof(float));
}

static void bf16_reduce(enum ash_coll_op op, const struct ash_tree *tree, const void *const *parts, size_t count,
                        void *const *outs, size_t out_count)
{
    float wide[BLOCK];

    for (size_t first = 0; first < count; first += BLOCK) {
        size_t length = count - first < BLOCK ? count - first : BLOCK;
        uint16_t *out = (uint16_t *)outs[0] + first;

        bf16_block(op, tree, parts, first, length, wide);
        for (size_t i = 0; i < length; i++)
            out[i] = ash_f32_to_bf16(wide[i]);
        for (size_t o = 1; o < out_count; o++)
            memcpy((uint16_t *)outs[o] + first, out, length * sizeof(*out));
    }
}

void ash_coll_reduce_wide(enum ash_coll_op op, const struct ash_tree *tree, const void *const *parts, size_t count,
                          float *out)
{
    for (size_t i = 0; i < count; i += BLOCK)
        bf16_block(op, tree, parts, i, count - i < BLOCK ? count - i : BLOCK, out + i);
}

void ash_coll_reduce_to(enum ash_coll_dtype dtype, enum ash_coll_op op, const struct ash_tree *tree,
                        const void *const *parts, size_t count, void *const *outs, size_t out_count)
{
    ash_assert(tree->part_count >= 1 && out_count >= 1);
    switch (dtype) {
    case ASH_COLL_F32:
        f32_reduce(op, tree, parts, count, outs, out_count);
        break;
    case ASH_COLL_F64:
        f64_reduce(op, tree, parts, count, outs, out_count);
        break;
    case ASH_COLL_I32:
        i32_reduce(op, tree, parts, count, outs, out_count);
        break;
    case ASH_COLL_I64:
        i64_reduce(op, tree, parts, count, outs, out_count);
        break;
    case ASH_COLL_U8:
        u8_reduce(op, tree, parts, count, outs, out_count);
        break;
    case ASH_COLL_BF16:
        bf16_reduce(op, tree, parts, count, outs, out_count);
        break;
    }
}

void ash_coll_reduce(enum ash_coll_dtype dtype, enum ash_coll_op op, const struct ash_tree *tree,
                     const void *const *parts, size_t count, void *out)
{
    ash_coll_reduce_to(dtype, op, tree, parts, count, &out, 1);
}
