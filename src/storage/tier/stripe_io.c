/* The bytes of striped objects: rounds of chunks, each folder read and written by its own thread. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/math.h"
#include "storage/tier/stripe_priv.h"

/* ---- reading ----------------------------------------------------------------------------------------------------- */

/* Bytes [offset, offset + size_bytes) of an object, chunk by chunk on all folders at a time. */
struct reading {
    struct ash_stripe *stripe;
    const struct ash_stripe_outline *outline;
    uint64_t offset, end;
    uint8_t *data;
    int rcs[ASH_STRIPE_FOLDERS_MAX];
    struct ash_err errs[ASH_STRIPE_FOLDERS_MAX];
};

/* What turn number `turn` of the round holds of the range. */
static void read_folder(void *ctx, size_t begin, size_t end, int worker)
{
    struct reading *reading = ctx;
    const struct ash_stripe_outline *outline = reading->outline;
    char key[ASH_STRIPE_PART_BYTES];

    (void)worker;
    ash_stripe_part_key(outline, key);
    for (size_t turn = begin; turn < end; turn++)
        for (uint64_t chunk = reading->offset / ASH_STRIPE_CHUNK_BYTES; chunk * ASH_STRIPE_CHUNK_BYTES < reading->end;
             chunk++) {
            uint64_t first = chunk * ASH_STRIPE_CHUNK_BYTES, last = first + ASH_STRIPE_CHUNK_BYTES;
            struct ash_tier_range range = {.key = key};

            if (chunk % outline->folder_count != turn || reading->rcs[turn] < 0) continue;
            first = first > reading->offset ? first : reading->offset;
            last = last < reading->end ? last : reading->end;
            range.offset =
                chunk / outline->folder_count * ASH_STRIPE_CHUNK_BYTES + (first - chunk * ASH_STRIPE_CHUNK_BYTES);
            range.size_bytes = (size_t)(last - first);
            reading->rcs[turn] = ash_tier_read(reading->stripe->folders[outline->folders[turn]], &range,
                                               reading->data + (first - reading->offset), &reading->errs[turn]);
        }
}

static int read_range(struct ash_stripe *stripe, const char *key, const struct ash_stripe_outline *outline,
                      struct reading *reading, struct ash_err *err)
{
    reading->stripe = stripe;
    reading->outline = outline;
    ash_workers_run(stripe->workers, outline->folder_count, 1, read_folder, reading);
    for (size_t turn = 0; turn < outline->folder_count; turn++)
        if (reading->rcs[turn] < 0)
            return ash_err_set(err, reading->rcs[turn] == -ENOENT ? -EIO : reading->rcs[turn],
                               "%.200s: its chunks in %.200s cannot be read: %.150s", key,
                               stripe->paths[outline->folders[turn]], reading->errs[turn].text);
    return 0;
}

int ash_stripe_read(struct ash_tier *tier, const struct ash_tier_range *range, void *data, struct ash_err *err)
{
    struct reading reading = {.offset = range->offset, .end = range->offset + range->size_bytes, .data = data};
    struct ash_stripe_outline outline;
    int rc = ash_stripe_find(ash_stripe_of(tier), range->key, &outline, err);

    if (rc < 0) return rc;
    if (range->version != NULL && strcmp(range->version, outline.id) != 0)
        return ash_err_set(err, -ESTALE, "%.200s: the object has changed", range->key);
    if (range->offset > outline.size_bytes || range->size_bytes > outline.size_bytes - range->offset)
        return ash_err_set(err, -ERANGE, "%.200s: the range is not inside the object", range->key);
    return range->size_bytes == 0 ? 0 : read_range(ash_stripe_of(tier), range->key, &outline, &reading, err);
}

