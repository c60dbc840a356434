/* json_put - JSON on one line, appended to a string piece by piece: for objects that are written often, or are large.
 *
 *   ash_json_put_begin(out, NULL, '{');
 *   ash_json_put_int(out, "step", 7);
 *   ash_json_put_end(out, '}');                {"step":7}
 *
 * Each value has a key in an object, and NULL for a key in an array or at the top. A comma goes before it, unless it is
 * the first of its object, array or line. The string remembers a failure (str.h): look at out->rc at the end. */
#ifndef ASH_BASE_JSON_PUT_H
#define ASH_BASE_JSON_PUT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/str.h"

/* Begin an object or array: bracket is '{' or '['. */
void ash_json_put_begin(struct ash_str *out, const char *key, char bracket);
/* End it: bracket is '}' or ']'. */
void ash_json_put_end(struct ash_str *out, char bracket);
/* A key, for a value that the caller appends itself. NULL: only the comma. */
void ash_json_put_key(struct ash_str *out, const char *key);
/* A string of size_bytes. Invalid UTF-8 becomes U+FFFD. text may be NULL where size_bytes is 0. */
void ash_json_put_string(struct ash_str *out, const char *key, const char *text, size_t size_bytes);
/* A NUL-terminated text; NULL is null. */
void ash_json_put_text(struct ash_str *out, const char *key, const char *text);
/* An integer. */
void ash_json_put_int(struct ash_str *out, const char *key, int64_t value);
/* true or false. */
void ash_json_put_bool(struct ash_str *out, const char *key, bool value);
/* null */
void ash_json_put_null(struct ash_str *out, const char *key);
/* A number with at most `digits` significant digits; null if it is not finite. */
void ash_json_put_number(struct ash_str *out, const char *key, double value, int digits);
/* A tree, reals in 17 digits at most. Returns out->rc. */
int ash_json_put_json(struct ash_str *out, const char *key, const json_t *json);

#endif
