/* The log of extents: a head, then records of 32 bytes that are appended in one write each and carry a check of their
 * own. In memory extents lie in buckets by their offset, so that looking one up does not grow with the object. */
#include "storage/namespace/extents_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "base/assert.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/math.h"
#include "storage/io/io_priv.h"

#define MAGIC "ashlar extents 1"
#define RECORD_SEED 0x65787465u
#define HEAD_SEED 0x68656164u
#define BUCKETS_MAX ((uint64_t)1 << 23) /* 8 TiB of an object; S3 allows 5 */

enum { RECORD_ADD = 1, RECORD_DROP, RECORD_WHOLE };

/* In the file; little endian as the machines are. */
struct record {
    uint64_t offset, hash; /* hash: of the bytes, or the stamp */
    uint32_t size_bytes, kind;
    uint64_t check;
};
struct file_head {
    char magic[16];
    char version[ASH_TIER_VERSION_BYTES], key[ASH_TIER_KEY_BYTES + 7];
    uint64_t size_bytes, is_odd, check;
};
_Static_assert(sizeof(struct record) == 32 && sizeof(struct file_head) % 8 == 0, "no holes in the file");

struct bucket {
    struct extent_entry *entries;
    size_t count, capacity;
};
struct extent_entry {
    struct ash_extent extent;
    uint64_t age; /* the number of its record */
};

struct ash_extents {
    struct ash_extents_head head;
    int fd; /* -1: parsed from memory */
    uint64_t read_bytes, records, bytes, stamp;
    struct bucket *buckets;
    size_t bucket_count;
};

/* ---- in memory --------------------------------------------------------------------------------------------------- */

static size_t bucket_at(uint64_t offset)
{
    return (size_t)(offset / ASH_EXTENT_BYTES);
}

/* Insert an extent; it replaces one with the same offset if it is at least as long. */
static int put_extent(struct ash_extents *extents, const struct ash_extent *extent)
{
    struct bucket *bucket = &extents->buckets[bucket_at(extent->offset)];
    struct extent_entry *entry = NULL;

    ash_assert(bucket_at(extent->offset) < extents->bucket_count && extent->size_bytes > 0);
    for (size_t i = 0; i < bucket->count; i++)
        if (bucket->entries[i].extent.offset == extent->offset) entry = &bucket->entries[i];
    if (entry != NULL && entry->extent.size_bytes > extent->size_bytes) return 0;
    if (entry == NULL && ash_array_reserve(&bucket->entries, &bucket->capacity, bucket->count + 1, sizeof(*entry)) < 0)
        return -ENOMEM;
    if (entry == NULL)
        entry = &bucket->entries[bucket->count++];
    else
        extents->bytes -= entry->extent.size_bytes;
    *entry = (struct extent_entry){*extent, extents->records};
    extents->bytes += extent->size_bytes;
    return 0;
}

static void drop_range(struct ash_extents *extents, uint64_t offset, uint64_t end)
{
    extents->stamp = 0;
    for (size_t b = bucket_at(offset); b < extents->bucket_count && b * ASH_EXTENT_BYTES < end; b++) {
        struct bucket *bucket = &extents->buckets[b];

        for (size_t i = bucket->count; i-- > 0;) {
            const struct ash_extent *extent = &bucket->entries[i].extent;

            if (extent->offset < offset || extent->offset + extent->size_bytes > end) continue;
            ash_assert(extents->bytes >= extent->size_bytes);
            extents->bytes -= extent->size_bytes;
            bucket->entries[i] = bucket->entries[--bucket->count];
        }
    }
}

static int apply(struct ash_extents *extents, const struct record *record)
{
    const uint64_t size_bytes = extents->head.size_bytes;
    const struct ash_extent extent = {record->offset, record->hash, record->size_bytes};

    extents->records++;
    if (record->check != ash_hash_bytes(record, offsetof(struct record, check), RECORD_SEED)) return 0;
    switch (record->kind) {
    case RECORD_ADD:
        if (record->size_bytes == 0 || record->size_bytes > ASH_EXTENT_BYTES || record->offset > size_bytes ||
            record->size_bytes > size_bytes - record->offset)
            return 0;
        return put_extent(extents, &extent);
    case RECORD_DROP: /* in extents, not bytes: it may be longer than 4 GiB */
        drop_range(extents, record->offset, record->hash);
        return 0;
    case RECORD_WHOLE:
        extents->stamp = record->hash;
        return 0;
    default:
        return 0;
    }
}

