/* The file of a page. Its header is checked before its bytes are believed. */
#include "serve/kv/page_file.h"

#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/hash.h"
#include "base/math.h"

#define HEADER_BYTES 64
#define SEALED_BYTES 48 /* of the header, that its checksum is of */
#define SEED_HIGH 0x6b76686967680000u
#define SEED_LOW 0x6b766c6f77000000u

static const char magic[8] = "ASHKVP1\n";

struct header {
    char magic[8];
    uint64_t fingerprint, salt, tokens, page_bytes, page_hash, header_hash, zero;
};
_Static_assert(sizeof(struct header) == HEADER_BYTES, "a header without holes");
_Static_assert(offsetof(struct header, header_hash) == SEALED_BYTES, "all before its checksum");

/* ---- names ------------------------------------------------------------------------------------------------------- */

struct ash_kv_name ash_kv_name_start(uint64_t fingerprint, uint64_t salt)
{
    uint64_t words[2] = {fingerprint, salt};

    return (struct ash_kv_name){ash_hash_bytes(words, sizeof(words), SEED_HIGH),
                                ash_hash_bytes(words, sizeof(words), SEED_LOW)};
}

struct ash_kv_name ash_kv_name_next(struct ash_kv_name name, const int32_t *tokens, size_t page_tokens)
{
    return (struct ash_kv_name){ash_hash_bytes(tokens, page_tokens * sizeof(*tokens), name.high),
                                ash_hash_bytes(tokens, page_tokens * sizeof(*tokens), ash_hash_mix(name.low))};
}

struct ash_kv_name ash_kv_name_of(const struct ash_kv_prefix *prefix, size_t page_tokens)
{
    struct ash_kv_name name = ash_kv_name_start(prefix->fingerprint, prefix->salt);

    for (size_t at = 0; at + page_tokens <= prefix->count; at += page_tokens)
        name = ash_kv_name_next(name, prefix->tokens + at, page_tokens);
    return name;
}

bool ash_kv_name_is(struct ash_kv_name a, struct ash_kv_name b)
{
    return a.high == b.high && a.low == b.low;
}

void ash_kv_name_print(struct ash_kv_name name, char text_out[ASH_KV_NAME_BYTES])
{
    snprintf(text_out, ASH_KV_NAME_BYTES, "%016llx%016llx", (unsigned long long)name.high,
             (unsigned long long)name.low);
}

bool ash_kv_name_read(const char *text, struct ash_kv_name *name_out)
{
    static const char digits[] = "0123456789abcdef";
    uint64_t words[2] = {0};

    for (size_t i = 0; i < 32; i++) {
        const char *digit = text[i] != '\0' ? strchr(digits, text[i]) : NULL;

        if (digit == NULL) return false;
        words[i / 16] = words[i / 16] << 4 | (uint64_t)(digit - digits);
    }
    if (text[32] != '\0') return false;
    *name_out = (struct ash_kv_name){words[0], words[1]};
    return true;
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

size_t ash_kv_page_file_offset(size_t tokens)
{
    return ash_round_up(HEADER_BYTES + tokens * sizeof(int32_t), HEADER_BYTES);
}

size_t ash_kv_page_file_bytes(size_t tokens, size_t page_bytes)
{
    return ash_kv_page_file_offset(tokens) + page_bytes;
}

/* Of the header's beginning and what follows the header up to the page. */
static uint64_t hash_header(const uint8_t *file, size_t offset)
{
    return ash_hash_bytes(file + HEADER_BYTES, offset - HEADER_BYTES, ash_hash_bytes(file, SEALED_BYTES, 0));
}

void ash_kv_page_file_seal(const struct ash_kv_prefix *prefix, size_t page_bytes, void *file)
{
    size_t offset = ash_kv_page_file_offset(prefix->count);
    uint8_t *bytes = file;
    struct header header = {.fingerprint = htole64(prefix->fingerprint),
                            .salt = htole64(prefix->salt),
                            .tokens = htole64(prefix->count),
                            .page_bytes = htole64(page_bytes),
                            .page_hash = htole64(ash_hash_bytes(bytes + offset, page_bytes, 0))};

    ash_assert(prefix->count > 0);
    memset(bytes + HEADER_BYTES, 0, offset - HEADER_BYTES);
    memcpy(bytes + HEADER_BYTES, prefix->tokens, prefix->count * sizeof(*prefix->tokens));
    memcpy(header.magic, magic, sizeof(magic));
    memcpy(bytes, &header, sizeof(header));
    header.header_hash = htole64(hash_header(bytes, offset));
    memcpy(bytes, &header, sizeof(header));
}

static bool is_zero(const uint8_t *bytes, size_t first, size_t end)
{
    while (first < end && bytes[first] == 0)
        first++;
    return first >= end;
}

int ash_kv_page_file_check(const void *file, size_t bytes, const struct ash_kv_prefix *prefix, size_t page_bytes)
{
    const uint8_t *at = file;
    struct header header;
    size_t tokens, offset;

    if (bytes < sizeof(header)) return -EBADMSG;
    memcpy(&header, file, sizeof(header));
    tokens = le64toh(header.tokens);
    if (memcmp(header.magic, magic, sizeof(magic)) != 0 || header.zero != 0 || tokens > bytes / sizeof(int32_t))
        return -EBADMSG;
    offset = ash_kv_page_file_offset(tokens);
    if (offset > bytes || bytes - offset != le64toh(header.page_bytes)) return -EBADMSG;
    if (!is_zero(at, HEADER_BYTES + tokens * sizeof(int32_t), offset)) return -EBADMSG;
    if (hash_header(at, offset) != le64toh(header.header_hash)) return -EBADMSG;
    if (le64toh(header.fingerprint) != prefix->fingerprint || le64toh(header.salt) != prefix->salt ||
        tokens != prefix->count || le64toh(header.page_bytes) != page_bytes ||
        memcmp(at + HEADER_BYTES, prefix->tokens, tokens * sizeof(*prefix->tokens)) != 0)
        return -ESTALE;
    return ash_hash_bytes(at + offset, page_bytes, 0) == le64toh(header.page_hash) ? 0 : -EBADMSG;
}
