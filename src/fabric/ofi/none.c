/* The path between machines in a build without libfabric: it cannot be opened, and says what to do. */
#include <errno.h>

#include "fabric/ofi/inventory.h"
#include "fabric/transport.h"

static int fail_none(struct ash_err *err)
{
    return ash_err_set(err, -ENOTSUP,
                       "this program was built without libfabric: install libfabric-dev and build it again");
}

static int none_open(struct ash_fabric *fabric, const struct ash_fabric_opts *opts,
                     struct ash_transport **transport_out, struct ash_err *err)
{
    (void)fabric;
    (void)opts;
    (void)transport_out;
    return fail_none(err);
}

int ash_fabric_take_inventory(const char *provider, struct ash_fabric_inventory *inventory_out, struct ash_err *err)
{
    (void)provider;
    (void)inventory_out;
    return fail_none(err);
}

const struct ash_transport_ops ash_ofi_ops = {
    .size = sizeof(ash_ofi_ops), .path = ASH_FABRIC_OFI, .name = "ofi", .open = none_open};
