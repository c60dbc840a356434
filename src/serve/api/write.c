/* JSON text without building a tree: a stream writes thousands of small objects a second. */
#include "serve/api/write.h"

#include <errno.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/utf8.h"

/* How a byte that cannot stand in a string is written, or NULL. */
static const char *escape_of(unsigned char byte, char buf[8])
{
    switch (byte) {
    case '"':
        return "\\\"";
    case '\\':
        return "\\\\";
    case '\n':
        return "\\n";
    case '\r':
        return "\\r";
    case '\t':
        return "\\t";
    default:
        if (byte >= 0x20 && byte != 0x7f) return NULL;
        snprintf(buf, 8, "\\u%04x", byte);
        return buf;
    }
}

/* A valid run of UTF-8. */
static int add_run(struct ash_str *out, const char *text, size_t size_bytes)
{
    size_t begin = 0;
    char buf[8];
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < size_bytes; i++) {
        const char *escape = escape_of((unsigned char)text[i], buf);

        if (escape == NULL) continue;
        rc = ash_str_add(out, text + begin, i - begin);
        if (rc == 0) rc = ash_str_adds(out, escape);
        begin = i + 1;
    }
    return rc == 0 ? ash_str_add(out, text + begin, size_bytes - begin) : rc;
}

int ash_write_string(struct ash_str *out, const char *text, size_t size_bytes)
{
    int rc = ash_str_adds(out, "\"");

    while (rc == 0 && size_bytes > 0) {
        size_t valid = ash_utf8_valid_prefix(text, size_bytes);

        rc = add_run(out, text, valid);
        text += valid;
        size_bytes -= valid;
        if (rc < 0 || size_bytes == 0) continue;
        rc = ash_str_adds(out, "\xef\xbf\xbd");
        text++;
        size_bytes--;
    }
    return rc == 0 ? ash_str_adds(out, "\"") : rc;
}

int ash_write_text(struct ash_str *out, const char *text)
{
    size_t size_bytes = 0;

    while (text[size_bytes] != '\0')
        size_bytes++;
    return ash_write_string(out, text, size_bytes);
}

int ash_write_float(struct ash_str *out, float value)
{
    char text[32];

    if (!isfinite(value)) return ash_str_adds(out, isnan(value) ? "null" : value < 0 ? "-9999.0" : "9999.0");
    for (int digits = 6; digits <= 9; digits++) {
        snprintf(text, sizeof(text), "%.*g", digits, (double)value);
        if (strtof(text, NULL) == value) break;
    }
    return ash_str_adds(out, text);
}

int ash_write_json(struct ash_str *out, const json_t *json)
{
    char *text = json_dumps(json, JSON_COMPACT | JSON_ENCODE_ANY);
    int rc = text != NULL ? ash_str_adds(out, text) : -ENOMEM;

    free(text);
    return rc;
}

int ash_write_base64(struct ash_str *out, const void *data, size_t size_bytes)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const uint8_t *bytes = data;
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < size_bytes; i += 3) {
        uint32_t word = (uint32_t)bytes[i] << 16;
        char four[4];

        if (i + 1 < size_bytes) word |= (uint32_t)bytes[i + 1] << 8;
        if (i + 2 < size_bytes) word |= bytes[i + 2];
        for (int d = 0; d < 4; d++)
            four[d] = digits[word >> (18 - 6 * d) & 63];
        if (i + 1 >= size_bytes) four[2] = '=';
        if (i + 2 >= size_bytes) four[3] = '=';
        rc = ash_str_add(out, four, sizeof(four));
    }
    return rc;
}
