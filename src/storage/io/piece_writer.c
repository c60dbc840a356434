/* piece_writer: a buffer is one piece of a file. What of it was filled is a list of extents. An extent's whole
 * blocks go past the page cache through the queue; its ragged ends, and pieces of many small extents (columns of a
 * matrix), go through the page cache, which joins them with what other processes write next to them. */
#include "storage/io/piece_writer.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/file.h"
#include "base/math.h"
#include "storage/io/io_priv.h"
#include "storage/io/io_queue.h"

#define BUFFERS_MIN 4 /* more than files */
#define DEPTH 32
#define EXTENTS_DIRECT 4 /* of a piece; more of them go through the page cache */
#define HUGE_BYTES ((size_t)2 << 20)

struct extent {
    size_t first, count; /* bytes of the piece */
};

struct buffer {
    char *data; /* [ASH_PIECE_BYTES], aligned */
    struct ash_piece_set *set;
    size_t file;
    uint64_t piece;
    struct extent *extents;
    size_t extent_count, extent_capacity;
    struct ash_io_request requests[EXTENTS_DIRECT];
    size_t pending; /* requests under way */
    struct buffer *next;
};

struct file {
    int fd, direct_fd; /* direct_fd: -1 if the file system lacks O_DIRECT */
    struct ash_pieces pieces;
    struct buffer *current; /* being filled; NULL: none */
    bool needs_flush;       /* this process wrote to it, or set its size */
    char path[PATH_MAX];
};

struct ash_piece_writer {
    struct ash_io_queue *queue;
    size_t buffer_max, buffer_count, buffer_peak;
    struct buffer *idle;
    struct ash_piece_set *filling; /* the one set whose buffers are being filled; NULL: none */
    size_t set_count;
};

struct ash_piece_set {
    struct ash_piece_writer *writer;
    struct file files[ASH_PIECE_WRITER_FILES_MAX];
    size_t file_count;
    size_t pending;                           /* requests under way */
    size_t room_file, room_first, room_bytes; /* what room gave last */
    int rc;                                   /* of a write, the first that failed */
    char failed[PATH_MAX];                    /* its file */
};

/* ---- buffers ----------------------------------------------------------------------------------------------------- */

static void buffer_free(struct buffer *buffer)
{
    if (buffer == NULL) return;
    free(buffer->data);
    free(buffer->extents);
    free(buffer);
}

static struct buffer *buffer_new(void)
{
    struct buffer *buffer = calloc(1, sizeof(*buffer));

    if (buffer == NULL) return NULL;
    buffer->data = aligned_alloc(HUGE_BYTES, ASH_PIECE_BYTES);
    if (buffer->data == NULL) {
        free(buffer);
        return NULL;
    }
    madvise(buffer->data, ASH_PIECE_BYTES, MADV_HUGEPAGE);
    return buffer;
}

static void note_failure(struct ash_piece_set *set, size_t file, int rc)
{
    ash_assert(file < set->file_count);
    if (set->rc < 0 || rc == 0) return;
    set->rc = rc;
    snprintf(set->failed, sizeof(set->failed), "%s", set->files[file].path);
}

static void put_idle(struct ash_piece_writer *writer, struct buffer *buffer)
{
    buffer->extent_count = 0;
    buffer->next = writer->idle;
    writer->idle = buffer;
}

/* Wait for one request. Its buffer may be free then. */
static void wait_for_one(struct ash_piece_writer *writer)
{
    struct ash_io_request *request = ash_io_queue_wait(writer->queue);
    struct buffer *buffer;

    ash_assert(request != NULL);
    buffer = request->ctx;
    ash_assert(buffer->pending > 0 && buffer->set->pending > 0);
    buffer->set->pending--;
    note_failure(buffer->set, buffer->file, request->rc);
    if (--buffer->pending == 0) put_idle(writer, buffer);
}

static struct buffer *take_buffer(struct ash_piece_writer *writer)
{
    struct buffer *buffer;

