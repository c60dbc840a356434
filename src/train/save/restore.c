/* restore: the first rank lists and chooses, all ranks check. */
#include "train/save/restore.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/str.h"
#include "storage/commit/commit.h"
#include "train/save/restore_priv.h"

void ash_restored_fini(struct ash_restored *restored)
{
    json_decref(restored->manifest);
    *restored = (struct ash_restored){0};
}

/* ---- the first rank: which there are ----------------------------------------------------------------------------- */

static int add_steps(struct ash_restore *search, struct ash_place *place, struct ash_err *err)
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

/* A place that is unreachable counts as empty, with a warning. */
static int list_steps(struct ash_restore *search, struct ash_err *err)
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

static int open_places(struct ash_restore *search, struct ash_err *err)
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

static int note_skipped(struct ash_restore *search, const char *why)
{
    return ash_str_addf(&search->skipped, "%s%s", search->skipped.size_bytes > 0 ? "\n" : "", why);
}

/* The manifest of a step in a place, unless another run made it. */
static int read_manifest(const struct ash_restore *search, struct ash_place *place, uint64_t step,
                         struct ash_place_manifest *manifest_out, struct ash_err *err)
{
    uint64_t run = search->opts->run, found;
    int rc = ash_place_read_manifest(place, step, manifest_out, err);

    if (rc < 0 || run == 0) return rc;
    found = ash_place_manifest_run(manifest_out->json);
    if (found == 0 || found == run) return 0;
    ash_place_manifest_fini(manifest_out);
    return ash_err_set(err, -ENOENT, "step %" PRIu64 " in %s is of another run", step, ash_place_url(place));
}

/* The manifest of a step from the nearest place that has it right. */
static int find_manifest(struct ash_restore *search, uint64_t step, struct ash_restore_proposal *proposal,
                         struct ash_place_manifest *manifest_out, struct ash_err *err)
{
    int rc = read_manifest(search, search->root, step, manifest_out, err);

    proposal->step = step;
    proposal->is_here = rc == 0;
    for (size_t i = 0; rc < 0 && i < search->opts->other_count; i++) {
        struct ash_err other = {0};

        if (search->others[i] == NULL) continue;
        if (read_manifest(search, search->others[i], step, manifest_out, &other) < 0) continue;
        ash_log(ASH_LOG_INFO, "step %" PRIu64 " comes from %s", step, search->opts->others[i]);
        rc = 0;
    }
    if (rc == 0) proposal->text_bytes = manifest_out->size_bytes;
    return rc;
}

/* ---- together ---------------------------------------------------------------------------------------------------- */

/* The error of a checkpoint: the same on all ranks. Plain data. */
struct verdict {
    int rc; /* 0: nothing */
    struct ash_err err;
};

/* All ranks get the verdict of the first one that finds something wrong. */
static int agree(struct ash_restore *search, struct verdict *verdict, struct ash_err *err)
{
    struct ash_group *group = search->opts->group;
    int32_t worst;
    int rc;

    worst = verdict->rc < 0 ? (int32_t)ash_group_rank(group) : INT32_MAX;
    rc = ash_group_all_reduce(group, &worst, &worst, 1, ASH_COLL_I32, ASH_COLL_MIN, err);
    if (rc < 0 || worst == INT32_MAX) return rc;
    return ash_group_broadcast(group, verdict, sizeof(*verdict), (size_t)worst, err);
}

/* The first rank has it in its folder, and no other place is named to fetch it from: then all ranks must see it. */
static int check_seen(const struct ash_restore *search, const struct ash_restore_proposal *proposal,
                      const struct ash_place_manifest *manifest, const char *dir, struct ash_err *err)
{
    struct ash_group *group = search->opts->group;
    char path[PATH_MAX];

    if (group == NULL || !proposal->is_here || search->opts->other_count > 0) return 0;
    if (ash_path_join(path, sizeof(path), dir, ASH_COMMIT_MANIFEST) < 0) return -ENAMETOOLONG;
    if (ash_path_exists(path)) return 0;
    return ash_err_set(err, -EBADE,
                       "ranks were given different jobs: checkpoint is %016" PRIx64
                       " on rank 0 (%.64s: %s) and none on rank %zu (%.64s)",
                       ash_hash_bytes(manifest->text, manifest->size_bytes, 0), ash_group_get_member(group, 0).host,
                       dir, ash_group_rank(group), ash_group_get_member(group, ash_group_rank(group)).host);
}

/* On several nodes: does any rank lack the folder of the checkpoint? Then all do without it, as if it were any place:
 * they must load the same. */
static int find_elsewhere(const struct ash_restore *search, const char *dir, bool *is_elsewhere_out,
                          struct ash_err *err)
{
    char manifest[PATH_MAX];
    int32_t is_missing = 1;
    int rc;

