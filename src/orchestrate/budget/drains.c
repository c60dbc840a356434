/* Lines are appended under a lock; the last megabyte counts, tens of thousands of drains. */
#include "orchestrate/budget/drains.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

#define READ_BYTES_MAX ((size_t)1 << 20)
#define NODE_BYTES 256
#define LOCK_PAUSE_NS 20000000

/* ---- counting ---------------------------------------------------------------------------------------------------- */

struct entry {
    char node[NODE_BYTES];
    size_t line;
    double time_s;
    bool is_out;
};

static int compare_entries(const void *left, const void *right)
{
    const struct entry *a = left, *b = right;
    int order = strcmp(a->node, b->node);

    return order != 0 ? order : (a->line > b->line) - (a->line < b->line);
}

static bool read_entry(const char *line, size_t bytes, struct entry *entry)
{
    char text[NODE_BYTES + 64], word[8];

    if (bytes >= sizeof(text)) return false;
    memcpy(text, line, bytes);
    text[bytes] = '\0';
    if (sscanf(text, "%lf %7s %255s", &entry->time_s, word, entry->node) != 3) return false;
    entry->is_out = strcmp(word, "out") == 0;
    return entry->is_out || strcmp(word, "back") == 0;
}

/* Entries are sorted by node and line. */
static struct ash_drains count(const struct entry *entries, size_t entry_count, const char *own, double now_s)
{
    struct ash_drains drains = {0};

    for (size_t i = 0, end; i < entry_count; i = end) {
        bool is_recent = false;

        for (end = i; end < entry_count && strcmp(entries[end].node, entries[i].node) == 0; end++)
            is_recent = is_recent || (entries[end].is_out && entries[end].time_s > now_s - ASH_DRAINS_HOUR_S);
        if (strcmp(entries[i].node, own) == 0) continue;
        drains.out += entries[end - 1].is_out;
        drains.hour += is_recent;
    }
    return drains;
}

int ash_drains_parse(const char *text, size_t size_bytes, const char *own, double now_s, struct ash_drains *drains_out)
{
    const char *end = text + size_bytes;
    size_t lines = 1, used = 0;
    struct entry *entries;

    for (size_t i = 0; i < size_bytes; i++)
        lines += text[i] == '\n';
    entries = calloc(lines, sizeof(*entries));
    if (entries == NULL) return -ENOMEM;
    for (const char *line = text; line < end;) {
        const char *stop = memchr(line, '\n', (size_t)(end - line));
        size_t bytes = stop != NULL ? (size_t)(stop - line) : (size_t)(end - line);

        entries[used].line = used;
        used += read_entry(line, bytes, &entries[used]);
        line += bytes + 1;
    }
    if (used > 0) qsort(entries, used, sizeof(*entries), compare_entries);
    *drains_out = count(entries, used, own, now_s);
    free(entries);
    return 0;
}

/* ---- the file ---------------------------------------------------------------------------------------------------- */

/* Open it and hold its lock, which ends with the descriptor: others wait, also those of other machines. */
static int open_locked(const struct ash_drains_budget *budget, int *fd_out, struct ash_err *err)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    uint64_t deadline_ns = ash_clock_ns() + (uint64_t)(budget->seconds * 1e9);
    const struct timespec pause = {.tv_nsec = LOCK_PAUSE_NS};
    int fd = open(budget->path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0644), rc = 0;

    if (fd < 0) return ash_err_set(err, -errno, "%s cannot be opened: %s", budget->path, strerror(errno));
    while (rc == 0 && fcntl(fd, F_OFD_SETLK, &lock) < 0) {
        if (errno != EAGAIN && errno != EACCES)
            rc = ash_err_set(err, -errno, "%s cannot be locked: %s", budget->path, strerror(errno));
        else if (ash_clock_ns() >= deadline_ns)
            rc = ash_err_set(err, -ETIMEDOUT, "%s is locked by others for more than %g s", budget->path,
                             budget->seconds);
        else
            nanosleep(&pause, NULL);
    }
    if (rc < 0) {
        close(fd);
        return rc;
    }
    *fd_out = fd;
    return 0;
}

static int append(int fd, const struct ash_drains_budget *budget, const char *word, const char *own, double now_s,
                  struct ash_err *err)
{
    char line[NODE_BYTES + 64];
    int bytes = snprintf(line, sizeof(line), "%.3f %s %.255s\n", now_s, word, own);

    if (write(fd, line, (size_t)bytes) != bytes)
        return ash_err_set(err, errno != 0 ? -errno : -EIO, "%s cannot be written", budget->path);
    return 0;
}

static int read_drains(int fd, const struct ash_drains_budget *budget, const char *own, double now_s,
                       struct ash_drains *drains_out, struct ash_err *err)
{
    char *text = malloc(READ_BYTES_MAX);
    struct stat info = {0};
    ssize_t got;
    int rc;

    if (text == NULL || fstat(fd, &info) < 0) {
        free(text);
        return ash_err_set(err, -ENOMEM, "no memory for %s", budget->path);
    }
    got = pread(fd, text, READ_BYTES_MAX,
                info.st_size > (off_t)READ_BYTES_MAX ? info.st_size - (off_t)READ_BYTES_MAX : 0);
    rc = got < 0 ? ash_err_set(err, -errno, "%s cannot be read: %s", budget->path, strerror(errno))
                 : ash_drains_parse(text, (size_t)got, own, now_s, drains_out);
    free(text);
    return rc;
}

int ash_drains_refuse(size_t count, size_t nodes, const char *what, double share_max, const char *own,
                      struct ash_err *err)
{
    return ash_err_set(err, -EBUSY, "%zu of %zu nodes %s, and %.3g of all may be: node %s stays", count, nodes, what,
                       share_max, own);
}

int ash_drains_claim(const struct ash_drains_budget *budget, const char *own, double now_s, struct ash_err *err)
{
    double allowed = budget->share_max * (double)budget->nodes;
    struct ash_drains drains = {0};
    int fd = -1, rc = open_locked(budget, &fd, err);

    if (rc < 0) return rc;
    rc = read_drains(fd, budget, own, now_s, &drains, err);
    if (rc == 0 && !budget->is_counted && (double)(drains.out + 1) > allowed)
        rc = ash_drains_refuse(drains.out, budget->nodes, "are out already", budget->share_max, own, err);
    if (rc == 0 && (double)(drains.hour + 1) > allowed)
        rc = ash_drains_refuse(drains.hour, budget->nodes, "were taken out in the last hour", budget->share_max, own,
                               err);
    if (rc == 0) rc = append(fd, budget, "out", own, now_s, err);
    close(fd);
    return rc;
}

int ash_drains_return(const struct ash_drains_budget *budget, const char *own, double now_s, struct ash_err *err)
{
    int fd = -1, rc = open_locked(budget, &fd, err);

    if (rc < 0) return rc;
    rc = append(fd, budget, "back", own, now_s, err);
    close(fd);
    return rc;
}
