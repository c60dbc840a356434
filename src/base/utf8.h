/* utf8 - reading text code point by code point, refusing anything that is not UTF-8. */
#ifndef ASH_BASE_UTF8_H
#define ASH_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Decode one code point at text (size_bytes > 0 left). Returns its length 1..4 and sets *point_out, or 0 when the bytes
 * are not valid UTF-8 (overlong, surrogate, beyond U+10FFFF, truncated). */
int ash_utf8_decode(const char *text, size_t size_bytes, uint32_t *point_out);
/* Write point (valid) to buf of at least 4 bytes; returns its length. */
int ash_utf8_encode(uint32_t point, char *buf);
/* Offset of the first byte that is not valid UTF-8, or size_bytes when all is. */
size_t ash_utf8_valid_prefix(const char *text, size_t size_bytes);
/* How many bytes at the end of text are the beginning of a character that is not complete yet (0..3). */
size_t ash_utf8_incomplete_tail(const char *text, size_t size_bytes);
/* Columns that a text takes on a terminal: 2 for East Asian characters and pictures, 0 for marks that join the one
 * before; 1 for a byte that is not valid. */
size_t ash_utf8_width(const char *text, size_t size_bytes);

#endif
