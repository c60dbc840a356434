/* restore_load: the values of a checkpoint, in one pass. A rank reads the pieces that contain parts of its shard, past
 * the page cache, several at a time; each is verified and copied to its destination while it is still in the
 * processor's caches. A piece that is corrupted, or cannot be read, is read again, then fetched from other places. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/file.h"
#include "base/math.h"
#include "model/files/lora_folder.h"
#include "model/lora.h"
#include "model/stored.h"
#include "storage/commit/commit.h"
#include "storage/io/direct_reader.h"
#include "storage/safetensors/safetensors.h"
#include "train/recover/patches.h"
#include "train/save/restore_priv.h"
#include "train/save/saver.h"

/* Values of this rank that lie together in a file. */
struct item {
    uint64_t offset;
    size_t size_bytes;
    float *to;
};

/* One of the two files. */
struct source {
    struct ash_restore_file file; /* its descriptor is opened where something has to be mended */
    struct ash_pieces pieces;     /* sums NULL: of a version that had none; verified as a whole */
    struct ash_safetensors *set;
    struct item *items; /* ascending */
    size_t count, room;
};

/* A piece that this rank reads. */
struct wanted {
    struct source *source;
    size_t index;
    bool is_right; /* it was read, held to its sum and copied */
};

struct loading {
    struct ash_restore *restore;
    const struct ash_restored *restored;
    const struct ash_memory_ops *memory;
    struct source sources[2]; /* weights, moments */
    struct wanted *wanted;
    size_t count;
    pthread_mutex_t mutex; /* over copies to a device */
};

/* ---- tensors in files
 * --------------------------------------------------------------------------------------------- */

static int add_item(struct source *source, const struct item *item, struct ash_err *err)
{
    if (source->count == source->room) {
        size_t room = ash_max(2 * source->room, 1024);
        struct item *grown = reallocarray(source->items, room, sizeof(*grown));

        if (grown == NULL) return ash_err_set(err, -ENOMEM, "out of memory for a list of what to load");
        source->items = grown;
        source->room = room;
    }
    source->items[source->count++] = *item;
    return 0;
}

/* Elements of a tensor of a file go to `to`. */
static int add_values(struct source *source, const char *prefix, const struct ash_param *param,
                      const struct ash_patch *patch, float *to, struct ash_err *err)
{
    char name[sizeof(param->name) + 2];
    bool is_weight = *prefix == '\0'; /* which may share a tensor */
    struct ash_stored stored = ash_param_stored(param, param->full);
    size_t count = ash_param_full_count(param), first = is_weight ? param->part * count : 0;
    const struct ash_tensor_view *view;
    const struct ash_map *map;

    snprintf(name, sizeof(name), "%s%s", prefix, is_weight ? stored.name : param->name);
    if (is_weight && param->parts > 0) count *= param->parts;
    view = ash_safetensors_find(source->set, name);
    if (view == NULL) return ash_err_set(err, -EBADMSG, "%s has no tensor %s", source->file.path, name);
    if (view->dtype != ASH_F32 || ash_tensor_count(view) != count)
        return ash_err_set(err, -EBADMSG, "%s: %s is not a float32 tensor of %zu values", source->file.path, name,
                           count);
    map = ash_safetensors_map(source->set, view->data);
    if (map == NULL) return ash_err_set(err, -EBADMSG, "%s: %s is not aligned", source->file.path, name);
    return add_item(source,
                    &(struct item){.offset = (uint64_t)((const uint8_t *)view->data - map->base) +
                                             (first + patch->range.first) * sizeof(float),
                                   .size_bytes = (size_t)patch->range.count * sizeof(float),
                                   .to = to},
                    err);
}

static int compare_items(const void *left, const void *right)
{
    const struct item *a = left, *b = right;

    return a->offset < b->offset ? -1 : a->offset > b->offset;
}

/* All that this rank has to be given. */
static int list_items(struct loading *loading, const struct ash_stages *stages, const struct ash_model *outline,
                      struct ash_err *err)
{
    static const char *const prefixes[ASH_PATCH_KINDS] = {"", "m.", "v."};
    struct ash_patches patches = {0};
    int rc = ash_patches_add_stages(&patches, stages, outline, false, err);

    for (size_t i = 0; rc == 0 && i < patches.count; i++)
        for (size_t k = 0; rc == 0 && k < ASH_PATCH_KINDS; k++)
            if (patches.items[i].values[k] != NULL)
                rc = add_values(&loading->sources[k > 0], prefixes[k],
                                ash_model_param(outline, patches.items[i].range.param), &patches.items[i],
                                patches.items[i].values[k], err);
    ash_patches_fini(&patches);
    for (size_t s = 0; rc == 0 && s < ASH_COUNT(loading->sources); s++)
        if (loading->sources[s].count > 0)
            qsort(loading->sources[s].items, loading->sources[s].count, sizeof(struct item), compare_items);
    return rc;
}

