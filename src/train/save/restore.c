/* restore: the first rank lists and chooses, all ranks check. */
#include "train/save/restore.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/math.h"
#include "base/str.h"
#include "storage/commit.h"
#include "storage/io_queue.h"
#include "train/checkpoint.h"
#include "train/save/place.h"

#define DEPTH 8 /* pieces that are read at a time */

/* The search. */
struct search {
    const struct ash_restore_opts *opts;
    size_t rank, size; /* of those who share the reading */
    bool is_first;
    struct ash_place *root;
    struct ash_place **others; /* [other_count]; NULL: not opened, or not reachable */
    uint64_t *steps;           /* first rank: all there are, newest first */
    size_t step_count;
    struct ash_str skipped;
};

/* What the first rank proposes. */
struct proposal {
    uint64_t step;
    uint64_t text_bytes; /* 0: nothing is left */
    int32_t is_here;     /* the root has a manifest of it; where nothing is left: there was something */
};

void ash_restored_fini(struct ash_restored *restored)
{
    json_decref(restored->manifest);
    free(restored->skipped);
    *restored = (struct ash_restored){0};
}

/* ---- the first rank: which there are ----------------------------------------------------------------------------- */

static int add_steps(struct search *search, struct ash_place *place, struct ash_err *err)
{
    uint64_t *steps = NULL, *grown;
    size_t count = 0;
    int rc = ash_place_steps(place, &steps, &count, err);

    if (rc < 0) return rc;
    grown = reallocarray(search->steps, search->step_count + count + 1, sizeof(*grown));
    if (grown == NULL) {
        free(steps);
        return ash_err_set(err, -ENOMEM, "out of memory for a list of checkpoints");
    }
    if (count > 0) memcpy(grown + search->step_count, steps, count * sizeof(*steps));
    search->steps = grown;
    search->step_count += count;
    free(steps);
    return 0;
}

static int compare_down(const void *left, const void *right)
{
    uint64_t a, b;

    memcpy(&a, left, sizeof(a));
    memcpy(&b, right, sizeof(b));
    return a > b ? -1 : a < b;
}

/* A place that cannot be asked now has nothing; that is said. */
static int list_steps(struct search *search, struct ash_err *err)
{
    struct ash_err why = {0};
    size_t unique = 0;
    int rc = add_steps(search, search->root, err);

    if (rc < 0) return rc;
    for (size_t i = 0; i < search->opts->other_count; i++)
        if (search->others[i] != NULL && add_steps(search, search->others[i], &why) < 0)
            ash_log(ASH_LOG_WARN, "looking for checkpoints elsewhere: %s", why.text);
    if (search->step_count > 0) qsort(search->steps, search->step_count, sizeof(uint64_t), compare_down);
    for (size_t i = 0; i < search->step_count; i++)
        if (unique == 0 || search->steps[unique - 1] != search->steps[i]) search->steps[unique++] = search->steps[i];
    search->step_count = unique;
    return 0;
}

static int open_places(struct search *search, struct ash_err *err)
{
    const struct ash_restore_opts *opts = search->opts;
    struct ash_err why = {0};
    int rc = ash_place_open(opts->root, opts->s3, &search->root, err);

    if (rc < 0) return rc;
    search->others = calloc(opts->other_count + 1, sizeof(*search->others));
    if (search->others == NULL) return ash_err_set(err, -ENOMEM, "out of memory");
    for (size_t i = 0; i < opts->other_count; i++)
        if (ash_place_open(opts->others[i], opts->s3, &search->others[i], &why) < 0 && search->is_first)
            ash_log(ASH_LOG_WARN, "looking for checkpoints elsewhere: %s", why.text);
    return 0;
}

static int note_skipped(struct search *search, const char *why)
{
    return ash_str_addf(&search->skipped, "%s%s", search->skipped.size_bytes > 0 ? "\n" : "", why);
}

/* The manifest of a step from the nearest place that has it right. */
static int find_manifest(struct search *search, uint64_t step, struct proposal *proposal,
                         struct ash_place_manifest *manifest_out, struct ash_err *err)
{
    int rc = ash_place_manifest(search->root, step, manifest_out, err);

    proposal->step = step;
    proposal->is_here = rc == 0;
    for (size_t i = 0; rc < 0 && i < search->opts->other_count; i++) {
        struct ash_err other = {0};

        if (search->others[i] == NULL) continue;
        if (ash_place_manifest(search->others[i], step, manifest_out, &other) == 0) rc = 0;
    }
    if (rc == 0) proposal->text_bytes = manifest_out->size_bytes;
    return rc;
}

/* ---- all ranks: is it right? ------------------------------------------------------------------------------------- */

