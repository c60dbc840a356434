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

    return bytes[dtype];
}

const char *ash_coll_dtype_name(enum ash_coll_dtype dtype)
{
    static const char *const names[] = {"f32", "bf16", "f64", "i32", "i64", "u8"};

    return names[dtype];
}

const char *ash_coll_op_name(enum ash_coll_op op)
{
    static const char *const names[] = {"sum", "max", "min"};

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

/* out = a + b, element by element, in vectors of BYTES; signed integers are added as unsigned ones, which wrap. Sums go
 * to a second place as well, which may be the first. */
#define DEFINE_ADDS(NAME, TYPE, ADD_TYPE, BYTES, TARGET)                                                               \
    typedef ADD_TYPE NAME##_adder __attribute__((vector_size(BYTES), aligned(1)));                                     \
                                                                                                                       \
    TARGET static void NAME##_add(const TYPE *a, const TYPE *b, size_t count, TYPE *out)                               \
    {                                                                                                                  \
        const size_t width = (BYTES) / sizeof(TYPE);                                                                   \
        size_t i = 0;                                                                                                  \
                                                                                                                       \
        for (; i + 4 * width <= count; i += 4 * width) {                                                               \
            NAME##_adder sums[4];                                                                                      \
                                                                                                                       \
            for (size_t v = 0; v < 4; v++)                                                                             \
                sums[v] = *(const NAME##_adder *)(const void *)(a + i + v * width) +                                   \
                          *(const NAME##_adder *)(const void *)(b + i + v * width);                                    \
            for (size_t v = 0; v < 4; v++)                                                                             \
                *(NAME##_adder *)(void *)(out + i + v * width) = sums[v];                                              \
        }                                                                                                              \
        for (; i < count; i++)                                                                                         \
            out[i] = (TYPE)((ADD_TYPE)a[i] + (ADD_TYPE)b[i]);                                                          \
    }                                                                                                                  \
                                                                                                                       \
    TARGET static void NAME##_add_to_two(const TYPE *a, const TYPE *b, size_t count, TYPE *out, TYPE *also)            \
    {                                                                                                                  \
        const size_t width = (BYTES) / sizeof(TYPE);                                                                   \
        size_t i = 0;                                                                                                  \
                                                                                                                       \
        for (; i + 4 * width <= count; i += 4 * width) {                                                               \
            NAME##_adder sums[4];                                                                                      \
                                                                                                                       \
            for (size_t v = 0; v < 4; v++)                                                                             \
                sums[v] = *(const NAME##_adder *)(const void *)(a + i + v * width) +                                   \
                          *(const NAME##_adder *)(const void *)(b + i + v * width);                                    \
            for (size_t v = 0; v < 4; v++)                                                                             \
                *(NAME##_adder *)(void *)(out + i + v * width) = sums[v];                                              \
            for (size_t v = 0; v < 4; v++)                                                                             \
                *(NAME##_adder *)(void *)(also + i + v * width) = sums[v];                                             \
        }                                                                                                              \
        for (; i < count; i++)                                                                                         \
            out[i] = also[i] = (TYPE)((ADD_TYPE)a[i] + (ADD_TYPE)b[i]);                                                \
    }                                                                                                                  \
                                                                                                                       \
    /* (a + b) + (c + d) to several places, each of which may be one of the four. */                                   \
    TARGET static void NAME##_add_four(const void *const *parts, size_t count, void *const *outs, size_t out_count)    \
    {                                                                                                                  \
        const size_t width = (BYTES) / sizeof(TYPE);                                                                   \
        const TYPE *a = parts[0], *b = parts[1], *c = parts[2], *d = parts[3];                                         \
        size_t i = 0;                                                                                                  \
                                                                                                                       \
        for (; i + 4 * width <= count; i += 4 * width) {                                                               \
            NAME##_adder sums[4];                                                                                      \
                                                                                                                       \
            for (size_t v = 0; v < 4; v++)                                                                             \
                sums[v] = (*(const NAME##_adder *)(const void *)(a + i + v * width) +                                  \
                           *(const NAME##_adder *)(const void *)(b + i + v * width)) +                                 \
                          (*(const NAME##_adder *)(const void *)(c + i + v * width) +                                  \
                           *(const NAME##_adder *)(const void *)(d + i + v * width));                                  \
            for (size_t o = 0; o < out_count; o++)                                                                     \
                for (size_t v = 0; v < 4; v++)                                                                         \
                    *(NAME##_adder *)(void *)((TYPE *)outs[o] + i + v * width) = sums[v];                              \
        }                                                                                                              \
        for (; i < count; i++) {                                                                                       \
            const ADD_TYPE left = (ADD_TYPE)((ADD_TYPE)a[i] + (ADD_TYPE)b[i]);                                         \
            const ADD_TYPE right = (ADD_TYPE)((ADD_TYPE)c[i] + (ADD_TYPE)d[i]);                                        \
            const TYPE sum = (TYPE)(left + right);                                                                     \
                                                                                                                       \
            for (size_t o = 0; o < out_count; o++)                                                                     \
                ((TYPE *)outs[o])[i] = sum;                                                                            \
        }                                                                                                              \
    }

#define DEFINE_JOIN(NAME, TYPE, ADD_TYPE)                                                                              \
    DEFINE_ADDS(NAME##_narrow, TYPE, ADD_TYPE, NARROW_BYTES, )                                                         \
    DEFINE_ADDS(NAME##_wide, TYPE, ADD_TYPE, WIDE_BYTES, WIDE_TARGET)                                                  \
                                                                                                                       \
    static void NAME##_join(enum ash_coll_op op, const TYPE *a, const TYPE *b, size_t count, TYPE *out)                \
    {                                                                                                                  \
        if (op == ASH_COLL_SUM) (has_wide() ? NAME##_wide_add : NAME##_narrow_add)(a, b, count, out);                  \
        for (size_t i = 0; op == ASH_COLL_MAX && i < count; i++)                                                       \
            out[i] = a[i] < b[i] ? b[i] : a[i];                                                                        \
        for (size_t i = 0; op == ASH_COLL_MIN && i < count; i++)                                                       \
            out[i] = b[i] < a[i] ? b[i] : a[i];                                                                        \
    }                                                                                                                  \
                                                                                                                       \
    /* Elements first ... first + count - 1, at most BLOCK of them. */                                                 \
    static void NAME##_block(enum ash_coll_op op, const struct ash_tree *tree, const void *const *parts, size_t first, \
                             size_t count, void *const *outs, size_t out_count)                                        \
    {                                                                                                                  \
        TYPE sums[DEPTH_MAX][BLOCK], *out = (TYPE *)outs[0] + first;                                                   \
        const TYPE *waiting[DEPTH_MAX + 1]; /* parts, and sums that are not in a larger one yet */                     \
        size_t depth = 0;                                                                                              \
                                                                                                                       \
        for (size_t p = 0; p < tree->part_count; p++) {                                                                \
            waiting[depth++] = (const TYPE *)parts[p] + first;                                                         \
            for (unsigned j = 0; j < tree->joins[p]; j++, depth--) {                                                   \
                bool last = p + 1 == tree->part_count && j + 1u == tree->joins[p];                                     \
                TYPE *to = last ? out : sums[depth - 2];                                                               \
                                                                                                                       \
                NAME##_join(op, waiting[depth - 2], waiting[depth - 1], count, to);                                    \
                waiting[depth - 2] = to;                                                                               \
            }                                                                                                          \
        }                                                                                                              \
        if (waiting[0] != out) memcpy(out, waiting[0], count * sizeof(TYPE));                                          \
        for (size_t o = 1; o < out_count; o++)                                                                         \
            memcpy((TYPE *)outs[o] + first, out, count * sizeof(TYPE));                                                \
    }                                                                                                                  \
                                                                                                                       \
    static void NAME##_reduce(enum ash_coll_op op, const struct ash_tree *tree, const void *const *parts,              \
                              size_t count, void *const *outs, size_t out_count)                                       \
    {                                                                                                                  \
        if (tree->part_count == 2 && out_count == 1)                                                                   \
            NAME##_join(op, parts[0], parts[1], count, outs[0]);                                                       \
        else if (tree->part_count == 2 && out_count == 2 && op == ASH_COLL_SUM)                                        \
            (has_wide() ? NAME##_wide_add_to_two : NAME##_narrow_add_to_two)(parts[0], parts[1], count, outs[0],       \
                                                                             outs[1]);                                 \
        else if (is_pair_of_pairs(tree) && op == ASH_COLL_SUM)                                                         \
            (has_wide() ? NAME##_wide_add_four : NAME##_narrow_add_four)(parts, count, outs, out_count);               \
        else                                                                                                           \
            for (size_t i = 0; i < count; i += BLOCK)                                                                  \
                NAME##_block(op, tree, parts, i, count - i < BLOCK ? count - i : BLOCK, outs, out_count);              \
    }

DEFINE_JOIN(f32, float, float)
DEFINE_JOIN(f64, double, double)
DEFINE_JOIN(i32, int32_t, uint32_t)
DEFINE_JOIN(i64, int64_t, uint64_t)
DEFINE_JOIN(u8, uint8_t, uint8_t)

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
