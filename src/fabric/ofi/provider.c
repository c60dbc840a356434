/* Everything that depends on which libfabric provider is used: which one is best, which of its interfaces lead to other
 * machines, and what its errors mean. Providers other than those named here work too, as a setting. */
#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "fabric/ofi/ofi_priv.h"

#define API_VERSION FI_VERSION(1, 15)
#define TOKEN_BYTES 128

/* Best first. Those that reach only this machine, or are kept for old programs, are not taken unasked. */
static const char *const preferred[] = {"efa", "cxi", "verbs", "tcp", "net", "udp"};
/* Interfaces that exist on every machine and lead to none. */
static const char *const inner[] = {"docker", "virbr", "br-", "cni", "lxc"};

static bool starts(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

/* ---- addresses --------------------------------------------------------------------------------------------------- */

static bool map_ip(const struct sockaddr *addr, uint8_t ip_out[16])
{
    if (addr == NULL || (addr->sa_family != AF_INET && addr->sa_family != AF_INET6)) return false;
    memset(ip_out, 0, 16);
    if (addr->sa_family == AF_INET6) {
        memcpy(ip_out, &((const struct sockaddr_in6 *)(const void *)addr)->sin6_addr, 16);
        return true;
    }
    ip_out[10] = ip_out[11] = 0xff;
    memcpy(ip_out + 12, &((const struct sockaddr_in *)(const void *)addr)->sin_addr, 4);
    return true;
}

static bool info_ip(const struct fi_info *info, uint8_t ip_out[16])
{
    if (info->addr_format != FI_SOCKADDR && info->addr_format != FI_SOCKADDR_IN && info->addr_format != FI_SOCKADDR_IN6)
        return false;
    return map_ip(info->src_addr, ip_out);
}

static bool is_v4(const uint8_t ip[16])
{
    struct in6_addr addr;

    memcpy(&addr, ip, sizeof(addr));
    return IN6_IS_ADDR_V4MAPPED(&addr);
}

static bool leads_out(const struct fi_info *info, const uint8_t ip[16])
{
    struct in6_addr addr;

    memcpy(&addr, ip, sizeof(addr));
    for (size_t i = 0; i < ASH_COUNT(inner); i++)
        if (starts(info->domain_attr->name, inner[i])) return false;
    return is_v4(ip) ? ip[12] != 127 : !IN6_IS_ADDR_LOOPBACK(&addr) && !IN6_IS_ADDR_LINKLOCAL(&addr);
}

void ash_ofi_host_ip(const struct fi_info *info, uint8_t ip_out[16])
{
    struct ifaddrs *all = NULL;
    bool found = info_ip(info, ip_out);

    if (!found && getifaddrs(&all) == 0)
        for (const struct ifaddrs *at = all; at != NULL && !found; at = at->ifa_next)
            found = at->ifa_addr != NULL && at->ifa_addr->sa_family == AF_INET && (at->ifa_flags & IFF_LOOPBACK) == 0 &&
                    (at->ifa_flags & IFF_UP) != 0 && map_ip(at->ifa_addr, ip_out);
    if (all != NULL) freeifaddrs(all);
    if (!found) inet_pton(AF_INET6, "::ffff:127.0.0.1", ip_out);
}

/* ---- settings ---------------------------------------------------------------------------------------------------- */

void ash_ofi_prepare(const char *provider)
{
    bool is_skipped = provider != NULL && (starts(provider, "psm") || starts(provider, "usnic"));

    /* None of these is ever chosen. On x86-64 they are there on every machine and take signals, processor affinity and
     * semaphores of the whole host for themselves while they look for their cards, which may take long. */
    if (!is_skipped) setenv("FI_PROVIDER", "^psm,psm2,psm3,usnic", 0);
    /* Every endpoint of tcp writes to 1,024 buffers of this size when it opens, 17 MB with libfabric's own choice; our
     * messages are a few words, large ones are read and written in place. */
    setenv("FI_OFI_RXM_BUFFER_SIZE", "2048", 0);
}

/* ---- choice ------------------------------------------------------------------------------------------------------ */

static struct fi_info *make_hints(const char *provider)
{
    struct fi_info *hints = ash_libfabric.dupinfo(NULL);

    if (hints == NULL) return NULL;
    hints->caps = FI_MSG | FI_RMA;
    hints->mode = FI_CONTEXT | FI_CONTEXT2;
    hints->ep_attr->type = FI_EP_RDM;
    hints->tx_attr->msg_order = FI_ORDER_SAS;
    hints->rx_attr->msg_order = FI_ORDER_SAS;
    hints->domain_attr->threading = FI_THREAD_DOMAIN;
    hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
    if (provider != NULL) hints->fabric_attr->prov_name = strdup(provider);
    return hints;
}

/* Place of a provider in the list of preferred ones. */
static size_t place(const struct fi_info *info)
{
    size_t at = 0;

    while (at < ASH_COUNT(preferred) && !starts(info->fabric_attr->prov_name, preferred[at]))
        at++;
    return at;
}

/* The first info of the provider to use; all its infos follow in the list, among others. NULL: none is fit. */
static const struct fi_info *choose(const struct fi_info *all, bool any)
{
    const struct fi_info *best = NULL;

    for (const struct fi_info *info = all; info != NULL; info = info->next)
        if (best == NULL || place(info) < place(best)) best = info;
    return best == NULL || (!any && place(best) == ASH_COUNT(preferred)) ? NULL : best;
}

static bool same_provider(const struct fi_info *a, const struct fi_info *b)
{
    return strcmp(a->fabric_attr->prov_name, b->fabric_attr->prov_name) == 0;
}

/* Is its domain among those taken? */
static bool taken(const struct fi_info *info, struct fi_info *const *rails, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(rails[i]->domain_attr->name, info->domain_attr->name) == 0) return true;
    return false;
}

