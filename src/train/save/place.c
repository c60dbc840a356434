/* place: checkpoints as objects of a tier. A folder is a tier as good as a bucket, so all places have one code. */
#include "train/save/place_priv.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/file.h"
#include "base/math.h"
#include "storage/commit/commit.h"

#define PREFIX "step-"
#define MANIFEST_MAX_BYTES ((uint64_t)64 << 20)

int ash_place_open(const char *url, const struct ash_s3_opts *s3, struct ash_place **place_out, struct ash_err *err)
{
    size_t length = strlen(url);
    struct ash_place *place = calloc(1, sizeof(*place) + length + 1);
    int rc;

    if (place == NULL) return ash_err_set(err, -ENOMEM, "out of memory");
    memcpy(place->url, url, length);
    rc = ash_tier_open(url, s3, &place->tier, err);
    if (rc < 0) {
        free(place);
        return rc;
    }
    *place_out = place;
    return 0;
}

void ash_place_close(struct ash_place *place)
{
    if (place == NULL) return;
    ash_tier_close(place->tier);
    free(place);
}

const char *ash_place_url(const struct ash_place *place)
{
    return place->url;
}

int ash_place_dir(const char *root, uint64_t step, char *buf, size_t buf_bytes)
{
    char name[32];

    snprintf(name, sizeof(name), PREFIX "%06" PRIu64, step);
    return ash_path_join(buf, buf_bytes, root, name);
}

int ash_place_key(uint64_t step, const char *file, char key[ASH_TIER_KEY_BYTES], struct ash_err *err)
{
    int used = snprintf(key, ASH_TIER_KEY_BYTES, PREFIX "%06" PRIu64 "/%s", step, file);

    return used < ASH_TIER_KEY_BYTES ? 0 : ash_err_set(err, -ENAMETOOLONG, "%s: this name is too long", file);
}

/* ---- lists ------------------------------------------------------------------------------------------------------- */

struct steps {
    uint64_t *items;
    size_t count, capacity;
};

/* The step of "step-N/rest", where rest is file (NULL: any). Returns false for other keys. */
static bool parse_key(const char *key, const char *file, uint64_t *step_out)
{
    char *end = NULL;

    if (strncmp(key, PREFIX, strlen(PREFIX)) != 0) return false;
    key += strlen(PREFIX);
    if (*key < '0' || *key > '9') return false;
    errno = 0;
    *step_out = strtoull(key, &end, 10);
    return errno == 0 && *end == '/' && (file == NULL || strcmp(end + 1, file) == 0);
}

static int note_step(void *ctx, const char *key, const struct ash_tier_object *object)
{
    struct steps *steps = ctx;
    uint64_t step;

    if (object == NULL || !parse_key(key, ASH_COMMIT_MANIFEST, &step)) return 0;
    if (steps->count == steps->capacity) {
        size_t capacity = steps->capacity > 0 ? 2 * steps->capacity : 16;
        uint64_t *grown = reallocarray(steps->items, capacity, sizeof(*grown));

        if (grown == NULL) return -ENOMEM;
        steps->items = grown;
        steps->capacity = capacity;
    }
    steps->items[steps->count++] = step;
    return 0;
}

static int compare_steps(const void *left, const void *right)
{
    uint64_t a, b;

    memcpy(&a, left, sizeof(a));
    memcpy(&b, right, sizeof(b));
    return a > b ? -1 : a < b;
}