/* A file of a checkpoint that is being checked, and mended, by this rank. */
struct check {
    struct search *search;
    uint64_t step;
    const char *file;
    const struct ash_pieces *pieces;
    char path[PATH_MAX];
    int fd; /* -1: not there */
    bool is_mended;
};

/* The piece from another place into buf, and into the file. */
static int mend(struct check *check, size_t index, void *buf, struct ash_err *err)
{
    struct search *search = check->search;
    size_t bytes = ash_pieces_bytes(check->pieces, index), done = 0;
    uint64_t offset = (uint64_t)index * ASH_PIECE_BYTES;
    struct ash_err why = {0};
    size_t source = 0;

    while (source < search->opts->other_count &&
           (search->others[source] == NULL ||
            ash_place_piece(search->others[source], check->step, check->file, check->pieces, index, buf, &why) < 0))
        source++;
    if (source == search->opts->other_count)
        return ash_err_set(err, -EBADMSG, "%s: it is damaged: bytes from %" PRIu64 " on are not what was saved",
                           check->path, offset);
    while (done < bytes) {
        ssize_t some = check->fd < 0 ? -1 : pwrite(check->fd, (char *)buf + done, bytes - done, (off_t)(offset + done));

        if (some < 0 && errno == EINTR) continue;
        if (some <= 0)
            return ash_err_set(err, -EIO, "%s: it is damaged, and cannot be mended from %s: %s", check->path,
                               search->opts->others[source], strerror(errno));
        done += (size_t)some;
    }
    if (!check->is_mended)
        ash_log(ASH_LOG_WARN, "%s: what is damaged or missing there comes from %s", check->path,
                search->opts->others[source]);
    check->is_mended = true;
    return 0;
}

/* The next piece that is this rank's to check, from `index` on. `before`: pieces of the files before this one. */
static size_t own_piece(const struct search *search, size_t index, size_t before)
{
    while ((before + index) % search->size != search->rank)
        index++;
    return index;
}

static void submit(struct ash_io_queue *queue, const struct check *check, size_t index, struct ash_io_request *request)
{
    request->kind = ASH_IO_READ;
    request->fd = check->fd;
    request->plain_fd = -1;
    request->size_bytes = ash_pieces_bytes(check->pieces, index);
    request->offset = (uint64_t)index * ASH_PIECE_BYTES;
    ash_io_queue_submit(queue, request);
}

/* A piece has been read, or not. */
static int judge(struct check *check, const struct ash_io_request *request, struct ash_err *err)
{
    size_t index = (size_t)(request->offset / ASH_PIECE_BYTES);
    bool is_right = request->rc == 0 && request->done_bytes == request->size_bytes &&
                    ash_piece_sum(request->offset, request->data, request->size_bytes) == check->pieces->sums[index];

    return is_right ? 0 : mend(check, index, request->data, err);
}

/* This rank's pieces of a file, several at a time. */
static int check_pieces(struct check *check, struct ash_io_queue *queue, struct ash_io_request *requests, size_t before,
                        struct ash_err *err)
{
    size_t next = own_piece(check->search, 0, before), count = check->pieces->count;
    struct ash_io_request *done;
    int rc = 0;

    for (size_t i = 0; check->fd >= 0 && i < DEPTH && next < count; i++) {
        submit(queue, check, next, &requests[i]);
        next = own_piece(check->search, next + 1, before);
    }
    while ((done = ash_io_queue_wait(queue)) != NULL) {
        if (rc == 0) rc = judge(check, done, err);
        if (rc < 0 || next >= count) continue;
        submit(queue, check, next, done);
        next = own_piece(check->search, next + 1, before);
    }
    return rc;
}

/* Where there are other places, files are opened for mending; a missing one is made. */
static int open_file(struct check *check, const char *dir, struct ash_err *err)
{
    bool can_mend = check->search->opts->other_count > 0;
    struct stat st;

    if (ash_path_join(check->path, sizeof(check->path), dir, check->file) < 0)
        return ash_err_set(err, -ENAMETOOLONG, "%s: the path is too long", dir);
    check->fd = can_mend ? open(check->path, O_RDWR | O_CREAT | O_CLOEXEC, 0666) : -1;
    if (check->fd < 0) check->fd = open(check->path, O_RDONLY | O_CLOEXEC);
    if (check->fd < 0) return ash_err_set(err, -EBADMSG, "%s: this file is missing", check->path);
    if (fstat(check->fd, &st) == 0 && (uint64_t)st.st_size == check->pieces->size_bytes) return 0;
    if (can_mend && ftruncate(check->fd, (off_t)check->pieces->size_bytes) == 0) return 0;
    return ash_err_set(err, -EBADMSG, "%s: it has %lld bytes but %" PRIu64 " were saved", check->path,
                       (long long)st.st_size, check->pieces->size_bytes);
}

