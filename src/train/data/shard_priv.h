/* shard_priv - the hash of a shard's contents, shared by its reader and its writer. */
#ifndef ASH_TRAIN_SHARD_PRIV_H
#define ASH_TRAIN_SHARD_PRIV_H

#include <stddef.h>
#include <stdint.h>
#include "base/hash.h"

/* Sums over elements, so that pieces may come in any size. first is the index of the first id or bound in the shard. */
static inline uint64_t ash_shard_hash_ids(const int32_t *ids, size_t count, size_t first)
{
    return ash_hash_words((const uint32_t *)ids, count, first, 1);
}

static inline uint64_t ash_shard_hash_ends(const int64_t *ends, size_t count, size_t first)
{
    return ash_hash_words((const uint32_t *)ends, 2 * count, 2 * first, 2);
}

#endif
