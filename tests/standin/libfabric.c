/* A stand-in of libfabric for machines without EFA: ASHLAR_STANDIN_EFA interfaces of its provider, each shown twice as the
 * provider does, of which ASHLAR_STANDIN_EFA_GPU read GPU memory. Nothing can be opened. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>

uint32_t fi_version(void)
{
    return FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION);
}

struct fi_info *fi_dupinfo(const struct fi_info *info)
{
    struct fi_info *made = calloc(1, sizeof(*made));

    if (info != NULL || made == NULL) abort(); /* only empty ones are asked for */
    made->ep_attr = calloc(1, sizeof(*made->ep_attr));
    made->domain_attr = calloc(1, sizeof(*made->domain_attr));
    made->fabric_attr = calloc(1, sizeof(*made->fabric_attr));
    if (made->ep_attr == NULL || made->domain_attr == NULL || made->fabric_attr == NULL) abort();
    return made;
}

void fi_freeinfo(struct fi_info *info)
{
    while (info != NULL) {
        struct fi_info *next = info->next;

        free(info->domain_attr->name);
        free(info->fabric_attr->prov_name);
        free(info->ep_attr);
        free(info->domain_attr);
        free(info->fabric_attr);
        free(info);
        info = next;
    }
}

int fi_getinfo(uint32_t version, const char *node, const char *service, uint64_t flags, const struct fi_info *hints,
               struct fi_info **info_out)
{
    const char *setting = getenv((hints->caps & FI_HMEM) != 0 ? "ASHLAR_STANDIN_EFA_GPU" : "ASHLAR_STANDIN_EFA");
    int count = setting == NULL ? 0 : atoi(setting);
    struct fi_info **at = info_out;
    char name[32];

    (void)version, (void)node, (void)service, (void)flags;
    if (count == 0 || strcmp(hints->fabric_attr->prov_name, "efa") != 0) return -FI_ENODATA;
    for (int i = 0; i < 2 * count; i++) {
        *at = fi_dupinfo(NULL);
        snprintf(name, sizeof(name), "rdmap%ds0-rdm", i / 2);
        (*at)->domain_attr->name = strdup(name);
        (*at)->fabric_attr->prov_name = strdup("efa");
        (*at)->fabric_attr->prov_version = FI_VERSION(121, 0);
        at = &(*at)->next;
    }
    return 0;
}

int fi_fabric(struct fi_fabric_attr *attr, struct fid_fabric **fabric, void *context)
{
    (void)attr, (void)fabric, (void)context;
    return -FI_ENOSYS;
}

const char *fi_strerror(int errnum)
{
    return strerror(errnum);
}