static int open_empty(const struct ash_extents_head *head, int fd, struct ash_extents **extents_out)
{
    struct ash_extents *extents = calloc(1, sizeof(*extents));

    if (extents == NULL) return -ENOMEM;
    extents->head = *head;
    extents->fd = fd;
    extents->bucket_count = bucket_at(head->size_bytes) + 1;
    extents->buckets = calloc(extents->bucket_count, sizeof(*extents->buckets));
    if (extents->buckets == NULL) {
        free(extents);
        return -ENOMEM;
    }
    extents->read_bytes = sizeof(struct file_head);
    *extents_out = extents;
    return 0;
}

void ash_extents_close(struct ash_extents *extents)
{
    if (extents == NULL) return;
    for (size_t b = 0; b < extents->bucket_count; b++)
        free(extents->buckets[b].entries);
    if (extents->fd >= 0) close(extents->fd);
    free(extents->buckets);
    free(extents);
}

/* ---- the head ---------------------------------------------------------------------------------------------------- */

static void encode_head(const struct ash_extents_head *head, struct file_head *file)
{
    memset(file, 0, sizeof(*file));
    memcpy(file->magic, MAGIC, sizeof(file->magic));
    snprintf(file->version, sizeof(file->version), "%s", head->version);
    snprintf(file->key, sizeof(file->key), "%s", head->key);
    file->size_bytes = head->size_bytes;
    file->is_odd = head->is_odd;
    file->check = ash_hash_bytes(file, offsetof(struct file_head, check), HEAD_SEED);
}

static int decode_head(const struct file_head *file, struct ash_extents_head *head_out)
{
    if (memcmp(file->magic, MAGIC, sizeof(file->magic)) != 0 ||
        file->check != ash_hash_bytes(file, offsetof(struct file_head, check), HEAD_SEED) ||
        memchr(file->version, '\0', sizeof(file->version)) == NULL ||
        memchr(file->key, '\0', ASH_TIER_KEY_BYTES) == NULL || bucket_at(file->size_bytes) >= BUCKETS_MAX)
        return -EBADMSG;
    *head_out = (struct ash_extents_head){.size_bytes = file->size_bytes, .is_odd = file->is_odd != 0};
    memcpy(head_out->version, file->version, sizeof(head_out->version));
    memcpy(head_out->key, file->key, sizeof(head_out->key));
    return 0;
}

static bool is_same(const struct ash_extents_head *a, const struct ash_extents_head *b)
{
    return strcmp(a->key, b->key) == 0 && strcmp(a->version, b->version) == 0 && a->size_bytes == b->size_bytes &&
           a->is_odd == b->is_odd;
}

int ash_extents_parse(const void *data, size_t size_bytes, struct ash_extents **extents_out, struct ash_err *err)
{
    struct ash_extents_head head;
    struct ash_extents *extents = NULL;
    struct file_head file;
    struct record record;
    int rc = size_bytes >= sizeof(file) ? 0 : -EBADMSG;

    if (rc == 0) memcpy(&file, data, sizeof(file));
    if (rc == 0) rc = decode_head(&file, &head);
    if (rc < 0) return ash_err_set(err, rc, "this is no log of extents");
    rc = open_empty(&head, -1, &extents);
    for (size_t at = sizeof(file); rc == 0 && at + sizeof(record) <= size_bytes; at += sizeof(record)) {
        memcpy(&record, (const char *)data + at, sizeof(record));
        rc = apply(extents, &record);
    }
    if (rc < 0) {
        ash_extents_close(extents);
        return ash_err_set(err, rc, "out of memory");
    }
    *extents_out = extents;
    return 0;
}

