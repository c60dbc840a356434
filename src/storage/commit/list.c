/* Numbered commits in one folder: which is the newest complete one, and which can go. */
#include "storage/commit/commit_priv.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/file.h"
#include "base/str.h"
#include "storage/io/io_priv.h"

struct candidate {
    char *name;
    uint64_t number;
    bool is_aside; /* .NAME.old: good where a save was killed between its two renames */
    int status;    /* of verify, for prune */
};

struct candidates {
    struct candidate *items;
    size_t count;
};

static void candidates_fini(struct candidates *list)
{
    for (size_t i = 0; i < list->count; i++)
        free(list->items[i].name);
    free(list->items);
    *list = (struct candidates){0};
}

/* The text after prefix, or NULL. */
static const char *skip_prefix(const char *text, const char *prefix)
{
    size_t length = strlen(prefix);

    return strncmp(text, prefix, length) == 0 ? text + length : NULL;
}

/* Digits at text into *number_out. Returns the text after them, or NULL if there is none or too many. */
static const char *skip_number(const char *text, uint64_t *number_out)
{
    char *end = NULL;

    if (text == NULL || *text < '0' || *text > '9') return NULL;
    errno = 0;
    *number_out = strtoull(text, &end, 10);
    return errno == 0 ? end : NULL;
}

static bool parse_name(const char *name, const char *prefix, struct candidate *candidate)
{
    const char *rest;

    candidate->is_aside = name[0] == '.' && prefix[0] != '.';
    rest = skip_number(skip_prefix(name + candidate->is_aside, prefix), &candidate->number);
    return rest != NULL && strcmp(rest, candidate->is_aside ? ASH_COMMIT_OLD : "") == 0;
}

/* Newest first; a folder in its place before one aside. */
static int compare_candidates(const void *left, const void *right)
{
    const struct candidate *a = left, *b = right;

    if (a->number != b->number) return a->number > b->number ? -1 : 1;
    if (a->is_aside != b->is_aside) return a->is_aside ? 1 : -1;
    return strcmp(a->name, b->name);
}

static int add_candidate(struct candidates *list, struct candidate candidate, const char *name)
{
    struct candidate *items;

    candidate.name = strdup(name);
    if (candidate.name == NULL) return -ENOMEM;
    items = reallocarray(list->items, list->count + 1, sizeof(*items));
    if (items == NULL) {
        free(candidate.name);
        return -ENOMEM;
    }
    list->items = items;
    items[list->count++] = candidate;
    return 0;
}

static int candidates_init(struct candidates *list, const char *parent, const char *prefix, struct ash_err *err)
{
    DIR *entries = opendir(parent);
    struct dirent *entry;
    int rc = 0;

    *list = (struct candidates){0};
    if (entries == NULL) return ash_err_set(err, -errno, "%s: cannot list this folder: %s", parent, strerror(errno));
    while (rc == 0 && (entry = readdir(entries)) != NULL) {
        struct candidate candidate = {0};
        if (parse_name(entry->d_name, prefix, &candidate)) rc = add_candidate(list, candidate, entry->d_name);
    }
    closedir(entries);
    if (rc < 0) {
        candidates_fini(list);
        return ash_err_set(err, rc, "%s: no memory to list this folder", parent);
    }
    if (list->count > 0) qsort(list->items, list->count, sizeof(*list->items), compare_candidates);
    return 0;
}

/* Verify the candidates from the newest on; the sentences of those that fail go to skipped. Returns -ENOENT when all
 * do. */
static int find_complete(const struct candidates *list, const char *parent, bool deep, struct ash_commit_found *found,
                         struct ash_str *skipped)
{
    char path[PATH_MAX];

