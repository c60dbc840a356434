/* stripe (private) - shared by the files of the striped tier. */
#ifndef ASH_STORAGE_TIER_STRIPE_PRIV_H
#define ASH_STORAGE_TIER_STRIPE_PRIV_H

#include "base/workers.h"
#include "storage/tier/tier_priv.h"

#define ASH_STRIPE_PARTS ".stripes/" /* where a folder has its files of chunks */
#define ASH_STRIPE_FOLDERS_MAX 16
#define ASH_STRIPE_CHUNK_BYTES ((uint64_t)4 << 20)
#define ASH_STRIPE_ID_BYTES 40
#define ASH_STRIPE_PART_BYTES (ASH_STRIPE_ID_BYTES + 16)

struct ash_stripe {
    struct ash_tier base;
    struct ash_tier *folders[ASH_STRIPE_FOLDERS_MAX];
    char *paths[ASH_STRIPE_FOLDERS_MAX];
    bool is_failed[ASH_STRIPE_FOLDERS_MAX];
    size_t count;
    struct ash_workers *workers;
};

/* The JSON object of a key. */
struct ash_stripe_outline {
    char id[ASH_STRIPE_ID_BYTES];
    uint64_t size_bytes, sequence;
    size_t folders[ASH_STRIPE_FOLDERS_MAX]; /* numbers of those that have chunks, in the order of the round */
    size_t folder_count;
    double modified_s;
};

/* The tier as its own struct. */
static inline struct ash_stripe *ash_stripe_of(struct ash_tier *tier)
{
    return (struct ash_stripe *)(void *)tier;
}

/* A folder fails with err: nothing is written to it any more. */
void ash_stripe_leave_out(struct ash_stripe *stripe, size_t folder, const struct ash_err *err);
/* The newest outline of key that any folder has. */
int ash_stripe_find(struct ash_stripe *stripe, const char *key, struct ash_stripe_outline *outline_out,
                    struct ash_err *err);
/* Write the outline of key to one folder. */
int ash_stripe_save(struct ash_stripe *stripe, size_t folder, const char *key, const struct ash_stripe_outline *outline,
                    struct ash_err *err);
/* The key of the files of chunks of an object. */
void ash_stripe_part_key(const struct ash_stripe_outline *outline, char key[ASH_STRIPE_PART_BYTES]);
/* Parse an outline for a stripe of folder_count folders. Returns 0 or -EBADMSG. */
int ash_stripe_parse(const char *text, size_t size_bytes, size_t folder_count, struct ash_stripe_outline *outline_out);

/* The read operation of the tier. */
int ash_stripe_read(struct ash_tier *tier, const struct ash_tier_range *range, void *data, struct ash_err *err);
/* The stream operation of the tier. */
int ash_stripe_stream(struct ash_tier *tier, const char *key, const struct ash_s3_sink *sink, struct ash_err *err);
/* The write operations of the tier. */
int ash_stripe_write_open(struct ash_tier *tier, const char *key, uint64_t total_bytes, bool wants_resume,
                          struct ash_tier_write **write_out, struct ash_err *err);
/* The next bytes; a round of chunks is written when it is full. */
int ash_stripe_write_add(struct ash_tier_write *write, const void *data, size_t size_bytes, struct ash_err *err);
/* Chunks in every folder, flushed; then the outlines. */
int ash_stripe_write_finish(struct ash_tier_write *write, struct ash_err *err);
/* Always 0. */
uint64_t ash_stripe_write_resumed_bytes(const struct ash_tier_write *write);
/* Free; an unfinished object is removed. */
void ash_stripe_write_close(struct ash_tier_write *write, bool keeps_parts);

#endif
