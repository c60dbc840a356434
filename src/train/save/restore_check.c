/* restore_check: the pieces of a checkpoint against their sums, several read at a time. */
#include "train/save/restore_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/math.h"
#include "model/files/lora_folder.h"
#include "model/lora.h"
#include "storage/commit/commit.h"
#include "storage/io/io_queue.h"
#include "storage/safetensors/safetensors.h"
#include "train/save/saver.h"

#define DEPTH ASH_PLACE_PIECES_MAX /* pieces that are read at a time */

/* The places that pieces may come from, nearest first; NULL: not reachable. The root is one where the file is not the
 * root's. */
static struct ash_place *place_at(const struct ash_restore_file *file, size_t index)
{
    if (index == 0) return file->is_elsewhere ? file->search->root : NULL;
    return file->search->others[index - 1];
}

/* A piece came from a place. */
static void note_place(struct ash_restore_file *file, const struct ash_place *place)
{
    if (!file->is_mended && !file->is_told)
        ash_log(ASH_LOG_WARN, "%s: damaged or missing parts come from %s", file->path, ash_place_url(place));
    file->is_mended = true;
}

void ash_restore_fetch_some(struct ash_restore_file *file, struct ash_place_want *wants, size_t count)
{
    const struct ash_place_file wanted = {file->step, file->name, file->pieces};

    for (size_t i = 0; i <= file->search->opts->other_count; i++) {
        struct ash_place *place = place_at(file, i);

        if (place == NULL || ash_place_pieces(place, &wanted, wants, count, NULL) < 0) continue;
        for (size_t k = 0; k < count; k++)
            if (wants[k].is_right) note_place(file, place);
        return;
    }
}

int ash_restore_fetch(struct ash_restore_file *file, size_t index, void *buf, struct ash_err *err)
{
    const struct ash_place_file wanted = {file->step, file->name, file->pieces};
    struct ash_err why = {0};

    for (size_t i = 0; i <= file->search->opts->other_count; i++) {
        struct ash_place *place = place_at(file, i);

        if (place == NULL || ash_place_piece(place, &wanted, index, buf, &why) < 0) continue;
        note_place(file, place);
        return 0;
    }
    return ash_err_set(err, -EBADMSG, "%s: it is damaged: bytes from %" PRIu64 " on are not what was saved", file->path,
                       (uint64_t)index * ASH_PIECE_BYTES);
}

int ash_restore_mend(struct ash_restore_file *file, size_t index, const void *buf, struct ash_err *err)
{
    size_t bytes = ash_pieces_bytes(file->pieces, index), done = 0;
    uint64_t offset = (uint64_t)index * ASH_PIECE_BYTES;

    while (done < bytes) {
        ssize_t some =
            file->fd < 0 ? -1 : pwrite(file->fd, (const char *)buf + done, bytes - done, (off_t)(offset + done));

        if (some < 0 && errno == EINTR) continue;
        if (some <= 0)
            return ash_err_set(err, -EIO, "%s: it is damaged, and cannot be mended: %s", file->path, strerror(errno));
        done += (size_t)some;
    }
    return 0;
}

/* The next piece that is this rank's to check, from `index` on. `before`: pieces of the files before this one. */
static size_t own_piece(const struct ash_restore *search, size_t index, size_t before)
{
    while ((before + index) % search->size != search->rank)
        index++;
    return index;
}

static void submit(struct ash_io_queue *queue, const struct ash_restore_file *check, size_t index,
                   struct ash_io_request *request)
{
    request->kind = ASH_IO_READ;
    request->fd = check->fd;
    request->plain_fd = -1;
    request->size_bytes = ash_pieces_bytes(check->pieces, index);
    request->offset = (uint64_t)index * ASH_PIECE_BYTES;
    ash_io_queue_submit(queue, request);
}

static bool is_right(const struct ash_restore_file *check, const struct ash_io_request *request)
{
    size_t index = (size_t)(request->offset / ASH_PIECE_BYTES);

    return request->rc == 0 && request->done_bytes == request->size_bytes &&
           ash_piece_sum(request->offset, request->data, request->size_bytes) == check->pieces->sums[index];
}

