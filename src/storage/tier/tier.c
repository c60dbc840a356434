/* The calls that every tier has, and answers of those that cannot do one. */
#include "storage/tier/tier.h"

#include <errno.h>

#include "storage/tier/tier_priv.h"

void ash_tier_close(struct ash_tier *tier)
{
    if (tier != NULL) tier->ops->close(tier);
}

int ash_tier_stat(struct ash_tier *tier, const char *key, struct ash_tier_object *object_out, struct ash_err *err)
{
    return tier->ops->stat(tier, key, object_out, err);
}

int ash_tier_list(struct ash_tier *tier, const char *prefix, bool is_flat, ash_tier_list_fn each, void *ctx,
                  struct ash_err *err)
{
    return tier->ops->list(tier, prefix, is_flat, each, ctx, err);
}

int ash_tier_read(struct ash_tier *tier, const struct ash_tier_range *range, void *data, struct ash_err *err)
{
    return tier->ops->read(tier, range, data, err);
}

int ash_tier_read_pieces(struct ash_tier *tier, const struct ash_tier_piece *pieces, size_t count, struct ash_err *err)
{
    return tier->ops->read_pieces(tier, pieces, count, err);
}

int ash_tier_read_one_by_one(struct ash_tier *tier, const struct ash_tier_piece *pieces, size_t count,
                             struct ash_err *err)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < count; i++)
        rc = tier->ops->read(tier, &pieces[i].range, pieces[i].data, err);
    return rc;
}

int ash_tier_stream(struct ash_tier *tier, const char *key, const struct ash_s3_sink *sink, struct ash_err *err)
{
    return tier->ops->stream(tier, key, sink, err);
}

int ash_tier_compare(struct ash_tier *tier, const char *key, const char *version, int fd, struct ash_err *err)
{
    return tier->ops->compare(tier, key, version, fd, err);
}

int ash_tier_no_compare(struct ash_tier *tier, const char *key, const char *version, int fd, struct ash_err *err)
{
    (void)tier;
    (void)key;
    (void)version;
    (void)fd;
    (void)err;
    return 0;
}

int ash_tier_remove(struct ash_tier *tier, const char *key, struct ash_err *err)
{
    return tier->ops->remove(tier, key, err);
}

int ash_tier_write_if(struct ash_tier *tier, const char *key, const void *data, size_t size_bytes,
                      const struct ash_s3_condition *condition, struct ash_err *err)
{
    return tier->ops->write_if(tier, key, data, size_bytes, condition, err);
}

int ash_tier_no_write_if(struct ash_tier *tier, const char *key, const void *data, size_t size_bytes,
                         const struct ash_s3_condition *condition, struct ash_err *err)
{
    (void)data;
    (void)size_bytes;
    (void)condition;
    return ash_err_set(err, -ENOTSUP, "%.200s: %s has no conditional writes", key, tier->ops->name);
}

int ash_tier_sweep(struct ash_tier *tier, const char *prefix, double age_s, size_t *count_out, struct ash_err *err)
{
    return tier->ops->sweep(tier, prefix, age_s, count_out, err);
}

int ash_tier_write_open(struct ash_tier *tier, const char *key, uint64_t total_bytes, bool wants_resume,
                        struct ash_tier_write **write_out, struct ash_err *err)
{
    return tier->ops->write_open(tier, key, total_bytes, wants_resume, write_out, err);
}

int ash_tier_write_add(struct ash_tier *tier, struct ash_tier_write *write, const void *data, size_t size_bytes,
                       struct ash_err *err)
{
    return tier->ops->write_add(write, data, size_bytes, err);
}

int ash_tier_write_finish(struct ash_tier *tier, struct ash_tier_write *write, struct ash_err *err)
{
    return tier->ops->write_finish(write, err);
}

int ash_tier_write_help(struct ash_tier *tier, const char *key, uint64_t total_bytes, const struct ash_s3_share *share,
                        struct ash_err *err)
{
    return tier->ops->write_help(tier, key, total_bytes, share, err);
}

int ash_tier_no_write_help(struct ash_tier *tier, const char *key, uint64_t total_bytes,
                           const struct ash_s3_share *share, struct ash_err *err)
{
    (void)total_bytes;
    (void)share;
    return ash_err_set(err, -ENOTSUP, "%.200s: objects of %s are written by one process", key, tier->ops->name);
}

uint64_t ash_tier_write_resumed_bytes(const struct ash_tier *tier, const struct ash_tier_write *write)
{
    return tier->ops->write_resumed_bytes(write);
}

void ash_tier_write_close(struct ash_tier *tier, struct ash_tier_write *write, bool keeps_parts)
{
    if (write != NULL) tier->ops->write_close(write, keeps_parts);
}
