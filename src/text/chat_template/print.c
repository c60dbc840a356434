/* Values as text: Python's str(), repr() and json.dumps(), which templates count on to the last space. */
#include "text/chat_template/jinja_priv.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

/* How lists, dicts, strings and words are written. */
struct style {
    bool json;
    struct ash_jinja_json_style how;
};

static int print_value(struct ash_jinja_run *run, struct ash_str *out, struct ash_jinja_value value, struct style style,
                       int level);

/* As Python's repr: the shortest digits that read back as the same number, plain between 1e-4 and 1e16. */
static int print_float(struct ash_str *out, double real, bool json)
{
    char text[64];
    int digits = 1, exponent;

    if (isnan(real)) return ash_str_adds(out, json ? "NaN" : "nan");
    if (isinf(real)) return ash_str_adds(out, real < 0 ? (json ? "-Infinity" : "-inf") : (json ? "Infinity" : "inf"));
    for (; digits < 17; digits++) {
        snprintf(text, sizeof(text), "%.*e", digits - 1, real);
        if (strtod(text, NULL) == real) break;
    }
    snprintf(text, sizeof(text), "%.*e", digits - 1, real);
    exponent = (int)strtol(strchr(text, 'e') + 1, NULL, 10);
    if (exponent < -4 || exponent >= 16) return ash_str_adds(out, text);
    return ash_str_addf(out, "%.*f", digits - 1 - exponent > 1 ? digits - 1 - exponent : 1, real);
}

/* A character beyond ASCII as JSON escapes it: one \u, or two for those beyond the first plane. */
static int print_unicode(struct ash_str *out, uint32_t point)
{
    if (point < 0x10000) return ash_str_addf(out, "\\u%04x", point);
    point -= 0x10000;
    return ash_str_addf(out, "\\u%04x\\u%04x", 0xd800 + (point >> 10), 0xdc00 + (point & 0x3ff));
}

/* One ASCII character inside quotes. */
static int print_ascii(struct ash_str *out, char c, char quote, bool json)
{
    static const char names[] = "\\\b\f\n\r\t", letters[] = "\\bfnrt";
    const char *name = c != '\0' ? strchr(names, c) : NULL;

    if (name != NULL && (json || (c != '\b' && c != '\f'))) return ash_str_addf(out, "\\%c", letters[name - names]);
    if (c == quote) return ash_str_addf(out, "\\%c", c);
    if ((unsigned char)c < 0x20 || (c == 0x7f && !json)) return ash_str_addf(out, json ? "\\u%04x" : "\\x%02x", c);
    return ash_str_add(out, &c, 1);
}

/* Inside quotes. */
static int print_escaped(struct ash_str *out, struct ash_jinja_text text, char quote, struct style style)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < text.size_bytes;) {
        bool is_ascii = (unsigned char)text.data[i] < 0x80;
        uint32_t point = 0;
        int size = style.how.ascii && !is_ascii ? ash_utf8_decode(text.data + i, text.size_bytes - i, &point) : 0;

        if (is_ascii)
            rc = print_ascii(out, text.data[i], quote, style.json);
        else
            rc = size > 0 ? print_unicode(out, point) : ash_str_add(out, &text.data[i], 1);
        i += size > 0 ? (size_t)size : 1;
    }
    return rc;
}

static int print_quoted(struct ash_str *out, struct ash_jinja_text text, struct style style)
{
    bool single = memchr(text.data, '\'', text.size_bytes) != NULL,
         twofold = memchr(text.data, '"', text.size_bytes) != NULL;
    char quote = style.json || (single && !twofold) ? '"' : '\'';
    int rc = ash_str_add(out, &quote, 1);

    if (rc < 0) return rc;
    rc = print_escaped(out, text, quote, style);
    return rc < 0 ? rc : ash_str_add(out, &quote, 1);
}

/* Between the members of a list or dict, or before its end. */
static int print_break(struct ash_str *out, struct style style, int level, bool first, bool last)
{
    int rc = first || last ? 0 : ash_str_add(out, style.how.comma.data, style.how.comma.size_bytes);

    if (rc < 0 || style.how.indent < 0) return rc;
    return ash_str_addf(out, "\n%*s", style.how.indent * level, "");
}

static int print_list(struct ash_jinja_run *run, struct ash_str *out, const struct ash_jinja_list *list,
                      struct style style, int level)
{
    bool tuple = list->tuple && !style.json;
    int rc = ash_str_adds(out, tuple ? "(" : "[");

    for (size_t i = 0; rc == 0 && i < list->count; i++) {
        rc = print_break(out, style, level + 1, i == 0, false);
        if (rc == 0) rc = print_value(run, out, list->items[i], style, level + 1);
    }
    if (rc == 0 && list->count > 0) rc = print_break(out, style, level, false, true);
    return rc < 0 ? rc : ash_str_adds(out, !tuple ? "]" : list->count == 1 ? ",)" : ")");
}