    if (writer->idle == NULL && writer->buffer_count < writer->buffer_max) {
        buffer = buffer_new();
        if (buffer != NULL) {
            writer->buffer_count++;
            writer->buffer_peak = ash_max(writer->buffer_peak, writer->buffer_count);
            return buffer;
        }
        if (ash_io_queue_count(writer->queue) == 0) return NULL;
    }
    while (writer->idle == NULL) /* those that are being filled are fewer than all: see BUFFERS_MIN */
        wait_for_one(writer);
    buffer = writer->idle;
    writer->idle = buffer->next;
    return buffer;
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

/* Bytes of a piece through the page cache. */
static void write_plain(const struct buffer *buffer, size_t first, size_t count)
{
    struct ash_piece_set *set = buffer->set;
    const struct file *file = &set->files[buffer->file];
    uint64_t offset = buffer->piece * ASH_PIECE_BYTES + first;

    while (count > 0 && set->rc == 0) {
        ssize_t done = pwrite(file->fd, buffer->data + first, count, (off_t)offset);

        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) {
            note_failure(set, buffer->file, done < 0 ? -errno : -EIO);
            return;
        }
        first += (size_t)done;
        offset += (uint64_t)done;
        count -= (size_t)done;
    }
}

static void write_extent(struct buffer *buffer, size_t index)
{
    struct extent extent = buffer->extents[index];
    struct ash_piece_writer *writer = buffer->set->writer;
    const struct file *file = &buffer->set->files[buffer->file];
    size_t end = extent.first + extent.count, begin = ash_round_up(extent.first, ASH_IO_BLOCK_BYTES),
           whole_end = end / ASH_IO_BLOCK_BYTES * ASH_IO_BLOCK_BYTES;
    struct ash_io_request *request = &buffer->requests[index];

    if (begin >= whole_end) {
        write_plain(buffer, extent.first, extent.count);
        return;
    }
    ash_assert(begin % ASH_IO_BLOCK_BYTES == 0 && whole_end <= ASH_PIECE_BYTES);
    write_plain(buffer, extent.first, begin - extent.first);
    write_plain(buffer, whole_end, end - whole_end);
    *request = (struct ash_io_request){.kind = ASH_IO_WRITE,
                                       .fd = file->direct_fd >= 0 ? file->direct_fd : file->fd,
                                       .plain_fd = file->fd,
                                       .data = buffer->data + begin,
                                       .size_bytes = whole_end - begin,
                                       .offset = buffer->piece * ASH_PIECE_BYTES + begin,
                                       .ctx = buffer};
    while (ash_io_queue_count(writer->queue) >= DEPTH)
        wait_for_one(writer);
    buffer->pending++;
    buffer->set->pending++;
    ash_io_queue_submit(writer->queue, request);
}

/* Write the filled part of a piece to its file. */
static void flush_buffer(struct buffer *buffer)
{
    struct ash_piece_set *set = buffer->set;
    bool is_direct = buffer->extent_count <= EXTENTS_DIRECT;

    set->files[buffer->file].needs_flush = true;
    ash_assert(buffer->pending == 0 && buffer->extent_count > 0); /* an empty buffer is not flushed */
    buffer->pending = 1;                                          /* until all are submitted */
    for (size_t i = 0; i < buffer->extent_count && set->rc == 0; i++) {
        if (is_direct)
            write_extent(buffer, i);
        else
            write_plain(buffer, buffer->extents[i].first, buffer->extents[i].count);
    }
    if (--buffer->pending == 0) put_idle(set->writer, buffer);
}

