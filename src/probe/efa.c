/* EFA is a card, a driver and a provider of libfabric: a job is fast if all three are there for every card, and if the
 * provider may read GPU memory. A wrong one is no error of any job: it takes TCP, or host memory, and is slow. */
#include "probe/efa.h"

#include <stdio.h>
#include <string.h>

#include "base/opts.h"
#include "fabric/ofi/inventory.h"
#include "observe/collect/collector.h"

/* That the module is loaded is among the kernel modules. */
static void check_driver(const struct ash_check_opts *opts, struct ash_check_report *report)
{
    struct ash_str text = {0};

    if (ash_host_read(&opts->source, "/sys/module/efa/version", &text) == 0 && text.data != NULL)
        ash_check_add(report, "EFA driver", ASH_GRADE_GOOD, "", "%.*s", (int)strcspn(text.data, "\n"), text.data);
    else if (ash_names_count(&opts->source, "/sys/module/efa") > 0)
        ash_check_add(report, "EFA driver", ASH_GRADE_GOOD, "", "the kernel's own");
    ash_str_fini(&text);
}

/* GPU memory: without it every byte passes the host's. */
static void check_device_memory(const struct ash_check_opts *opts, const struct ash_fabric_inventory *found,
                                struct ash_check_report *report)
{
    if (ash_names_count(&opts->source, "/sys/module/nvidia") == 0) return;
    if (found->device_interfaces == found->interfaces)
        ash_check_add(report, "GPUDirect", ASH_GRADE_GOOD, "", "EFA reads and writes GPU memory");
    else
        ash_check_add(report, "GPUDirect", ASH_GRADE_WARN, "on all interfaces",
                      "%zu of %zu interfaces read and write GPU memory: NCCL goes through host memory",
                      found->device_interfaces, found->interfaces);
}

static void check_provider(const struct ash_check_opts *opts, size_t cards, struct ash_check_report *report)
{
    struct ash_fabric_inventory found;
    struct ash_err err = {0};
    char wanted[64];

    snprintf(wanted, sizeof(wanted), "%zu interfaces, one for each card", cards);
    if (ash_fabric_take_inventory("efa", &found, &err) < 0) {
        ash_check_add(report, "EFA provider", ASH_GRADE_WARN, wanted, "%s", err.text);
        return;
    }
    if (found.interfaces == 0 && opts->source.root != NULL) {
        ash_check_add(report, "EFA provider", ASH_GRADE_SKIPPED, "", "not to be seen from here: --root is elsewhere");
        return;
    }
    ash_check_add(report, "EFA provider", found.interfaces == cards ? ASH_GRADE_GOOD : ASH_GRADE_BAD, wanted,
                  "libfabric %u.%u, provider %u.%u, %zu interfaces", found.library_major, found.library_minor,
                  found.provider_major, found.provider_minor, found.interfaces);
    if (found.interfaces > 0) check_device_memory(opts, &found, report);
}

static void check_huge_pages(const struct ash_check_opts *opts, struct ash_check_report *report)
{
    const char *setting = ash_env_get("FI_EFA_USE_HUGE_PAGE");
    double pages;

    if (ash_host_number(&opts->source, "/proc/sys/vm/nr_hugepages", &pages) < 0) return;
    if (setting != NULL && strcmp(setting, "0") == 0)
        ash_check_add(report, "huge pages", ASH_GRADE_GOOD, "", "%.0f, and EFA takes none of them", pages);
    else
        ash_check_add(report, "huge pages", pages > 0 ? ASH_GRADE_GOOD : ASH_GRADE_WARN,
                      pages > 0 ? "" : "some for EFA", "%.0f", pages);
}

static void check_settings(struct ash_check_report *report)
{
    static const char *const unwanted[] = {"FI_EFA_USE_DEVICE_RDMA", "RDMAV_FORK_SAFE", "RDMAV_HUGEPAGES_SAFE"};

    for (size_t i = 0; i < sizeof(unwanted) / sizeof(unwanted[0]); i++)
        if (ash_env_get(unwanted[i]) != NULL)
            ash_check_add(report, "EFA settings", ASH_GRADE_WARN, "unset: it is for older software", "%s=%.60s",
                          unwanted[i], ash_env_get(unwanted[i]));
}

void ash_probe_efa(const struct ash_check_opts *opts, struct ash_check_report *report)
{
    size_t cards = ash_names_count(&opts->source, "/sys/class/infiniband");

    if (!opts->has_efa && ash_names_count(&opts->source, "/sys/module/efa") == 0) return;
    check_driver(opts, report);
    if (cards > 0) check_provider(opts, cards, report);
    check_huge_pages(opts, report);
    check_settings(report);
}
