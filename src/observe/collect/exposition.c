/* Lines of Prometheus text. Most values are whole numbers: those are written digit by digit. */
#include "observe/collect/exposition.h"

#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/number.h"
#include "base/utf8.h"

void ash_exp_family(struct ash_str *out, const char *name, const char *type, const char *help)
{
    ash_str_adds(out, "# HELP ");
    ash_str_adds(out, name);
    ash_str_adds(out, " ");
    ash_str_adds(out, help);
    ash_str_adds(out, "\n# TYPE ");
    ash_str_adds(out, name);
    ash_str_adds(out, " ");
    ash_str_adds(out, type);
    ash_str_adds(out, "\n");
}

static void add_name(struct ash_str *out, const char *name, const char *labels)
{
    ash_str_adds(out, name);
    if (labels != NULL && labels[0] != '\0') {
        ash_str_adds(out, "{");
        ash_str_adds(out, labels);
        ash_str_adds(out, "}");
    }
    ash_str_adds(out, " ");
}

static void add_digits(struct ash_str *out, uint64_t value)
{
    char digits[24];
    size_t at = sizeof(digits);

    digits[--at] = '\n';
    do
        digits[--at] = (char)('0' + value % 10);
    while ((value /= 10) != 0);
    ash_str_add(out, digits + at, sizeof(digits) - at);
}

void ash_exp_count(struct ash_str *out, const char *name, const char *labels, uint64_t value)
{
    add_name(out, name, labels);
    add_digits(out, value);
}

void ash_exp_value(struct ash_str *out, const char *name, const char *labels, double value)
{
    char text[ASH_NUMBER_BYTES];

    add_name(out, name, labels);
    if (value >= 0 && value < 1e15 && value == floor(value)) {
        add_digits(out, (uint64_t)value);
        return;
    }
    if (isnan(value))
        ash_str_adds(out, "NaN");
    else if (isinf(value))
        ash_str_adds(out, value > 0 ? "+Inf" : "-Inf");
    else
        ash_str_adds(out, ash_number_format(value, text));
    ash_str_adds(out, "\n");
}

void ash_exp_single(struct ash_str *out, const char *name, const char *type, const char *help, double value)
{
    ash_exp_family(out, name, type, help);
    ash_exp_value(out, name, NULL, value);
}

/* The escape of a character of a label's value, or NULL. */
static const char *escape_of(char character, int bytes)
{
    if (bytes == 0) return "\xef\xbf\xbd";
    return character == '\n' ? "\\n" : character == '"' ? "\\\"" : character == '\\' ? "\\\\" : NULL;
}

/* value, escaped, from *used on. Returns whether it fits. */
static bool add_escaped(char *buf, size_t buf_bytes, size_t *used, const char *value)
{
    ash_assert(*used < buf_bytes);
    while (*value != '\0') {
        uint32_t point;
        int bytes = ash_utf8_decode(value, strnlen(value, 4), &point);
        const char *text = escape_of(*value, bytes);
        size_t text_bytes = text != NULL ? strlen(text) : (size_t)bytes;

        if (buf_bytes - *used < text_bytes + 3) return false;
        memcpy(buf + *used, text != NULL ? text : value, text_bytes);
        *used += text_bytes;
        value += bytes == 0 ? 1 : bytes;
    }
    return true;
}

const char *ash_exp_labels(char *buf, size_t buf_bytes, const char *name, ...)
{
    size_t used = 0;
    va_list args;

    va_start(args, name);
    for (; name != NULL; name = va_arg(args, const char *)) {
        const char *value = va_arg(args, const char *);
        size_t before = used;
        int head = snprintf(buf + used, buf_bytes - used, "%s%s=\"", used > 0 ? "," : "", name);

        if (head < 0 || (size_t)head + 3 > buf_bytes - used) {
            used = before;
            break;
        }
        used += (size_t)head;
        if (!add_escaped(buf, buf_bytes, &used, value)) {
            used = before;
            break;
        }
        buf[used++] = '"';
    }
    va_end(args);
    ash_assert(used < buf_bytes); /* add_escaped() leaves room for a quote and the end */
    buf[used] = '\0';
    return buf;
}
