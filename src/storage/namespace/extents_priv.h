/* extents - which ranges of an object are in its local file, and the hash of each. A log that several processes append
 * to and read: nothing of it is flushed, and nothing needs to be. A range whose bytes do not have the recorded hash is
 * not there: torn writes, flipped bits and ranges that another process dropped read as missing. One owner thread. */
#ifndef ASH_STORAGE_NAMESPACE_EXTENTS_PRIV_H
#define ASH_STORAGE_NAMESPACE_EXTENTS_PRIV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ashlar/err.h"
#include "storage/tier/tier.h"

#define ASH_EXTENT_BYTES ((size_t)1 << 20) /* the longest extent; a longer range is several */

struct ash_extent {
    uint64_t offset, hash;
    size_t size_bytes;
};

/* A log's description of its object. */
struct ash_extents_head {
    char key[ASH_TIER_KEY_BYTES];
    char version[ASH_TIER_VERSION_BYTES];
    uint64_t size_bytes;
    bool is_odd; /* the local file has a made-up name: the key cannot be one */
};

struct ash_extents;

/* Open the log at path. head (may be NULL): must match; a log of another version, of another object or with a
 * damaged head is replaced by an empty one. Without head a missing or damaged log is -ENOENT. The caller owns
 * *extents_out. */
int ash_extents_open(const char *path, const struct ash_extents_head *head, struct ash_extents **extents_out,
                     struct ash_err *err);
/* Free; NULL is a no-op. */
void ash_extents_close(struct ash_extents *extents);
/* Its head. Borrowed. */
const struct ash_extents_head *ash_extents_get_head(const struct ash_extents *extents);
/* Read the entries that other processes have added. Cheap if there are none. */
void ash_extents_refresh(struct ash_extents *extents);
/* The extent that has byte offset and reaches farthest, or NULL. Valid until the next call that changes the log. */
const struct ash_extent *ash_extents_find(const struct ash_extents *extents, uint64_t offset);
/* The first byte in (offset, end) where an extent begins, else end. */
uint64_t ash_extents_next(const struct ash_extents *extents, uint64_t offset, uint64_t end);
/* Record that these bytes are in the file now. A range longer than ASH_EXTENT_BYTES becomes several. 0 or a negative
 * errno. */
int ash_extents_add(struct ash_extents *extents, uint64_t offset, const void *data, size_t size_bytes);
/* The same of at most ASH_EXTENT_BYTES bytes whose hash is known. */
int ash_extents_add_hash(struct ash_extents *extents, uint64_t offset, size_t size_bytes, uint64_t hash);
/* Forget what lies inside this range. */
int ash_extents_drop(struct ash_extents *extents, uint64_t offset, uint64_t size_bytes);
/* Record that the whole object is there and its file's stamp (a hash of stat). */
int ash_extents_set_whole(struct ash_extents *extents, uint64_t stamp);
/* The stamp that was recorded since the last drop, or 0. */
uint64_t ash_extents_whole(const struct ash_extents *extents);
/* Bytes in extents, those of overlapping ones counted twice. */
uint64_t ash_extents_bytes(const struct ash_extents *extents);
/* Is every byte of the object in some extent? */
bool ash_extents_cover(const struct ash_extents *extents);
/* The oldest extents whose sizes add up to size_bytes, at most count_max, oldest first. Returns how many. */
size_t ash_extents_oldest(const struct ash_extents *extents, uint64_t size_bytes, struct ash_extent *oldest,
                          size_t count_max);
/* The descriptor of the log, for locks. */
int ash_extents_fd(const struct ash_extents *extents);

/* Parse a log in memory: for tests and fuzzing. -EBADMSG where the head is damaged; damaged records are left out. */
int ash_extents_parse(const void *data, size_t size_bytes, struct ash_extents **extents_out, struct ash_err *err);
/* Make magic and checks of a log in memory right, whatever the rest is: for fuzzing. */
void ash_extents_seal(void *data, size_t size_bytes);

#endif
