/* Fuzz target: the journal of a namespace and its logs of extents, as they are and with right checksums; the outlines of
 * striped objects. */
#include <inttypes.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/str.h"
#include "storage/namespace/extents_priv.h"
#include "storage/namespace/journal_priv.h"
#include "storage/tier/stripe_priv.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_journal(const char *text, size_t size)
{
    struct ash_journal *journal = NULL;

    if (ash_journal_parse(text, size, &journal) < 0) return;
    for (size_t i = 0; ash_journal_at(journal, i) != NULL; i++)
        (void)ash_journal_find(journal, ash_journal_at(journal, i)->key);
    for (size_t i = 0; ash_journal_pin_at(journal, i) != NULL; i++)
        (void)ash_journal_is_pinned(journal, ash_journal_pin_at(journal, i));
    ash_journal_close(journal);
}

static void read_extents(const void *data, size_t size)
{
    struct ash_extents *extents = NULL;
    struct ash_extent oldest[4];

    if (ash_extents_parse(data, size, &extents, NULL) < 0) return;
    (void)ash_extents_find(extents, 0);
    (void)ash_extents_next(extents, 0, UINT64_MAX);
    (void)ash_extents_cover(extents);
    (void)ash_extents_oldest(extents, 1000, oldest, 4);
    ash_extents_close(extents);
}

/* Every line with the checksum that it should have. */
static void read_sealed_journal(const char *text, size_t size)
{
    struct ash_str lines = {0};
    int rc = 0;

    for (size_t at = 0; rc == 0 && at < size;) {
        const char *end = memchr(text + at, '\n', size - at);
        size_t length = end != NULL ? (size_t)(end - text) - at : size - at;

        rc = ash_str_addf(&lines, "%016" PRIx64 " ", ash_hash_bytes(text + at, length, 0));
        if (rc == 0) rc = ash_str_add(&lines, text + at, length);
        if (rc == 0) rc = ash_str_adds(&lines, "\n");
        at += length + 1;
    }
    if (rc == 0) read_journal(lines.data != NULL ? lines.data : "", lines.size_bytes);
    ash_str_fini(&lines);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ash_stripe_outline outline;
    uint8_t *copy = malloc(size + 1);

    if (copy == NULL) return 0;
    if (size > 0) memcpy(copy, data, size);
    read_journal((const char *)data, size);
    read_sealed_journal((const char *)data, size);
    read_extents(data, size);
    ash_extents_seal(copy, size);
    read_extents(copy, size);
    free(copy);
    (void)ash_stripe_parse((const char *)data, size, 3, &outline);
    return 0;
}