static int add_extent(struct buffer *buffer, size_t first, size_t count)
{
    struct extent *last = buffer->extent_count > 0 ? &buffer->extents[buffer->extent_count - 1] : NULL;

    if (last != NULL && last->first + last->count == first) {
        last->count += count;
        return 0;
    }
    if (buffer->extent_count == buffer->extent_capacity) {
        size_t capacity = ash_max(2 * buffer->extent_capacity, EXTENTS_DIRECT);
        struct extent *grown = reallocarray(buffer->extents, capacity, sizeof(*grown));

        if (grown == NULL) return -ENOMEM;
        buffer->extents = grown;
        buffer->extent_capacity = capacity;
    }
    ash_assert(buffer->extent_count < buffer->extent_capacity && first + count <= ASH_PIECE_BYTES);
    buffer->extents[buffer->extent_count++] = (struct extent){first, count};
    return 0;
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

int ash_piece_writer_open(const struct ash_piece_writer_opts *opts, struct ash_piece_writer **writer_out,
                          struct ash_err *err)
{
    struct ash_piece_writer *writer = calloc(1, sizeof(*writer));
    int rc;

    if (writer == NULL) return ash_err_set(err, -ENOMEM, "out of memory");
    writer->buffer_max = ash_max(opts->memory_bytes / ASH_PIECE_BYTES, BUFFERS_MIN);
    rc = ash_io_queue_open(DEPTH, opts->wants_uring, &writer->queue, err);
    if (rc < 0) {
        free(writer);
        return rc;
    }
    *writer_out = writer;
    return 0;
}

/* Free buffers, except for the first ones of the next files. */
static void trim_buffers(struct ash_piece_writer *writer, size_t keep)
{
    while (writer->idle != NULL && writer->buffer_count > keep) {
        struct buffer *buffer = writer->idle;

        writer->idle = buffer->next;
        buffer_free(buffer);
        writer->buffer_count--;
    }
}

void ash_piece_writer_close(struct ash_piece_writer *writer)
{
    if (writer == NULL) return;
    ash_assert(writer->set_count == 0);
    trim_buffers(writer, 0);
    ash_io_queue_close(writer->queue);
    free(writer);
}

/* Nothing is under way any more. */
static void set_free(struct ash_piece_set *set)
{
    struct ash_piece_writer *writer = set->writer;

    for (size_t i = 0; i < set->file_count; i++) {
        struct file *file = &set->files[i];

        if (file->current != NULL) put_idle(writer, file->current);
        if (file->fd >= 0) close(file->fd);
        if (file->direct_fd >= 0) close(file->direct_fd);
        ash_pieces_fini(&file->pieces);
    }
    if (writer->filling == set) writer->filling = NULL;
    ash_assert(writer->set_count > 0 && set->pending == 0); /* no write is under way */
    writer->set_count--;
    free(set);
}

/* Set its size, and preallocate it if the file system supports that. */
static int set_size(const struct file *file, uint64_t size_bytes)
{
    if (ftruncate(file->fd, (off_t)size_bytes) != 0) return -errno;
    if (size_bytes == 0 || fallocate(file->fd, 0, 0, (off_t)size_bytes) == 0) return 0;
    return errno == EOPNOTSUPP || errno == ENOSYS || errno == EINVAL || errno == EINTR ? 0 : -errno;
}

static int open_file(struct file *file, const char *dir, const struct ash_piece_file *wanted, bool sets_sizes,
                     struct ash_err *err)
{
    int rc = 0;

    *file = (struct file){.fd = -1, .direct_fd = -1};
    if (ash_path_join(file->path, sizeof(file->path), dir, wanted->name) < 0)
        return ash_io_fail(err, -ENAMETOOLONG, dir, "write to");
    rc = ash_pieces_init(&file->pieces, wanted->size_bytes, err);
    if (rc < 0) return rc;
    file->fd = open(file->path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (file->fd < 0) return ash_io_fail(err, -errno, file->path, "create");
    file->direct_fd = open(file->path, O_WRONLY | O_DIRECT | O_CLOEXEC);
    file->needs_flush = sets_sizes;
    if (sets_sizes) rc = set_size(file, wanted->size_bytes);
    return rc < 0 ? ash_io_fail(err, rc, file->path, "write") : 0;
}

int ash_piece_set_open(struct ash_piece_writer *writer, const struct ash_piece_set_opts *opts,
                       struct ash_piece_set **set_out, struct ash_err *err)
{
    struct ash_piece_set *set = calloc(1, sizeof(*set));
    int rc = 0;

    ash_assert(writer->filling == NULL && opts->count <= ASH_PIECE_WRITER_FILES_MAX);
    if (set == NULL) return ash_err_set(err, -ENOMEM, "out of memory");
    set->writer = writer;
    writer->set_count++;
    writer->filling = set;
    while (rc == 0 && set->file_count < opts->count) {
        size_t i = set->file_count++;

        rc = open_file(&set->files[i], opts->dir, &opts->files[i], opts->sets_sizes, err);
    }
    if (rc < 0) {
        set_free(set);
        return rc;
    }
    *set_out = set;
    return 0;
}

/* ---- filling ----------------------------------------------------------------------------------------------------- */

static int failure(const struct ash_piece_set *set, struct ash_err *err)
{
    return ash_io_fail(err, set->rc, set->failed, "write");
}

ssize_t ash_piece_set_room(struct ash_piece_set *set, size_t file, uint64_t offset, size_t size_bytes, void **data_out,
                           struct ash_err *err)
{
    struct file *target = &set->files[file];
    uint64_t piece = offset / ASH_PIECE_BYTES;
    size_t first = (size_t)(offset % ASH_PIECE_BYTES);

    ash_assert(set->writer->filling == set && file < set->file_count && set->room_bytes == 0);
    ash_assert(offset % 4 == 0 && size_bytes > 0 && offset + size_bytes <= target->pieces.size_bytes);
    if (target->current != NULL && target->current->piece != piece) {
        struct buffer *full = target->current;

        target->current = NULL;
        flush_buffer(full);
    }
    if (set->rc < 0) return failure(set, err);
    if (target->current == NULL) {
        target->current = take_buffer(set->writer);
        if (target->current == NULL) return ash_err_set(err, -ENOMEM, "%s: out of memory for a buffer", target->path);
        target->current->set = set;
        target->current->file = file;
        target->current->piece = piece;
    }
    set->room_file = file;
    set->room_first = first;
    set->room_bytes = ash_min(size_bytes, ASH_PIECE_BYTES - first);
    *data_out = target->current->data + first;
    return (ssize_t)set->room_bytes;
}

void ash_piece_set_filled(struct ash_piece_set *set)
{
    struct file *file = &set->files[set->room_file];
    struct buffer *buffer = file->current;
    int rc;

    ash_assert(set->room_bytes > 0 && buffer != NULL);
    ash_pieces_add(&file->pieces, buffer->piece * ASH_PIECE_BYTES + set->room_first, buffer->data + set->room_first,
                   set->room_bytes);
    rc = add_extent(buffer, set->room_first, set->room_bytes);
    note_failure(set, set->room_file, rc);
    set->room_bytes = 0;
}

void ash_piece_set_submit(struct ash_piece_set *set)
{
    if (set->writer->filling != set) return;
    set->writer->filling = NULL;
    set->room_bytes = 0;
    for (size_t i = 0; i < set->file_count; i++) {
        struct buffer *last = set->files[i].current;

        set->files[i].current = NULL;
        if (last != NULL) flush_buffer(last);
    }
}

bool ash_piece_set_advance(struct ash_piece_set *set)
{
    if (set->pending == 0) return false;
    wait_for_one(set->writer);
    return true;
}

void ash_piece_set_cancel(struct ash_piece_set *set, int rc)
{
    ash_assert(rc < 0);
    note_failure(set, 0, rc);
}

int ash_piece_set_close(struct ash_piece_set *set, struct ash_pieces *pieces_out, struct ash_err *err)
{
    struct ash_piece_writer *writer = set->writer;
    int rc;

    ash_piece_set_submit(set);
    while (ash_piece_set_advance(set))
        ;
    for (size_t i = 0; i < set->file_count; i++)
        if (set->rc == 0 && set->files[i].needs_flush && fsync(set->files[i].fd) != 0) note_failure(set, i, -errno);
    rc = set->rc < 0 ? failure(set, err) : 0;
    for (size_t i = 0; rc == 0 && pieces_out != NULL && i < set->file_count; i++) {
        pieces_out[i] = set->files[i].pieces;
        set->files[i].pieces = (struct ash_pieces){0};
    }
    set_free(set);
    trim_buffers(writer, BUFFERS_MIN);
    return rc;
}

size_t ash_piece_writer_peak_bytes(const struct ash_piece_writer *writer)
{
    return writer->buffer_peak * ASH_PIECE_BYTES;
}