int ash_place_steps(struct ash_place *place, uint64_t **steps_out, size_t *count_out, struct ash_err *err)
{
    struct steps steps = {0};
    int rc = ash_tier_list(place->tier, PREFIX, true, note_step, &steps, err);

    if (rc < 0) {
        free(steps.items);
        return rc == -ENOMEM ? ash_err_set(err, rc, "out of memory for a list of checkpoints") : rc;
    }
    if (steps.count > 0) qsort(steps.items, steps.count, sizeof(*steps.items), compare_steps);
    *steps_out = steps.items;
    *count_out = steps.count;
    return 0;
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

void ash_place_manifest_fini(struct ash_place_manifest *manifest)
{
    free(manifest->text);
    json_decref(manifest->json);
    *manifest = (struct ash_place_manifest){0};
}

int ash_place_read_manifest(struct ash_place *place, uint64_t step, struct ash_place_manifest *manifest_out,
                            struct ash_err *err)
{
    struct ash_place_manifest manifest = {0};
    struct ash_tier_object object;
    char key[ASH_TIER_KEY_BYTES], name[ASH_TIER_KEY_BYTES];
    int rc = ash_place_key(step, ASH_COMMIT_MANIFEST, key, err);

    if (rc == 0) rc = ash_tier_stat(place->tier, key, &object, err);
    if (rc < 0) return rc;
    if (object.size_bytes == 0 || object.size_bytes > MANIFEST_MAX_BYTES)
        return ash_err_set(err, -EBADMSG, "%s/%s: a manifest of %" PRIu64 " bytes makes no sense", place->url, key,
                           object.size_bytes);
    manifest.size_bytes = (size_t)object.size_bytes;
    manifest.text = malloc(manifest.size_bytes);
    if (manifest.text == NULL) return ash_err_set(err, -ENOMEM, "out of memory for a manifest");
    rc = ash_tier_read(
        place->tier, &(struct ash_tier_range){.key = key, .version = object.version, .size_bytes = manifest.size_bytes},
        manifest.text, err);
    snprintf(name, sizeof(name), "%.800s/" PREFIX "%06" PRIu64, place->url, step);
    if (rc == 0) rc = ash_commit_parse(manifest.text, manifest.size_bytes, name, &manifest.json, err);
    if (rc < 0) {
        ash_place_manifest_fini(&manifest);
        return rc;
    }
    *manifest_out = manifest;
    return 0;
}

uint64_t ash_place_manifest_run(const json_t *manifest)
{
    const char *text = json_string_value(json_object_get(json_object_get(manifest, "state"), ASH_PLACE_RUN));

    return text != NULL ? strtoull(text, NULL, 16) : 0;
}

uint64_t ash_place_manifest_bytes(const json_t *manifest)
{
    const json_t *entry;
    uint64_t sum = 0;
    size_t i;

    json_array_foreach(json_object_get(manifest, "files"), i, entry)
        sum += (uint64_t)json_integer_value(json_object_get(entry, "size"));
    return sum;
}

int ash_place_pieces(struct ash_place *place, const struct ash_place_file *file, struct ash_place_want *wants,
                     size_t count, struct ash_err *err)
{
    const struct ash_pieces *pieces = file->pieces;
    struct ash_tier_piece reads[ASH_PLACE_PIECES_MAX];
    char key[ASH_TIER_KEY_BYTES];
    int rc = ash_place_key(file->step, file->name, key, err);

    ash_assert(count <= ASH_PLACE_PIECES_MAX);
    for (size_t i = 0; i < count; i++)
        reads[i] = (struct ash_tier_piece){{.key = key,
                                            .offset = (uint64_t)wants[i].index * ASH_PIECE_BYTES,
                                            .size_bytes = ash_pieces_bytes(pieces, wants[i].index)},
                                           wants[i].buf};
    if (rc == 0) rc = ash_tier_read_pieces(place->tier, reads, count, err);
    for (size_t i = 0; rc == 0 && i < count; i++)
        wants[i].is_right = ash_piece_sum(reads[i].range.offset, wants[i].buf, reads[i].range.size_bytes) ==
                            pieces->sums[wants[i].index];
    return rc;
}

static int fail_piece(const struct ash_place *place, const struct ash_place_file *file, size_t index,
                      struct ash_err *err)
{
    char key[ASH_TIER_KEY_BYTES];
    int rc = ash_place_key(file->step, file->name, key, err);

    if (rc < 0) return rc;
    return ash_err_set(err, -EBADMSG, "%s/%s: it is damaged: bytes from %" PRIu64 " on are not what was saved",
                       place->url, key, (uint64_t)index * ASH_PIECE_BYTES);
}

int ash_place_piece(struct ash_place *place, const struct ash_place_file *file, size_t index, void *buf,
                    struct ash_err *err)
{
    struct ash_place_want want = {.index = index, .buf = buf};
    int rc = ash_place_pieces(place, file, &want, 1, err);

    return rc < 0 || want.is_right ? rc : fail_piece(place, file, index, err);
}

/* ---- removing ---------------------------------------------------------------------------------------------------- */

struct removal {
    struct ash_place *place;
    uint64_t step;
    char **keys;
    size_t count;
};

static int note_key(void *ctx, const char *key, const struct ash_tier_object *object)
{
    struct removal *removal = ctx;
    char **grown;
    uint64_t step;

    if (object == NULL || !parse_key(key, NULL, &step) || step != removal->step) return 0;
    grown = reallocarray(removal->keys, removal->count + 1, sizeof(*grown));
    if (grown == NULL) return -ENOMEM;
    removal->keys = grown;
    removal->keys[removal->count] = strdup(key);
    return removal->keys[removal->count] != NULL ? (removal->count++, 0) : -ENOMEM;
}

int ash_place_remove(struct ash_place *place, uint64_t step, struct ash_err *err)
{
    struct removal removal = {.place = place, .step = step};
    char key[ASH_TIER_KEY_BYTES], prefix[64];
    int rc = ash_place_key(step, ASH_COMMIT_MANIFEST, key, err);

    if (rc == 0) rc = ash_tier_remove(place->tier, key, err);
    if (rc < 0) return rc;
    snprintf(prefix, sizeof(prefix), PREFIX "%06" PRIu64 "/", step);
    rc = ash_tier_list(place->tier, prefix, true, note_key, &removal, err);
    for (size_t i = 0; i < removal.count; i++) {
        if (rc == 0) rc = ash_tier_remove(place->tier, removal.keys[i], err);
        free(removal.keys[i]);
    }
    free(removal.keys);
    return rc;
}

/* Is a checkpoint of another run than this one? False if it cannot be read, or has no run. */
static bool is_of_another(struct ash_place *place, uint64_t step, uint64_t run)
{
    struct ash_place_manifest manifest = {0};
    uint64_t found = 0;

    if (run == 0) return false;
    if (ash_place_read_manifest(place, step, &manifest, NULL) == 0) found = ash_place_manifest_run(manifest.json);
    ash_place_manifest_fini(&manifest);
    return found != 0 && found != run;
}

int ash_place_check_run(struct ash_place *place, uint64_t run, struct ash_err *err)
{
    uint64_t *steps = NULL;
    size_t count = 0;
    int rc = ash_place_steps(place, &steps, &count, err);

    for (size_t i = 0; rc == 0 && i < count; i++)
        if (is_of_another(place, steps[i], run))
            rc = ash_err_set(err, -EEXIST,
                             "%s holds checkpoints of another run (step %" PRIu64 "): give this one another place",
                             place->url, steps[i]);
    free(steps);
    return rc;
}

int ash_place_prune(struct ash_place *place, size_t keep, uint64_t run, size_t *count_out, struct ash_err *err)
{
    uint64_t *steps = NULL;
    size_t count = 0, own = 0, gone = 0;
    int rc = keep == 0 ? 0 : ash_place_steps(place, &steps, &count, err);

    for (size_t i = 0; rc == 0 && i < count && count > keep; i++) {
        if (is_of_another(place, steps[i], run) || ++own <= keep) continue;
        rc = ash_place_remove(place, steps[i], err);
        gone += rc == 0;
    }
    free(steps);
    if (count_out != NULL) *count_out = gone;
    return rc;
}

/* ---- whole checkpoints ------------------------------------------------------------------------------------------- */

/* A checkpoint that is read from one place and perhaps written to another. */
struct pass {
    struct ash_place *from, *to; /* to NULL: only read */
    uint64_t step;
    struct ash_place_file file;   /* that is passed now */
    struct ash_tier_write *write; /* NULL: it is only read */
    char *buf;                    /* [ASH_PLACE_PIECES_MAX][ASH_PIECE_BYTES] */
    ash_place_progress_fn progress;
    void *ctx;
};

/* Some pieces have been read. */
static int pass_on(const struct pass *pass, const struct ash_place_want *wants, size_t count, struct ash_err *err)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < count; i++) {
        size_t bytes = ash_pieces_bytes(pass->file.pieces, wants[i].index);

        if (!wants[i].is_right) return fail_piece(pass->from, &pass->file, wants[i].index, err);
        if (pass->write != NULL) rc = ash_tier_write_add(pass->to->tier, pass->write, wants[i].buf, bytes, err);
        if (rc == 0 && pass->progress != NULL) rc = pass->progress(pass->ctx, bytes, err);
    }
    return rc;
}

