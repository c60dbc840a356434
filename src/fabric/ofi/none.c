/* The path between machines in a build without libfabric: it cannot be opened, and says what to do. */
#include <errno.h>

#include "fabric/transport.h"

static int none_open(struct ash_fabric *fabric, const struct ash_fabric_opts *opts,
                     struct ash_transport **transport_out, struct ash_err *err)
{
    (void)fabric;
    (void)opts;
    (void)transport_out;
    return ash_err_set(err, -ENOTSUP,
                       "this program was built without libfabric: install libfabric-dev and build it again");
}

const struct ash_transport_ops ash_ofi_ops = {
    .size = sizeof(ash_ofi_ops), .path = ASH_FABRIC_OFI, .name = "ofi", .open = none_open};
