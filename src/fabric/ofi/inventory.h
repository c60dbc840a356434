/* inventory - what libfabric finds of one provider, for checks of a machine. */
#ifndef ASH_FABRIC_OFI_INVENTORY_H
#define ASH_FABRIC_OFI_INVENTORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ashlar/err.h"

struct ash_fabric_inventory {
    uint32_t library_major, library_minor;   /* libfabric's version */
    uint32_t provider_major, provider_minor; /* 0 if it has no interface */
    size_t interfaces;                       /* with reliable datagrams */
    size_t device_interfaces;                /* of them, those that read and write GPU memory themselves */
};

/* Load libfabric and ask for the interfaces of a provider ("efa"); a second call is cheap. Any thread, one at a time.
 * Returns 0, also if there is no interface, or a negative errno: no libfabric, or one that is too old. */
int ash_fabric_take_inventory(const char *provider, struct ash_fabric_inventory *inventory_out, struct ash_err *err);

#endif