static int check_file(struct check *check, const char *dir, struct ash_io_queue *queue, struct ash_io_request *requests,
                      size_t before, struct ash_err *err)
{
    int rc = open_file(check, dir, err);

    if (rc == 0) rc = check_pieces(check, queue, requests, before, err);
    if (rc == 0 && check->is_mended && fsync(check->fd) != 0)
        rc = ash_err_set(err, -errno, "%s: %s", check->path, strerror(errno));
    if (check->fd >= 0) close(check->fd);
    return rc;
}

static int check_files(struct search *search, const struct proposal *proposal, const json_t *manifest, const char *dir,
                       struct ash_err *err)
{
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
        struct check check = {.search = search, .step = proposal->step, .pieces = &pieces, .fd = -1};

        rc = ash_commit_file(manifest, i, &check.file, &pieces, err);
        if (rc == 0) rc = check_file(&check, dir, queue, requests, before, err);
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

static int check_own(struct search *search, const struct proposal *proposal, const json_t *manifest, const char *dir,
                     struct ash_err *err)
{
    if (has_pieces(manifest)) return check_files(search, proposal, manifest, dir, err);
    return search->is_first ? ash_commit_verify(dir, true, NULL, err) : 0;
}

/* ---- together ---------------------------------------------------------------------------------------------------- */

/* All ranks get the worst result, and the sentence of the first rank that has it. */
static int agree(struct search *search, int *result, struct ash_err *why, struct ash_err *err)
{
    struct ash_group *group = search->opts->group;
    int32_t worst = *result < 0 ? (int32_t)ash_group_rank(group) : INT32_MAX;
    struct {
        int32_t rc;
        struct ash_err err;
    } message = {*result, *why};
    int rc = ash_group_all_reduce(group, &worst, &worst, 1, ASH_COLL_I32, ASH_COLL_MIN, err);

    if (rc < 0 || worst == INT32_MAX) return rc;
    rc = ash_group_broadcast(group, &message, sizeof(message), (size_t)worst, err);
    if (rc < 0) return rc;
    *result = message.rc;
    *why = message.err;
    return 0;
}

/* First rank: the folder is there to be filled, or to be completed by the manifest. */
static int prepare(const struct search *search, const struct proposal *proposal, const char *dir, struct ash_err *err)
{
    if (!search->is_first || proposal->is_here) return 0;
    return ash_commit_claim(dir, err);
}

static int complete(const struct search *search, const struct proposal *proposal, const char *dir,
                    const struct ash_place_manifest *manifest, struct ash_err *err)
{
    char path[PATH_MAX];

    if (!search->is_first || proposal->is_here) return 0;
    if (ash_path_join(path, sizeof(path), dir, ASH_COMMIT_MANIFEST) < 0)
        return ash_err_set(err, -ENAMETOOLONG, "%s: the path is too long", dir);
    return ash_file_replace(path, manifest->text, manifest->size_bytes, err);
}

/* Check, and mend, one checkpoint. *result: 0, or why it is no good (the same on all ranks). */
static int try_one(struct search *search, const struct proposal *proposal, const struct ash_place_manifest *manifest,
                   struct ash_restored *restored, int *result, struct ash_err *why, struct ash_err *err)
{
    char dir[PATH_MAX];
    int rc = 0;

    *result = ash_checkpoint_path(search->opts->root, proposal->step, dir, sizeof(dir));
    if (*result == 0) *result = prepare(search, proposal, dir, why);
    if (search->opts->group != NULL) rc = agree(search, result, why, err);
    if (rc < 0 || *result < 0) return rc;
    *result = check_own(search, proposal, manifest->json, dir, why);
    if (search->opts->group != NULL) rc = agree(search, result, why, err);
    if (rc < 0 || *result < 0) return rc;
    *result = complete(search, proposal, dir, manifest, why);
    if (search->opts->group != NULL) rc = agree(search, result, why, err);
    if (rc < 0 || *result < 0) return rc;
    snprintf(restored->dir, sizeof(restored->dir), "%s", dir);
    restored->step = proposal->step;
    restored->manifest = json_incref(manifest->json);
    return 0;
}

/* The first rank's proposal, to all. */
static int share_proposal(const struct search *search, struct proposal *proposal, struct ash_place_manifest *manifest,
                          struct ash_err *err)
{
    struct ash_group *group = search->opts->group;
    int rc;

