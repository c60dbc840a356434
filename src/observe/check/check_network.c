/* Interfaces with a device behind them: how fast, packets of which size, and what went wrong on them. */
#include <limits.h>
#include <stdio.h>

#include "base/assert.h"
#include "observe/check/check.h"
#include "observe/collect/collector.h"

#define FAULTY_SHARE 1e-5 /* of packets */

struct interface {
    double speed, mtu; /* Mbit/s, 0: unknown; bytes */
    double packets, wrong;
};

/* A number of an interface; `otherwise` if there is none. */
static double number_of(const struct ash_host_files *source, const char *name, const char *file, double otherwise)
{
    char path[PATH_MAX];
    double value;

    snprintf(path, sizeof(path), "/sys/class/net/%s/%s", name, file);
    return ash_host_number(source, path, &value) == 0 ? value : otherwise;
}

/* False: it is no device, or has no link. */
static bool read_interface(const struct ash_host_files *source, const char *name, struct interface *interface_out)
{
    static const char *const faults[] = {"statistics/rx_errors", "statistics/tx_errors"};
    struct ash_names device = {0};
    char path[PATH_MAX];
    size_t files;

    snprintf(path, sizeof(path), "/sys/class/net/%s/device", name);
    ash_names_list(source, path, &device);
    files = device.count;
    ash_names_fini(&device);
    if (files == 0 || number_of(source, name, "carrier", 0) == 0) return false;
    *interface_out = (struct interface){.speed = number_of(source, name, "speed", 0),
                                        .mtu = number_of(source, name, "mtu", 0),
                                        .packets = number_of(source, name, "statistics/rx_packets", 0) +
                                                   number_of(source, name, "statistics/tx_packets", 0)};
    for (size_t i = 0; i < ASH_COUNT(faults); i++)
        interface_out->wrong += number_of(source, name, faults[i], 0);
    return true;
}

void ash_check_network(const struct ash_check_opts *opts, struct ash_check_report *report)
{
    struct ash_names names = {0};
    double speed = 0, mtu = 0;
    size_t count = 0;

    ash_names_list(&opts->source, "/sys/class/net", &names);
    for (size_t i = 0; i < names.count; i++) {
        struct interface found;

        if (!read_interface(&opts->source, names.items[i], &found)) continue;
        if (found.wrong > FAULTY_SHARE * found.packets)
            ash_check_add(report, "network errors", ASH_GRADE_WARN, "fewer than one in 100,000 packets",
                          "%.40s: %.0f of %.0f packets", names.items[i], found.wrong, found.packets);
        speed += found.speed > 0 ? found.speed : 0;
        mtu = count == 0 || found.mtu < mtu ? found.mtu : mtu;
        count++;
    }
    ash_names_fini(&names);
    if (count == 0)
        ash_check_add(report, "network", ASH_GRADE_SKIPPED, "", "no interface with a device is up");
    else if (speed > 0)
        ash_check_add(report, "network", ASH_GRADE_GOOD, "", "%zu up, %.4g Gbit/s, MTU %.0f", count, speed * 1e-3, mtu);
    else
        ash_check_add(report, "network", ASH_GRADE_GOOD, "", "%zu up, speed not told, MTU %.0f", count, mtu);
}