    *is_elsewhere_out = false;
    if (!search->has_nodes || search->opts->other_count == 0) return 0;
    if (ash_path_join(manifest, sizeof(manifest), dir, ASH_COMMIT_MANIFEST) == 0)
        is_missing = ash_path_exists(manifest) ? 0 : 1;
    rc = ash_group_all_reduce(search->opts->group, &is_missing, &is_missing, 1, ASH_COLL_I32, ASH_COLL_MAX, err);
    *is_elsewhere_out = is_missing > 0;
    return rc;
}

/* A rank's private folder for the small files of a checkpoint whose values stay in other places. */
static int make_own_dir(const struct ash_restore *search, struct ash_restored *restored, struct ash_err *err)
{
    size_t length = strlen(restored->dir);

    if (!restored->is_elsewhere) return 0;
    if ((size_t)snprintf(restored->dir + length, sizeof(restored->dir) - length, ".rank-%zu",
                         ash_group_rank(search->opts->group)) >= sizeof(restored->dir) - length)
        return ash_err_set(err, -ENAMETOOLONG, "%s: the path is too long", search->opts->root);
    ash_dir_remove(restored->dir, NULL); /* one that a killed process left */
    return ash_dir_make(restored->dir, err);
}

static void discard(const struct ash_restored *restored)
{
    if (restored->is_elsewhere) ash_dir_remove(restored->dir, NULL);
}

/* First rank: the folder is there to be filled, or to be completed by the manifest. */
static int prepare(const struct ash_restore *search, const struct ash_restore_proposal *proposal,
                   const struct ash_restored *restored, struct ash_err *err)
{
    if (!search->is_first || proposal->is_here || restored->is_elsewhere) return 0;
    return ash_commit_claim(restored->dir, err);
}

static int complete(const struct ash_restore *search, const struct ash_restore_proposal *proposal,
                    const struct ash_restored *restored, const struct ash_place_manifest *manifest, struct ash_err *err)
{
    if (!search->is_first || proposal->is_here || restored->is_elsewhere) return 0;
    return ash_commit_adopt(restored->dir, manifest->text, manifest->size_bytes, err);
}

/* Check, and mend, one checkpoint: each step on all ranks, or not at all. */
static int check_one(struct ash_restore *search, const struct ash_restore_proposal *proposal,
                     const struct ash_place_manifest *manifest, struct ash_restored *restored, struct verdict *verdict,
                     struct ash_err *err)
{
    int rc;

    verdict->rc = ash_place_dir(search->opts->root, proposal->step, restored->dir, sizeof(restored->dir));
    rc = find_elsewhere(search, restored->dir, &restored->is_elsewhere, err);
    if (rc < 0) return rc;
    if (verdict->rc == 0) verdict->rc = make_own_dir(search, restored, &verdict->err);
    restored->is_elsewhere = restored->is_elsewhere && verdict->rc == 0; /* else there is no folder to discard */
    if (verdict->rc == 0) verdict->rc = check_seen(search, proposal, manifest, restored->dir, &verdict->err);
    if (verdict->rc == 0) verdict->rc = prepare(search, proposal, restored, &verdict->err);
    rc = agree(search, verdict, err);
    if (rc < 0 || verdict->rc < 0) return rc;
    verdict->rc = ash_restore_check(search, proposal, restored, &verdict->err);
    rc = agree(search, verdict, err);
    if (rc < 0 || verdict->rc < 0) return rc;
    verdict->rc = complete(search, proposal, restored, manifest, &verdict->err);
    return agree(search, verdict, err);
}

static int try_one(struct ash_restore *search, const struct ash_restore_proposal *proposal,
                   const struct ash_place_manifest *manifest, struct ash_restored *restored_out,
                   struct verdict *verdict, struct ash_err *err)
{
    struct ash_restored restored = {.step = proposal->step, .manifest = json_incref(manifest->json)};
    int rc = check_one(search, proposal, manifest, &restored, verdict, err);

    if (rc == 0 && verdict->rc == 0) {
        *restored_out = restored;
        return 0;
    }
    discard(&restored);
    ash_restored_fini(&restored);
    return rc;
}

/* The first rank's proposal, to all. */
static int share_proposal(const struct ash_restore *search, struct ash_restore_proposal *proposal,
                          struct ash_place_manifest *manifest, struct ash_err *err)
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
static int propose(struct ash_restore *search, struct ash_restore_proposal *proposal,
                   struct ash_place_manifest *manifest)
{
    *proposal = (struct ash_restore_proposal){0};
    while (search->is_first && search->next < search->step_count && proposal->text_bytes == 0) {
        struct ash_err why = {0};

        if (find_manifest(search, search->steps[search->next++], proposal, manifest, &why) < 0) {
            int rc = note_skipped(search, why.text);
            if (rc < 0) return rc;
        }
    }
    if (proposal->text_bytes == 0) proposal->is_here = search->step_count > 0;
    return 0;
}

