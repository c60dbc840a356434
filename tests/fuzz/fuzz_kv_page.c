/* Fuzz target: page files of the cache's tiers. An accepted file is what sealing its page writes; and one whose checksums
 * are made right, which no mutation finds, is accepted only if it is of the prefix that is asked for. */
#include <endian.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "serve/kv/page_file.h"

#define PAGE_BYTES 64

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const int32_t tokens[8] = {5, 6, 7, 8, 9, 10, 11, 12};

/* Checksums of a file that says how many tokens it has, as sealing writes them. */
static void make_right(uint8_t *file, size_t size)
{
    uint64_t count, sum;
    size_t offset;

    if (size < 64) return;
    memcpy(&count, file + 24, sizeof(count));
    count = le64toh(count);
    if (count > size / 4 || ash_kv_page_file_offset(count) > size) return;
    offset = ash_kv_page_file_offset(count);
    sum = htole64(ash_hash_bytes(file + offset, size - offset, 0));
    memcpy(file + 40, &sum, sizeof(sum));
    sum = htole64(ash_hash_bytes(file + 64, offset - 64, ash_hash_bytes(file, 48, 0)));
    memcpy(file + 48, &sum, sizeof(sum));
}

static void check(const uint8_t *file, size_t size)
{
    const struct ash_kv_prefix prefix = {.fingerprint = 3, .salt = 4, .tokens = tokens, .count = 8};
    uint8_t *again;

    if (ash_kv_page_file_check(file, size, &prefix, PAGE_BYTES) != 0) return;
    if (size != ash_kv_page_file_bytes(prefix.count, PAGE_BYTES)) abort();
    again = malloc(size);
    if (again == NULL) return;
    memcpy(again, file, size);
    ash_kv_page_file_seal(&prefix, PAGE_BYTES, again);
    if (memcmp(again, file, 64) != 0 || memcmp(again + 64, tokens, sizeof(tokens)) != 0) abort();
    free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *copy = malloc(size + 1);
    struct ash_kv_name name;
    char text[ASH_KV_NAME_BYTES], back[ASH_KV_NAME_BYTES];

    if (copy == NULL) return 0;
    memcpy(copy, data, size);
    check(copy, size);
    make_right(copy, size);
    check(copy, size);
    memset(text, 0, sizeof(text));
    memcpy(text, data, size < sizeof(text) - 1 ? size : sizeof(text) - 1);
    if (ash_kv_name_read(text, &name)) {
        ash_kv_name_print(name, back);
        if (strcmp(text, back) != 0) abort();
    }
    free(copy);
    return 0;
}
