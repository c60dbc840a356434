/* fields - the fields of a request: typed look-ups with errors, and the list of unknown ones
 * . The first error stays, so a form reads all its fields and looks at the end. */
#ifndef ASH_SERVE_API_FIELDS_H
#define ASH_SERVE_API_FIELDS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/str.h"
#include "serve/api/errors.h"

#define ASH_FIELDS_MAX 192

struct ash_fields {
    const json_t *object;
    struct ash_api_err *err;
    const char *prefix; /* of params: "stream_options."; "" at the top */
    const char *known[ASH_FIELDS_MAX];
    size_t known_count;
};

/* Parse a body: one JSON object, UTF-8, no key twice, no NaN, at most depth_max deep. The caller owns *json_out. */
int ash_fields_parse(const char *text, size_t size_bytes, size_t depth_max, json_t **json_out, struct ash_api_err *err);

/* Look into object (borrowed). prefix and err as in the struct. */
void ash_fields_init(struct ash_fields *fields, const json_t *object, const char *prefix, struct ash_api_err *err);
/* Each returns the value, or `otherwise` where the field is absent, null or wrong; then err says what. true or
 * false: */
bool ash_fields_bool(struct ash_fields *fields, const char *key, bool otherwise);
/* An integer in [min, max]; 5.0 is one. */
int64_t ash_fields_int(struct ash_fields *fields, const char *key, int64_t min, int64_t max, int64_t otherwise);
/* A number in [min, max]. */
double ash_fields_double(struct ash_fields *fields, const char *key, double min, double max, double otherwise);
/* A string without NUL; NULL if it is absent. */
const char *ash_fields_string(struct ash_fields *fields, const char *key);
/* An array, or NULL. */
const json_t *ash_fields_array(struct ash_fields *fields, const char *key);
/* An object, or NULL. */
const json_t *ash_fields_object(struct ash_fields *fields, const char *key);
/* Any value but null, or NULL. */
const json_t *ash_fields_any(struct ash_fields *fields, const char *key);
/* Is it there, and not null? */
bool ash_fields_has(struct ash_fields *fields, const char *key);
/* Fields that a form knows and that change nothing here (user, metadata); space-separated. */
void ash_fields_ignore(struct ash_fields *fields, const char *keys);
/* Say that a field is wrong. */
void ash_fields_wrong(struct ash_fields *fields, const char *key, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Append the names of fields that were never looked up, comma-separated. Returns 0 or -ENOMEM. */
int ash_fields_unknown(const struct ash_fields *fields, struct ash_str *names);

#endif
