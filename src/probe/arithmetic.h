/* arithmetic - are the bits of this machine's GPUs known? Instructions on drawn operands, compared with the models that
 * the reference is made of. */
#ifndef ASH_PROBE_ARITHMETIC_H
#define ASH_PROBE_ARITHMETIC_H

#include "observe/check/check.h"

/* Try every arithmetic for a tenth of opts->deep_seconds, at least once, on a device by its backend's name: "cuda" is
 * every GPU. Adds a result for each, and one sentence without a GPU. */
void ash_probe_arithmetic(const struct ash_check_opts *opts, const char *name, struct ash_check_report *report);

#endif
