/* The journal: lines "HASH JSON". A line is appended in one write under a lock and flushed; a tail without a newline,
 * which only a crash leaves, gets one before the next line, and so stays the only damaged line. The file is rewritten
 * when most of its lines are history. */
#include "storage/namespace/journal_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "base/assert.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/math.h"
#include "base/str.h"
#include "storage/io/io_priv.h"

#define HASH_DIGITS 16
#define LINE_MAX_BYTES ((size_t)64 << 10)
#define REWRITE_BYTES ((uint64_t)256 << 10) /* a shorter journal is not worth it */

struct ash_journal {
    char *path;
    int fd; /* -1: parsed from memory */
    ino_t inode;
    uint64_t read_bytes;
    size_t lines, damaged;
    struct ash_journal_entry *entries;
    size_t entry_count, entry_capacity;
    char **pins;
    size_t pin_count, pin_capacity;
};

/* ---- in memory --------------------------------------------------------------------------------------------------- */

static void free_entry(struct ash_journal_entry *entry)
{
    free((char *)(uintptr_t)entry->key);
    free((char *)(uintptr_t)entry->file);
}

static void forget(struct ash_journal *journal)
{
    for (size_t i = 0; i < journal->entry_count; i++)
        free_entry(&journal->entries[i]);
    for (size_t i = 0; i < journal->pin_count; i++)
        free(journal->pins[i]);
    journal->entry_count = journal->pin_count = journal->lines = 0;
    journal->read_bytes = 0;
}

static size_t find_entry(const struct ash_journal *journal, const char *key)
{
    size_t i = 0;

    while (i < journal->entry_count && strcmp(journal->entries[i].key, key) != 0)
        i++;
    return i;
}

static void remove_entry(struct ash_journal *journal, size_t index)
{
    ash_assert(index < journal->entry_count);
    free_entry(&journal->entries[index]);
    journal->entry_count--;
    memmove(&journal->entries[index], &journal->entries[index + 1],
            (journal->entry_count - index) * sizeof(*journal->entries));
}

static int add_entry(struct ash_journal *journal, const struct ash_journal_entry *entry)
{
    size_t index = find_entry(journal, entry->key);
    struct ash_journal_entry copy = *entry;

    if (index < journal->entry_count) remove_entry(journal, index);
    if (ash_array_reserve(&journal->entries, &journal->entry_capacity, journal->entry_count + 1,
                          sizeof(*journal->entries)) < 0)
        return -ENOMEM;
    copy.key = strdup(entry->key);
    copy.file = strdup(entry->file);
    if (copy.key == NULL || copy.file == NULL) {
        free_entry(&copy);
        return -ENOMEM;
    }
    journal->entries[journal->entry_count++] = copy;
    return 0;
}

static size_t find_pin(const struct ash_journal *journal, const char *key)
{
    size_t i = 0;

    while (i < journal->pin_count && strcmp(journal->pins[i], key) != 0)
        i++;
    return i;
}

static int set_pin(struct ash_journal *journal, const char *key, bool is_pinned)
{
    size_t index = find_pin(journal, key);

    if (is_pinned == (index < journal->pin_count)) return 0;
    if (!is_pinned) {
        free(journal->pins[index]);
        journal->pins[index] = journal->pins[--journal->pin_count];
        return 0;
    }
    if (ash_array_reserve(&journal->pins, &journal->pin_capacity, journal->pin_count + 1, sizeof(*journal->pins)) < 0)
        return -ENOMEM;
    journal->pins[journal->pin_count] = strdup(key);
    if (journal->pins[journal->pin_count] == NULL) return -ENOMEM;
    journal->pin_count++;
    return 0;
}

/* ---- lines ------------------------------------------------------------------------------------------------------- */

/* A name inside the namespace's folder, and nothing else. */
static bool is_file_name(const char *file)
{
    return file != NULL && file[0] != '\0' && file[0] != '.' && strchr(file, '/') == NULL && strlen(file) < 64;
}

/* "put". Returns as apply_json. */
static int apply_put(struct ash_journal *journal, const json_t *json, const char *key, const char *file)
{
    const char *hash = json_string_value(json_object_get(json, "hash"));
    json_int_t size_bytes = json_integer_value(json_object_get(json, "size"));
    struct ash_journal_entry entry = {key, file, (uint64_t)size_bytes, 0,
                                      json_number_value(json_object_get(json, "time"))};

    if (size_bytes < 0 || hash == NULL || strlen(hash) != HASH_DIGITS) return 0;
    entry.hash = strtoull(hash, NULL, 16);
    return add_entry(journal, &entry) < 0 ? -ENOMEM : 1;
}

