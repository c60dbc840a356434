/* File systems, each read by a thread that may hang: a mount that does not answer costs that thread and itself, and the
 * next one is read by a new thread. When it answers at last, it counts again. */
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/thread.h"
#include "observe/collect/collector.h"
#include "observe/collect/exposition.h"
#include "observe/collect/mounts.h"

#define MOUNTS_MAX 1024
#define STUCK_MAX 64         /* threads that hang: beyond that no mount is read any more */
#define ANSWER_NS 300000000u /* a mount that takes longer is stuck */

/* A mount being read. The state and the reading thread both hold it. */
struct probe {
    _Atomic int refs;
    char path[PATH_MAX], labels[ASH_EXP_LABELS_BYTES];
    bool is_read_only;
    _Atomic bool is_done;
    int rc; /* these once it is done */
    struct statvfs room;
    double seconds;
};

struct mounts {
    const struct ash_host_files *source;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct probe *asked; /* the present thread's mount */
    bool is_busy;
    size_t stuck; /* threads that hang */
    struct probe *stuck_probes[STUCK_MAX];
};

/* ---- the table of mounts ----------------------------------------------------------------------------------------- */

static bool is_one_of(const char *word, const char *const *list)
{
    for (; *list != NULL; list++)
        if (strcmp(word, *list) == 0) return true;
    return false;
}

static bool is_below(const char *path, const char *folder)
{
    size_t bytes = strlen(folder);

    return strncmp(path, folder, bytes) == 0 && (path[bytes] == '\0' || path[bytes] == '/');
}

/* What node_exporter shows by default. */
static bool is_shown(const char *path, const char *type)
{
    static const char *const types[] = {
        "autofs",     "binfmt_misc", "bpf",       "cgroup",   "cgroup2", "configfs", "debugfs", "devpts", "devtmpfs",
        "fusectl",    "hugetlbfs",   "iso9660",   "mqueue",   "nsfs",    "overlay",  "proc",    "procfs", "pstore",
        "rpc_pipefs", "securityfs",  "selinuxfs", "squashfs", "sysfs",   "tracefs",  NULL};
    static const char *const folders[] = {"/dev", "/proc", "/sys", NULL};

    if (is_one_of(type, types)) return false;
    for (size_t i = 0; folders[i] != NULL; i++)
        if (is_below(path, folders[i])) return false;
    return strncmp(path, "/run/credentials/", 17) != 0 && strncmp(path, "/var/lib/docker/", 16) != 0 &&
           strncmp(path, "/var/lib/containers/storage/", 28) != 0;
}

/* \040 and the like, in place. */
static void unescape(char *text)
{
    char *to = text;

    for (const char *from = text; *from != '\0'; to++) {
        if (from[0] == '\\' && from[1] >= '0' && from[1] <= '3' && from[2] >= '0' && from[2] <= '7' && from[3] >= '0' &&
            from[3] <= '7') {
            *to = (char)((from[1] - '0') * 64 + (from[2] - '0') * 8 + (from[3] - '0'));
            from += 4;
        } else {
            *to = *from++;
        }
    }
    *to = '\0';
}

static bool has_option(const char *options, const char *wanted)
{
    size_t bytes = strlen(wanted);

    for (const char *at = options; (at = strstr(at, wanted)) != NULL; at += bytes)
        if ((at == options || at[-1] == ',') && (at[bytes] == ',' || at[bytes] == '\0')) return true;
    return false;
}

int ash_mounts_next(char **cursor, struct ash_mount *mount_out)
{
    char *line;

    while ((line = ash_text_line(cursor)) != NULL) {
        struct ash_mount mount = {
            .device = ash_text_word(&line), .path = ash_text_word(&line), .type = ash_text_word(&line)};
        char *options = ash_text_word(&line);

        if (options == NULL) continue;
        unescape(mount.device);
        unescape(mount.path);
        if (mount.path[0] != '/' || !is_shown(mount.path, mount.type)) continue;
        mount.is_read_only = has_option(options, "ro") || has_option(options, "emergency_ro"); /* after an error */
        *mount_out = mount;
        return 1;
    }
    return 0;
}

/* ---- asking ------------------------------------------------------------------------------------------------------ */

