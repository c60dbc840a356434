/* sum - the canonical order of every sum over ranks: a binary tree over their numbers that splits at the largest power
 * of two below the count (as train/grains does over grains), so ((0 + 1) + (2 + 3)) + 4 for five. Each element is added
 * by itself: no algorithm, placement or cut into pieces changes a bit. float32 is added as float32; bf16 is widened,
 * added as float32 and rounded once at the root; integers wrap. */
#ifndef ASH_COLLECTIVE_SUM_H
#define ASH_COLLECTIVE_SUM_H

#include <stdbool.h>
#include <stddef.h>

enum ash_coll_dtype { ASH_COLL_F32, ASH_COLL_BF16, ASH_COLL_F64, ASH_COLL_I32, ASH_COLL_I64, ASH_COLL_U8 };
enum ash_coll_op { ASH_COLL_SUM, ASH_COLL_MAX, ASH_COLL_MIN };

size_t ash_coll_dtype_bytes(enum ash_coll_dtype dtype);
const char *ash_coll_dtype_name(enum ash_coll_dtype dtype);
const char *ash_coll_op_name(enum ash_coll_op op);

/* out[i] = the tree over parts[0 ... part_count - 1][i]. out may be one of the parts. A NaN in a maximum may be lost.
 */
void ash_coll_reduce(enum ash_coll_dtype dtype, enum ash_coll_op op, const void *const *parts, size_t part_count,
                     size_t count, void *out);

#endif
