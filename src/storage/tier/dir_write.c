/* Writing a file of the folder tier: to a hidden name next to its own, flushed and renamed. Large ones go past the page
 * cache in aligned buffers, which are written while the caller fills the next. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/file.h"
#include "base/math.h"
#include "storage/io/io_priv.h"
#include "storage/io/io_queue.h"
#include "storage/tier/dir_priv.h"
#include "storage/tier/lustre_priv.h"

#define BUFFERS 4
#define BUFFER_BYTES ((size_t)1 << 20)

struct dir_write {
    const struct ash_tier_dir *dir;
    int fd, direct_fd; /* direct_fd -1: the file system has none */
    char path[PATH_MAX], temporary[PATH_MAX];
    struct ash_io_queue *queue; /* opened with the first full buffer */
    struct ash_io_request requests[BUFFERS];
    uint8_t *buffers; /* [BUFFERS][BUFFER_BYTES] */
    bool is_busy[BUFFERS];
    size_t current, filled; /* the buffer that is filled, and how far */
    uint64_t offset;        /* of its first byte in the file */
};

static struct dir_write *write_of(struct ash_tier_write *write)
{
    return (struct dir_write *)(void *)write;
}

static int open_temporary(struct dir_write *write, uint64_t total_bytes, struct ash_err *err)
{
    static _Atomic unsigned serial;
    char parent[PATH_MAX];
    int rc = ash_io_parent(parent, sizeof(parent), write->path);

    if (rc == 0) rc = ash_dir_make(parent, err);
    if (rc < 0) return rc;
    if ((size_t)snprintf(write->temporary, sizeof(write->temporary), "%s/.%s-%d-%u", parent, ASH_TIER_DIR_TEMPORARY,
                         (int)getpid(), serial++) >= sizeof(write->temporary))
        return ash_err_set(err, -ENAMETOOLONG, "the path is too long: %.200s", write->path);
    if (write->dir->is_lustre && total_bytes > BUFFER_BYTES) ash_lustre_make_striped(write->temporary, total_bytes);
    write->fd = open(write->temporary, O_WRONLY | O_CREAT | O_CLOEXEC | (write->dir->is_lustre ? 0 : O_EXCL), 0666);
    if (write->fd < 0) return ash_io_fail(err, -errno, write->path, "write");
    if (!write->dir->is_shared) write->direct_fd = open(write->temporary, O_WRONLY | O_DIRECT | O_CLOEXEC);
    return 0;
}

int ash_tier_dir_write_open(struct ash_tier *tier, const char *key, uint64_t total_bytes, bool wants_resume,
                            struct ash_tier_write **write_out, struct ash_err *err)
{
    struct dir_write *write = calloc(1, sizeof(*write));
    int rc;

    (void)wants_resume;
    if (write == NULL) return ash_err_set(err, -ENOMEM, "out of memory");
    write->dir = (const struct ash_tier_dir *)(const void *)tier;
    write->fd = write->direct_fd = -1;
    rc = ash_tier_dir_path(write->dir, key, write->path, err);
    if (rc == 0 && posix_memalign((void **)&write->buffers, ASH_IO_BLOCK_BYTES, BUFFERS * BUFFER_BYTES) != 0)
        rc = ash_err_set(err, -ENOMEM, "out of memory");
    if (rc == 0) rc = open_temporary(write, total_bytes, err);
    if (rc < 0) {
        free(write->buffers);
        free(write);
        return rc;
    }
    *write_out = (struct ash_tier_write *)(void *)write;
    return 0;
}

/* Wait for one buffer to be written. */
static int await_one(struct dir_write *write)
{
    const struct ash_io_request *request = ash_io_queue_wait(write->queue);

    ash_assert(request != NULL);
    write->is_busy[(size_t)(request - write->requests)] = false;
    return request->rc;
}

