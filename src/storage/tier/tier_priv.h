/* tier (private) - the implementations. */
#ifndef ASH_STORAGE_TIER_TIER_PRIV_H
#define ASH_STORAGE_TIER_TIER_PRIV_H

#include "storage/tier/tier.h"

/* A folder; is_shared: of a shared file system, of which less is assumed. Borrows nothing. */
int ash_tier_dir_open(const char *path, bool is_shared, struct ash_tier **tier_out, struct ash_err *err);
/* Several folders as one: paths, with commas between them. */
int ash_tier_stripe_open(const char *paths, struct ash_tier **tier_out, struct ash_err *err);
/* A bucket; every key gets prefix in front. */
int ash_tier_s3_open(const char *bucket, const char *prefix, const struct ash_s3_opts *opts, struct ash_tier **tier_out,
                     struct ash_err *err);

/* read_pieces of a tier that gains nothing from several at a time. */
int ash_tier_read_one_by_one(struct ash_tier *tier, const struct ash_tier_piece *pieces, size_t count,
                             struct ash_err *err);
/* compare of a tier that has no checksums. */
int ash_tier_no_compare(struct ash_tier *tier, const char *key, const char *version, int fd, struct ash_err *err);
/* write_if of a tier that has no conditions. */
int ash_tier_no_write_if(struct ash_tier *tier, const char *key, const void *data, size_t size_bytes,
                         const struct ash_s3_condition *condition, struct ash_err *err);
/* write_help of a tier whose objects one process writes. */
int ash_tier_no_write_help(struct ash_tier *tier, const char *key, uint64_t total_bytes,
                           const struct ash_s3_share *share, struct ash_err *err);

#endif
