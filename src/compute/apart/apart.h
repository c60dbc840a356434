/* apart - a device without a chip, for tests: plain ops over memory that the host cannot touch. Between ops that memory
 * has no access rights, so a host that reads or writes it without asking faults at once. Copies through
 * ash_memory_apart are allowed, as they are with a GPU. */
#ifndef ASH_COMPUTE_APART_APART_H
#define ASH_COMPUTE_APART_APART_H

#include "compute/ops.h"
#include "infra/device_memory.h"

extern const struct ash_ops ash_ops_apart; /* named "apart"; bits of ref */
extern const struct ash_memory_ops ash_memory_apart;
extern const struct ash_device_memory ash_device_apart;

#endif