    for (size_t i = 0; i < list->count; i++) {
        struct ash_err why = {0};
        int rc = ash_path_join(path, sizeof(path), parent, list->items[i].name);

        if (rc == 0) rc = ash_commit_verify(path, deep, &found->manifest, &why);
        if (rc == 0) {
            found->number = list->items[i].number;
            found->path = strdup(path);
            return found->path != NULL ? 0 : -ENOMEM;
        }
        rc = ash_str_addf(skipped, "%s%s", skipped->size_bytes > 0 ? "\n" : "", why.text);
        if (rc < 0) return rc;
    }
    return -ENOENT;
}

int ash_commit_latest(const char *parent, const char *prefix, bool deep, struct ash_commit_found *found_out,
                      struct ash_err *err)
{
    struct ash_commit_found found = {0};
    struct ash_str skipped = {0};
    struct candidates list;
    int rc;

    rc = candidates_init(&list, parent, prefix, err);
    if (rc < 0) return rc;
    rc = find_complete(&list, parent, deep, &found, &skipped);
    candidates_fini(&list);
    found.skipped = skipped.data; /* a plain malloc'd string from here on */
    if (rc == 0) {
        *found_out = found;
        return 0;
    }
    if (rc == -ENOENT)
        ash_err_set(err, rc, "%s: there is no complete save named %s<number>%s%.*s", parent, prefix,
                    found.skipped != NULL ? "; the newest is no good: " : "",
                    found.skipped != NULL ? (int)strcspn(found.skipped, "\n") : 0,
                    found.skipped != NULL ? found.skipped : "");
    else
        ash_err_set(err, rc, "%s: no memory to look for saves", parent);
    ash_commit_found_fini(&found);
    return rc;
}

void ash_commit_found_fini(struct ash_commit_found *found)
{
    free(found->path);
    free(found->skipped);
    json_decref(found->manifest);
    *found = (struct ash_commit_found){0};
}

/* Keep the first failure of several. */
static int first_error(int rc, int next)
{
    return rc < 0 ? rc : next;
}

/* Is text ".tmp-<digits>-<digits>"? */
static bool is_temp_suffix(const char *text)
{
    uint64_t number;
    const char *rest = skip_number(skip_prefix(text, ASH_COMMIT_TEMP), &number);

    if (rest == NULL || *rest != '-') return false;
    rest = skip_number(rest + 1, &number);
    return rest != NULL && *rest == '\0';
}

/* A save aside belongs back in its place when that is empty, and is rubbish when not. Other things of that name
 * stay. */
static int settle_aside(const char *parent, const char *name, struct ash_err *err)
{
    char path[PATH_MAX], place[PATH_MAX], bare[NAME_MAX + 1];
    int rc;

    ash_assert(strlen(name) > 1 + strlen(ASH_COMMIT_OLD));
    snprintf(bare, sizeof(bare), "%.*s", (int)(strlen(name) - 1 - strlen(ASH_COMMIT_OLD)), name + 1);
    rc = ash_path_join(path, sizeof(path), parent, name);
    if (rc == 0) rc = ash_path_join(place, sizeof(place), parent, bare);
    if (rc < 0) return ash_io_fail(err, rc, parent, "tidy up");
    if (ash_commit_verify(path, false, NULL, NULL) == -ENOENT) return 0;
    if (ash_path_exists(place) && !ash_commit_is_unfinished(place)) return ash_commit_discard(path, err);
    if (ash_path_exists(place)) {
        rc = ash_commit_discard(place, err);
        if (rc < 0) return rc;
    }
    return rename(path, place) == 0 ? 0 : ash_io_fail(err, -errno, path, "move back");
}

/* Clean up a hidden folder of a killed save or removal. */
static int settle_leftover(const char *parent, const char *name, struct ash_err *err)
{
    const char *suffix = strrchr(name, '.');
    char path[PATH_MAX];

    if (strcmp(suffix, ASH_COMMIT_OLD) == 0) return settle_aside(parent, name, err);
    if (strcmp(suffix, ASH_COMMIT_TRASH) != 0 && !is_temp_suffix(suffix)) return 0;
    if (ash_path_join(path, sizeof(path), parent, name) < 0) return ash_io_fail(err, -ENAMETOOLONG, parent, "tidy up");
    return ash_dir_remove(path, err);
}