/* JSON has strings alone for keys. */
static int print_key(struct ash_jinja_run *run, struct ash_str *out, struct ash_jinja_value key, struct style style)
{
    int rc;

    if (key.kind == ASH_JINJA_STRING) return print_quoted(out, key.text, style);
    rc = style.json ? ash_str_adds(out, "\"") : 0;
    if (rc == 0) rc = print_value(run, out, key, style, 0);
    return rc == 0 && style.json ? ash_str_adds(out, "\"") : rc;
}

static int print_dict(struct ash_jinja_run *run, struct ash_str *out, const struct ash_jinja_dict *dict,
                      struct style style, int level)
{
    int rc = ash_str_adds(out, "{");

    for (size_t i = 0; rc == 0 && i < dict->count; i++) {
        rc = print_break(out, style, level + 1, i == 0, false);
        if (rc == 0) rc = print_key(run, out, ash_jinja_key_value(dict->pairs[i].key), style);
        if (rc == 0) rc = ash_str_add(out, style.how.colon.data, style.how.colon.size_bytes);
        if (rc == 0) rc = print_value(run, out, dict->pairs[i].value, style, level + 1);
    }
    if (rc == 0 && dict->count > 0) rc = print_break(out, style, level, false, true);
    return rc < 0 ? rc : ash_str_adds(out, "}");
}

static int print_value(struct ash_jinja_run *run, struct ash_str *out, struct ash_jinja_value value, struct style style,
                       int level)
{
    int rc = ash_jinja_enter(run);

    if (rc < 0) return rc;
    switch (value.kind) {
    case ASH_JINJA_NONE:
        rc = ash_str_adds(out, style.json ? "null" : "None");
        break;
    case ASH_JINJA_BOOL:
        rc = ash_str_adds(out, value.flag ? (style.json ? "true" : "True") : (style.json ? "false" : "False"));
        break;
    case ASH_JINJA_INT:
        rc = ash_str_addf(out, "%lld", (long long)value.integer);
        break;
    case ASH_JINJA_FLOAT:
        rc = print_float(out, value.real, style.json);
        break;
    case ASH_JINJA_STRING:
        rc = print_quoted(out, value.text, style);
        break;
    case ASH_JINJA_LIST:
        rc = print_list(run, out, value.list, style, level);
        break;
    case ASH_JINJA_DICT:
        rc = print_dict(run, out, value.dict, style, level);
        break;
    case ASH_JINJA_UNDEFINED:
        rc = style.json ? ash_jinja_fail(run, -EINVAL, "undefined cannot be written as JSON")
                        : ash_str_adds(out, "Undefined");
        break;
    default:
        rc = ash_jinja_fail(run, -EINVAL, "%s cannot be written as text", ash_jinja_kind_name(value));
    }
    ash_jinja_leave(run);
    if (rc == 0 && out->size_bytes > ASH_JINJA_OUTPUT_BYTES_MAX) rc = ash_jinja_fail(run, -E2BIG, "too much text");
    return rc == -ENOMEM ? ash_jinja_fail(run, rc, "out of memory") : rc;
}

int ash_jinja_print(struct ash_jinja_run *run, struct ash_str *out, struct ash_jinja_value value)
{
    static const struct style plain = {false, {-1, false, {", ", 2}, {": ", 2}}};

    if (value.kind == ASH_JINJA_UNDEFINED) return 0;
    if (value.kind != ASH_JINJA_STRING) return print_value(run, out, value, plain, 0);
    if (ash_str_add(out, value.text.data, value.text.size_bytes) < 0)
        return ash_jinja_fail(run, -ENOMEM, "out of memory");
    if (out->size_bytes > ASH_JINJA_OUTPUT_BYTES_MAX) return ash_jinja_fail(run, -E2BIG, "too much text");
    return 0;
}

int ash_jinja_print_json(struct ash_jinja_run *run, struct ash_str *out, struct ash_jinja_value value,
                         struct ash_jinja_json_style style)
{
    return print_value(run, out, value, (struct style){true, style}, 0);
}

int ash_jinja_to_string(struct ash_jinja_run *run, struct ash_jinja_value value, struct ash_jinja_value *out)
{
    struct ash_str text = {0};
    int rc;

    if (value.kind == ASH_JINJA_STRING) {
        *out = value;
        return 0;
    }
    rc = ash_jinja_print(run, &text, value);
    if (rc == 0) rc = ash_jinja_copy(run, text.data, text.size_bytes, out);
    ash_str_fini(&text);
    return rc;
}
