/* plan_text - numbers with the unit in which people read them, for the tables of `ashlar plan`. Every function writes
 * into buf, of ASH_PLAN_TEXT_BYTES, and returns it. */
#ifndef ASH_CMD_PLAN_TEXT_H
#define ASH_CMD_PLAN_TEXT_H

#define ASH_PLAN_TEXT_BYTES 32

/* "0.8 ms", "39 ms", "1.50 s", "188 s"; "-" where seconds are 0. */
const char *ash_plan_text_seconds(double seconds, char *buf);
/* "15.60 T", "405.85 B", "15.2 M", "260 k": powers of 1,000. */
const char *ash_plan_text_count(double count, char *buf);
/* "0.0248", "44.7", "1883": three digits, or all before the point. */
const char *ash_plan_text_rate(double per_s, char *buf);
/* "700 W", "45.9 kW", "1.43 MW". */
const char *ash_plan_text_watts(double watts, char *buf);
/* "712 kWh", "2159 MWh". */
const char *ash_plan_text_energy(double watt_hours, char *buf);
/* "s" where count is not 1. Writes nothing. */
const char *ash_plan_plural(double count);

#endif
