/* Growing strings: capacity doubles, so appending byte by byte stays linear. */
#include "base/str.h"

#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CAPACITY_BYTES_MIN ((size_t)64)

/* Room for size_bytes more and a NUL. */
static int reserve(struct ash_str *str, size_t size_bytes)
{
    size_t need, capacity;
    char *grown;

    if (size_bytes > SIZE_MAX / 2 - str->size_bytes - 1) return -ENOMEM;
    need = str->size_bytes + size_bytes + 1;
    if (need <= str->capacity_bytes) return 0;
    capacity = str->capacity_bytes * 2 > need ? str->capacity_bytes * 2 : need;
    if (capacity < CAPACITY_BYTES_MIN) capacity = CAPACITY_BYTES_MIN;
    grown = realloc(str->data, capacity);
    if (grown == NULL) return -ENOMEM;
    str->data = grown;
    str->capacity_bytes = capacity;
    return 0;
}

int ash_str_add(struct ash_str *str, const void *bytes, size_t size_bytes)
{
    if (reserve(str, size_bytes) < 0) return -ENOMEM;
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
    int size, rc = -ENOMEM;

    va_start(args, fmt);
    va_copy(again, args);
    size = vsnprintf(NULL, 0, fmt, args);
    if (size >= 0 && reserve(str, (size_t)size) == 0) {
        vsnprintf(str->data + str->size_bytes, (size_t)size + 1, fmt, again);
        str->size_bytes += (size_t)size;
        rc = 0;
    }
    va_end(again);
    va_end(args);
    return rc;
}

void ash_str_clear(struct ash_str *str)
{
    str->size_bytes = 0;
    if (str->data != NULL) str->data[0] = '\0';
}

void ash_str_fini(struct ash_str *str)
{
    free(str->data);
    *str = (struct ash_str){0};
}
