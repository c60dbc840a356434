/* write - JSON text, appended piece by piece: what streams are made of. Every call returns 0 or -ENOMEM. */
#ifndef ASH_SERVE_API_WRITE_H
#define ASH_SERVE_API_WRITE_H

#include <jansson.h>
#include <stddef.h>
#include "base/str.h"

/* A string of size_bytes in quotes, escaped. Invalid UTF-8 becomes U+FFFD. */
int ash_write_string(struct ash_str *out, const char *text, size_t size_bytes);
/* The same of a NUL-terminated text. */
int ash_write_text(struct ash_str *out, const char *text);
/* A float in the fewest digits that read back as the same float; null for what JSON has no number for. */
int ash_write_float(struct ash_str *out, float value);
/* A JSON value on one line, reals in the fewest digits. */
int ash_write_json(struct ash_str *out, const json_t *json);
/* Bytes in base64. */
int ash_write_base64(struct ash_str *out, const void *data, size_t size_bytes);

#endif
