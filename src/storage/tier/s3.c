/* The tier of a bucket: keys get a prefix, ETags are versions. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "storage/s3/s3.h"
#include "storage/tier/tier_priv.h"

struct s3_tier {
    struct ash_tier base;
    struct ash_s3 *s3;
    char prefix[ASH_TIER_KEY_BYTES + 1];
};

static struct s3_tier *self(struct ash_tier *tier)
{
    return (struct s3_tier *)(void *)tier;
}

#define FULL_BYTES (2 * ASH_TIER_KEY_BYTES)

/* The key in the bucket; S3 itself refuses keys that are too long. */
static const char *full_key(struct ash_tier *tier, const char *key, char *full)
{
    snprintf(full, FULL_BYTES, "%s%s", self(tier)->prefix, key);
    return full;
}

static void describe(const struct ash_s3_object *from, struct ash_tier_object *to)
{
    *to = (struct ash_tier_object){.size_bytes = from->size_bytes, .modified_s = from->modified_s};
    memcpy(to->version, from->etag, sizeof(to->version));
}

static int s3_stat(struct ash_tier *tier, const char *key, struct ash_tier_object *object_out, struct ash_err *err)
{
    struct ash_s3_object object = {0};
    char full[FULL_BYTES];
    int rc = ash_s3_stat(self(tier)->s3, full_key(tier, key, full), &object, err);

    if (rc == 0) describe(&object, object_out);
    return rc;
}

struct listing {
    size_t skip_bytes; /* of the tier's prefix */
    ash_tier_list_fn each;
    void *ctx;
};

static int list_one(void *ctx, const char *key, const struct ash_s3_object *object)
{
    const struct listing *listing = ctx;
    struct ash_tier_object described;

    if (object == NULL) return listing->each(listing->ctx, key + listing->skip_bytes, NULL);
    describe(object, &described);
    return listing->each(listing->ctx, key + listing->skip_bytes, &described);
}

static int s3_list(struct ash_tier *tier, const char *prefix, bool is_flat, ash_tier_list_fn each, void *ctx,
                   struct ash_err *err)
{
    struct listing listing = {strlen(self(tier)->prefix), each, ctx};
    char full[FULL_BYTES];

    return ash_s3_list(self(tier)->s3, full_key(tier, prefix, full), is_flat, list_one, &listing, err);
}

static int s3_read(struct ash_tier *tier, const struct ash_tier_range *range, void *data, struct ash_err *err)
{
    char full[FULL_BYTES];
    struct ash_s3_range inside = {full_key(tier, range->key, full), range->version, range->offset, range->size_bytes};

    return ash_s3_read(self(tier)->s3, &inside, data, err);
}

static int s3_read_pieces(struct ash_tier *tier, const struct ash_tier_piece *pieces, size_t count, struct ash_err *err)
{
    struct ash_s3_piece *inside = calloc(count + 1, sizeof(*inside));
    char *fulls = malloc((count + 1) * FULL_BYTES);
    int rc = -ENOMEM;

    if (inside == NULL || fulls == NULL) goto fail;
    for (size_t i = 0; i < count; i++) {
        const struct ash_tier_range *range = &pieces[i].range;
        const char *full = full_key(tier, range->key, fulls + i * FULL_BYTES);

        inside[i] = (struct ash_s3_piece){{full, range->version, range->offset, range->size_bytes}, pieces[i].data};
    }
    rc = ash_s3_read_pieces(self(tier)->s3, inside, count, err);
fail:
    free(inside);
    free(fulls);
    return rc == -ENOMEM ? ash_err_set(err, rc, "out of memory") : rc;
}

static int s3_stream(struct ash_tier *tier, const char *key, const struct ash_s3_sink *sink, struct ash_err *err)
{
    char full[FULL_BYTES];

    return ash_s3_stream(self(tier)->s3, full_key(tier, key, full), sink, err);
}

static int s3_compare(struct ash_tier *tier, const char *key, const char *version, int fd, struct ash_err *err)
{
    char full[FULL_BYTES];

    return ash_s3_compare_file(self(tier)->s3, full_key(tier, key, full), version, fd, err);
}