static int pass_pieces(const struct pass *pass, struct ash_err *err)
{
    const struct ash_pieces *pieces = pass->file.pieces;
    struct ash_place_want wants[ASH_PLACE_PIECES_MAX] = {0};
    int rc = 0;

    for (size_t first = 0, count; rc == 0 && first < pieces->count; first += count) {
        count = ash_min(pieces->count - first, ASH_PLACE_PIECES_MAX);
        for (size_t i = 0; i < count; i++)
            wants[i] = (struct ash_place_want){.index = first + i, .buf = pass->buf + i * ASH_PIECE_BYTES};
        rc = ash_place_pieces(pass->from, &pass->file, wants, count, err);
        if (rc == 0) rc = pass_on(pass, wants, count, err);
    }
    return rc;
}

static int pass_file(struct pass *pass, struct ash_err *err)
{
    char key[ASH_TIER_KEY_BYTES];
    int rc = ash_place_key(pass->step, pass->file.name, key, err);

    pass->write = NULL;
    if (rc < 0) return rc;
    if (pass->to == NULL) return pass_pieces(pass, err);
    rc = ash_tier_write_open(pass->to->tier, key, pass->file.pieces->size_bytes, ash_tier_is_url(pass->to->url),
                             &pass->write, err); /* into a bucket, others may send parts (place_help.c) */
    if (rc < 0) return rc;
    rc = pass_pieces(pass, err);
    if (rc == 0) rc = ash_tier_write_finish(pass->to->tier, pass->write, err);
    ash_tier_write_close(pass->to->tier, pass->write, false);
    return rc;
}