static void put_probe(struct probe *probe)
{
    if (probe != NULL && atomic_fetch_sub(&probe->refs, 1) == 1) free(probe);
}

struct ask {
    struct mounts *mounts;
    struct probe *probe;
};

static void *ask_main(void *arg)
{
    struct ask *ask = arg;
    struct probe *probe = ask->probe;
    uint64_t start_ns = ash_clock_ns();

    probe->rc = statvfs(probe->path, &probe->room) < 0 ? -errno : 0;
    probe->seconds = (double)(ash_clock_ns() - start_ns) * 1e-9;
    pthread_mutex_lock(&ask->mounts->lock);
    atomic_store(&probe->is_done, true);
    pthread_cond_broadcast(&ask->mounts->changed);
    pthread_mutex_unlock(&ask->mounts->lock);
    put_probe(probe);
    free(ask);
    return NULL;
}

/* Is a thread still waiting for this mount? Forget those that have answered. */
static bool is_stuck(struct mounts *mounts, const char *path)
{
    bool is_it = false;

    ash_assert(mounts->stuck <= STUCK_MAX);
    for (size_t i = 0; i < mounts->stuck;) {
        struct probe *probe = mounts->stuck_probes[i];

        if (atomic_load(&probe->is_done)) {
            mounts->stuck_probes[i] = mounts->stuck_probes[--mounts->stuck];
            put_probe(probe);
            continue;
        }
        is_it = is_it || strcmp(probe->path, path) == 0;
        i++;
    }
    return is_it;
}

/* Read one mount and wait a moment. A probe that is not done afterwards is stuck. */
static int ask_mount(struct mounts *mounts, struct probe *probe)
{
    struct timespec deadline = ash_cond_deadline(ANSWER_NS);
    struct ask *ask = malloc(sizeof(*ask));
    pthread_t thread;
    int rc = 0;

    if (ask == NULL) return -ENOMEM;
    *ask = (struct ask){mounts, probe};
    atomic_fetch_add(&probe->refs, 1);
    if (ash_thread_start(&thread, ask_main, ask) < 0) {
        put_probe(probe);
        free(ask);
        return -EAGAIN;
    }
    pthread_detach(thread);
    pthread_mutex_lock(&mounts->lock);
    while (!atomic_load(&probe->is_done) && rc == 0)
        rc = pthread_cond_timedwait(&mounts->changed, &mounts->lock, &deadline);
    if (!atomic_load(&probe->is_done)) {
        atomic_fetch_add(&probe->refs, 1);
        ash_assert(mounts->stuck < STUCK_MAX); /* with so many, none is read */
        mounts->stuck_probes[mounts->stuck++] = probe;
    }
    pthread_mutex_unlock(&mounts->lock);
    return 0;
}

static struct probe *make_probe(const struct mounts *mounts, const struct ash_mount *mount)
{
    struct probe *probe = calloc(1, sizeof(*probe));

    if (probe == NULL) return NULL;
    probe->refs = 1;
    probe->is_read_only = mount->is_read_only;
    if (ash_host_path(mounts->source, mount->path, probe->path, sizeof(probe->path)) == NULL) {
        free(probe);
        return NULL;
    }
    ash_exp_labels(probe->labels, sizeof(probe->labels), "device", mount->device, "fstype", mount->type, "mountpoint",
                   mount->path, (char *)NULL);
    return probe;
}

/* ---- output ------------------------------------------------------------------------------------------------------ */

enum { SIZE, FREE, AVAIL, FILES, FILES_FREE, READ_ONLY, DEVICE_ERROR, SECONDS, FAMILIES };

static const struct {
    const char *name, *help;
} families[FAMILIES] = {
    {"node_filesystem_size_bytes", "Filesystem size in bytes."},
    {"node_filesystem_free_bytes", "Filesystem free space in bytes."},
    {"node_filesystem_avail_bytes", "Filesystem space available to non-root users in bytes."},
    {"node_filesystem_files", "Filesystem total file nodes."},
    {"node_filesystem_files_free", "Filesystem total free file nodes."},
    {"node_filesystem_readonly", "Filesystem read-only status."},
    {"node_filesystem_device_error", "Whether an error occurred while getting statistics for the given device."},
    {"ashlar_mount_probe_seconds", "How long the file system took to answer; absent while it does not."},
};