static int take(const struct fi_info *info, struct fi_info **rails, size_t *count)
{
    rails[*count] = ash_libfabric.dupinfo(info);
    if (rails[*count] == NULL) return -ENOMEM;
    ++*count;
    return 0;
}

/* All domains of the provider; of IP networks the first that leads out, or loopback on a machine without network. */
static int take_all(const struct fi_info *best, size_t limit, struct fi_info **rails, size_t *count)
{
    const struct fi_info *outward = NULL;
    uint8_t ip[16];
    int rc = 0;

    for (const struct fi_info *info = best; info != NULL && rc == 0 && *count < limit; info = info->next) {
        if (!same_provider(info, best)) continue;
        if (!info_ip(info, ip)) {
            if (!taken(info, rails, *count)) rc = take(info, rails, count);
        } else if (leads_out(info, ip) && (outward == NULL || (is_v4(ip) && outward->addr_format == FI_SOCKADDR_IN6))) {
            outward = info;
        }
    }
    if (rc == 0 && *count == 0) rc = take(outward != NULL ? outward : best, rails, count);
    return rc;
}

/* The interface of that name or address. */
static int take_named(const struct fi_info *best, const char *name, struct fi_info **rails, size_t *count,
                      struct ash_err *err)
{
    const struct fi_info *found = NULL;
    struct fi_info *hints = NULL, *numeric = NULL;
    uint8_t ip[16];
    int rc = 0;

