/* agree: one hash per rank, all-gathered. If a rank's differs from the first one's, all ranks get both texts and report
 * the same error, so that each log has the cause. */
#include "train/job/agree.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/math.h"
#include "compute/backends/backends.h"
#include "storage/io/remote_file.h"

#define NAMED_MAX 3 /* settings in the sentence */
#define SENTENCE_BYTES 400
#define PAGE_BYTES 4096
#define HEADER_BYTES ((size_t)1 << 20) /* of a weights file: names and shapes of its tensors */
#define SAMPLES 64                     /* pages of a weights file */

/* Version of the order of bf16 sums if it is not that of "ref". 2: weight gradients sum over tokens in groups that
 * restart with each sequence; before that, one chain of fused multiply-adds. 3: attention multiplies bf16, too. 4:
 * norms, losses and activations by blocks and rounded as a GPU does it (docs/same-bits.md). */
#define TOKEN_ORDER "/2"
#define GPU_ORDER "/4"

/* ---- weights ----------------------------------------------------------------------------------------------------- */

static uint64_t hash_file(const struct ash_map *map, const char *name, bool is_whole)
{
    size_t header = is_whole ? map->size_bytes : ash_min(map->size_bytes, HEADER_BYTES);
    uint64_t hash = ash_hash_bytes(map->base, header, ash_hash_str(name));
    size_t stride = is_whole ? 0 : map->size_bytes / SAMPLES;

    hash = ash_hash_mix(hash + map->size_bytes);
    for (size_t i = 0; i < SAMPLES && stride > PAGE_BYTES; i++)
        hash = ash_hash_bytes(map->base + i * stride, PAGE_BYTES, hash);
    return hash;
}

/* Is it one of the files that decide the weights? */
static bool is_hashed(const char *name)
{
    const char *dot = strrchr(name, '.');

    return strcmp(name, "config.json") == 0 ||
           (dot != NULL && (strcmp(dot, ".safetensors") == 0 || strcmp(dot, ".gguf") == 0));
}

/* Add a file's hash to *sum: a remote one is identified by its version. */
static int hash_named(const char *path, const char *name, bool is_whole, uint64_t *sum, struct ash_err *err)
{
    const struct ash_remote_file *remote = ash_remote_file_find(path);
    struct ash_map map = {0};
    int rc = remote == NULL ? ash_map_open(path, &map, err) : 0;

    if (rc < 0) return rc;
    *sum += remote != NULL ? ash_hash_mix(ash_hash_str(name) + remote->identity) : hash_file(&map, name, is_whole);
    ash_map_close(&map);
    return 0;
}

/* The sum of the hashes of a folder's files, which are listed in any order. Closes the folder. */
static int hash_folder(const char *dir, DIR *folder, bool is_whole, uint64_t *sum, struct ash_err *err)
{
    int rc = 0;

    for (struct dirent *entry = readdir(folder); entry != NULL && rc == 0; entry = readdir(folder)) {
        char path[PATH_MAX];

        if (!is_hashed(entry->d_name)) continue;
        rc = ash_path_join(path, sizeof(path), dir, entry->d_name);
        if (rc < 0) {
            ash_err_set(err, rc, "%s: the path is too long", dir);
            break;
        }
        rc = hash_named(path, entry->d_name, is_whole, sum, err);
    }
    closedir(folder);
    return rc;
}

int ash_agree_hash_model(const char *path, bool is_whole, uint64_t *hash_out, struct ash_err *err)
{
    DIR *folder = opendir(path);
    uint64_t sum = 0;
    int rc;

    if (folder != NULL)
        rc = hash_folder(path, folder, is_whole, &sum, err);
    else if (errno == ENOTDIR)
        rc = hash_named(path, "model.gguf", is_whole, &sum, err);
    else
        rc = ash_err_set(err, -errno, "%s: %s", path, strerror(errno));

    if (rc == 0) *hash_out = sum;
    return rc;
}

/* ---- arithmetic -------------------------------------------------------------------------------------------------- */

void ash_agree_name_arithmetic(const struct ash_job *job, const struct ash_exec *exec, char name[ASH_ARITHMETIC_BYTES])
{
    const struct ash_ops *reference = exec->ops->reference;
    char backend[ASH_BACKEND_ARITHMETIC_BYTES];
    bool plain = job->train.precision == ASH_JOB_FP32 || reference == &ash_ops_ref;
    const char *order = reference->attn != ash_ops_ref.attn ? GPU_ORDER : TOKEN_ORDER;

    snprintf(name, ASH_ARITHMETIC_BYTES, "%s%s", plain ? ash_ops_ref.name : ash_backend_arithmetic(exec, backend),
             plain ? "" : order);
}

int ash_agree_add_hash(struct ash_str *lines, const char *name, uint64_t hash)
{
    ash_assert(strchr(name, ' ') == NULL);
    return hash == 0 ? ash_str_addf(lines, "%s none\n", name) : ash_str_addf(lines, "%s %016" PRIx64 "\n", name, hash);
}

