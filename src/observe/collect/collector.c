/* What collectors share, and the plain ones: files that are read and parsed. */
#include "observe/collect/collector.h"

#include <errno.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/array.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/math.h"
#include "observe/collect/exposition.h"
#include "observe/collect/parse.h"

#define NAMES_MAX 10000
#define KEPT_MAX 8192
#define OPEN_MAX_FOLDERS 128 /* well below the usual limit of 1,024 files */

int ash_collector_open_plain(const struct ash_host_files *source, void **state_out, struct ash_err *err)
{
    (void)err;
    *state_out = (void *)(uintptr_t)source;
    return 0;
}

void ash_collector_close_plain(void *state)
{
    (void)state;
}

/* ---- names ------------------------------------------------------------------------------------------------------- */

int ash_names_add(struct ash_names *names, const char *name)
{
    if (names->count >= NAMES_MAX) return -E2BIG;
    if (ash_array_reserve(&names->items, &names->capacity, names->count + 1, sizeof(*names->items)) < 0) return -ENOMEM;
    names->items[names->count] = strdup(name);
    if (names->items[names->count] == NULL) return -ENOMEM;
    names->count++;
    return 0;
}

static int compare(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

void ash_names_sort(struct ash_names *names)
{
    if (names->count > 1) qsort(names->items, names->count, sizeof(*names->items), compare);
}

void ash_names_fini(struct ash_names *names)
{
    for (size_t i = 0; i < names->count; i++)
        free(names->items[i]);
    free(names->items);
    *names = (struct ash_names){0};
}

static void keep_name(void *ctx, const char *name)
{
    ash_names_add(ctx, name);
}

void ash_names_list(const struct ash_host_files *source, const char *path, struct ash_names *names)
{
    ash_host_list(source, path, keep_name, names);
    ash_names_sort(names);
}

size_t ash_names_count(const struct ash_host_files *source, const char *path)
{
    struct ash_names names = {0};
    size_t count;

    ash_names_list(source, path, &names);
    count = names.count;
    ash_names_fini(&names);
    return count;
}

int ash_devices_add(struct ash_devices *devices, const char *folder, const char *labels)
{
    int rc = ash_names_add(&devices->folders, folder);

    if (rc < 0) return rc;
    ash_assert(devices->folders.count == devices->labels.count + 1); /* a label a folder */
    rc = ash_names_add(&devices->labels, labels);
    if (rc < 0) free(devices->folders.items[--devices->folders.count]);
    return rc;
}

/* ---- files that are held open ------------------------------------------------------------------------------------ */

static _Atomic long kept_files; /* of the process */

static long kept_files_max(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) < 0) return 0;
    return (long)ash_min(limit.rlim_cur / 2, KEPT_MAX); /* the other half is for all else */
}

static void forget_file(int *fd)
{
    if (*fd < 0) return;
    close(*fd);
    *fd = -1;
    atomic_fetch_sub_explicit(&kept_files, 1, memory_order_relaxed);
}

/* Open and read a file, and keep it open if there is a slot. */
static int open_kept(const struct ash_host_files *source, const char *path, int *fd, double *value_out)
{
    int rc, opened;

    forget_file(fd);
    if (atomic_load_explicit(&kept_files, memory_order_relaxed) >= kept_files_max())
        return ash_host_number(source, path, value_out);
    opened = ash_host_open(source, path);
    if (opened < 0) return opened;
    rc = ash_host_number_at(opened, value_out);
    if (rc < 0) {
        close(opened);
        return rc;
    }
    *fd = opened;
    atomic_fetch_add_explicit(&kept_files, 1, memory_order_relaxed);
    return 0;
}

/* Changes when a file of a folder is removed, made or replaced. */
static uint64_t mark_of(const struct ash_host_files *source, const char *folder, int folder_bytes)
{
    char path[PATH_MAX];
    struct stat info;

    snprintf(path, sizeof(path), "%s%.*s", source->root, folder_bytes, folder);
    if (stat(path, &info) < 0) return 0;
    return ash_hash_mix(info.st_ino ^
                        ash_hash_mix((uint64_t)info.st_mtim.tv_sec ^ (uint64_t)info.st_mtim.tv_nsec << 34));
}

/* A file that is held open outlives its name: let go of all files of a device whose folders have changed, its own and
 * the first file's. */
static void check_folders(const struct ash_host_files *source, struct ash_devices *devices, const char *first_file)
{
    char path[PATH_MAX];

    ash_assert(devices->kept_count == 0 || devices->marks != NULL);
    for (size_t d = 0; devices->kept_count > 0 && d < devices->folders.count; d++) {
        const char *slash;
        uint64_t mark;

        snprintf(path, sizeof(path), "%s/%s", devices->folders.items[d], first_file);
        slash = strrchr(path, '/');
        mark = mark_of(source, path, (int)(slash - path)) ^
               ash_hash_mix(mark_of(source, path, (int)strlen(devices->folders.items[d])));
        if (mark == devices->marks[d]) continue;
        devices->marks[d] = mark;
        for (size_t slot = d; slot < devices->kept_count; slot += devices->folders.count)
            forget_file(&devices->kept[slot]);
    }
}