int ash_stripe_stream(struct ash_tier *tier, const char *key, const struct ash_s3_sink *sink, struct ash_err *err)
{
    struct ash_stripe *stripe = ash_stripe_of(tier);
    size_t row_bytes = stripe->count * (size_t)ASH_STRIPE_CHUNK_BYTES;
    struct ash_stripe_outline outline;
    uint8_t *row = NULL;
    int rc = ash_stripe_find(stripe, key, &outline, err);

    if (rc < 0) return rc;
    row = malloc(row_bytes);
    if (row == NULL) return ash_err_set(err, -ENOMEM, "out of memory");
    for (uint64_t at = 0; rc == 0 && at < outline.size_bytes;) {
        size_t bytes = ash_min(row_bytes, (size_t)(outline.size_bytes - at));
        struct reading reading = {.offset = at, .end = at + bytes, .data = row};

        rc = read_range(stripe, key, &outline, &reading, err);
        if (rc == 0) rc = sink->take(sink->ctx, row, bytes, err);
        at += bytes;
    }
    free(row);
    return rc;
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

struct stripe_write {
    struct ash_stripe *stripe;
    char *key;
    struct ash_stripe_outline outline;
    struct ash_tier_write *parts[ASH_STRIPE_FOLDERS_MAX]; /* in the order of the round */
    uint8_t *row;                                         /* a chunk of each */
    size_t filled;
    int rcs[ASH_STRIPE_FOLDERS_MAX];
    struct ash_err errs[ASH_STRIPE_FOLDERS_MAX];
};

static struct stripe_write *write_of(struct ash_tier_write *write)
{
    return (struct stripe_write *)(void *)write;
}

static void close_write(struct stripe_write *write)
{
    for (size_t i = 0; i < write->outline.folder_count; i++)
        ash_tier_write_close(write->stripe->folders[write->outline.folders[i]], write->parts[i], false);
    free(write->row);
    free(write->key);
    free(write);
}

/* Begin in every folder that takes it. */
static int open_parts(struct stripe_write *write, uint64_t total_bytes, struct ash_err *err)
{
    struct ash_stripe *stripe = write->stripe;
    struct ash_stripe_outline *outline = &write->outline;
    struct ash_err why = {0};
    char part[ASH_STRIPE_PART_BYTES];

    ash_stripe_part_key(outline, part);
    for (size_t i = 0; i < stripe->count; i++) {
        if (stripe->is_failed[i]) continue;
        if (ash_tier_write_open(stripe->folders[i], part, total_bytes / stripe->count, false,
                                &write->parts[outline->folder_count], &why) < 0)
            ash_stripe_leave_out(stripe, i, &why);
        else
            outline->folders[outline->folder_count++] = i;
    }
    if (outline->folder_count > 0) return 0;
    return ash_err_set(err, why.code != 0 ? why.code : -EIO, "none of %zu folders takes '%.150s': %.200s",
                       stripe->count, write->key, why.code != 0 ? why.text : "all have failed before");
}

int ash_stripe_write_open(struct ash_tier *tier, const char *key, uint64_t total_bytes, bool wants_resume,
                          struct ash_tier_write **write_out, struct ash_err *err)
{
    static _Atomic unsigned serial;
    struct stripe_write *write = calloc(1, sizeof(*write));
    struct ash_tier_object object;
    int rc;

    (void)wants_resume;
    if (write == NULL) return ash_err_set(err, -ENOMEM, "out of memory");
    write->stripe = ash_stripe_of(tier);
    write->key = strdup(key);
    write->row = malloc(ash_stripe_of(tier)->count * ASH_STRIPE_CHUNK_BYTES);
    write->outline.sequence = (uint64_t)(ash_clock_wall_s() * 1e6);
    snprintf(write->outline.id, sizeof(write->outline.id), "%d-%u-%016" PRIx64, (int)getpid(), serial++,
             ash_hash_mix(ash_clock_ns()));
    rc = write->key == NULL || write->row == NULL ? ash_err_set(err, -ENOMEM, "out of memory")
                                                  : ash_tier_stat(ash_stripe_of(tier)->folders[0], key, &object, err);
    if (rc != -EINVAL && rc != -ENOMEM)
        rc = strncmp(key, ASH_STRIPE_PARTS, strlen(ASH_STRIPE_PARTS)) == 0 ? -EINVAL : 0;
    if (rc == -EINVAL && strncmp(key, ASH_STRIPE_PARTS, strlen(ASH_STRIPE_PARTS)) == 0)
        ash_err_set(err, rc, "keys that begin with %s are the stripe's own", ASH_STRIPE_PARTS);
    if (rc == 0) rc = open_parts(write, total_bytes, err);
    if (rc < 0) {
        close_write(write);
        return rc;
    }
    *write_out = (struct ash_tier_write *)(void *)write;
    return 0;
}

static void write_folder(void *ctx, size_t begin, size_t end, int worker)
{
    struct stripe_write *write = ctx;

    (void)worker;
    for (size_t turn = begin; turn < end; turn++) {
        size_t first = turn * (size_t)ASH_STRIPE_CHUNK_BYTES;
        struct ash_tier *folder = write->stripe->folders[write->outline.folders[turn]];

        if (first >= write->filled) continue;
        write->rcs[turn] =
            ash_tier_write_add(folder, write->parts[turn], write->row + first,
                               ash_min((size_t)ASH_STRIPE_CHUNK_BYTES, write->filled - first), &write->errs[turn]);
    }
}

/* One round: a chunk to each folder. A folder that fails is left out from the next object on. */
static int write_row(struct stripe_write *write, struct ash_err *err)
{
    struct ash_stripe_outline *outline = &write->outline;

    ash_assert(write->filled <= outline->folder_count * (size_t)ASH_STRIPE_CHUNK_BYTES);
    ash_workers_run(write->stripe->workers, outline->folder_count, 1, write_folder, write);
    outline->size_bytes += write->filled;
    write->filled = 0;
    for (size_t turn = 0; turn < outline->folder_count; turn++) {
        if (write->rcs[turn] >= 0) continue;
        ash_stripe_leave_out(write->stripe, outline->folders[turn], &write->errs[turn]);
        return ash_err_set(err, write->rcs[turn], "%.400s; write it again, without that folder",
                           write->errs[turn].text);
    }
    return 0;
}

int ash_stripe_write_add(struct ash_tier_write *tier_write, const void *data, size_t size_bytes, struct ash_err *err)
{
    struct stripe_write *write = write_of(tier_write);
    size_t row_bytes = write->outline.folder_count * (size_t)ASH_STRIPE_CHUNK_BYTES;
    const uint8_t *from = data;
    int rc = 0;

    ash_assert(write->filled < row_bytes);
    while (rc == 0 && size_bytes > 0) {
        size_t bytes = ash_min(size_bytes, row_bytes - write->filled);

        memcpy(write->row + write->filled, from, bytes);
        write->filled += bytes;
        from += bytes;
        size_bytes -= bytes;
        if (write->filled == row_bytes) rc = write_row(write, err);
    }
    return rc;
}

static void finish_folder(void *ctx, size_t begin, size_t end, int worker)
{
    struct stripe_write *write = ctx;

    (void)worker;
    for (size_t turn = begin; turn < end; turn++)
        write->rcs[turn] = ash_tier_write_finish(write->stripe->folders[write->outline.folders[turn]],
                                                 write->parts[turn], &write->errs[turn]);
}

/* The outline to every folder that takes it; one is enough. */
static int save_outlines(struct stripe_write *write, struct ash_err *err)
{
    struct ash_stripe *stripe = write->stripe;
    struct ash_err why = {0};
    size_t saved = 0;

    for (size_t i = 0; i < stripe->count; i++) {
        if (stripe->is_failed[i]) continue;
        if (ash_stripe_save(stripe, i, write->key, &write->outline, &why) == 0)
            saved++;
        else
            ash_stripe_leave_out(stripe, i, &why);
    }
    return saved > 0 ? 0 : ash_err_set(err, why.code != 0 ? why.code : -EIO, "%s", why.text);
}

/* Chunks in every folder, flushed; then the outline in every folder that takes it; then the chunks before these go. */
int ash_stripe_write_finish(struct ash_tier_write *tier_write, struct ash_err *err)
{
    struct stripe_write *write = write_of(tier_write);
    struct ash_stripe *stripe = write->stripe;
    struct ash_stripe_outline older;
    bool has_older = ash_stripe_find(stripe, write->key, &older, NULL) == 0;
    char part[ASH_STRIPE_PART_BYTES];
    int rc = write_row(write, err);

    if (rc < 0) return rc;
    ash_workers_run(stripe->workers, write->outline.folder_count, 1, finish_folder, write);
    for (size_t turn = 0; turn < write->outline.folder_count; turn++)
        if (write->rcs[turn] < 0) return ash_err_set(err, write->rcs[turn], "%s", write->errs[turn].text);
    if (has_older && older.sequence >= write->outline.sequence) write->outline.sequence = older.sequence + 1;
    rc = save_outlines(write, err);
    if (rc < 0) return rc;
    if (!has_older) return 0;
    ash_stripe_part_key(&older, part);
    for (size_t i = 0; i < older.folder_count; i++)
        ash_tier_remove(stripe->folders[older.folders[i]], part, NULL);
    return 0;
}

uint64_t ash_stripe_write_resumed_bytes(const struct ash_tier_write *write)
{
    (void)write;
    return 0;
}

void ash_stripe_write_close(struct ash_tier_write *write, bool keeps_parts)
{
    (void)keeps_parts;
    close_write(write_of(write));
}
