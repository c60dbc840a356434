/* page_file - a page of the key-value cache as a file: its prefix and its bytes, each with a checksum. It is of one
 * prefix: the fingerprint of weights and arithmetic, the salt that says who may share it, and all tokens up to its last
 * one. A file holds all of these, so two prefixes whose names collide are told apart.
 *
 *     0  "ASHKVP1\n"
 *     8  fingerprint, 16  salt, 24  tokens of the prefix, 32  bytes of the page     (64 bits each, little-endian)
 *    40  XXH3 of the page, 48  XXH3 of the 48 bytes before this one and the tokens, 56  zero
 *    64  the tokens, 32 bits each; then zeros to the next multiple of 64; then the page */
#ifndef ASH_SERVE_KV_PAGE_FILE_H
#define ASH_SERVE_KV_PAGE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What a page is of. count is a multiple of the tokens of a page, and not 0. */
struct ash_kv_prefix {
    uint64_t fingerprint, salt;
    const int32_t *tokens; /* borrowed */
    size_t count;
};

/* The name of a prefix: 128 bits, made page by page. */
struct ash_kv_name {
    uint64_t high, low;
};

#define ASH_KV_NAME_BYTES 33 /* in hex, with the NUL */

/* The name of the empty prefix. */
struct ash_kv_name ash_kv_name_start(uint64_t fingerprint, uint64_t salt);
/* The name of the prefix that is longer by the page_tokens of one more page. */
struct ash_kv_name ash_kv_name_next(struct ash_kv_name name, const int32_t *tokens, size_t page_tokens);
/* The name of a whole prefix. */
struct ash_kv_name ash_kv_name_of(const struct ash_kv_prefix *prefix, size_t page_tokens);
/* Are they the same? */
bool ash_kv_name_is(struct ash_kv_name a, struct ash_kv_name b);
/* In hex, as files are called. */
void ash_kv_name_print(struct ash_kv_name name, char text_out[ASH_KV_NAME_BYTES]);
/* Read one of exactly 32 hex digits. Returns whether it is one. */
bool ash_kv_name_read(const char *text, struct ash_kv_name *name_out);

/* Bytes of the file of a page. */
size_t ash_kv_page_file_bytes(size_t tokens, size_t page_bytes);
/* Where in it the page begins. */
size_t ash_kv_page_file_offset(size_t tokens);
/* Fill in all but the page, which is at its place in file [ash_kv_page_file_bytes] already. */
void ash_kv_page_file_seal(const struct ash_kv_prefix *prefix, size_t page_bytes, void *file);
/* Is a file of `bytes` bytes whole, and the page of this prefix? Returns 0, -EBADMSG (damaged) or -ESTALE (another
 * page: of other weights, another salt or other tokens). */
int ash_kv_page_file_check(const void *file, size_t bytes, const struct ash_kv_prefix *prefix, size_t page_bytes);

#endif
