/* units - numbers as people read them. */
#ifndef ASH_CMD_UNITS_H
#define ASH_CMD_UNITS_H

#include <stddef.h>

#define ASH_UNITS_BYTES 48

/* "260,032", and above a million "1,100,048,384 (1.10 B)". Returns buf, of at least ASH_UNITS_BYTES. */
const char *ash_units_count(size_t value, char *buf, size_t buf_bytes);
/* "712 B", "1.04 MB", powers of 1,000. Returns buf, of at least ASH_UNITS_BYTES. */
const char *ash_units_bytes(size_t value, char *buf, size_t buf_bytes);

#endif
