/* place_help: ranks share the upload of a checkpoint's large files. The one that copies begins it and completes it, and
 * never waits: what others have sent when it comes there, it leaves out. They need no word from it but the upload
 * itself, which the server lists. */
#include <errno.h>
#include <string.h>

#include "base/math.h"
#include "storage/commit/commit.h"
#include "train/save/place_priv.h"

#define FILES_MAX 64 /* bits of ash_place_help.done */

/* Where parts come from. */
struct source {
    struct ash_place *from;
    struct ash_place_file file;
    const atomic_bool *is_stopping;
};

static int read_pieces(void *ctx, uint64_t offset, void *data, size_t size_bytes, struct ash_err *err)
{
    struct source *source = ctx;
    size_t first = (size_t)(offset / ASH_PIECE_BYTES), count = ash_div_up(size_bytes, ASH_PIECE_BYTES);

    if (offset % ASH_PIECE_BYTES != 0 ||
        (size_bytes % ASH_PIECE_BYTES != 0 && offset + size_bytes != source->file.pieces->size_bytes))
        return ash_err_set(err, -ENOTSUP, "parts of s3.part_bytes are not whole pieces: the first rank sends them");
    for (size_t i = 0; i < count; i++) {
        int rc = atomic_load(source->is_stopping) ? ash_err_set(err, -ECANCELED, "stopped") : 0;

        if (rc == 0)
            rc = ash_place_piece(source->from, &source->file, first + i, (char *)data + i * ASH_PIECE_BYTES, err);
        if (rc < 0) return rc;
    }
    return 0;
}

/* One file. Returns 0 where nothing is left to do. */
static int help_file(struct source *source, struct ash_place *to, struct ash_place_share *help, struct ash_err *err)
{
    struct ash_s3_share share = {.index = help->index, .count = help->count, .read = read_pieces, .ctx = source};
    struct ash_tier_object object = {0};
    char key[ASH_TIER_KEY_BYTES];
    int rc = ash_place_key(source->file.step, source->file.name, key, err);

    if (rc == 0) rc = ash_tier_write_help(to->tier, key, source->file.pieces->size_bytes, &share, err);
    if (rc == 0) help->share_count++;
    if (rc != -ENOENT) return rc;
    rc = ash_tier_stat(to->tier, key, &object, err); /* not yet, or not any more? */
    return rc == -ENOENT ? -EAGAIN : rc;
}

int ash_place_help(struct ash_place *from, struct ash_place *to, uint64_t step, struct ash_place_share *help,
                   struct ash_err *err)
{
    struct ash_place_manifest manifest = {0};
    size_t files;
    int rc = ash_place_read_manifest(from, step, &manifest, err), later = 0;

    if (rc < 0) return rc;
    files = ash_min(ash_commit_file_count(manifest.json), FILES_MAX);
    for (size_t i = 0; rc == 0 && i < files; i++) {
        struct ash_pieces pieces = {0};
        struct source source = {from, {.step = step, .pieces = &pieces}, help->is_stopping};

        if ((help->done >> i & 1) != 0) continue;
        rc = ash_commit_file(manifest.json, i, &source.file.name, &pieces, err);
        if (rc == 0 && pieces.count > help->count) rc = help_file(&source, to, help, err);
        if (rc == 0) help->done |= (uint64_t)1 << i;
        if (rc == -EAGAIN) later = rc;
        if (rc == -EAGAIN) rc = 0;
        ash_pieces_fini(&pieces);
    }
    ash_place_manifest_fini(&manifest);
    return rc < 0 ? rc : later;
}
