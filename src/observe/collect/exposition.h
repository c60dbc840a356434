/* exposition - Prometheus text, written family by family. Memory that runs out leaves lines out. */
#ifndef ASH_OBSERVE_COLLECT_EXPOSITION_H
#define ASH_OBSERVE_COLLECT_EXPOSITION_H

#include <stddef.h>
#include <stdint.h>
#include "base/str.h"

/* The head of a family; its samples follow. type: "counter", "gauge", "untyped" or "histogram". */
void ash_exp_family(struct ash_str *out, const char *name, const char *type, const char *help);
/* A sample. labels (device="sda") are written as they are; NULL or "": none. */
void ash_exp_value(struct ash_str *out, const char *name, const char *labels, double value);
/* The same of an integer, without a detour through a double. */
void ash_exp_count(struct ash_str *out, const char *name, const char *labels, uint64_t value);
/* A family of one sample without labels. */
void ash_exp_single(struct ash_str *out, const char *name, const char *type, const char *help, double value);

#define ASH_EXP_LABELS_BYTES 1024
/* name="value",... of pairs of strings up to a NULL name, escaped, into buf, which it returns. What does not fit is
 * cut off at a pair; bytes that are no UTF-8 become U+FFFD. */
const char *ash_exp_labels(char *buf, size_t buf_bytes, const char *name, ...) __attribute__((sentinel));

#endif