    for (const struct fi_info *info = best; info != NULL && found == NULL; info = info->next)
        if (same_provider(info, best) && strcmp(info->domain_attr->name, name) == 0 &&
            (!info_ip(info, ip) || is_v4(ip)))
            found = info;
    if (found == NULL && (inet_pton(AF_INET, name, ip) == 1 || inet_pton(AF_INET6, name, ip) == 1)) {
        hints = make_hints(best->fabric_attr->prov_name);
        if (hints != NULL)
            rc = ash_libfabric.getinfo(API_VERSION, name, NULL, FI_SOURCE | FI_NUMERICHOST, hints, &numeric);
        found = rc == 0 ? numeric : NULL;
        ash_libfabric.freeinfo(hints);
    }
    rc = found == NULL ? ash_err_set(err, -ENODEV, "fabric.interface: provider %s has no interface or address %s",
                                     best->fabric_attr->prov_name, name)
                       : take(found, rails, count);
    if (numeric != NULL) ash_libfabric.freeinfo(numeric);
    return rc;
}

static int take_list(const struct fi_info *best, const char *list, size_t limit, struct fi_info **rails, size_t *count,
                     struct ash_err *err)
{
    int rc = 0;

    while (*list != '\0' && rc == 0 && *count < limit) {
        size_t length = strcspn(list, ",");
        char name[TOKEN_BYTES];

        if (length == 0 || length >= sizeof(name))
            return ash_err_set(err, -EINVAL, "fabric.interface: names are separated by single commas");
        memcpy(name, list, length);
        name[length] = '\0';
        rc = take_named(best, name, rails, count, err);
        list += length + (list[length] == ',');
    }
    return rc;
}

int ash_ofi_find(const struct ash_fabric_opts *opts, struct fi_info **rails_out, size_t *count_out, struct ash_err *err)
{
    size_t limit = opts->rails > 0 && opts->rails < ASH_FABRIC_RAILS_MAX ? (size_t)opts->rails : ASH_FABRIC_RAILS_MAX;
    struct fi_info *hints = make_hints(opts->provider), *all = NULL;
    const struct fi_info *best;
    uint8_t ip[16];
    size_t count = 0;
    int rc = hints == NULL ? -FI_ENOMEM : ash_libfabric.getinfo(API_VERSION, NULL, NULL, 0, hints, &all);

    ash_libfabric.freeinfo(hints);
    best = rc == 0 ? choose(all, opts->provider != NULL) : NULL;
    if (best == NULL) {
        if (all != NULL) ash_libfabric.freeinfo(all);
        return ash_err_set(err, -ENODEV,
                           "libfabric has no provider %s for reliable datagrams here (see fi_info -t FI_EP_RDM): "
                           "%s",
                           opts->provider != NULL ? opts->provider : "between machines", ash_libfabric.strerror(-rc));
    }
    if (opts->interface != NULL && opts->interface[0] != '\0')
        rc = take_list(best, opts->interface, limit, rails_out, &count, err);
    else if (opts->address != NULL && info_ip(best, ip))
        rc = take_named(best, opts->address, rails_out, &count, err);
    else
        rc = take_all(best, limit, rails_out, &count);
    ash_libfabric.freeinfo(all);
    if (rc == 0) {
        *count_out = count;
        return 0;
    }
    while (count > 0)
        ash_libfabric.freeinfo(rails_out[--count]);
    return rc == -ENOMEM ? ash_err_set(err, rc, "out of memory for the network's interfaces") : rc;
}

/* ---- errors ------------------------------------------------------------------------------------------------------ */

int ash_ofi_status(int fi_error, bool *lost_out)
{
    static const int own_fault[] = {FI_EACCES, FI_EINVAL, FI_EFAULT, FI_EMSGSIZE, FI_EKEYREJECTED,
                                    FI_ENOKEY, FI_ETRUNC, FI_ENOMEM, FI_ETOOSMALL};

    *lost_out = true;
    for (size_t i = 0; i < ASH_COUNT(own_fault); i++)
        if (fi_error == own_fault[i]) *lost_out = false;
    if (!*lost_out) return fi_error == FI_ENOMEM ? -ENOMEM : -EACCES;
    return fi_error == FI_ETIMEDOUT || fi_error == FI_EHOSTUNREACH || fi_error == FI_ENETUNREACH ? -ETIMEDOUT
                                                                                                 : -ECONNRESET;
}
