/* Single characters of Oniguruma's dialect, and what all of its readers use. */
#include "text/tokenizer/onig_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

void ash_onig_emit(struct ash_onig_reader *reader, struct ash_str *out, const char *text)
{
    if (reader->rc == 0 && ash_str_adds(out, text) < 0)
        reader->rc = ash_err_set(reader->err, -ENOMEM, "out of memory for a regular expression");
}

/* Always returns false, for callers that return the same. */
bool ash_onig_refuse(struct ash_onig_reader *reader, int code, const char *what)
{
    if (reader->rc == 0)
        reader->rc = ash_err_set(reader->err, code, "regular expression '%.200s': %s at byte %zu", reader->begin, what,
                                 (size_t)(reader->at - reader->begin));
    return false;
}

bool ash_onig_looking_at(const struct ash_onig_reader *reader, const char *text)
{
    size_t size = strlen(text);

    return (size_t)(reader->end - reader->at) >= size && memcmp(reader->at, text, size) == 0;
}

/* ---- single characters ------------------------------------------------------------------------------------------- */

static bool is_hex(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

bool ash_onig_is_alnum(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* Read from min to max hexadecimal digits. */
static bool read_hex(struct ash_onig_reader *reader, int min, int max, uint32_t *point_out)
{
    char digits[9] = {0};
    int count = 0;

    while (count < max && count < 8 && reader->at < reader->end && is_hex(*reader->at))
        digits[count++] = *reader->at++;
    if (count < min) return ash_onig_refuse(reader, -EINVAL, "too few hexadecimal digits");
    *point_out = (uint32_t)strtoul(digits, NULL, 16);
    if (*point_out > 0x10ffff || (*point_out >= 0xd800 && *point_out < 0xe000))
        return ash_onig_refuse(reader, -EINVAL, "no such character");
    return true;
}

/* After \x: two digits, or any number in braces. A single byte above 7f would be part of a character. */
static bool read_hex_escape(struct ash_onig_reader *reader, uint32_t *point_out)
{
    if (ash_onig_looking_at(reader, "{")) {
        reader->at++;
        if (!read_hex(reader, 1, 8, point_out)) return false;
        if (!ash_onig_looking_at(reader, "}")) return ash_onig_refuse(reader, -EINVAL, "'}' is missing");
        reader->at++;
        return true;
    }
    if (!read_hex(reader, 1, 2, point_out)) return false;
    return *point_out < 0x80 || ash_onig_refuse(reader, -ENOTSUP, "a byte that is no character");
}

/* \t, \n and so on, \0, and in a class \b. */
static bool read_named_escape(struct ash_onig_reader *reader, bool in_class, uint32_t *point_out)
{
    static const char names[] = "0tnrfvaeb", points[] = "\0\t\n\r\f\v\a\033\b";
    char c = *reader->at;
    const char *name = c != '\0' ? strchr(names, c) : NULL;

    if (name == NULL || (c == 'b' && !in_class)) return false;
    reader->at++;
    *point_out = (uint32_t)points[name - names];
    if (c == '0' && reader->at < reader->end && *reader->at >= '0' && *reader->at <= '7')
        return ash_onig_refuse(reader, -ENOTSUP, "an octal escape");
    return true;
}

/* The character that an escape names, when it names exactly one. reader is after the backslash. False: it does not, or
 * it was refused (reader->rc). */
bool ash_onig_read_escaped_point(struct ash_onig_reader *reader, bool in_class, uint32_t *point_out)
{
    char c = *reader->at;
    int size;

    if (c == 'x' || c == 'u') {
        reader->at++;
        return c == 'x' ? read_hex_escape(reader, point_out) : read_hex(reader, 4, 4, point_out);
    }
    if (read_named_escape(reader, in_class, point_out)) return true;
    if (reader->rc < 0 || ash_onig_is_alnum(c)) return false;
    size = ash_utf8_decode(reader->at, (size_t)(reader->end - reader->at), point_out);
    if (size == 0) return ash_onig_refuse(reader, -EILSEQ, "a byte that is not UTF-8");
    reader->at += size;
    return true;
}

void ash_onig_emit_point(struct ash_onig_reader *reader, struct ash_str *out, uint32_t point)
{
    if (reader->rc == 0 && ash_str_addf(out, "\\x{%x}", point) < 0)
        reader->rc = ash_err_set(reader->err, -ENOMEM, "out of memory for a regular expression");
}