/* 1: understood, 0: not, or -ENOMEM. */
static int apply_json(struct ash_journal *journal, const json_t *json)
{
    const char *op = json_string_value(json_object_get(json, "op"));
    const char *key = json_string_value(json_object_get(json, "key"));
    const char *file = json_string_value(json_object_get(json, "file"));
    size_t index;

    if (op == NULL || key == NULL || key[0] == '\0') return 0;
    if (strcmp(op, "pin") == 0 || strcmp(op, "unpin") == 0)
        return set_pin(journal, key, op[0] == 'p') < 0 ? -ENOMEM : 1;
    if (!is_file_name(file)) return 0;
    if (strcmp(op, "put") == 0) return apply_put(journal, json, key, file);
    if (strcmp(op, "done") != 0) return 0;
    index = find_entry(journal, key);
    if (index < journal->entry_count && strcmp(journal->entries[index].file, file) == 0) remove_entry(journal, index);
    return 1;
}

/* A line without its newline. Returns as apply_json. */
static int apply_line(struct ash_journal *journal, const char *line, size_t size_bytes)
{
    char digits[HASH_DIGITS + 1];
    json_t *json;
    int rc;

    if (size_bytes <= HASH_DIGITS + 1 || size_bytes > LINE_MAX_BYTES || line[HASH_DIGITS] != ' ') return 0;
    snprintf(digits, sizeof(digits), "%016" PRIx64,
             ash_hash_bytes(line + HASH_DIGITS + 1, size_bytes - HASH_DIGITS - 1, 0));
    if (memcmp(digits, line, HASH_DIGITS) != 0) return 0;
    json = json_loadb(line + HASH_DIGITS + 1, size_bytes - HASH_DIGITS - 1, JSON_REJECT_DUPLICATES, NULL);
    if (json == NULL) return 0;
    rc = apply_json(journal, json);
    json_decref(json);
    return rc;
}

/* All whole lines of text. Returns the bytes that they have, or -ENOMEM. */
static int64_t apply_text(struct ash_journal *journal, const char *text, size_t size_bytes)
{
    size_t at = 0;

    while (at < size_bytes) {
        const char *end = memchr(text + at, '\n', size_bytes - at);
        size_t length = end != NULL ? (size_t)(end - text) - at : 0;
        int rc;

        if (end == NULL) break;
        rc = length > 0 ? apply_line(journal, text + at, length) : 1;
        if (rc < 0) return rc;
        journal->lines++;
        journal->damaged += rc == 0;
        at += length + 1;
    }
    return (int64_t)at;
}

int ash_journal_parse(const char *text, size_t size_bytes, struct ash_journal **journal_out)
{
    struct ash_journal *journal = calloc(1, sizeof(*journal));
    int64_t rc = -ENOMEM;

    if (journal != NULL) {
        journal->fd = -1;
        rc = apply_text(journal, text, size_bytes);
    }
    if (rc < 0) {
        ash_journal_close(journal);
        return (int)rc;
    }
    *journal_out = journal;
    return (int)ash_min(journal->damaged, 1 << 30);
}

/* ---- the file ---------------------------------------------------------------------------------------------------- */

static int fail(const struct ash_journal *journal, int rc, struct ash_err *err)
{
    return ash_io_fail(err, rc, journal->path, "keep the journal");
}

