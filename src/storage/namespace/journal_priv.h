/* journal - persistent state of a namespace: objects that are not in the remote place yet, and pins. A text file of
 * lines, each with its checksum; a line counts when it is whole and flushed. A process that is killed at any write, and
 * a machine that loses power, leave the lines before. Several processes may append: each reads the others' lines first.
 * One owner thread at a time. */
#ifndef ASH_STORAGE_NAMESPACE_JOURNAL_PRIV_H
#define ASH_STORAGE_NAMESPACE_JOURNAL_PRIV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ashlar/err.h"

/* An object that waits to be exported. Strings are the journal's. */
struct ash_journal_entry {
    const char *key, *file; /* file: the name of its bytes below the namespace's folder */
    uint64_t size_bytes, hash;
    double put_s; /* seconds since 1970 */
};

struct ash_journal;

/* Open or make the journal at path and read it. Damaged lines are left out; *damaged_out (may be NULL) is how many. */
int ash_journal_open(const char *path, struct ash_journal **journal_out, size_t *damaged_out, struct ash_err *err);
/* Free; NULL is a no-op. */
void ash_journal_close(struct ash_journal *journal);
/* Read what other processes have appended. */
int ash_journal_refresh(struct ash_journal *journal, struct ash_err *err);

/* The object waits for its export: durable when this returns 0. An older one of the same key does not wait any more. */
int ash_journal_put(struct ash_journal *journal, const struct ash_journal_entry *entry, struct ash_err *err);
/* The object whose bytes are in file does not wait any more. */
int ash_journal_done(struct ash_journal *journal, const char *key, const char *file, struct ash_err *err);
/* Keep, or (is_pinned false) no longer keep, the object's bytes here. */
int ash_journal_pin(struct ash_journal *journal, const char *key, bool is_pinned, struct ash_err *err);

/* What waits, oldest first; entry index, or NULL from the count on. Borrowed until the next call that is not a
 * question. */
const struct ash_journal_entry *ash_journal_at(const struct ash_journal *journal, size_t index);
/* What waits of this key, or NULL. Borrowed likewise. */
const struct ash_journal_entry *ash_journal_find(const struct ash_journal *journal, const char *key);
/* Is the key pinned? */
bool ash_journal_is_pinned(const struct ash_journal *journal, const char *key);
/* Pin index, or NULL from the count on. Borrowed likewise. */
const char *ash_journal_pin_at(const struct ash_journal *journal, size_t index);

/* Read lines in memory: for tests and fuzzing. Returns the number of damaged ones, or -ENOMEM. */
int ash_journal_parse(const char *text, size_t size_bytes, struct ash_journal **journal_out);

#endif