/* The pieces that hold some of it. */
static int list_wanted(struct loading *loading, struct ash_err *err)
{
    size_t most = 0;

    for (size_t s = 0; s < ASH_COUNT(loading->sources); s++)
        most += loading->sources[s].pieces.count;
    loading->wanted = calloc(most + 1, sizeof(*loading->wanted));
    if (loading->wanted == NULL) return ash_err_set(err, -ENOMEM, "out of memory for a list of what to load");
    for (size_t s = 0; s < ASH_COUNT(loading->sources); s++) {
        struct source *source = &loading->sources[s];
        uint64_t next = 0; /* piece */

        for (size_t i = 0; i < source->count; i++) {
            const struct item *item = &source->items[i];
            uint64_t last = (item->offset + item->size_bytes - 1) / ASH_PIECE_BYTES;

            for (uint64_t p = item->offset / ASH_PIECE_BYTES; p <= last; p++) {
                if (p < next) continue;
                loading->wanted[loading->count++] = (struct wanted){.source = source, .index = (size_t)p};
                next = p + 1;
            }
        }
    }
    return 0;
}

/* ---- a piece ----------------------------------------------------------------------------------------------------- */

/* The first item that ends behind offset. Items do not overlap. */
static size_t first_item(const struct source *source, uint64_t offset)
{
    size_t low = 0, high = source->count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (source->items[middle].offset + source->items[middle].size_bytes <= offset)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* What of a piece belongs to this rank goes to its place. Any thread. */
static int copy_piece(struct loading *loading, const struct wanted *wanted, const char *bytes)
{
    const struct source *source = wanted->source;
    uint64_t begin = (uint64_t)wanted->index * ASH_PIECE_BYTES,
             end = begin + ash_pieces_bytes(&source->pieces, wanted->index);
    bool is_host = loading->memory->host_visible;
    int rc = 0;

    if (!is_host) pthread_mutex_lock(&loading->mutex);
    for (size_t i = first_item(source, begin); rc == 0 && i < source->count && source->items[i].offset < end; i++) {
        const struct item *item = &source->items[i];
        uint64_t first = item->offset > begin ? item->offset : begin,
                 last = item->offset + item->size_bytes < end ? item->offset + item->size_bytes : end;
        char *to = (char *)item->to + (first - item->offset);

        if (is_host)
            memcpy(to, bytes + (first - begin), (size_t)(last - first));
        else
            rc = loading->memory->copy(to, bytes + (first - begin), (size_t)(last - first));
    }
    if (!is_host) pthread_mutex_unlock(&loading->mutex);
    return rc;
}

static bool is_right(const struct wanted *wanted, const void *bytes)
{
    const struct ash_pieces *pieces = &wanted->source->pieces;

    return pieces->sums == NULL ||
           ash_piece_sum((uint64_t)wanted->index * ASH_PIECE_BYTES, bytes, ash_pieces_bytes(pieces, wanted->index)) ==
               pieces->sums[wanted->index];
}

/* A thread of the reader has read a piece. */
static void take_piece(void *ctx, size_t index, const void *bytes)
{
    struct loading *loading = ctx;
    struct wanted *wanted = &loading->wanted[index];

    wanted->is_right = is_right(wanted, bytes) && copy_piece(loading, wanted, bytes) == 0;
}

/* A piece that was not read well: once more, then from other places. */
static int take_elsewhere(struct loading *loading, struct wanted *wanted, char *buf, struct ash_err *err)
{
    struct ash_restore_file *file = &wanted->source->file;
    size_t bytes = ash_pieces_bytes(&wanted->source->pieces, wanted->index);
    ssize_t got = pread(file->fd, buf, bytes, (off_t)((uint64_t)wanted->index * ASH_PIECE_BYTES));
    int rc = 0;

    if (got != (ssize_t)bytes || !is_right(wanted, buf)) {
        rc = ash_restore_fetch(file, wanted->index, buf, err);
        if (rc < 0) return rc;
        /* where the folder cannot be written, it stays as it is: the values are here */
        if (!loading->restored->is_elsewhere) ash_restore_mend(file, wanted->index, buf, NULL);
    }
    rc = copy_piece(loading, wanted, buf);
    wanted->is_right = rc == 0;
    return rc < 0 ? ash_err_set(err, rc, "cannot copy values to the memory of '%s'", loading->memory->name) : 0;
}

/* ---- all --------------------------------------------------------------------------------------------------------- */

static int read_all(struct loading *loading, struct ash_err *err)
{
    struct ash_direct_range *ranges = calloc(loading->count + 1, sizeof(*ranges));
    struct ash_direct_reader *reader = NULL;
    int rc;

    if (ranges == NULL) return ash_err_set(err, -ENOMEM, "out of memory for a list of what to load");
    for (size_t i = 0; i < loading->count; i++) {
        const struct wanted *wanted = &loading->wanted[i];
        const struct ash_map *map =
            ash_safetensors_map(wanted->source->set, ash_safetensors_at(wanted->source->set, 0)->data);

        ranges[i] = (struct ash_direct_range){map, map->base + wanted->index * ASH_PIECE_BYTES,
                                              ash_pieces_bytes(&wanted->source->pieces, wanted->index)};
    }
    rc = ash_direct_reader_open(ranges, loading->count, 0, take_piece, loading, &reader, err);
    free(ranges);
    if (rc < 0) return rc;
    ash_direct_reader_wait(reader, loading->count, NULL); /* failed pieces are read again, one by one */
    ash_direct_reader_close(reader);
    return 0;
}

/* No local piece: several at a time from the nearest place, straight to memory. Wrong or missing pieces are left to
 * read_rest. */
static int fetch_all(struct loading *loading, struct ash_err *err)
{
    char *bufs = aligned_alloc(4096, ASH_PLACE_PIECES_MAX * ASH_PIECE_BYTES);

    if (bufs == NULL) return ash_err_set(err, -ENOMEM, "out of memory for pieces");
    for (size_t first = 0, count; first < loading->count; first += count) {
        struct ash_place_want wants[ASH_PLACE_PIECES_MAX] = {0};
        struct source *source = loading->wanted[first].source;

        for (count = 0; count < ASH_PLACE_PIECES_MAX && first + count < loading->count &&
                        loading->wanted[first + count].source == source;
             count++)
            wants[count] =
                (struct ash_place_want){loading->wanted[first + count].index, bufs + count * ASH_PIECE_BYTES, false};
        ash_restore_fetch_some(&source->file, wants, count);
        for (size_t i = 0; i < count; i++)
            loading->wanted[first + i].is_right =
                wants[i].is_right && copy_piece(loading, &loading->wanted[first + i], wants[i].buf) == 0;
    }
    free(bufs);
    return 0;
}

static int read_rest(struct loading *loading, struct ash_err *err)
{
    char *buf = NULL;
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < loading->count; i++) {
        if (loading->wanted[i].is_right) continue;
        if (buf == NULL) buf = aligned_alloc(4096, ASH_PIECE_BYTES);
        rc = buf == NULL ? ash_err_set(err, -ENOMEM, "out of memory for a piece")
                         : take_elsewhere(loading, &loading->wanted[i], buf, err);
    }
    free(buf);
    return rc;
}

