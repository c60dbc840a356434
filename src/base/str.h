/* str - a growing byte string. */
#ifndef ASH_BASE_STR_H
#define ASH_BASE_STR_H

#include <stddef.h>

/* Zero-initialise. data is NUL-terminated whenever it is not NULL. */
struct ash_str {
    char *data;
    size_t size_bytes, capacity_bytes;
};

/* Append bytes. Returns 0 or -ENOMEM; then the string is as it was. */
int ash_str_add(struct ash_str *str, const void *bytes, size_t size_bytes);
/* Append a NUL-terminated text. Returns as ash_str_add. */
int ash_str_adds(struct ash_str *str, const char *text);
/* Append as printf. Returns as ash_str_add. */
int ash_str_addf(struct ash_str *str, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Make it empty; its memory is kept. */
void ash_str_clear(struct ash_str *str);
/* Free it and make it all zero. */
void ash_str_fini(struct ash_str *str);

#endif