static int open_file(struct ash_journal *journal, struct ash_err *err)
{
    struct stat info;

    if (journal->fd >= 0) close(journal->fd);
    journal->fd = open(journal->path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (journal->fd < 0 || fstat(journal->fd, &info) < 0) return fail(journal, -errno, err);
    forget(journal);
    journal->inode = info.st_ino;
    return 0;
}

/* Has another process put a rewritten journal in its place? */
static bool is_replaced(const struct ash_journal *journal)
{
    struct stat info;

    return stat(journal->path, &info) < 0 || info.st_ino != journal->inode;
}

static int read_tail(struct ash_journal *journal, struct ash_err *err)
{
    struct stat info;
    char *text;
    ssize_t bytes;
    int64_t used;

    if (fstat(journal->fd, &info) < 0) return fail(journal, -errno, err);
    if ((uint64_t)info.st_size <= journal->read_bytes) return 0;
    text = malloc((size_t)info.st_size - journal->read_bytes);
    if (text == NULL) return fail(journal, -ENOMEM, err);
    bytes = pread(journal->fd, text, (size_t)info.st_size - journal->read_bytes, (off_t)journal->read_bytes);
    used = bytes < 0 ? -errno : apply_text(journal, text, (size_t)bytes);
    free(text);
    if (used < 0) return fail(journal, (int)used, err);
    journal->read_bytes += (uint64_t)used;
    return 0;
}

int ash_journal_refresh(struct ash_journal *journal, struct ash_err *err)
{
    int rc = is_replaced(journal) ? open_file(journal, err) : 0;

    return rc < 0 ? rc : read_tail(journal, err);
}

/* Lock the journal and read it to its end. File systems without locks do without. The lock goes with unlock. */
static int lock(struct ash_journal *journal, struct ash_err *err)
{
    int rc = 0;

    do {
        if (is_replaced(journal)) rc = open_file(journal, err);
        while (rc == 0 && flock(journal->fd, LOCK_EX) < 0 && errno == EINTR) {
        }
    } while (rc == 0 && is_replaced(journal)); /* replaced while this waited */
    return rc < 0 ? rc : read_tail(journal, err);
}

static void unlock(struct ash_journal *journal)
{
    flock(journal->fd, LOCK_UN);
}

static int format_line(struct ash_str *line, json_t *json)
{
    char *text = json != NULL ? json_dumps(json, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    int rc = text == NULL ? -ENOMEM : ash_str_addf(line, "%016" PRIx64 " %s\n", ash_hash_str(text), text);

    free(text);
    json_decref(json);
    return rc;
}

static json_t *entry_json(const struct ash_journal_entry *entry)
{
    char hash[HASH_DIGITS + 1];

    snprintf(hash, sizeof(hash), "%016" PRIx64, entry->hash);
    return json_pack("{s:s, s:s, s:s, s:I, s:s, s:f}", "op", "put", "key", entry->key, "file", entry->file, "size",
                     (json_int_t)entry->size_bytes, "hash", hash, "time", entry->put_s);
}

/* What still counts, in place of all lines. */
static int rewrite(struct ash_journal *journal, struct ash_err *err)
{
    struct ash_str text = {0};
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < journal->entry_count; i++)
        rc = format_line(&text, entry_json(&journal->entries[i]));
    for (size_t i = 0; rc == 0 && i < journal->pin_count; i++)
        rc = format_line(&text, json_pack("{s:s, s:s}", "op", "pin", "key", journal->pins[i]));
    if (rc == 0) rc = ash_file_replace(journal->path, text.data != NULL ? text.data : "", text.size_bytes, err);
    ash_str_fini(&text);
    return rc < 0 ? rc : ash_journal_refresh(journal, err);
}

static bool wants_rewrite(const struct ash_journal *journal)
{
    return journal->read_bytes > REWRITE_BYTES && journal->lines > 4 * (journal->entry_count + journal->pin_count);
}

/* Append a line, flushed, and read it back into memory. Takes over json. */
static int append(struct ash_journal *journal, json_t *json, struct ash_err *err)
{
    struct ash_str line = {0};
    struct stat info;
    int rc = lock(journal, err);

    if (rc < 0) {
        json_decref(json);
        return rc;
    }
    if (fstat(journal->fd, &info) == 0 && (uint64_t)info.st_size > journal->read_bytes) rc = ash_str_adds(&line, "\n");
    if (rc == 0) rc = format_line(&line, json);
    if (rc == 0 && line.size_bytes > LINE_MAX_BYTES) rc = -EINVAL;
    if (rc == 0) rc = ash_io_write(journal->fd, line.data, line.size_bytes);
    if (rc == 0 && fdatasync(journal->fd) < 0) rc = -errno;
    ash_str_fini(&line);
    if (rc < 0) fail(journal, rc, err);
    if (rc == 0) rc = read_tail(journal, err);
    if (rc == 0 && wants_rewrite(journal)) rc = rewrite(journal, err);
    unlock(journal);
    return rc;
}

int ash_journal_open(const char *path, struct ash_journal **journal_out, size_t *damaged_out, struct ash_err *err)
{
    struct ash_journal *journal = calloc(1, sizeof(*journal));
    int rc = -ENOMEM;

    if (journal == NULL) return ash_err_set(err, rc, "out of memory");
    journal->fd = -1;
    journal->path = strdup(path);
    if (journal->path == NULL) {
        ash_err_set(err, rc, "out of memory");
        goto fail;
    }
    rc = open_file(journal, err);
    if (rc == 0) rc = read_tail(journal, err);
    if (rc < 0) goto fail;
    if (damaged_out != NULL) *damaged_out = journal->damaged;
    *journal_out = journal;
    return 0;

fail:
    ash_journal_close(journal);
    return rc;
}

void ash_journal_close(struct ash_journal *journal)
{
    if (journal == NULL) return;
    forget(journal);
    free(journal->entries);
    free(journal->pins);
    if (journal->fd >= 0) close(journal->fd);
    free(journal->path);
    free(journal);
}

int ash_journal_put(struct ash_journal *journal, const struct ash_journal_entry *entry, struct ash_err *err)
{
    ash_assert(is_file_name(entry->file));
    return append(journal, entry_json(entry), err);
}

int ash_journal_done(struct ash_journal *journal, const char *key, const char *file, struct ash_err *err)
{
    return append(journal, json_pack("{s:s, s:s, s:s}", "op", "done", "key", key, "file", file), err);
}

int ash_journal_pin(struct ash_journal *journal, const char *key, bool is_pinned, struct ash_err *err)
{
    return append(journal, json_pack("{s:s, s:s}", "op", is_pinned ? "pin" : "unpin", "key", key), err);
}

const struct ash_journal_entry *ash_journal_at(const struct ash_journal *journal, size_t index)
{
    return index < journal->entry_count ? &journal->entries[index] : NULL;
}

const struct ash_journal_entry *ash_journal_find(const struct ash_journal *journal, const char *key)
{
    return ash_journal_at(journal, find_entry(journal, key));
}

bool ash_journal_is_pinned(const struct ash_journal *journal, const char *key)
{
    return find_pin(journal, key) < journal->pin_count;
}

const char *ash_journal_pin_at(const struct ash_journal *journal, size_t index)
{
    return index < journal->pin_count ? journal->pins[index] : NULL;
}
