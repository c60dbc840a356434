/* dedup: open tables of hashes. Memory grows with new texts only: 16 bytes each, and with `near` a signature and its
 * bands. */
#include "train/data/dedup.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/assert.h"
#include "base/hash.h"
#include "base/math.h"

#define WORDS_DEFAULT 5
#define WORDS_MAX 64
#define TABLE_FIRST 1024

/* Hashes and their owners in an open-addressing table; a hash may occur several times. */
struct entry {
    uint64_t key, check; /* check: a second hash of the same, or 0 */
    size_t value;
    bool is_used;
};
struct table {
    struct entry *entries;
    size_t capacity, count;
};

struct ash_dedup {
    double near;
    size_t words, bands, rows; /* bands * rows <= ASH_DEDUP_HASHES */
    struct table equal, alike;
    uint32_t *signatures; /* [count][ASH_DEDUP_HASHES], with near */
    size_t count, capacity;
};

/* ---- tables ------------------------------------------------------------------------------------------------------ */

static void put(struct table *table, struct entry entry)
{
    size_t at = (size_t)entry.key & (table->capacity - 1);

    ash_assert(2 * (table->count + 1) <= table->capacity &&
               (table->capacity & (table->capacity - 1)) == 0); /* a free place ends the search */
    while (table->entries[at].is_used)
        at = (at + 1) & (table->capacity - 1);
    table->entries[at] = entry;
    table->count++;
}

static int table_add(struct table *table, uint64_t key, uint64_t check, size_t value)
{
    if (2 * (table->count + 1) > table->capacity) {
        struct table larger = {.capacity = ash_max(TABLE_FIRST, 2 * table->capacity)};

        larger.entries = calloc(larger.capacity, sizeof(*larger.entries));
        if (larger.entries == NULL) return -ENOMEM;
        for (size_t i = 0; i < table->capacity; i++)
            if (table->entries[i].is_used) put(&larger, table->entries[i]);
        free(table->entries);
        *table = larger;
    }
    put(table, (struct entry){key, check, value, true});
    return 0;
}

/* The next entry with key, from *at on (start with SIZE_MAX); NULL: no more. */
static const struct entry *table_next(const struct table *table, uint64_t key, size_t *at)
{
    if (table->capacity == 0) return NULL;
    *at = *at == SIZE_MAX ? (size_t)key & (table->capacity - 1) : (*at + 1) & (table->capacity - 1);
    while (table->entries[*at].is_used && table->entries[*at].key != key)
        *at = (*at + 1) & (table->capacity - 1);
    return table->entries[*at].is_used ? &table->entries[*at] : NULL;
}

/* ---- signatures -------------------------------------------------------------------------------------------------- */

static void add_run(uint64_t run, uint32_t *signature)
{
    for (size_t k = 0; k < ASH_DEDUP_HASHES; k++) {
        uint32_t hash = (uint32_t)(ash_hash_mix(run + (k + 1) * 0x9e3779b97f4a7c15u) >> 32);

        if (hash < signature[k]) signature[k] = hash;
    }
}

void ash_dedup_sign(const char *text, size_t size_bytes, size_t words, uint32_t *signature)
{
    uint64_t last[WORDS_MAX] = {0};
    size_t count = 0, at = 0;

    memset(signature, 0xff, ASH_DEDUP_HASHES * sizeof(*signature));
    while (at < size_bytes) {
        char word[64];
        size_t size = 0;

        while (at < size_bytes && !isalnum((unsigned char)text[at]) && (unsigned char)text[at] < 0x80)
            at++;
        while (at < size_bytes && (isalnum((unsigned char)text[at]) || (unsigned char)text[at] >= 0x80)) {
            if (size < sizeof(word)) word[size++] = (char)tolower((unsigned char)text[at]);
            at++;
        }
        if (size == 0) continue;
        last[count++ % words] = ash_hash_bytes(word, size, 0);
        if (count >= words) {
            uint64_t run = 0;

            for (size_t i = 0; i < words; i++)
                run = ash_hash_mix(run ^ last[(count + i) % words]);
            add_run(run, signature);
        }
    }
    if (count < words) /* too short for a run: all of it is one */
        add_run(ash_hash_bytes(last, count * sizeof(*last), 1), signature);
}

static double overlap(const uint32_t *a, const uint32_t *b)
{
    size_t same = 0;

    for (size_t k = 0; k < ASH_DEDUP_HASHES; k++)
        same += a[k] == b[k];
    return (double)same / ASH_DEDUP_HASHES;
}