/* Room for the descriptors of file_count files of each device. */
static void make_room(struct ash_devices *devices, size_t file_count)
{
    size_t count = file_count * devices->folders.count;

    if (!devices->keeps || devices->kept != NULL || count == 0) return;
    devices->kept = malloc(count * sizeof(*devices->kept));
    devices->marks = calloc(devices->folders.count, sizeof(*devices->marks));
    if (devices->marks == NULL) return;
    for (; devices->kept != NULL && devices->kept_count < count; devices->kept_count++)
        devices->kept[devices->kept_count] = -1;
}

void ash_devices_fini(struct ash_devices *devices)
{
    for (size_t i = 0; i < devices->open_count; i++)
        if (devices->open[i] >= 0) close(devices->open[i]);
    for (size_t i = 0; i < devices->kept_count; i++)
        forget_file(&devices->kept[i]);
    free(devices->open);
    free(devices->kept);
    free(devices->marks);
    devices->marks = NULL;
    devices->open = devices->kept = NULL;
    devices->open_count = devices->kept_count = 0;
    ash_names_fini(&devices->folders);
    ash_names_fini(&devices->labels);
}

/* Once, for the first of them: beyond that many, files are found by their paths. */
static void open_folders(const struct ash_host_files *source, struct ash_devices *devices)
{
    size_t count = ash_min(devices->folders.count, OPEN_MAX_FOLDERS);

    if (devices->open != NULL || count == 0 || devices->keeps) return;
    devices->open = calloc(count, sizeof(*devices->open));
    for (; devices->open != NULL && devices->open_count < count; devices->open_count++)
        devices->open[devices->open_count] = ash_host_folder(source, devices->folders.items[devices->open_count]);
}

/* File number `place` of the collection, of a device. */
static int read_number(const struct ash_host_files *source, const struct ash_devices *devices, size_t device,
                       const char *file, size_t place, double *value_out)
{
    size_t slot = place * devices->folders.count + device;
    char path[PATH_MAX];

    ash_assert(device < devices->folders.count);
    if (slot < devices->kept_count && devices->kept[slot] >= 0 &&
        ash_host_number_at(devices->kept[slot], value_out) == 0)
        return 0; /* the usual case: no path is needed */
    if (device < devices->open_count && devices->open[device] >= 0)
        return ash_host_number_in(devices->open[device], file, value_out);
    snprintf(path, sizeof(path), "%s/%s", devices->folders.items[device], file);
    if (slot < devices->kept_count) return open_kept(source, path, &devices->kept[slot], value_out);
    return ash_host_number(source, path, value_out);
}

void ash_collect_files(const struct ash_host_files *source, const struct ash_sys_file *files, size_t file_count,
                       struct ash_devices *devices, struct ash_str *out)
{
    double value;

    make_room(devices, file_count);
    if (file_count > 0) check_folders(source, devices, files[0].file);
    open_folders(source, devices);
    for (size_t f = 0; f < file_count; f++) {
        bool has_head = false;

        for (size_t d = 0; d < devices->folders.count; d++) {
            if (read_number(source, devices, d, files[f].file, f, &value) < 0) continue;
            if (!has_head) ash_exp_family(out, files[f].name, files[f].type, files[f].help);
            has_head = true;
            ash_exp_value(out, files[f].name, devices->labels.items[d], value * files[f].scale);
        }
    }
}

/* ---- files of /proc ---------------------------------------------------------------------------------------------- */

/* Returns the error of the first file where none could be read. */
static int parse_all(const struct ash_host_files *source, const struct ash_parser *parsers, size_t count,
                     struct ash_str *out, struct ash_err *err)
{
    struct ash_str text = {0};
    size_t done = 0;
    int first = 0;

    for (size_t i = 0; i < count; i++) {
        int rc = ash_host_read(source, parsers[i].path, &text);

        if (rc == 0 && text.data != NULL) {
            parsers[i].parse(text.data, out);
            done++;
        } else if (first == 0) {
            first = rc;
        }
    }
    ash_str_fini(&text);
    return done > 0 || count == 0 ? 0
                                  : ash_err_set(err, first, "%s cannot be read: %s", parsers[0].path, strerror(-first));
}

static void add_uname(struct ash_str *out)
{
    char labels[ASH_EXP_LABELS_BYTES];
    struct utsname names;

    if (uname(&names) < 0) return;
    ash_exp_family(out, "node_uname_info", "gauge", "Labeled system information as provided by the uname system call.");
    ash_exp_value(out, "node_uname_info",
                  ash_exp_labels(labels, sizeof(labels), "sysname", names.sysname, "release", names.release, "version",
                                 names.version, "machine", names.machine, "nodename", names.nodename, "domainname",
                                 names.domainname, (char *)NULL),
                  1);
}

static int collect_host(void *state, struct ash_str *out, struct ash_err *err)
{
    const struct ash_host_files *source = state;
    int rc = parse_all(source, ash_parsers_host, ash_parsers_host_count, out, err);

    if (rc < 0) return rc;
    ash_exp_single(out, "node_time_seconds", "gauge", "System time in seconds since epoch (1970).", ash_clock_wall_s());
    if (source->root[0] == '\0') add_uname(out);
    return 0;
}