/* First rank: folders newer than the checkpoint found that are not checkpoints: their saves were killed. */
static int note_unfinished(struct ash_restore *search, uint64_t found)
{
    struct dirent **entries = NULL;
    int count = scandir(search->opts->root, &entries, NULL, alphasort), rc = 0;

    for (int i = 0; i < count; i++) {
        char path[PATH_MAX], why[PATH_MAX + 64];
        const char *digits = entries[i]->d_name + strlen("step-");

        if (rc == 0 && strncmp(entries[i]->d_name, "step-", strlen("step-")) == 0 &&
            strtoull(digits, NULL, 10) > found && strtoull(digits, NULL, 10) < search->noted &&
            ash_path_join(path, sizeof(path), search->opts->root, entries[i]->d_name) == 0 &&
            ash_commit_is_unfinished(path)) {
            snprintf(why, sizeof(why), "%s: this save was not finished", path);
            rc = note_skipped(search, why);
        }
        free(entries[i]);
    }
    free(entries);
    search->noted = found + 1;
    return rc;
}

static int search_on(struct ash_restore *search, struct ash_restored *restored, struct ash_err *err)
{
    for (;;) {
        struct ash_place_manifest manifest = {0};
        struct ash_restore_proposal proposal;
        struct verdict verdict = {0};
        int rc = propose(search, &proposal, &manifest);

        if (rc == 0) rc = share_proposal(search, &proposal, &manifest, err);
        if (rc == 0 && proposal.text_bytes == 0) return proposal.is_here != 0 ? -ENOENT : -ENODATA;
        if (rc == 0) rc = try_one(search, &proposal, &manifest, restored, &verdict, err);
        if (rc == 0 && verdict.rc < 0 && search->is_first) rc = note_skipped(search, verdict.err.text);
        ash_place_manifest_fini(&manifest);
        if (rc == 0 && verdict.rc == -EBADE) return ash_err_set(err, verdict.rc, "%s", verdict.err.text);
        if (rc < 0 || verdict.rc == 0) return rc;
    }
}

/* There is no checkpoint, or none that is any good. */
static void say_nothing_found(const struct ash_restore *search, int rc, struct ash_err *err)
{
    const char *skipped = search->skipped.data != NULL ? search->skipped.data : "";

    if (rc == -ENODATA)
        ash_err_set(err, rc, "%s: there is no checkpoint", search->opts->root);
    else
        ash_err_set(err, rc, "%s: there is no complete checkpoint%s%.*s", search->opts->root,
                    skipped[0] != '\0' ? "; the newest is no good: " : "", (int)strcspn(skipped, "\n"), skipped);
}

int ash_restore_open(const struct ash_restore_opts *opts, struct ash_restore **restore_out, struct ash_err *err)
{
    struct ash_restore *search = calloc(1, sizeof(*search));
    int rc;

    if (search == NULL) return ash_err_set(err, -ENOMEM, "out of memory");
    search->opts = opts;
    search->size = 1;
    search->noted = UINT64_MAX;
    search->is_first = ash_group_rank(opts->group) == 0;
    search->has_nodes = ash_group_nodes(opts->group) > 1;
    if (!search->has_nodes) { /* else each node may have its own disk */
        search->rank = ash_group_rank(opts->group);
        search->size = ash_group_size(opts->group);
    }
    rc = open_places(search, err);
    if (rc == 0 && search->is_first) rc = list_steps(search, err);
    if (rc < 0) {
        ash_restore_close(search);
        return rc;
    }
    *restore_out = search;
    return 0;
}

void ash_restore_close(struct ash_restore *restore)
{
    if (restore == NULL) return;
    ash_place_close(restore->root);
    for (size_t i = 0; restore->others != NULL && i < restore->opts->other_count; i++)
        ash_place_close(restore->others[i]);
    free(restore->others);
    free(restore->steps);
    ash_str_fini(&restore->skipped);
    free(restore);
}

int ash_restore_next(struct ash_restore *restore, struct ash_restored *restored_out, struct ash_err *err)
{
    struct ash_restored restored = {0};
    int rc = search_on(restore, &restored, err);

    if (restore->is_first && (rc == 0 || rc == -ENOENT) && note_unfinished(restore, rc == 0 ? restored.step : 0) < 0)
        rc = ash_err_set(err, -ENOMEM, "out of memory");
    if (rc == -ENODATA || rc == -ENOENT) say_nothing_found(restore, rc, err);
    if (rc == 0)
        *restored_out = restored;
    else
        ash_restored_fini(&restored);
    return rc;
}

int ash_restore_read(struct ash_restore *restore, const struct ash_restored *restored, const struct ash_stages *stages,
                     const struct ash_model *outline, struct ash_err *err)
{
    struct verdict verdict = {0};
    int rc;

    if (stages != NULL) verdict.rc = ash_restore_load(restore, restored, stages, outline, &verdict.err);
    discard(restored);
    rc = agree(restore, &verdict, err);
    if (rc < 0 || verdict.rc == 0) return rc;
    if (restore->is_first && note_skipped(restore, verdict.err.text) < 0) return -ENOMEM;
    return ash_err_set(err, verdict.rc, "%s", verdict.err.text);
}

char *ash_restore_take_skipped(struct ash_restore *restore)
{
    char *skipped = restore->skipped.data;

    restore->skipped = (struct ash_str){0};
    return skipped;
}
