/* Numbers and bytes in streams. */
#include "serve/api/write.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

void ash_write_float(struct ash_str *out, const char *key, float value)
{
    char text[32];

    ash_json_put_key(out, key);
    if (!isfinite(value)) {
        ash_str_adds(out, isnan(value) ? "null" : value < 0 ? "-9999.0" : "9999.0");
        return;
    }
    for (int digits = 6; digits <= 9; digits++) {
        snprintf(text, sizeof(text), "%.*g", digits, (double)value);
        if (strtof(text, NULL) == value) break;
    }
    ash_str_adds(out, text);
}

void ash_write_base64(struct ash_str *out, const void *data, size_t size_bytes)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const uint8_t *bytes = data;

    for (size_t i = 0; i < size_bytes; i += 3) {
        uint32_t word = (uint32_t)bytes[i] << 16;
        char four[4];

        if (i + 1 < size_bytes) word |= (uint32_t)bytes[i + 1] << 8;
        if (i + 2 < size_bytes) word |= bytes[i + 2];
        for (int d = 0; d < 4; d++)
            four[d] = digits[word >> (18 - 6 * d) & 63];
        if (i + 1 >= size_bytes) four[2] = '=';
        if (i + 2 >= size_bytes) four[3] = '=';
        ash_str_add(out, four, sizeof(four));
    }
}
