/* Numbers as people read them: digits in groups of three, sizes in powers of 1,000. */
#include "cmd/units.h"

#include <stdio.h>

#include "base/assert.h"

const char *ash_units_count(size_t value, char *buf, size_t buf_bytes)
{
    static const struct {
        size_t size;
        const char *name;
    } scales[] = {{1000000000000, "T"}, {1000000000, "B"}, {1000000, "M"}};
    char digits[24];
    size_t used = 0;
    int length = snprintf(digits, sizeof(digits), "%zu", value);

    for (int i = 0; i < length && used + 2 < buf_bytes; i++) {
        if (i > 0 && (length - i) % 3 == 0) buf[used++] = ',';
        buf[used++] = digits[i];
    }
    buf[used] = '\0';
    for (size_t i = 0; i < ASH_COUNT(scales); i++) {
        if (value < scales[i].size) continue;
        snprintf(buf + used, buf_bytes - used, " (%.2f %s)", (double)value / (double)scales[i].size, scales[i].name);
        break;
    }
    return buf;
}

const char *ash_units_bytes(size_t value, char *buf, size_t buf_bytes)
{
    static const char *const names[] = {"B", "kB", "MB", "GB", "TB", "PB"};
    double scaled = (double)value;
    size_t unit = 0;

    while (scaled >= 999.5 && unit + 1 < ASH_COUNT(names)) {
        scaled /= 1000.0;
        unit++;
    }
    snprintf(buf, buf_bytes, unit == 0 ? "%.0f %s" : "%.2f %s", scaled, names[unit]);
    return buf;
}