static int open_source(struct loading *loading, struct source *source, const char *name, struct ash_err *err)
{
    const struct ash_restored *restored = loading->restored;
    int rc = 0;

    source->file = (struct ash_restore_file){.search = loading->restore,
                                             .step = restored->step,
                                             .name = name,
                                             .pieces = &source->pieces,
                                             .fd = -1,
                                             .is_elsewhere = restored->is_elsewhere,
                                             .is_told = restored->is_elsewhere};
    if (ash_path_join(source->file.path, sizeof(source->file.path), restored->dir, name) < 0)
        return ash_err_set(err, -ENAMETOOLONG, "%s: the path is too long", restored->dir);
    for (size_t i = 0; rc == 0 && i < ash_commit_file_count(restored->manifest); i++) {
        const char *listed;

        ash_pieces_fini(&source->pieces);
        rc = ash_commit_file(restored->manifest, i, &listed, &source->pieces, err);
        if (rc == 0 && strcmp(listed, name) == 0) break;
    }
    if (rc == 0) rc = ash_safetensors_open(source->file.path, &source->set, err);
    if (rc < 0) return rc;
    source->file.fd = open(source->file.path, O_RDWR | O_CLOEXEC);
    if (source->file.fd < 0) source->file.fd = open(source->file.path, O_RDONLY | O_CLOEXEC);
    return 0;
}

static int load(struct loading *loading, const struct ash_stages *stages, const struct ash_model *outline,
                struct ash_err *err)
{
    bool has_lora = ash_model_get_config(outline)->lora != NULL;
    int rc = open_source(loading, &loading->sources[0], has_lora ? ASH_LORA_WEIGHTS_FILE : ASH_SAVER_WEIGHTS_FILE, err);

    if (rc == 0) rc = open_source(loading, &loading->sources[1], ASH_SAVER_MOMENTS_FILE, err);
    if (rc == 0) rc = list_items(loading, stages, outline, err);
    if (rc == 0) rc = list_wanted(loading, err);
    if (rc == 0) rc = loading->restored->is_elsewhere ? fetch_all(loading, err) : read_all(loading, err);
    return rc < 0 ? rc : read_rest(loading, err);
}

static void close_source(struct source *source)
{
    if (source->file.fd >= 0 && source->file.is_mended) fsync(source->file.fd); /* repair is best effort */
    if (source->file.fd >= 0) close(source->file.fd);
    ash_safetensors_close(source->set);
    ash_pieces_fini(&source->pieces);
    free(source->items);
}

int ash_restore_load(struct ash_restore *search, const struct ash_restored *restored, const struct ash_stages *stages,
                     const struct ash_model *outline, struct ash_err *err)
{
    struct loading loading = {.restore = search, .restored = restored, .memory = stages->exec->memory};
    int rc;

    loading.sources[0].file.fd = loading.sources[1].file.fd = -1;
    pthread_mutex_init(&loading.mutex, NULL);
    rc = load(&loading, stages, outline, err);
    pthread_mutex_destroy(&loading.mutex);
    for (size_t s = 0; s < ASH_COUNT(loading.sources); s++)
        close_source(&loading.sources[s]);
    free(loading.wanted);
    return rc;
}