/* Pieces that are not right here, from elsewhere: together from the nearest place, and what of them is wrong or missing
 * there, one by one from any. */
static int mend_some(struct ash_restore_file *check, struct ash_io_request *const *wrong, size_t count,
                     struct ash_err *err)
{
    struct ash_place_want wants[DEPTH] = {0};
    int rc = 0;

    for (size_t i = 0; i < count; i++)
        wants[i] = (struct ash_place_want){(size_t)(wrong[i]->offset / ASH_PIECE_BYTES), wrong[i]->data, false};
    ash_restore_fetch_some(check, wants, count);
    for (size_t i = 0; rc == 0 && i < count; i++) {
        if (!wants[i].is_right) rc = ash_restore_fetch(check, wants[i].index, wants[i].buf, err);
        if (rc == 0) rc = ash_restore_mend(check, wants[i].index, wants[i].buf, err);
    }
    return rc;
}

/* The pieces of a file that this rank checks. */
struct checking {
    struct ash_restore_file *file;
    struct ash_io_queue *queue;
    size_t next, before, count; /* next: the first that was not begun, of count */
    struct ash_io_request *wrong[DEPTH];
    size_t wrong_count;
};

/* Begin the next piece, if there is one left. */
static void begin_next(struct checking *checking, struct ash_io_request *request)
{
    if (checking->next >= checking->count) return;
    submit(checking->queue, checking->file, checking->next, request);
    checking->next = own_piece(checking->file->search, checking->next + 1, checking->before);
}

/* Nothing is under way but what waits to be mended. */
static int end_turn(struct checking *checking, struct ash_err *err)
{
    int rc = mend_some(checking->file, checking->wrong, checking->wrong_count, err);

    for (; rc == 0 && checking->wrong_count > 0; checking->wrong_count--)
        begin_next(checking, checking->wrong[checking->wrong_count - 1]);
    return rc;
}

/* This rank's of the first `count` pieces of a file, several at a time. */
static int check_pieces(struct checking *checking, struct ash_io_request *requests, struct ash_err *err)
{
    struct ash_io_request *done;
    int rc = 0;

    for (size_t i = 0; checking->file->fd >= 0 && i < DEPTH; i++)
        begin_next(checking, &requests[i]);
    while (rc == 0) {
        done = ash_io_queue_wait(checking->queue);
        if (done == NULL && checking->wrong_count == 0) break;
        if (done == NULL)
            rc = end_turn(checking, err);
        else if (is_right(checking->file, done))
            begin_next(checking, done);
        else
            checking->wrong[checking->wrong_count++] = done; /* others like it come along */
    }
    return rc;
}

/* If there are other places, files are opened for repair; a missing one is created. */
static int open_file(struct ash_restore_file *check, const char *dir, struct ash_err *err)
{
    bool can_mend = check->search->opts->other_count > 0;
    struct stat st;

    if (ash_path_join(check->path, sizeof(check->path), dir, check->name) < 0)
        return ash_err_set(err, -ENAMETOOLONG, "%s: the path is too long", dir);
    check->fd = can_mend ? open(check->path, O_RDWR | O_CREAT | O_CLOEXEC, 0666) : -1;
    if (check->fd < 0) check->fd = open(check->path, O_RDONLY | O_CLOEXEC);
    if (check->fd < 0) return ash_err_set(err, -EBADMSG, "%s: this file is missing", check->path);
    if (fstat(check->fd, &st) == 0 && (uint64_t)st.st_size == check->pieces->size_bytes) return 0;
    check->is_resized = can_mend && ftruncate(check->fd, (off_t)check->pieces->size_bytes) == 0;
    if (check->is_resized) return 0;
    return ash_err_set(err, -EBADMSG, "%s: it has %lld bytes but %" PRIu64 " were saved", check->path,
                       (long long)st.st_size, check->pieces->size_bytes);
}

/* Those that ash_restore_load reads. */
static bool is_large(const char *name)
{
    return strcmp(name, ASH_SAVER_WEIGHTS_FILE) == 0 || strcmp(name, ASH_SAVER_MOMENTS_FILE) == 0 ||
           strcmp(name, ASH_LORA_WEIGHTS_FILE) == 0;
}

