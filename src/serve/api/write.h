/* write - values that base/json_put.h does not have, and what JSON streams hold besides JSON. */
#ifndef ASH_SERVE_API_WRITE_H
#define ASH_SERVE_API_WRITE_H

#include <stddef.h>
#include "base/json_put.h"

/* A float in the fewest digits that read back as the same float; key as in base/json_put.h. NaN is null, infinity
 * 9999.0 with its sign, as clients of log-probabilities expect. */
void ash_write_float(struct ash_str *out, const char *key, float value);
/* Bytes in base64, without quotes. */
void ash_write_base64(struct ash_str *out, const void *data, size_t size_bytes);

#endif
