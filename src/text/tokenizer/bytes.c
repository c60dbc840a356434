/* The 256 characters that stand for bytes in byte-level vocabularies: bytes that print in Latin-1 stand for themselves,
 * the other 68 take the code points from U+0100 on, in order. */
#include "text/tokenizer/tokenizer_priv.h"

#include "base/utf8.h"

#define SHIFTED_FIRST 0x100u
#define SHIFTED_COUNT 68u

/* Does this byte stand for itself? */
static bool is_plain(uint32_t byte)
{
    return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || (byte >= 0xae && byte <= 0xff);
}

uint32_t ash_tok_byte_to_point(uint8_t byte)
{
    if (is_plain(byte)) return byte;
    if (byte <= 0x20) return SHIFTED_FIRST + byte;
    if (byte <= 0xa0) return SHIFTED_FIRST + 0x21 + (byte - 0x7fu);
    return SHIFTED_FIRST + SHIFTED_COUNT - 1; /* 0xad, the last */
}

int ash_tok_byte_from_point(uint32_t point)
{
    uint32_t shifted = point - SHIFTED_FIRST;

    if (point < SHIFTED_FIRST) return is_plain(point) ? (int)point : -1;
    if (shifted >= SHIFTED_COUNT) return -1;
    if (shifted <= 0x20) return (int)shifted;
    if (shifted < SHIFTED_COUNT - 1) return (int)(shifted - 0x21 + 0x7f);
    return 0xad;
}

int ash_tok_bytes_map(struct ash_str *out, const char *text, size_t size_bytes)
{
    for (size_t i = 0; i < size_bytes; i++) {
        char buf[4];
        int size = ash_utf8_encode(ash_tok_byte_to_point((uint8_t)text[i]), buf);
        int rc = ash_str_add(out, buf, (size_t)size);
        if (rc < 0) return rc;
    }
    return 0;
}