static int pass_files(struct pass *pass, const json_t *manifest, struct ash_err *err)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < ash_commit_file_count(manifest); i++) {
        struct ash_pieces pieces = {0};

        pass->file = (struct ash_place_file){.step = pass->step, .pieces = &pieces};
        rc = ash_commit_file(manifest, i, &pass->file.name, &pieces, err);
        if (rc == 0) rc = pass_file(pass, err);
        ash_pieces_fini(&pieces);
    }
    return rc;
}

/* The manifest appears at the other place when all files are there. */
static int pass_manifest(const struct pass *pass, const struct ash_place_manifest *manifest, struct ash_err *err)
{
    struct ash_tier *tier = pass->to->tier;
    struct ash_tier_write *write = NULL;
    char key[ASH_TIER_KEY_BYTES];
    int rc = ash_place_key(pass->step, ASH_COMMIT_MANIFEST, key, err);

    if (rc == 0 && pass->progress != NULL) rc = pass->progress(pass->ctx, 0, err);
    if (rc == 0) rc = ash_tier_write_open(tier, key, manifest->size_bytes, false, &write, err);
    if (rc < 0) return rc;
    rc = ash_tier_write_add(tier, write, manifest->text, manifest->size_bytes, err);
    if (rc == 0) rc = ash_tier_write_finish(tier, write, err);
    ash_tier_write_close(tier, write, false);
    return rc;
}

/* Everything of a step through a few buffers. */
static int pass_all(struct pass *pass, struct ash_err *err)
{
    struct ash_place_manifest manifest = {0};
    int rc = ash_place_read_manifest(pass->from, pass->step, &manifest, err);

    if (rc < 0) return rc;
    pass->buf = aligned_alloc(4096, ASH_PLACE_PIECES_MAX * ASH_PIECE_BYTES);
    if (pass->buf == NULL) rc = ash_err_set(err, -ENOMEM, "out of memory for some pieces");
    if (rc == 0) rc = pass_files(pass, manifest.json, err);
    if (rc == 0 && pass->to != NULL) rc = pass_manifest(pass, &manifest, err);
    free(pass->buf);
    ash_place_manifest_fini(&manifest);
    return rc;
}

int ash_place_verify(struct ash_place *place, uint64_t step, ash_place_progress_fn progress, void *ctx,
                     struct ash_err *err)
{
    struct pass pass = {.from = place, .step = step, .progress = progress, .ctx = ctx};

    return pass_all(&pass, err);
}

int ash_place_copy(struct ash_place *from, struct ash_place *to, uint64_t step, ash_place_progress_fn progress,
                   void *ctx, struct ash_err *err)
{
    struct pass pass = {.from = from, .to = to, .step = step, .progress = progress, .ctx = ctx};

    return pass_all(&pass, err);
}
