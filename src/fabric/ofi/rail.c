/* One network interface: domain, address table, completion queue and endpoint of an interface. */
#include <errno.h>
#include <string.h>

#include "fabric/ofi/ofi_priv.h"

static int open_queue(struct ash_ofi_rail *rail)
{
    struct fi_cq_attr attr = {.size = 2 * ASH_OFI_PARTS, .format = FI_CQ_FORMAT_MSG, .wait_obj = FI_WAIT_FD};
    int rc = fi_cq_open(rail->domain, &attr, &rail->cq, NULL);

    if (rc == 0) rc = fi_control(&rail->cq->fid, FI_GETWAIT, &rail->wait_fd);
    if (rc == 0) return 0;
    rail->wait_fd = -1; /* this provider can only be polled */
    if (rail->cq != NULL) fi_close(&rail->cq->fid);
    rail->cq = NULL;
    attr.wait_obj = FI_WAIT_NONE;
    return fi_cq_open(rail->domain, &attr, &rail->cq, NULL);
}

static int open_all(struct ash_ofi_rail *rail)
{
    struct fi_av_attr attr = {.type = FI_AV_UNSPEC};
    int rc = ash_libfabric.fabric(rail->info->fabric_attr, &rail->fabric, NULL);

    if (rc < 0) return rc;
    rc = fi_domain(rail->fabric, rail->info, &rail->domain, NULL);
    if (rc < 0) return rc;
    rc = fi_av_open(rail->domain, &attr, &rail->av, NULL);
    if (rc < 0) return rc;
    rc = open_queue(rail);
    if (rc < 0) return rc;
    rc = fi_endpoint(rail->domain, rail->info, &rail->ep, NULL);
    if (rc < 0) return rc;
    rc = fi_ep_bind(rail->ep, &rail->av->fid, 0);
    if (rc < 0) return rc;
    rc = fi_ep_bind(rail->ep, &rail->cq->fid, FI_TRANSMIT | FI_RECV);
    if (rc < 0) return rc;
    rc = fi_enable(rail->ep);
    if (rc < 0) return rc;
    rail->addr_bytes = sizeof(rail->addr);
    return fi_getname(&rail->ep->fid, rail->addr, &rail->addr_bytes);
}

int ash_rail_open(struct ash_ofi_rail *rail, struct fi_info *info, struct ash_err *err)
{
    int rc;

    rail->info = info;
    rail->wait_fd = -1;
    rail->ordered = (info->tx_attr->msg_order & FI_ORDER_SAW) != 0 && (info->rx_attr->msg_order & FI_ORDER_SAW) != 0;
    rc = open_all(rail);
    if (rc >= 0) return 0;
    return ash_err_set(err, -EIO, "libfabric provider %s cannot be used on %s: %s", info->fabric_attr->prov_name,
                       info->domain_attr->name, ash_libfabric.strerror(-rc));
}

void ash_rail_close(struct ash_ofi_rail *rail)
{
    struct fid *const parts[] = {
        rail->ep != NULL ? &rail->ep->fid : NULL,         rail->eager_mr != NULL ? &rail->eager_mr->fid : NULL,
        rail->cq != NULL ? &rail->cq->fid : NULL,         rail->av != NULL ? &rail->av->fid : NULL,
        rail->domain != NULL ? &rail->domain->fid : NULL, rail->fabric != NULL ? &rail->fabric->fid : NULL};

    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
        if (parts[i] != NULL) fi_close(parts[i]);
    if (rail->info != NULL) ash_libfabric.freeinfo(rail->info);
    memset(rail, 0, sizeof(*rail));
}

int ash_rail_register(struct ash_ofi_rail *rail, void *data, size_t size_bytes, uint64_t key, struct fid_mr **mr_out)
{
    return fi_mr_reg(rail->domain, data, size_bytes,
                     FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE, 0, key, 0, mr_out,
                     NULL);
}