/* The current buffer is full: begin to write it, and find another. */
static int turn_buffer(struct dir_write *write, struct ash_err *err)
{
    struct ash_io_request *request = &write->requests[write->current];
    int rc = 0;

    if (write->queue == NULL) rc = ash_io_queue_open(BUFFERS, true, &write->queue, err);
    if (rc < 0) return rc;
    *request = (struct ash_io_request){.kind = ASH_IO_WRITE,
                                       .fd = write->direct_fd >= 0 ? write->direct_fd : write->fd,
                                       .plain_fd = write->direct_fd >= 0 ? write->fd : -1,
                                       .data = write->buffers + write->current * BUFFER_BYTES,
                                       .size_bytes = BUFFER_BYTES,
                                       .offset = write->offset};
    write->is_busy[write->current] = true;
    ash_io_queue_submit(write->queue, request);
    write->offset += BUFFER_BYTES;
    write->filled = 0;
    write->current = (write->current + 1) % BUFFERS;
    while (rc == 0 && write->is_busy[write->current])
        rc = await_one(write);
    return rc < 0 ? ash_io_fail(err, rc, write->path, "write") : 0;
}

int ash_tier_dir_write_add(struct ash_tier_write *tier_write, const void *data, size_t size_bytes, struct ash_err *err)
{
    struct dir_write *write = write_of(tier_write);
    const uint8_t *from = data;
    int rc = 0;

    ash_assert(write->filled < BUFFER_BYTES);
    while (rc == 0 && size_bytes > 0) {
        size_t bytes = ash_min(size_bytes, BUFFER_BYTES - write->filled);

        memcpy(write->buffers + write->current * BUFFER_BYTES + write->filled, from, bytes);
        write->filled += bytes;
        from += bytes;
        size_bytes -= bytes;
        if (write->filled == BUFFER_BYTES) rc = turn_buffer(write, err);
    }
    return rc;
}

/* The rest, which is no whole block, and a flush. */
static int write_rest(struct dir_write *write)
{
    const uint8_t *rest = write->buffers + write->current * BUFFER_BYTES;
    int rc = 0, flushed;

    while (write->queue != NULL && ash_io_queue_count(write->queue) > 0) {
        int one = await_one(write);

        rc = rc < 0 ? rc : one;
    }
    if (rc == 0 && lseek(write->fd, (off_t)write->offset, SEEK_SET) < 0) rc = -errno;
    if (rc == 0) rc = ash_io_write(write->fd, rest, write->filled);
    flushed = ash_io_flush_close(write->fd);
    write->fd = -1;
    return rc < 0 ? rc : flushed;
}

int ash_tier_dir_write_finish(struct ash_tier_write *tier_write, struct ash_err *err)
{
    struct dir_write *write = write_of(tier_write);
    char parent[PATH_MAX];
    int rc = write_rest(write);

    if (rc == 0 && rename(write->temporary, write->path) < 0) rc = -errno;
    if (rc < 0) return ash_io_fail(err, rc, write->path, "write");
    write->temporary[0] = '\0';
    rc = ash_io_parent(parent, sizeof(parent), write->path);
    if (rc < 0) return rc;
    /* some shared file systems cannot flush a folder: there the server makes renames durable */
    return write->dir->is_shared ? (void)ash_dir_sync(parent, NULL), 0 : ash_dir_sync(parent, err);
}

uint64_t ash_tier_dir_write_resumed_bytes(const struct ash_tier_write *write)
{
    (void)write;
    return 0;
}

void ash_tier_dir_write_close(struct ash_tier_write *tier_write, bool keeps_parts)
{
    struct dir_write *write = write_of(tier_write);

    (void)keeps_parts;
    ash_io_queue_close(write->queue);
    if (write->fd >= 0) close(write->fd);
    if (write->direct_fd >= 0) close(write->direct_fd);
    if (write->temporary[0] != '\0') unlink(write->temporary);
    free(write->buffers);
    free(write);
}
