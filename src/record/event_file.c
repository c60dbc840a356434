/* event_file: TFRecord frames, with the few protobuf fields that scalars need. */
#include "record/event_file.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/append_file.h"
#include "base/clock.h"
#include "base/file.h"

#define NAME_START "events.out.tfevents."
#define VERSION "brain.Event:2"
#define CRC32C_POLYNOMIAL 0x82f63b78u /* Castagnoli, reflected */
#define CRC32C_MASK 0xa282ead8u
#define PENDING_MAX_BYTES ((size_t)64 << 20) /* of events that wait for disk space */

/* Keys of protobuf fields: number << 3 | wire type. */
enum {
    EVENT_WALL_TIME = 1 << 3 | 1,
    EVENT_STEP = 2 << 3,
    EVENT_VERSION = 3 << 3 | 2,
    EVENT_SUMMARY = 5 << 3 | 2,
    EVENT_SESSION = 7 << 3 | 2,
    SUMMARY_VALUE = 1 << 3 | 2,
    VALUE_TAG = 1 << 3 | 2,
    VALUE_SIMPLE = 2 << 3 | 5,
    SESSION_STATUS = 1 << 3,
};
#define SESSION_START 1

struct ash_event_file {
    struct ash_append_file file;
    struct ash_str event, summary, value; /* memory of messages that are being written */
};

/* ---- frames ------------------------------------------------------------------------------------------------------ */

static uint32_t crc_table[256];

static void fill_crc_table(void)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t crc = i;

        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? CRC32C_POLYNOMIAL : 0);
        crc_table[i] = crc;
    }
}

static uint32_t masked_crc32c(const void *data, size_t size_bytes)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    const uint8_t *bytes = data;
    uint32_t crc = UINT32_MAX;

    pthread_once(&once, fill_crc_table);
    for (size_t i = 0; i < size_bytes; i++)
        crc = crc >> 8 ^ crc_table[(crc ^ bytes[i]) & 0xff];
    crc = ~crc;
    return (crc >> 15 | crc << 17) + CRC32C_MASK;
}

/* A number's lowest bytes, little-endian. */
static void put_fixed(struct ash_str *out, uint64_t value, size_t size_bytes)
{
    uint8_t bytes[8];

    for (size_t i = 0; i < size_bytes; i++)
        bytes[i] = (uint8_t)(value >> 8 * i);
    ash_str_add(out, bytes, size_bytes);
}

static void put_frame(struct ash_str *out, const struct ash_str *message)
{
    size_t start = out->size_bytes;

    put_fixed(out, message->size_bytes, 8);
    if (out->rc == 0) put_fixed(out, masked_crc32c(out->data + start, 8), 4);
    ash_str_add(out, message->data, message->size_bytes);
    put_fixed(out, masked_crc32c(message->data, message->size_bytes), 4);
    ash_str_fail(out, message->rc);
    if (out->rc < 0) ash_str_cut(out, start); /* no half frames */
}

/* ---- messages ---------------------------------------------------------------------------------------------------- */

static void put_varint(struct ash_str *out, uint64_t value)
{
    for (; value >= 0x80; value >>= 7)
        put_fixed(out, value | 0x80, 1);
    put_fixed(out, value, 1);
}

static void put_bytes(struct ash_str *out, uint64_t key, const void *bytes, size_t size_bytes)
{
    put_varint(out, key);
    put_varint(out, size_bytes);
    ash_str_add(out, bytes, size_bytes);
}

static void begin_event(struct ash_event_file *file, uint64_t step, double wall_s)
{
    uint64_t bits;

    memcpy(&bits, &wall_s, sizeof(bits));
    ash_str_clear(&file->event);
    put_varint(&file->event, EVENT_WALL_TIME);
    put_fixed(&file->event, bits, 8);
    if (step == 0) return;
    put_varint(&file->event, EVENT_STEP);
    put_varint(&file->event, step);
}

static void put_scalar(struct ash_event_file *file, const struct ash_event_scalar *scalar)
{
    uint32_t bits;

    memcpy(&bits, &scalar->value, sizeof(bits));
    ash_str_clear(&file->value);
    put_bytes(&file->value, VALUE_TAG, scalar->tag, strlen(scalar->tag));
    put_varint(&file->value, VALUE_SIMPLE);
    put_fixed(&file->value, bits, 4);
    ash_str_fail(&file->summary, file->value.rc);
    put_bytes(&file->summary, SUMMARY_VALUE, file->value.data, file->value.size_bytes);
}