static int settle_leftovers(const char *parent, const char *prefix, struct ash_err *err)
{
    struct dirent **entries = NULL;
    int count = scandir(parent, &entries, NULL, alphasort), rc = 0;

    if (count < 0) return ash_io_fail(err, -errno, parent, "list");
    for (int i = 0; i < count; i++) {
        const char *name = entries[i]->d_name;
        if (name[0] == '.' && skip_prefix(name + 1, prefix) != NULL && strchr(name + 1, '.') != NULL)
            rc = first_error(rc, settle_leftover(parent, name, rc == 0 ? err : NULL));
        free(entries[i]);
    }
    free(entries);
    return rc;
}

#define UNFINISHED 1 /* status of a folder that a killed save left in place */

/* Set every candidate's status; returns how many are complete. */
static size_t check_candidates(struct candidates *list, const char *parent)
{
    char path[PATH_MAX];
    size_t complete = 0;

    for (size_t i = 0; i < list->count; i++) {
        struct candidate *candidate = &list->items[i];
        candidate->status = ash_path_join(path, sizeof(path), parent, candidate->name);
        if (candidate->status == 0) candidate->status = ash_commit_verify(path, false, NULL, NULL);
        if (candidate->status == -ENOENT && ash_commit_is_unfinished(path)) candidate->status = UNFINISHED;
        complete += candidate->status == 0;
    }
    return complete;
}

static int remove_candidate(const char *parent, const char *name, struct ash_err *err)
{
    char path[PATH_MAX];

    if (ash_path_join(path, sizeof(path), parent, name) < 0)
        return ash_io_fail(err, -ENAMETOOLONG, parent, "remove a save in");
    return ash_commit_discard(path, err);
}

/* Folders to remove. */
struct rule {
    size_t keep;
    uint64_t pinned;
    bool is_quiet; /* no save is under way */
};

static bool goes(const struct candidate *candidate, const struct rule *rule, size_t complete, size_t *kept)
{
    if (candidate->status == 0 && *kept < rule->keep) {
        ++*kept;
        return false;
    }
    if (candidate->number == rule->pinned) return false;
    if (candidate->status == 0) return true;
    if (!rule->is_quiet) return false;
    return candidate->status == UNFINISHED || (candidate->status == -EBADMSG && complete > 0);
}

static int remove_candidates(struct candidates *list, const char *parent, const struct rule *rule, struct ash_err *err)
{
    size_t complete = check_candidates(list, parent), kept = 0;
    int rc = 0;

    for (size_t i = 0; i < list->count; i++)
        if (goes(&list->items[i], rule, complete, &kept))
            rc = first_error(rc, remove_candidate(parent, list->items[i].name, rc == 0 ? err : NULL));
    return rc;
}

static int prune(const char *parent, const char *prefix, const struct rule *rule, struct ash_err *err)
{
    struct candidates list;
    int rc = 0;

    if (rule->keep == 0) return ash_err_set(err, -EINVAL, "%s: at least one save must be kept", parent);
    if (!ash_path_exists(parent)) return 0;
    if (rule->is_quiet) rc = settle_leftovers(parent, prefix, err);
    if (rc < 0) return rc;
    rc = candidates_init(&list, parent, prefix, err);
    if (rc < 0) return rc;
    rc = remove_candidates(&list, parent, rule, err);
    candidates_fini(&list);
    return rc;
}

int ash_commit_prune(const char *parent, const char *prefix, size_t keep, struct ash_err *err)
{
    struct rule rule = {.keep = keep, .pinned = UINT64_MAX, .is_quiet = true};

    return prune(parent, prefix, &rule, err);
}

int ash_commit_prune_complete(const char *parent, const char *prefix, size_t keep, uint64_t pinned, struct ash_err *err)
{
    struct rule rule = {.keep = keep, .pinned = pinned};

    return prune(parent, prefix, &rule, err);
}