void ash_extents_seal(void *data, size_t size_bytes)
{
    struct file_head file;
    struct record record;
    char *bytes = data;

    if (size_bytes < sizeof(file)) return;
    memcpy(&file, bytes, sizeof(file));
    memcpy(file.magic, MAGIC, sizeof(file.magic));
    file.check = ash_hash_bytes(&file, offsetof(struct file_head, check), HEAD_SEED);
    memcpy(bytes, &file, sizeof(file));
    for (size_t at = sizeof(file); at + sizeof(record) <= size_bytes; at += sizeof(record)) {
        memcpy(&record, bytes + at, sizeof(record));
        record.check = ash_hash_bytes(&record, offsetof(struct record, check), RECORD_SEED);
        memcpy(bytes + at, &record, sizeof(record));
    }
}

/* ---- the file ---------------------------------------------------------------------------------------------------- */

/* An existing log into a new object, or a negative errno: -ENOENT, -EBADMSG where its head is damaged. */
static int open_log(const char *path, struct ash_extents **extents_out)
{
    struct ash_extents_head head;
    struct file_head file;
    int fd = open(path, O_RDWR | O_APPEND | O_CLOEXEC), rc;

    if (fd < 0) return -errno;
    rc = pread(fd, &file, sizeof(file), 0) == (ssize_t)sizeof(file) ? decode_head(&file, &head) : -EBADMSG;
    if (rc == 0) rc = open_empty(&head, fd, extents_out);
    if (rc < 0) close(fd);
    return rc;
}

int ash_extents_open(const char *path, const struct ash_extents_head *head, struct ash_extents **extents_out,
                     struct ash_err *err)
{
    struct ash_extents *extents = NULL;
    struct file_head file;
    int rc = open_log(path, &extents);

    if (rc == 0 && head != NULL && !is_same(&extents->head, head)) rc = -EBADMSG;
    if (rc < 0 && head != NULL) {
        ash_extents_close(extents);
        extents = NULL;
        encode_head(head, &file);
        rc = ash_file_replace(path, &file, sizeof(file), err);
        if (rc < 0) return rc;
        rc = open_log(path, &extents);
    }
    if (rc < 0) {
        if (extents != NULL) ash_extents_close(extents);
        return ash_err_set(err, rc == -EBADMSG ? -ENOENT : rc, "%s: %s", path, strerror(rc == -EBADMSG ? ENOENT : -rc));
    }
    ash_extents_refresh(extents);
    *extents_out = extents;
    return 0;
}

const struct ash_extents_head *ash_extents_get_head(const struct ash_extents *extents)
{
    return &extents->head;
}

int ash_extents_fd(const struct ash_extents *extents)
{
    return extents->fd;
}

void ash_extents_refresh(struct ash_extents *extents)
{
    struct record records[128];
    struct stat info;

    if (extents->fd < 0 || fstat(extents->fd, &info) < 0) return;
    while ((uint64_t)info.st_size >= extents->read_bytes + sizeof(records[0])) {
        ssize_t bytes = pread(extents->fd, records, sizeof(records), (off_t)extents->read_bytes);
        size_t count = bytes > 0 ? (size_t)bytes / sizeof(records[0]) : 0;

        for (size_t i = 0; i < count; i++)
            if (apply(extents, &records[i]) < 0) return; /* out of memory: unrecorded extents are fetched again */
        extents->read_bytes += count * sizeof(records[0]);
        if (count == 0) return;
    }
}

/* Appends go to the end of the file in one write, so those of several processes do not mix; they come back through
 * refresh. A torn one, of a machine that lost power, is made a whole record that is skipped. */
static int append(struct ash_extents *extents, struct record *record)
{
    struct stat info;
    int rc;

    ash_assert(extents->fd >= 0);
    if (fstat(extents->fd, &info) < 0) return -errno;
    if (info.st_size % 8 != 0 || ((uint64_t)info.st_size - sizeof(struct file_head)) % sizeof(*record) != 0) {
        uint64_t records = ash_div_up((uint64_t)info.st_size - sizeof(struct file_head), sizeof(*record));

        if (ftruncate(extents->fd, (off_t)(sizeof(struct file_head) + records * sizeof(*record))) < 0) return -errno;
    }
    record->check = ash_hash_bytes(record, offsetof(struct record, check), RECORD_SEED);
    rc = ash_io_write(extents->fd, record, sizeof(*record));
    if (rc < 0) return rc;
    ash_extents_refresh(extents);
    return 0;
}