static int s3_remove(struct ash_tier *tier, const char *key, struct ash_err *err)
{
    char full[FULL_BYTES];

    return ash_s3_remove(self(tier)->s3, full_key(tier, key, full), err);
}

static int s3_write_if(struct ash_tier *tier, const char *key, const void *data, size_t size_bytes,
                       const struct ash_s3_condition *condition, struct ash_err *err)
{
    char full[FULL_BYTES];

    return ash_s3_write(self(tier)->s3, full_key(tier, key, full), data, size_bytes, condition, err);
}

static int s3_sweep(struct ash_tier *tier, const char *prefix, double age_s, size_t *count_out, struct ash_err *err)
{
    char full[FULL_BYTES];

    return ash_s3_sweep(self(tier)->s3, full_key(tier, prefix, full), age_s, count_out, err);
}

/* ---- writing: the tier's write is the client's upload ------------------------------------------------------------ */

static struct ash_s3_upload *upload_of(struct ash_tier_write *write)
{
    return (struct ash_s3_upload *)(void *)write;
}

static int s3_write_open(struct ash_tier *tier, const char *key, uint64_t total_bytes, bool wants_resume,
                         struct ash_tier_write **write_out, struct ash_err *err)
{
    struct ash_s3_upload *upload = NULL;
    char full[FULL_BYTES];
    int rc = ash_s3_upload_open(self(tier)->s3, full_key(tier, key, full), total_bytes, wants_resume, &upload, err);

    if (rc == 0) *write_out = (struct ash_tier_write *)(void *)upload;
    return rc;
}

static int s3_write_add(struct ash_tier_write *write, const void *data, size_t size_bytes, struct ash_err *err)
{
    return ash_s3_upload_add(upload_of(write), data, size_bytes, err);
}

static int s3_write_finish(struct ash_tier_write *write, struct ash_err *err)
{
    return ash_s3_upload_finish(upload_of(write), err);
}

static int s3_write_help(struct ash_tier *tier, const char *key, uint64_t total_bytes, const struct ash_s3_share *share,
                         struct ash_err *err)
{
    char full[FULL_BYTES];

    return ash_s3_upload_help(self(tier)->s3, full_key(tier, key, full), total_bytes, share, err);
}

static uint64_t s3_write_resumed_bytes(const struct ash_tier_write *write)
{
    return ash_s3_upload_resumed_bytes((const struct ash_s3_upload *)(const void *)write);
}

static void s3_write_close(struct ash_tier_write *write, bool keeps_parts)
{
    ash_s3_upload_close(upload_of(write), keeps_parts);
}

static void s3_close(struct ash_tier *tier)
{
    ash_s3_close(self(tier)->s3);
    free(tier);
}

static const struct ash_tier_ops s3_tier_ops = {
    .size = sizeof(s3_tier_ops),
    .name = "s3",
    .stat = s3_stat,
    .list = s3_list,
    .read = s3_read,
    .read_pieces = s3_read_pieces,
    .stream = s3_stream,
    .compare = s3_compare,
    .remove = s3_remove,
    .write_if = s3_write_if,
    .sweep = s3_sweep,
    .write_open = s3_write_open,
    .write_add = s3_write_add,
    .write_finish = s3_write_finish,
    .write_help = s3_write_help,
    .write_resumed_bytes = s3_write_resumed_bytes,
    .write_close = s3_write_close,
    .close = s3_close,
};

int ash_tier_s3_open(const char *bucket, const char *prefix, const struct ash_s3_opts *opts, struct ash_tier **tier_out,
                     struct ash_err *err)
{
    struct s3_tier *tier = calloc(1, sizeof(*tier));
    int rc;

    if (tier == NULL) return ash_err_set(err, -ENOMEM, "out of memory");
    tier->base.ops = &s3_tier_ops;
    snprintf(tier->prefix, sizeof(tier->prefix), "%s", prefix);
    rc = ash_s3_open(bucket, opts, &tier->s3, err);
    if (rc < 0) {
        free(tier);
        return rc;
    }
    *tier_out = &tier->base;
    return 0;
}