/* ---- texts ------------------------------------------------------------------------------------------------------- */

/* Bands so that texts at the share `near` meet in one with a chance of 99 %. */
static void choose_bands(struct ash_dedup *dedup)
{
    dedup->rows = 1;
    for (size_t rows = 2; rows <= 32; rows *= 2) {
        double bands = (double)(ASH_DEDUP_HASHES / rows);

        if (1.0 - pow(1.0 - pow(dedup->near, (double)rows), bands) >= 0.99) dedup->rows = rows;
    }
    ash_assert(ASH_DEDUP_HASHES % dedup->rows == 0);
    dedup->bands = ASH_DEDUP_HASHES / dedup->rows;
}

int ash_dedup_open(const struct ash_dedup_opts *opts, struct ash_dedup **dedup_out, struct ash_err *err)
{
    struct ash_dedup *dedup;

    if (!(opts->near >= 0 && opts->near <= 1) || opts->words > WORDS_MAX)
        return ash_err_set(err, -EINVAL, "near is a share from 0 to 1, and a run has at most %d words", WORDS_MAX);
    dedup = calloc(1, sizeof(*dedup));
    if (dedup == NULL) return ash_err_set(err, -ENOMEM, "out of memory");
    dedup->near = opts->near;
    dedup->words = opts->words > 0 ? opts->words : WORDS_DEFAULT;
    if (dedup->near > 0) choose_bands(dedup);
    *dedup_out = dedup;
    return 0;
}

void ash_dedup_close(struct ash_dedup *dedup)
{
    if (dedup == NULL) return;
    free(dedup->equal.entries);
    free(dedup->alike.entries);
    free(dedup->signatures);
    free(dedup);
}

static uint64_t band_key(const struct ash_dedup *dedup, const uint32_t *signature, size_t band)
{
    return ash_hash_bytes(signature + band * dedup->rows, dedup->rows * sizeof(*signature), band + 1);
}

/* The first text that this one is nearly equal to, or SIZE_MAX. */
static size_t find_near(const struct ash_dedup *dedup, const uint32_t *signature)
{
    size_t found = SIZE_MAX;

    for (size_t band = 0; band < dedup->bands; band++) {
        uint64_t key = band_key(dedup, signature, band);
        const struct entry *entry;
        size_t at = SIZE_MAX;

        while ((entry = table_next(&dedup->alike, key, &at)) != NULL)
            if (entry->value < found &&
                overlap(signature, dedup->signatures + entry->value * ASH_DEDUP_HASHES) >= dedup->near)
                found = entry->value;
    }
    return found;
}

static int remember(struct ash_dedup *dedup, const uint32_t *signature)
{
    int rc = 0;

    if (ash_array_reserve(&dedup->signatures, &dedup->capacity, dedup->count + 1,
                          ASH_DEDUP_HASHES * sizeof(*signature)) < 0)
        return -ENOMEM;
    memcpy(dedup->signatures + dedup->count * ASH_DEDUP_HASHES, signature, ASH_DEDUP_HASHES * sizeof(*signature));
    for (size_t band = 0; rc == 0 && band < dedup->bands; band++)
        rc = table_add(&dedup->alike, band_key(dedup, signature, band), 0, dedup->count);
    return rc;
}

int ash_dedup_add(struct ash_dedup *dedup, const char *text, size_t size_bytes, enum ash_dedup_verdict *verdict_out,
                  size_t *like_out)
{
    uint64_t key = ash_hash_bytes(text, size_bytes, 0), check = ash_hash_bytes(text, size_bytes, 1);
    uint32_t signature[ASH_DEDUP_HASHES];
    const struct entry *entry;
    size_t at = SIZE_MAX;
    int rc = 0;

    while ((entry = table_next(&dedup->equal, key, &at)) != NULL) {
        if (entry->check != check) continue;
        *verdict_out = ASH_DEDUP_EQUAL;
        *like_out = entry->value;
        return 0;
    }
    if (dedup->near > 0) {
        ash_dedup_sign(text, size_bytes, dedup->words, signature);
        *like_out = find_near(dedup, signature);
        if (*like_out != SIZE_MAX) {
            *verdict_out = ASH_DEDUP_NEAR;
            return 0;
        }
        rc = remember(dedup, signature);
    }
    if (rc == 0) rc = table_add(&dedup->equal, key, check, dedup->count);
    if (rc == 0) dedup->count++;
    *verdict_out = ASH_DEDUP_NEW;
    return rc;
}
