/* json - jansson with typed look-ups whose errors name the key, the expected type and the found one. */
#ifndef ASH_BASE_JSON_H
#define ASH_BASE_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ashlar/err.h"
#include "base/str.h"

#define ASH_JSON_MAX_BYTES ((size_t)512 << 20)
#define ASH_JSON_NUL "\xef\xb7\x90" /* U+FDD0, which no text has: what \u0000 reads as */

/* Parse one JSON text as Python's json module would: of a key that is given twice the last value counts, integers
 * beyond 64 bits become real numbers, NaN reads as null, Infinity as the largest double, and NUL in a string, which
 * jansson's keys cannot hold, as ASH_JSON_NUL. UTF-8, no trailing text, bounded depth. name is for messages
 * ("config.json"). Returns 0, -EINVAL or -EFBIG. The caller owns *json_out (json_decref). */
int ash_json_parse(const char *text, size_t size_bytes, const char *name, json_t **json_out, struct ash_err *err);
/* The same, but a key that is given twice and NUL in a string are -EINVAL. */
int ash_json_parse_unique(const char *text, size_t size_bytes, const char *name, json_t **json_out,
                          struct ash_err *err);
/* Parse one line of a file of JSON lines, as ash_json_parse does; its strings may hold NUL (json_string_length). line
 * is its number, from 1, for messages. */
int ash_json_parse_line(const char *text, size_t size_bytes, const char *name, uint64_t line, json_t **json_out,
                        struct ash_err *err);
/* json_loadb for texts of strangers: JSON and nothing else, but integers beyond 64 bits become real numbers, and half
 * of a character (\ud83d, as JavaScript cuts texts) becomes U+FFFD. NULL: *where has the error. */
json_t *ash_json_load_text(const char *text, size_t size_bytes, size_t flags, json_error_t *where);
/* Read and parse a file of at most ASH_JSON_MAX_BYTES; also the errors of reading it. */
int ash_json_load(const char *path, json_t **json_out, struct ash_err *err);
/* Likewise through ash_json_parse_unique. */
int ash_json_load_unique(const char *path, json_t **json_out, struct ash_err *err);
/* Append json as text, indented by 2, reals in the fewest digits that read back (1e-05, not 1.0000000000000001e-5).
 * Returns 0 or -ENOMEM. */
int ash_json_add_text(const json_t *json, struct ash_str *text);
/* Write that text and a newline to path through ash_file_replace. */
int ash_json_save(const char *path, const json_t *json, struct ash_err *err);

/* What a value is, for messages: "an object", "true or false", "null". Static. */
const char *ash_json_type_name(const json_t *value);
/* Each looks key up in obj. Absent or null keeps *value_out and returns 0 (the caller put the default there). Present
 * sets it and returns 1. A wrong type or a value outside [min, max] is -EINVAL. Strings are borrowed from obj. First,
 * an integer in [min, max]. */
int ash_json_int(const json_t *obj, const char *key, int64_t min, int64_t max, int64_t *value_out, struct ash_err *err);
/* A number, integer or real, in [min, max]. */
int ash_json_double(const json_t *obj, const char *key, double min, double max, double *value_out, struct ash_err *err);
/* true or false. */
int ash_json_bool(const json_t *obj, const char *key, bool *value_out, struct ash_err *err);
/* A string. */
int ash_json_string(const json_t *obj, const char *key, const char **value_out, struct ash_err *err);
/* An object, borrowed from obj. */
int ash_json_object(const json_t *obj, const char *key, const json_t **value_out, struct ash_err *err);
/* An array, borrowed from obj. */
int ash_json_array(const json_t *obj, const char *key, const json_t **value_out, struct ash_err *err);

#endif