int ash_extents_add_hash(struct ash_extents *extents, uint64_t offset, size_t size_bytes, uint64_t hash)
{
    struct record record = {.offset = offset, .hash = hash, .size_bytes = (uint32_t)size_bytes, .kind = RECORD_ADD};

    ash_assert(size_bytes > 0 && size_bytes <= ASH_EXTENT_BYTES);
    return append(extents, &record);
}

int ash_extents_add(struct ash_extents *extents, uint64_t offset, const void *data, size_t size_bytes)
{
    int rc = 0;

    for (size_t at = 0; rc == 0 && at < size_bytes; at += ASH_EXTENT_BYTES) {
        size_t bytes = ash_min(ASH_EXTENT_BYTES, size_bytes - at);

        rc = ash_extents_add_hash(extents, offset + at, bytes, ash_hash_bytes((const char *)data + at, bytes, 0));
    }
    return rc;
}

int ash_extents_drop(struct ash_extents *extents, uint64_t offset, uint64_t size_bytes)
{
    struct record record = {.offset = offset, .hash = offset + size_bytes, .kind = RECORD_DROP};

    return append(extents, &record);
}

int ash_extents_set_whole(struct ash_extents *extents, uint64_t stamp)
{
    struct record record = {.hash = stamp, .kind = RECORD_WHOLE};

    return append(extents, &record);
}

/* ---- questions --------------------------------------------------------------------------------------------------- */

const struct ash_extent *ash_extents_find(const struct ash_extents *extents, uint64_t offset)
{
    const struct ash_extent *best = NULL;
    size_t last = bucket_at(offset);

    /* no extent is longer than a bucket: it begins in this one or in the one before */
    for (size_t b = last > 0 ? last - 1 : 0; b <= last && b < extents->bucket_count; b++)
        for (size_t i = 0; i < extents->buckets[b].count; i++) {
            const struct ash_extent *extent = &extents->buckets[b].entries[i].extent;

            if (extent->offset > offset || extent->offset + extent->size_bytes <= offset) continue;
            if (best == NULL || extent->offset + extent->size_bytes > best->offset + best->size_bytes) best = extent;
        }
    return best;
}

uint64_t ash_extents_next(const struct ash_extents *extents, uint64_t offset, uint64_t end)
{
    uint64_t next = end;

    for (size_t b = bucket_at(offset); b < extents->bucket_count && b * ASH_EXTENT_BYTES < next; b++)
        for (size_t i = 0; i < extents->buckets[b].count; i++) {
            uint64_t start = extents->buckets[b].entries[i].extent.offset;

            if (start > offset && start < next) next = start;
        }
    return next;
}

uint64_t ash_extents_whole(const struct ash_extents *extents)
{
    return extents->stamp;
}

uint64_t ash_extents_bytes(const struct ash_extents *extents)
{
    return extents->bytes;
}

bool ash_extents_cover(const struct ash_extents *extents)
{
    uint64_t at = 0;

    while (at < extents->head.size_bytes) {
        const struct ash_extent *extent = ash_extents_find(extents, at);

        if (extent == NULL) return false;
        at = extent->offset + extent->size_bytes;
    }
    return true;
}

static int compare_age(const void *a, const void *b)
{
    const struct extent_entry *const *x = a, *const *y = b;

    return ((*x)->age > (*y)->age) - ((*x)->age < (*y)->age);
}

size_t ash_extents_oldest(const struct ash_extents *extents, uint64_t size_bytes, struct ash_extent *oldest,
                          size_t count_max)
{
    const struct extent_entry **all;
    size_t count = 0, taken = 0;
    uint64_t sum = 0;

    for (size_t b = 0; b < extents->bucket_count; b++)
        count += extents->buckets[b].count;
    all = calloc(count + 1, sizeof(*all));
    if (all == NULL) return 0;
    count = 0;
    for (size_t b = 0; b < extents->bucket_count; b++)
        for (size_t i = 0; i < extents->buckets[b].count; i++)
            all[count++] = &extents->buckets[b].entries[i];
    qsort(all, count, sizeof(*all), compare_age);
    for (; taken < count && taken < count_max && sum < size_bytes; taken++) {
        oldest[taken] = all[taken]->extent;
        sum += all[taken]->extent.size_bytes;
    }
    ash_assert(taken <= count_max);
    free(all);
    return taken;
}
