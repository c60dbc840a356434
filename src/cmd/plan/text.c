/* Numbers with the unit in which people read them. */
#include "cmd/plan/text.h"

#include <stdio.h>

#include "base/assert.h"

struct scale {
    double size;
    const char *unit;
};

/* In the largest unit that leaves at least 1, with three digits at least if there are any. */
static const char *scaled(double value, const struct scale *scales, size_t count, char *buf)
{
    size_t i = 0;
    double shown;

    while (i + 1 < count && value < scales[i].size)
        i++;
    shown = value / scales[i].size;
    snprintf(buf, ASH_PLAN_TEXT_BYTES,
             shown >= 99.95   ? "%.0f %s"
             : shown >= 9.995 ? "%.1f %s"
                              : "%.2f %s",
             shown, scales[i].unit);
    return buf;
}

const char *ash_plan_text_seconds(double seconds, char *buf)
{
    static const struct scale scales[] = {{1, "s"}, {1e-3, "ms"}};

    if (seconds > 0) return scaled(seconds, scales, ASH_COUNT(scales), buf);
    snprintf(buf, ASH_PLAN_TEXT_BYTES, "-");
    return buf;
}

const char *ash_plan_text_count(double count, char *buf)
{
    static const struct scale scales[] = {{1e9, "B"}, {1e6, "M"}, {1e3, "k"}};

    if (count >= 1e12)
        snprintf(buf, ASH_PLAN_TEXT_BYTES, "%.2f T", count / 1e12);
    else if (count >= 1e9)
        snprintf(buf, ASH_PLAN_TEXT_BYTES, "%.2f B", count / 1e9);
    else
        scaled(count, scales, ASH_COUNT(scales), buf);
    return buf;
}

const char *ash_plan_text_rate(double per_s, char *buf)
{
    snprintf(buf, ASH_PLAN_TEXT_BYTES, per_s < 999.5 ? "%.3g" : "%.0f", per_s);
    return buf;
}

const char *ash_plan_text_watts(double watts, char *buf)
{
    static const struct scale scales[] = {{1e6, "MW"}, {1e3, "kW"}, {1, "W"}};

    return scaled(watts, scales, ASH_COUNT(scales), buf);
}

const char *ash_plan_text_energy(double watt_hours, char *buf)
{
    static const struct scale scales[] = {{1e6, "MWh"}, {1e3, "kWh"}, {1, "Wh"}};

    return scaled(watt_hours, scales, ASH_COUNT(scales), buf);
}

const char *ash_plan_plural(double count)
{
    return count == 1 ? "" : "s";
}
