/* NVMe health: log page 2 of each controller, through its device file. In a recorded tree the device file is a plain
 * file that holds the log page. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/nvme_ioctl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"
#include "observe/collect/collector.h"
#include "observe/collect/exposition.h"

#define LOG_BYTES 512
#define GET_LOG_PAGE 0x02
#define KELVIN 273

/* Fields of the log page: little-endian, of which the lowest 8 bytes are taken at most. */
static const struct {
    size_t offset, bytes;
    const char *name, *type, *help;
    double scale, add;
} fields[] = {
    {0, 1, "ashlar_nvme_critical_warning", "gauge", "Critical warnings of the drive's health log, as bits.", 1, 0},
    {1, 2, "ashlar_nvme_temperature_celsius", "gauge", "Temperature of the drive.", 1, -KELVIN},
    {3, 1, "ashlar_nvme_available_spare_ratio", "gauge", "Spare blocks that are left.", 0.01, 0},
    {5, 1, "ashlar_nvme_used_ratio", "gauge", "Share of the drive's life that is used up; it may exceed 1.", 0.01, 0},
    {160, 8, "ashlar_nvme_media_errors_total", "counter", "Data that the drive could not read back.", 1, 0},
    {176, 8, "ashlar_nvme_error_log_entries_total", "counter", "Entries of the drive's error log.", 1, 0},
};

static int read_log(const struct ash_host_files *source, const char *device, uint8_t log[LOG_BYTES])
{
    char path[PATH_MAX];
    struct stat facts;
    int fd, rc;

    if (ash_host_path(source, device, path, sizeof(path)) == NULL) return -ENAMETOOLONG;
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return -errno;
    if (fstat(fd, &facts) == 0 && S_ISREG(facts.st_mode)) {
        rc = read(fd, log, LOG_BYTES) == LOG_BYTES ? 0 : -EINVAL;
    } else {
        struct nvme_admin_cmd command = {.opcode = GET_LOG_PAGE,
                                         .nsid = UINT32_MAX,
                                         .addr = (uint64_t)(uintptr_t)log,
                                         .data_len = LOG_BYTES,
                                         .cdw10 = 2 | (LOG_BYTES / 4 - 1) << 16};

        rc = ioctl(fd, NVME_IOCTL_ADMIN_CMD, &command) == 0 ? 0 : -EIO;
    }
    close(fd);
    return rc;
}

static double field_of(const uint8_t *log, size_t field)
{
    uint64_t value = 0;

    ash_assert(field < ASH_COUNT(fields) && fields[field].offset + fields[field].bytes <= LOG_BYTES);
    for (size_t i = fields[field].bytes; i-- > 0;)
        value = value << 8 | log[fields[field].offset + i];
    return (double)value * fields[field].scale + fields[field].add;
}

static int collect_nvme(void *state, struct ash_str *out, struct ash_err *err)
{
    struct ash_str samples[ASH_COUNT(fields)] = {{0}};
    struct ash_names names = {0};
    int rc = 0, last = 0;

    ash_names_list(state, "/sys/class/nvme", &names);
    for (size_t i = 0; i < names.count; i++) {
        char device[PATH_MAX], labels[ASH_EXP_LABELS_BYTES];
        uint8_t log[LOG_BYTES] = {0};

        snprintf(device, sizeof(device), "/dev/%s", names.items[i]);
        last = read_log(state, device, log);
        if (last < 0) rc = ash_err_set(err, last, "%s cannot be asked: %s", device, strerror(-last));
        if (last < 0) continue;
        ash_exp_labels(labels, sizeof(labels), "device", names.items[i], (char *)NULL);
        for (size_t f = 0; f < ASH_COUNT(fields); f++)
            ash_exp_value(&samples[f], fields[f].name, labels, field_of(log, f));
    }
    for (size_t f = 0; f < ASH_COUNT(fields); f++) {
        if (samples[f].size_bytes > 0) {
            ash_exp_family(out, fields[f].name, fields[f].type, fields[f].help);
            ash_str_add(out, samples[f].data, samples[f].size_bytes);
        }
        ash_str_fini(&samples[f]);
    }
    ash_names_fini(&names);
    return rc;
}

const struct ash_collector_ops ash_collect_nvme = {.name = "nvme",
                                                   .deadline_s = 2,
                                                   .needs = "root (CAP_SYS_ADMIN), for the drives' health logs",
                                                   .open = ash_collector_open_plain,
                                                   .collect = collect_nvme,
                                                   .close = ash_collector_close_plain};
