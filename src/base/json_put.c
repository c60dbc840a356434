/* JSON without a tree. The last byte says if a comma is due: none after a bracket that begins something, or at the
 * beginning of a line. Strings end in quotes, so their bytes do not matter. */
#include "base/json_put.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
static void add_run(struct ash_str *out, const char *text, size_t size_bytes)
{
    size_t begin = 0;
    char buf[8];

    for (size_t i = 0; i < size_bytes; i++) {
        const char *escape = escape_of((unsigned char)text[i], buf);

        if (escape == NULL) continue;
        ash_str_add(out, text + begin, i - begin);
        ash_str_adds(out, escape);
        begin = i + 1;
    }
    ash_str_add(out, text + begin, size_bytes - begin);
}

static void add_string(struct ash_str *out, const char *text, size_t size_bytes)
{
    ash_str_adds(out, "\"");
    while (size_bytes > 0) {
        size_t valid = ash_utf8_valid_prefix(text, size_bytes);

        add_run(out, text, valid);
        if (valid == size_bytes) break;
        ash_str_adds(out, "\xef\xbf\xbd");
        text += valid + 1;
        size_bytes -= valid + 1;
    }
    ash_str_adds(out, "\"");
}

void ash_json_put_key(struct ash_str *out, const char *key)
{
    if (out->size_bytes > 0 && strchr("{[\n :", out->data[out->size_bytes - 1]) == NULL) ash_str_adds(out, ",");
    if (key == NULL) return;
    add_string(out, key, strlen(key));
    ash_str_adds(out, ":");
}

void ash_json_put_begin(struct ash_str *out, const char *key, char bracket)
{
    ash_json_put_key(out, key);
    ash_str_add(out, &bracket, 1);
}

void ash_json_put_end(struct ash_str *out, char bracket)
{
    ash_str_add(out, &bracket, 1);
}

void ash_json_put_string(struct ash_str *out, const char *key, const char *text, size_t size_bytes)
{
    ash_json_put_key(out, key);
    add_string(out, text, size_bytes);
}

void ash_json_put_text(struct ash_str *out, const char *key, const char *text)
{
    ash_json_put_key(out, key);
    if (text != NULL)
        add_string(out, text, strlen(text));
    else
        ash_str_adds(out, "null");
}

void ash_json_put_int(struct ash_str *out, const char *key, int64_t value)
{
    ash_json_put_key(out, key);
    ash_str_addf(out, "%" PRId64, value);
}

void ash_json_put_bool(struct ash_str *out, const char *key, bool value)
{
    ash_json_put_key(out, key);
    ash_str_adds(out, value ? "true" : "false");
}

void ash_json_put_null(struct ash_str *out, const char *key)
{
    ash_json_put_text(out, key, NULL);
}

void ash_json_put_number(struct ash_str *out, const char *key, double value, int digits)
{
    ash_json_put_key(out, key);
    if (isfinite(value))
        ash_str_addf(out, "%.*g", digits, value);
    else
        ash_str_adds(out, "null");
}

int ash_json_put_json(struct ash_str *out, const char *key, const json_t *json)
{
    char *text = json_dumps(json, JSON_COMPACT | JSON_ENCODE_ANY);

    ash_json_put_key(out, key);
    if (text != NULL)
        ash_str_adds(out, text);
    else
        ash_str_fail(out, -ENOMEM);
    free(text);
    return out->rc;
}