/* The pieces of a large file's header; its first piece is right. */
static size_t header_pieces(const struct ash_restore_file *check)
{
    uint8_t bytes[ASH_SAFETENSORS_LENGTH_BYTES];
    uint64_t length = 0;

    if (pread(check->fd, bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes)) return 1;
    for (size_t i = sizeof(bytes); i > 0; i--)
        length = length << 8 | bytes[i - 1];
    if (length > ASH_SAFETENSORS_HEADER_MAX) return 1; /* reported when it is opened */
    return ash_min((size_t)(sizeof(bytes) + length - 1) / ASH_PIECE_BYTES + 1, check->pieces->count);
}

static int check_file(struct ash_restore_file *check, const char *dir, struct ash_io_queue *queue,
                      struct ash_io_request *requests, size_t before, struct ash_err *err)
{
    struct checking checking = {
        .file = check, .queue = queue, .next = own_piece(check->search, 0, before), .before = before};
    bool is_read_later;
    int rc = open_file(check, dir, err);

    is_read_later = is_large(check->name) && (check->is_elsewhere || (check->is_here && !check->is_resized));
    checking.count = is_read_later ? ash_min(1, check->pieces->count) : check->pieces->count;
    if (rc == 0) rc = check_pieces(&checking, requests, err);
    if (rc == 0 && check->is_elsewhere && is_read_later) {
        checking.count = header_pieces(check);
        rc = check_pieces(&checking, requests, err);
    }
    if (rc == 0 && check->is_mended && fsync(check->fd) != 0)
        rc = ash_err_set(err, -errno, "%s: %s", check->path, strerror(errno));
    if (check->fd >= 0) close(check->fd);
    return rc;
}

static int check_files(struct ash_restore *search, const struct ash_restore_proposal *proposal,
                       const struct ash_restored *restored, struct ash_err *err)
{
    const json_t *manifest = restored->manifest;
    struct ash_io_request requests[DEPTH] = {0};
    struct ash_io_queue *queue = NULL;
    size_t before = 0;
    char *bufs = aligned_alloc(ASH_IO_BLOCK_BYTES, DEPTH * ASH_PIECE_BYTES);
    int rc = bufs != NULL ? ash_io_queue_open(DEPTH, true, &queue, err)
                          : ash_err_set(err, -ENOMEM, "out of memory to check a checkpoint");

    for (size_t i = 0; i < DEPTH; i++)
        requests[i].data = bufs + i * ASH_PIECE_BYTES;
    for (size_t i = 0; rc == 0 && i < ash_commit_file_count(manifest); i++) {
        struct ash_pieces pieces = {0};
        struct ash_restore_file check = {.search = search,
                                         .step = proposal->step,
                                         .pieces = &pieces,
                                         .fd = -1,
                                         .is_here = proposal->is_here != 0 && !restored->is_elsewhere,
                                         .is_elsewhere = restored->is_elsewhere,
                                         .is_told = proposal->is_here == 0 || restored->is_elsewhere};

        rc = ash_commit_file(manifest, i, &check.name, &pieces, err);
        if (rc == 0) rc = check_file(&check, restored->dir, queue, requests, before, err);
        before += pieces.count;
        ash_pieces_fini(&pieces);
    }
    ash_io_queue_close(queue);
    free(bufs);
    return rc;
}

/* Of a version without sums of pieces, the first rank reads everything. */
static bool has_pieces(const json_t *manifest)
{
    const json_t *first = json_array_get(json_object_get(manifest, "files"), 0);

    return first == NULL || json_object_get(first, "pieces") != NULL;
}

int ash_restore_check(struct ash_restore *search, const struct ash_restore_proposal *proposal,
                      const struct ash_restored *restored, struct ash_err *err)
{
    if (has_pieces(restored->manifest)) return check_files(search, proposal, restored, err);
    return search->is_first ? ash_commit_verify(restored->dir, true, NULL, err) : 0;
}
