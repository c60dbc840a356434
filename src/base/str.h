/* str - a growing byte string. */
#ifndef ASH_BASE_STR_H
#define ASH_BASE_STR_H

#include <stddef.h>

/* Zero-initialise. data is NUL-terminated whenever it is not NULL. */
struct ash_str {
    char *data;
    size_t size_bytes, capacity_bytes;
};

/* Append; returns 0 or -ENOMEM, then the string is as it was. */
int ash_str_add(struct ash_str *str, const void *bytes, size_t size_bytes);
int ash_str_adds(struct ash_str *str, const char *text);
int ash_str_addf(struct ash_str *str, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void ash_str_clear(struct ash_str *str);
void ash_str_fini(struct ash_str *str);

#endif