/* ---- the sentence ------------------------------------------------------------------------------------------------ */

/* A line of a text, in place. */
struct line {
    const char *name, *value;
    int name_bytes, value_bytes;
};

/* Take the line at *at and step over it. Returns false at the end of the text. */
static bool take_line(const char **at, struct line *line_out)
{
    const char *end = strchr(*at, '\n'), *space = strchr(*at, ' ');

    if (end == NULL || space == NULL || space > end) return false;
    *line_out = (struct line){
        .name = *at, .value = space + 1, .name_bytes = (int)(space - *at), .value_bytes = (int)(end - space - 1)};
    *at = end + 1;
    return true;
}

static bool is_same(const struct line *a, const struct line *b)
{
    return a->name_bytes == b->name_bytes && a->value_bytes == b->value_bytes &&
           memcmp(a->name, b->name, (size_t)(a->name_bytes + 1 + a->value_bytes)) == 0;
}

/* "optimizer.lr is 0.003 on rank 0 (a) and 0.01 on rank 1 (b), train.seed 1 and 2", cut off where buf ends. */
static void name_differences(const struct ash_group *group, const char *const texts[2], size_t other, char *buf,
                             size_t buf_bytes)
{
    const char *at[2] = {texts[0], texts[1]};
    struct line a, b;
    size_t named = 0, used = 0;

    while (named < NAMED_MAX && used < buf_bytes && take_line(&at[0], &a) && take_line(&at[1], &b)) {
        if (is_same(&a, &b)) continue;
        if (named == 0)
            used += (size_t)snprintf(buf, buf_bytes, "%.*s is %.*s on rank 0 (%.64s) and %.*s on rank %zu (%.64s)",
                                     a.name_bytes, a.name, a.value_bytes, a.value, ash_group_get_member(group, 0).host,
                                     b.value_bytes, b.value, other, ash_group_get_member(group, other).host);
        else
            used += (size_t)snprintf(buf + used, buf_bytes - used, ", %.*s %.*s and %.*s", a.name_bytes, a.name,
                                     a.value_bytes, a.value, b.value_bytes, b.value);
        named++;
    }
}

/* Broadcast the text of rank `root` into a new *text_out. */
static int share_text(struct ash_group *group, size_t root, const struct ash_str *own, char **text_out,
                      struct ash_err *err)
{
    uint64_t size_bytes = own->size_bytes;
    char *text;
    int rc = ash_group_broadcast(group, &size_bytes, sizeof(size_bytes), root, err);

    if (rc < 0) return rc;
    text = calloc(1, size_bytes + 1);
    if (text == NULL) return ash_err_set(err, -ENOMEM, "out of memory for a rank's settings");
    if (ash_group_rank(group) == root) memcpy(text, own->data, size_bytes);
    rc = ash_group_broadcast(group, text, size_bytes, root, err);
    if (rc < 0)
        free(text);
    else
        *text_out = text;
    return rc;
}

/* Rank `other` is the first of `count` whose lines are not those of rank 0. */
static int explain(struct ash_group *group, const struct ash_str *lines, size_t other, size_t count,
                   struct ash_err *err)
{
    char sentence[SENTENCE_BYTES] = "their versions are not the same", more[64] = "";
    char *texts[2] = {NULL, NULL};
    int rc = share_text(group, 0, lines, &texts[0], err);

    if (rc == 0) rc = share_text(group, other, lines, &texts[1], err);
    if (rc == 0) {
        name_differences(group, (const char *const *)texts, other, sentence, sizeof(sentence));
        if (count > 1) snprintf(more, sizeof(more), "; %zu ranks differ from rank 0", count);
        rc = ash_err_set(err, -EBADE, "ranks were given different jobs: %s%s", sentence, more);
    }
    free(texts[0]);
    free(texts[1]);
    return rc;
}

int ash_agree_check(struct ash_group *group, const struct ash_str *lines, struct ash_err *err)
{
    size_t size = ash_group_size(group), other = 0, count = 0;
    uint64_t own, *hashes;
    int rc;

    ash_assert(lines->data != NULL);
    if (size == 1) return 0;
    hashes = calloc(size, sizeof(*hashes));
    if (hashes == NULL) return ash_err_set(err, -ENOMEM, "out of memory for the hashes of %zu ranks", size);
    own = ash_hash_bytes(lines->data, lines->size_bytes, 0);
    rc = ash_group_all_gather(group, &own, hashes, sizeof(own), err);
    for (size_t r = size - 1; r > 0 && rc == 0; r--) {
        if (hashes[r] == hashes[0]) continue;
        other = r;
        count++;
    }
    free(hashes);
    return rc < 0 || count == 0 ? rc : explain(group, lines, other, count, err);
}
