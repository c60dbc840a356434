/* A device gives one record per read; a plain file gives lines, whose number is the offset of their end unless they
 * carry one. */
#include "observe/agent/kmsg.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/math.h"
#include "observe/health/kernel_log.h"

#define READS_MAX 64 /* records that are skipped in a row before returning to the caller */

struct ash_kmsg {
    int fd, watch_fd; /* watch: inotify of a plain file; else -1 */
    bool is_file;
    uint64_t last, lost;
    char buf[ASH_KMSG_LINE_BYTES + 1]; /* of a plain file: read and not returned yet */
    size_t used;
    uint64_t offset; /* of buf in the file */
    bool is_in_long; /* the rest of a line that was too long is skipped */
};

int ash_kmsg_open(const char *path, uint64_t after, struct ash_kmsg **kmsg_out, struct ash_err *err)
{
    struct ash_kmsg *kmsg = calloc(1, sizeof(*kmsg));
    struct stat facts;
    int rc;

    if (kmsg == NULL) return ash_err_set(err, -ENOMEM, "no memory for the kernel log");
    kmsg->watch_fd = -1;
    kmsg->last = after;
    kmsg->fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (kmsg->fd < 0 || fstat(kmsg->fd, &facts) < 0) {
        rc = -errno;
        ash_err_set(err, rc, "the kernel log %s cannot be read: %s%s", path, strerror(-rc),
                    rc == -EPERM || rc == -EACCES ? " (it needs CAP_SYSLOG)" : "");
        goto fail;
    }
    kmsg->is_file = S_ISREG(facts.st_mode);
    if (kmsg->is_file) {
        kmsg->watch_fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
        if (kmsg->watch_fd >= 0) inotify_add_watch(kmsg->watch_fd, path, IN_MODIFY);
    }
    *kmsg_out = kmsg;
    return 0;

fail:
    ash_kmsg_close(kmsg);
    return rc;
}

void ash_kmsg_close(struct ash_kmsg *kmsg)
{
    if (kmsg == NULL) return;
    if (kmsg->fd >= 0) close(kmsg->fd);
    if (kmsg->watch_fd >= 0) close(kmsg->watch_fd);
    free(kmsg);
}

uint64_t ash_kmsg_lost(const struct ash_kmsg *kmsg)
{
    return kmsg->lost;
}

/* The text of a record into line; all but printable ASCII becomes a space. */
static void take_text(const struct ash_kernel_record *record, char *line)
{
    size_t bytes = ash_min(record->text_bytes, (size_t)ASH_KMSG_LINE_BYTES - 1);

    for (size_t i = 0; i < bytes; i++)
        line[i] = (char)(record->text[i] < ' ' || record->text[i] > '~' ? ' ' : record->text[i]);
    line[bytes] = '\0';
}

/* ---- the device -------------------------------------------------------------------------------------------------- */

/* Returns 1, 0 (nothing now), -EAGAIN (one was skipped) or another negative errno. */
static int read_device(struct ash_kmsg *kmsg, char *line, uint64_t *number_out)
{
    ssize_t got = read(kmsg->fd, kmsg->buf, ASH_KMSG_LINE_BYTES);
    struct ash_kernel_record record;

    if (got < 0 && errno == EPIPE) return -EAGAIN; /* records were overwritten; the next read continues */
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
    if (got <= 0) return got < 0 ? -errno : 0;
    if (ash_kernel_record_parse(kmsg->buf, (size_t)got, &record) < 0 || record.sequence + 1 <= kmsg->last)
        return -EAGAIN;
    if (kmsg->last > 0 && record.sequence > kmsg->last) kmsg->lost += record.sequence - kmsg->last;
    kmsg->last = record.sequence + 1; /* so that 0 means none */
    take_text(&record, line);
    *number_out = kmsg->last;
    return 1;
}

/* ---- a plain file ------------------------------------------------------------------------------------------------ */

static void fill(struct ash_kmsg *kmsg)
{
    struct stat facts;
    ssize_t got;

    if (fstat(kmsg->fd, &facts) == 0 && (uint64_t)facts.st_size < kmsg->offset) {
        kmsg->offset = kmsg->last = 0; /* it was cut: everything in it is new */
        kmsg->used = 0;
    }
    got = pread(kmsg->fd, kmsg->buf + kmsg->used, ASH_KMSG_LINE_BYTES - kmsg->used, (off_t)(kmsg->offset + kmsg->used));
    if (got > 0) kmsg->used += (size_t)got;
}

static int read_file(struct ash_kmsg *kmsg, char *line, uint64_t *number_out)
{
    struct ash_kernel_record record;
    char *newline = memchr(kmsg->buf, '\n', kmsg->used);
    size_t bytes;
    bool is_rest;

    if (newline == NULL) {
        fill(kmsg);
        newline = memchr(kmsg->buf, '\n', kmsg->used);
    }
    if (newline == NULL && kmsg->used < ASH_KMSG_LINE_BYTES) return 0;
    bytes = newline != NULL ? (size_t)(newline - kmsg->buf) + 1 : kmsg->used;
    ash_kernel_record_parse(kmsg->buf, bytes, &record);
    take_text(&record, line);
    ash_assert(bytes > 0 && bytes <= kmsg->used);
    memmove(kmsg->buf, kmsg->buf + bytes, kmsg->used - bytes);
    kmsg->used -= bytes;
    kmsg->offset += bytes;
    is_rest = kmsg->is_in_long;
    kmsg->is_in_long = newline == NULL;
    if (is_rest || kmsg->offset <= kmsg->last) return -EAGAIN;
    kmsg->last = *number_out = kmsg->offset;
    return 1;
}

/* ---- both -------------------------------------------------------------------------------------------------------- */

static void wait_for_more(struct ash_kmsg *kmsg, int wait_ms, int wake_fd)
{
    struct pollfd entries[2] = {{.fd = kmsg->is_file ? kmsg->watch_fd : kmsg->fd, .events = POLLIN},
                                {.fd = wake_fd, .events = POLLIN}};
    char changes[1024];

    poll(entries, 2, wait_ms);
    while (kmsg->is_file && kmsg->watch_fd >= 0 && read(kmsg->watch_fd, changes, sizeof(changes)) > 0)
        ;
}

int ash_kmsg_next(struct ash_kmsg *kmsg, int wait_ms, int wake_fd, char *line, uint64_t *number_out)
{
    bool has_waited = false;

    for (int i = 0; i < READS_MAX; i++) {
        int rc = kmsg->is_file ? read_file(kmsg, line, number_out) : read_device(kmsg, line, number_out);

        if (rc == -EAGAIN) continue;
        if (rc != 0 || has_waited) return rc;
        wait_for_more(kmsg, wait_ms, wake_fd);
        has_waited = true;
    }
    return 0;
}