/* Frame the event and write it, with those that wait. */
static int end_event(struct ash_event_file *file, struct ash_err *err)
{
    struct ash_str *pending = &file->file.pending;
    size_t before = pending->size_bytes;

    if (before < PENDING_MAX_BYTES) put_frame(pending, &file->event);
    if (before < PENDING_MAX_BYTES && pending->size_bytes == before)
        return ash_err_set(err, -ENOMEM, "out of memory for TensorBoard's events");
    return ash_append_file_flush(&file->file, err);
}

int ash_event_file_add(struct ash_event_file *file, uint64_t step, double wall_s,
                       const struct ash_event_scalar *scalars, size_t count, struct ash_err *err)
{
    ash_str_clear(&file->summary);
    for (size_t i = 0; i < count; i++)
        if (!isnan(scalars[i].value)) put_scalar(file, &scalars[i]);
    begin_event(file, step, wall_s);
    ash_str_fail(&file->event, file->summary.rc);
    put_bytes(&file->event, EVENT_SUMMARY, file->summary.data, file->summary.size_bytes);
    return end_event(file, err);
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

bool ash_event_file_exists(const char *dir)
{
    DIR *all = opendir(dir);
    const struct dirent *entry;
    bool exists = false;

    if (all == NULL) return false;
    while (!exists && (entry = readdir(all)) != NULL)
        exists = strncmp(entry->d_name, NAME_START, strlen(NAME_START)) == 0;
    closedir(all);
    return exists;
}

/* Readers take the files of a folder in the order of their names: by time, then in the order of a process. */
static int make_path(const char *dir, char path[PATH_MAX])
{
    static atomic_uint opened;
    char host[64] = "", name[160];

    if (gethostname(host, sizeof(host) - 1) < 0 || host[0] == '\0') snprintf(host, sizeof(host), "localhost");
    snprintf(name, sizeof(name), NAME_START "%010lld.%s.%ld.%u", (long long)ash_clock_wall_s(), host, (long)getpid(),
             atomic_fetch_add(&opened, 1));
    return ash_path_join(path, PATH_MAX, dir, name);
}

/* The first events: the version of the format, then (at a step above 0) the start of a part of the run. */
static int begin_file(struct ash_event_file *file, uint64_t step, double wall_s, struct ash_err *err)
{
    struct ash_str session = {0};
    int rc;

    begin_event(file, 0, wall_s);
    put_bytes(&file->event, EVENT_VERSION, VERSION, strlen(VERSION));
    rc = end_event(file, err);
    if (rc < 0) return rc;
    put_varint(&session, SESSION_STATUS);
    put_varint(&session, SESSION_START);
    begin_event(file, step, wall_s);
    ash_str_fail(&file->event, session.rc);
    put_bytes(&file->event, EVENT_SESSION, session.data, session.size_bytes);
    ash_str_fini(&session);
    return end_event(file, err);
}

int ash_event_file_open(const char *dir, uint64_t step, double wall_s, struct ash_event_file **file_out,
                        struct ash_err *err)
{
    struct ash_event_file *file = calloc(1, sizeof(*file));
    char path[PATH_MAX];
    int rc = make_path(dir, path);

    if (file == NULL) return ash_err_set(err, -ENOMEM, "out of memory");
    rc = rc < 0 ? ash_err_set(err, rc, "'%s' is too long a path", dir) : ash_dir_make(dir, err);
    if (rc == 0) rc = ash_append_file_open(&file->file, path, 0, err);
    if (rc == 0) rc = begin_file(file, step, wall_s, err);
    if (rc < 0) {
        ash_event_file_close(file);
        return rc;
    }
    *file_out = file;
    return 0;
}

void ash_event_file_close(struct ash_event_file *file)
{
    if (file == NULL) return;
    ash_append_file_close(&file->file);
    ash_str_fini(&file->event);
    ash_str_fini(&file->summary);
    ash_str_fini(&file->value);
    free(file);
}
