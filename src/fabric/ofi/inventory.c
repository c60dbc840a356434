/* What there is of a provider: its interfaces, by name, since a provider shows one of them in several ways. */
#include "fabric/ofi/inventory.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "fabric/ofi/ofi_priv.h"

#define API_VERSION FI_VERSION(1, 15)

static bool is_seen(const struct fi_info *first, const struct fi_info *info)
{
    for (; first != info; first = first->next)
        if (strcmp(first->domain_attr->name, info->domain_attr->name) == 0) return true;
    return false;
}

/* Interfaces with these capabilities; their provider's version where there is one. 0 or -ENOMEM. */
static int count(const char *provider, uint64_t caps, size_t *count_out, uint32_t *version_out)
{
    struct fi_info *hints = ash_libfabric.dupinfo(NULL), *all = NULL;

    ash_assert(provider != NULL);
    *count_out = 0;
    if (hints == NULL) return -ENOMEM;
    hints->caps = caps;
    hints->mode = ~0ull;
    hints->ep_attr->type = FI_EP_RDM;
    hints->domain_attr->mr_mode =
        FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | ((caps & FI_HMEM) != 0 ? FI_MR_HMEM : 0);
    hints->fabric_attr->prov_name = strdup(provider);
    if (hints->fabric_attr->prov_name != NULL && ash_libfabric.getinfo(API_VERSION, NULL, NULL, 0, hints, &all) == 0)
        for (const struct fi_info *info = all; info != NULL; info = info->next) {
            *version_out = info->fabric_attr->prov_version;
            *count_out += !is_seen(all, info);
        }
    ash_libfabric.freeinfo(hints);
    if (all != NULL) ash_libfabric.freeinfo(all);
    return 0;
}

int ash_fabric_take_inventory(const char *provider, struct ash_fabric_inventory *inventory_out, struct ash_err *err)
{
    struct ash_fabric_inventory found = {0};
    uint32_t version = 0;
    int rc = ash_ofi_load(provider, err);

    if (rc < 0) return rc;
    rc = count(provider, FI_MSG | FI_RMA, &found.interfaces, &version);
    if (rc == 0) rc = count(provider, FI_MSG | FI_RMA | FI_HMEM, &found.device_interfaces, &version);
    if (rc < 0) return ash_err_set(err, rc, "no memory for the interfaces of %s", provider);
    found.library_major = FI_MAJOR(ash_libfabric.version());
    found.library_minor = FI_MINOR(ash_libfabric.version());
    found.provider_major = FI_MAJOR(version);
    found.provider_minor = FI_MINOR(version);
    *inventory_out = found;
    return 0;
}
