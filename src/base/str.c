/* Growing strings: capacity doubles, so appending byte by byte stays linear. */
#include "base/str.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/assert.h"
#include "base/math.h"

#define CAPACITY_BYTES_MIN ((size_t)64)

/* Is there room for size_bytes more and a NUL? If not, the string remembers it. */
static bool reserve(struct ash_str *str, size_t size_bytes)
{
    bool fits = str->rc == 0 && size_bytes <= SIZE_MAX / 2 - str->size_bytes - 1;
    size_t need = str->size_bytes + size_bytes + 1, capacity = ash_max(str->capacity_bytes * 2, CAPACITY_BYTES_MIN);
    char *grown;

    if (fits && need <= str->capacity_bytes) return true;
    capacity = ash_max(capacity, need);
    grown = fits ? realloc(str->data, capacity) : NULL;
    if (grown == NULL) {
        str->rc = -ENOMEM;
        return false;
    }
    str->data = grown;
    str->capacity_bytes = capacity;
    return true;
}

int ash_str_add(struct ash_str *str, const void *bytes, size_t size_bytes)
{
    if (!reserve(str, size_bytes)) return str->rc;
    if (size_bytes > 0) memcpy(str->data + str->size_bytes, bytes, size_bytes);
    str->size_bytes += size_bytes;
    str->data[str->size_bytes] = '\0';
    return 0;
}

int ash_str_adds(struct ash_str *str, const char *text)
{
    return ash_str_add(str, text, strlen(text));
}

int ash_str_addf(struct ash_str *str, const char *fmt, ...)
{
    va_list args, again;
    int size;

    va_start(args, fmt);
    va_copy(again, args);
    size = vsnprintf(NULL, 0, fmt, args);
    if (size < 0) ash_str_fail(str, -ENOMEM);
    if (size >= 0 && reserve(str, (size_t)size)) {
        vsnprintf(str->data + str->size_bytes, (size_t)size + 1, fmt, again);
        str->size_bytes += (size_t)size;
    }
    va_end(again);
    va_end(args);
    return str->rc;
}

int ash_str_fail(struct ash_str *str, int rc)
{
    if (str->rc == 0 && rc < 0) str->rc = rc;
    return str->rc;
}

void ash_str_cut(struct ash_str *str, size_t size_bytes)
{
    ash_assert(size_bytes <= str->size_bytes);
    str->size_bytes = size_bytes;
    str->rc = 0;
    if (str->data != NULL) str->data[size_bytes] = '\0';
}

void ash_str_clear(struct ash_str *str)
{
    ash_str_cut(str, 0);
}

void ash_str_fini(struct ash_str *str)
{
    free(str->data);
    *str = (struct ash_str){0};
}