/* ---- network interfaces ------------------------------------------------------------------------------------------ */

static const struct ash_sys_file net_files[] = {
    {"carrier", "node_network_carrier", "gauge", "carrier value of /sys/class/net/<iface>.", 1},
    {"carrier_changes", "node_network_carrier_changes_total", "counter",
     "carrier_changes_total value of /sys/class/net/<iface>.", 1},
    {"carrier_down_count", "node_network_carrier_down_changes_total", "counter",
     "carrier_down_changes_total value of /sys/class/net/<iface>.", 1},
    {"carrier_up_count", "node_network_carrier_up_changes_total", "counter",
     "carrier_up_changes_total value of /sys/class/net/<iface>.", 1},
    {"mtu", "node_network_mtu_bytes", "gauge", "mtu_bytes value of /sys/class/net/<iface>.", 1},
    {"speed", "node_network_speed_bytes", "gauge", "speed_bytes value of /sys/class/net/<iface>.", 125000},
    {"tx_queue_len", "node_network_transmit_queue_length", "gauge",
     "transmit_queue_length value of /sys/class/net/<iface>.", 1},
};

static void add_interfaces(const struct ash_host_files *source, struct ash_str *out)
{
    struct ash_devices devices = {0};
    struct ash_names names = {0};
    char path[PATH_MAX], label[ASH_EXP_LABELS_BYTES], state[32];

    ash_names_list(source, "/sys/class/net", &names);
    for (size_t i = 0; i < names.count; i++) {
        snprintf(path, sizeof(path), "/sys/class/net/%s", names.items[i]);
        ash_devices_add(&devices, path, ash_exp_labels(label, sizeof(label), "device", names.items[i], (char *)NULL));
    }
    if (devices.folders.count > 0)
        ash_exp_family(out, "node_network_up", "gauge", "Value is 1 if operstate is 'up', 0 otherwise.");
    for (size_t i = 0; i < devices.folders.count; i++) {
        snprintf(path, sizeof(path), "%s/operstate", devices.folders.items[i]);
        if (ash_host_line(source, path, state, sizeof(state)) == 0)
            ash_exp_value(out, "node_network_up", devices.labels.items[i], strcmp(state, "up") == 0);
    }
    ash_collect_files(source, net_files, ASH_COUNT(net_files), &devices, out);
    ash_names_fini(&names);
    ash_devices_fini(&devices);
}

static int collect_net(void *state, struct ash_str *out, struct ash_err *err)
{
    int rc = parse_all(state, ash_parsers_net, ash_parsers_net_count, out, err);

    if (rc == 0) add_interfaces(state, out);
    return rc;
}

/* What ext4 file systems count in themselves, for ever. */
static void add_ext4(const struct ash_host_files *source, struct ash_str *out)
{
    static const struct ash_sys_file files[] = {
        {"errors_count", "ashlar_ext4_errors_total", "counter", "Errors that an ext4 file system has found.", 1}};
    struct ash_devices devices = {0};
    struct ash_names names = {0};
    char path[PATH_MAX], label[ASH_EXP_LABELS_BYTES];

    ash_names_list(source, "/sys/fs/ext4", &names);
    for (size_t i = 0; i < names.count; i++) {
        snprintf(path, sizeof(path), "/sys/fs/ext4/%s", names.items[i]);
        ash_devices_add(&devices, path, ash_exp_labels(label, sizeof(label), "device", names.items[i], (char *)NULL));
    }
    ash_collect_files(source, files, ASH_COUNT(files), &devices, out);
    ash_names_fini(&names);
    ash_devices_fini(&devices);
}

static int collect_disk(void *state, struct ash_str *out, struct ash_err *err)
{
    int rc = parse_all(state, ash_parsers_disk, ash_parsers_disk_count, out, err);

    if (rc == 0) add_ext4(state, out);
    return rc;
}

const struct ash_collector_ops ash_collect_host = {.name = "host",
                                                   .deadline_s = 1,
                                                   .open = ash_collector_open_plain,
                                                   .collect = collect_host,
                                                   .close = ash_collector_close_plain};
const struct ash_collector_ops ash_collect_net = {.name = "net",
                                                  .deadline_s = 1,
                                                  .open = ash_collector_open_plain,
                                                  .collect = collect_net,
                                                  .close = ash_collector_close_plain};
const struct ash_collector_ops ash_collect_disk = {.name = "disk",
                                                   .deadline_s = 1,
                                                   .open = ash_collector_open_plain,
                                                   .collect = collect_disk,
                                                   .close = ash_collector_close_plain};

const struct ash_collector_ops *const ash_collectors[] = {
    &ash_collect_host,   &ash_collect_chips, &ash_collect_net,   &ash_collect_disk,
    &ash_collect_mounts, &ash_collect_rdma,  &ash_collect_jobs,  &ash_collect_lustre,
    &ash_collect_nvme,   &ash_collect_gpu,   &ash_collect_pages, &ash_collect_queue,
};
const size_t ash_collector_count = ASH_COUNT(ash_collectors);