static void add_mount(const struct probe *probe, struct ash_str *samples)
{
    bool is_good = probe != NULL && atomic_load(&probe->is_done) && probe->rc == 0;
    double unit = is_good ? (double)probe->room.f_frsize : 0;
    const char *labels = probe->labels;

    ash_exp_value(&samples[DEVICE_ERROR], families[DEVICE_ERROR].name, labels, !is_good);
    ash_exp_value(&samples[READ_ONLY], families[READ_ONLY].name, labels, probe->is_read_only);
    if (!is_good) return;
    ash_exp_value(&samples[SIZE], families[SIZE].name, labels, (double)probe->room.f_blocks * unit);
    ash_exp_value(&samples[FREE], families[FREE].name, labels, (double)probe->room.f_bfree * unit);
    ash_exp_value(&samples[AVAIL], families[AVAIL].name, labels, (double)probe->room.f_bavail * unit);
    ash_exp_value(&samples[FILES], families[FILES].name, labels, (double)probe->room.f_files);
    ash_exp_value(&samples[FILES_FREE], families[FILES_FREE].name, labels, (double)probe->room.f_ffree);
    ash_exp_value(&samples[SECONDS], families[SECONDS].name, labels, probe->seconds);
}

static int open_mounts(const struct ash_host_files *source, void **state_out, struct ash_err *err)
{
    struct mounts *mounts = calloc(1, sizeof(*mounts));

    if (mounts == NULL) return ash_err_set(err, -ENOMEM, "no memory for the mounts");
    mounts->source = source;
    pthread_mutex_init(&mounts->lock, NULL);
    ash_cond_init(&mounts->changed);
    *state_out = mounts;
    return 0;
}

/* Threads that hang hold the state: then it stays. */
static void close_mounts(void *state)
{
    struct mounts *mounts = state;

    if (mounts == NULL) return;
    is_stuck(mounts, "");
    if (mounts->stuck > 0) return;
    pthread_mutex_lock(&mounts->lock); /* the last thread may be on its way out */
    pthread_mutex_unlock(&mounts->lock);
    pthread_cond_destroy(&mounts->changed);
    pthread_mutex_destroy(&mounts->lock);
    free(mounts);
}

static void collect_mount(struct mounts *mounts, const struct ash_mount *mount, struct ash_str *samples)
{
    struct probe *probe = make_probe(mounts, mount);

    if (probe == NULL) return;
    if (!is_stuck(mounts, probe->path) && mounts->stuck < STUCK_MAX) ask_mount(mounts, probe);
    add_mount(probe, samples);
    put_probe(probe);
}

static int collect_mounts(void *state, struct ash_str *out, struct ash_err *err)
{
    struct mounts *mounts = state;
    struct ash_str text = {0}, samples[FAMILIES] = {{0}};
    struct ash_names seen = {0};
    struct ash_mount mount;
    char *cursor;
    int rc = ash_host_read(mounts->source, "/proc/1/mounts", &text);

    if (rc < 0) rc = ash_host_read(mounts->source, "/proc/mounts", &text);
    if (rc < 0) return ash_err_set(err, rc, "/proc/mounts cannot be read: %s", strerror(-rc));
    cursor = text.data;
    while (seen.count < MOUNTS_MAX && ash_mounts_next(&cursor, &mount) == 1) {
        bool is_again = false;
        char key[PATH_MAX * 2];

        snprintf(key, sizeof(key), "%s %s", mount.device, mount.path);
        for (size_t i = 0; i < seen.count; i++)
            is_again = is_again || strcmp(seen.items[i], key) == 0;
        if (!is_again && ash_names_add(&seen, key) == 0) collect_mount(mounts, &mount, samples);
    }
    for (size_t i = 0; i < FAMILIES; i++) {
        if (samples[i].size_bytes > 0) {
            ash_exp_family(out, families[i].name, "gauge", families[i].help);
            ash_str_add(out, samples[i].data, samples[i].size_bytes);
        }
        ash_str_fini(&samples[i]);
    }
    ash_names_fini(&seen);
    ash_str_fini(&text);
    return 0;
}

const struct ash_collector_ops ash_collect_mounts = {
    .name = "mounts", .deadline_s = 2, .open = open_mounts, .collect = collect_mounts, .close = close_mounts};
