/* str - a growing byte string that remembers its first failure: append piece by piece, and look at rc at the end. */
#ifndef ASH_BASE_STR_H
#define ASH_BASE_STR_H

#include <stddef.h>

/* Zero-initialise. data is NUL-terminated whenever it is not NULL. */
struct ash_str {
    char *data;
    size_t size_bytes, capacity_bytes;
    int rc; /* 0, or the first error, -ENOMEM mostly: from then on no append does anything */
};

/* Append bytes. Returns str->rc. */
int ash_str_add(struct ash_str *str, const void *bytes, size_t size_bytes);
/* Append a NUL-terminated text. Returns str->rc. */
int ash_str_adds(struct ash_str *str, const char *text);
/* Append as printf. Returns str->rc. */
int ash_str_addf(struct ash_str *str, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Remember rc, if it is an error and the first one. Returns str->rc. */
int ash_str_fail(struct ash_str *str, int rc);
/* Cut it to its first size_bytes and forget a failure; its memory is kept. */
void ash_str_cut(struct ash_str *str, size_t size_bytes);
/* ash_str_cut to nothing. */
void ash_str_clear(struct ash_str *str);
/* Free it and make it all zero. */
void ash_str_fini(struct ash_str *str);

#endif
