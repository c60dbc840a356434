/* UTF-8 by the table of well-formed sequences (Unicode, table 3-7): the second byte's range depends on the first. */
#include "base/utf8.h"

/* Length that a first byte announces (0: it cannot start a character) and the range of the second byte. */
static int lead(uint8_t byte, uint8_t *low_out, uint8_t *high_out)
{
    *low_out = byte == 0xe0 ? 0xa0 : byte == 0xf0 ? 0x90 : 0x80;
    *high_out = byte == 0xed ? 0x9f : byte == 0xf4 ? 0x8f : 0xbf;
    if (byte < 0x80) return 1;
    if (byte < 0xc2 || byte > 0xf4) return 0;
    return byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;
}

/* How many of the size_bytes (> 0) bytes at text agree with the character that text[0] starts; 0 when none can start
 * there. */
static int agreeing(const uint8_t *text, size_t size_bytes, int *length_out)
{
    uint8_t low, high;
    int length = lead(text[0], &low, &high);

    *length_out = length;
    if (length == 0) return 0;
    for (int i = 1; i < length; i++) {
        if ((size_t)i >= size_bytes || text[i] < low || text[i] > high) return i;
        low = 0x80, high = 0xbf;
    }
    return length;
}

int ash_utf8_decode(const char *text, size_t size_bytes, uint32_t *point_out)
{
    static const uint8_t first_mask[5] = {0, 0x7f, 0x1f, 0x0f, 0x07};
    const uint8_t *bytes = (const uint8_t *)text;
    uint32_t point;
    int length;

    if (agreeing(bytes, size_bytes, &length) != length || length == 0) return 0;
    point = bytes[0] & first_mask[length];
    for (int i = 1; i < length; i++)
        point = point << 6 | (bytes[i] & 0x3fu);
    *point_out = point;
    return length;
}

int ash_utf8_encode(uint32_t point, char *buf)
{
    if (point < 0x80) {
        buf[0] = (char)point;
        return 1;
    }
    if (point < 0x800) {
        buf[0] = (char)(0xc0 | point >> 6);
        buf[1] = (char)(0x80 | (point & 0x3f));
        return 2;
    }
    if (point < 0x10000) {
        buf[0] = (char)(0xe0 | point >> 12);
        buf[1] = (char)(0x80 | (point >> 6 & 0x3f));
        buf[2] = (char)(0x80 | (point & 0x3f));
        return 3;
    }
    buf[0] = (char)(0xf0 | point >> 18);
    buf[1] = (char)(0x80 | (point >> 12 & 0x3f));
    buf[2] = (char)(0x80 | (point >> 6 & 0x3f));
    buf[3] = (char)(0x80 | (point & 0x3f));
    return 4;
}

size_t ash_utf8_valid_prefix(const char *text, size_t size_bytes)
{
    size_t at = 0;

    while (at < size_bytes) {
        int length;
        if (agreeing((const uint8_t *)text + at, size_bytes - at, &length) != length || length == 0) break;
        at += (size_t)length;
    }
    return at;
}

size_t ash_utf8_incomplete_tail(const char *text, size_t size_bytes)
{
    for (size_t tail = 1; tail <= 3 && tail <= size_bytes; tail++) {
        int length;
        int agreed = agreeing((const uint8_t *)text + size_bytes - tail, tail, &length);
        if (agreed == (int)tail && length > agreed) return tail;
    }
    return 0;
}

/* Characters that do not take one column, by code point. */
static const struct {
    uint32_t first, last;
    size_t width;
} widths[] = {
    {0x0300, 0x036f, 0},   {0x1100, 0x115f, 2},   {0x200b, 0x200f, 0},   {0x2e80, 0xa4cf, 2},   {0xac00, 0xd7a3, 2},
    {0xf900, 0xfaff, 2},   {0xfe00, 0xfe0f, 0},   {0xfe30, 0xfe6f, 2},   {0xff00, 0xff60, 2},   {0xffe0, 0xffe6, 2},
    {0x1f300, 0x1f64f, 2}, {0x1f680, 0x1f6ff, 2}, {0x1f900, 0x1faff, 2}, {0x20000, 0x3fffd, 2},
};

size_t ash_utf8_width(const char *text, size_t size_bytes)
{
    size_t width = 0;

    for (size_t at = 0; at < size_bytes;) {
        uint32_t point = 0;
        int length = ash_utf8_decode(text + at, size_bytes - at, &point);
        size_t own = 1;

        for (size_t i = 0; length > 1 && i < sizeof(widths) / sizeof(widths[0]); i++)
            if (point >= widths[i].first && point <= widths[i].last) own = widths[i].width;
        width += own;
        at += length > 0 ? (size_t)length : 1;
    }
    return width;
}