    if (group == NULL) return 0;
    rc = ash_group_broadcast(group, proposal, sizeof(*proposal), 0, err);
    if (rc < 0 || proposal->text_bytes == 0) return rc;
    if (!search->is_first) {
        manifest->size_bytes = (size_t)proposal->text_bytes;
        manifest->text = malloc(manifest->size_bytes);
        if (manifest->text == NULL) return ash_err_set(err, -ENOMEM, "out of memory for a manifest");
    }
    rc = ash_group_broadcast(group, manifest->text, manifest->size_bytes, 0, err);
    if (rc < 0 || search->is_first) return rc;
    return ash_commit_parse(manifest->text, manifest->size_bytes, "the first rank's manifest", &manifest->json, err);
}

/* First rank: the next checkpoint whose manifest some place has right. */
static int propose(struct search *search, size_t *next, struct proposal *proposal, struct ash_place_manifest *manifest)
{
    *proposal = (struct proposal){0};
    while (search->is_first && *next < search->step_count && proposal->text_bytes == 0) {
        struct ash_err why = {0};

        if (find_manifest(search, search->steps[(*next)++], proposal, manifest, &why) < 0) {
            int rc = note_skipped(search, why.text);
            if (rc < 0) return rc;
        }
    }
    if (proposal->text_bytes == 0) proposal->is_here = search->step_count > 0;
    return 0;
}

/* First rank: folders that are newer than what was found, and no checkpoints: their saving was killed. */
static int note_unfinished(struct search *search, uint64_t found)
{
    struct dirent **entries = NULL;
    int count = scandir(search->opts->root, &entries, NULL, alphasort), rc = 0;

    for (int i = 0; i < count; i++) {
        char path[PATH_MAX], why[PATH_MAX + 64];
        const char *digits = entries[i]->d_name + strlen("step-");

        if (rc == 0 && strncmp(entries[i]->d_name, "step-", strlen("step-")) == 0 &&
            strtoull(digits, NULL, 10) > found &&
            ash_path_join(path, sizeof(path), search->opts->root, entries[i]->d_name) == 0 &&
            ash_commit_is_unfinished(path)) {
            snprintf(why, sizeof(why), "%s: this save was not finished", path);
            rc = note_skipped(search, why);
        }
        free(entries[i]);
    }
    free(entries);
    return rc;
}

static int search_all(struct search *search, struct ash_restored *restored, struct ash_err *err)
{
    size_t next = 0;

    for (;;) {
        struct ash_place_manifest manifest = {0};
        struct proposal proposal;
        struct ash_err why = {0};
        int result = 0, rc = propose(search, &next, &proposal, &manifest);

        if (rc == 0) rc = share_proposal(search, &proposal, &manifest, err);
        if (rc == 0 && proposal.text_bytes == 0) return proposal.is_here != 0 ? -ENOENT : -ENODATA;
        if (rc == 0) rc = try_one(search, &proposal, &manifest, restored, &result, &why, err);
        if (rc == 0 && result < 0 && search->is_first) rc = note_skipped(search, why.text);
        ash_place_manifest_fini(&manifest);
        if (rc < 0 || result == 0) return rc;
    }
}

static void search_fini(struct search *search)
{
    ash_place_close(search->root);
    for (size_t i = 0; search->others != NULL && i < search->opts->other_count; i++)
        ash_place_close(search->others[i]);
    free(search->others);
    free(search->steps);
    ash_str_fini(&search->skipped);
}

int ash_restore(const struct ash_restore_opts *opts, struct ash_restored *restored_out, struct ash_err *err)
{
    struct search search = {.opts = opts, .size = 1, .is_first = true};
    struct ash_restored restored = {0};
    int rc;

    if (opts->group != NULL) {
        search.is_first = ash_group_rank(opts->group) == 0;
        if (ash_group_nodes(opts->group) == 1) { /* elsewhere each node may have a disk of its own */
            search.rank = ash_group_rank(opts->group);
            search.size = ash_group_size(opts->group);
        }
    }
    rc = open_places(&search, err);
    if (rc == 0 && search.is_first) rc = list_steps(&search, err);
    if (rc == 0) rc = search_all(&search, &restored, err);
    if (search.is_first && (rc == 0 || rc == -ENOENT) && note_unfinished(&search, rc == 0 ? restored.step : 0) < 0)
        rc = ash_err_set(err, -ENOMEM, "out of memory");
    if (rc == -ENODATA) ash_err_set(err, rc, "%s: there is no checkpoint", opts->root);
    if (rc == -ENOENT)
        ash_err_set(err, rc, "%s: there is no complete checkpoint%s%.*s", opts->root,
                    search.skipped.data != NULL ? "; the newest is no good: " : "",
                    search.skipped.data != NULL ? (int)strcspn(search.skipped.data, "\n") : 0,
                    search.skipped.data != NULL ? search.skipped.data : "");
    if (rc == 0) {
        restored.skipped = search.skipped.data;
        search.skipped = (struct ash_str){0};
        *restored_out = restored;
    } else {
        ash_restored_fini(&restored);
    }
    search_fini(&search);
    return rc;
}
