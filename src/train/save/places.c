/* places: the settings save.to and save.keep. */
#include "train/save/places.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "storage/s3/url.h"
#include "storage/tier/tier.h"
#include "train/save/place.h"

#define CHECK_S 2.0 /* a server that does not answer for so long is away */

#define STRIPE "stripe:"
#define SHARED "shared:"

static bool is_stripe(const char *url)
{
    return strncmp(url, STRIPE, strlen(STRIPE)) == 0;
}

/* A folder that ranks can write to; other places get copies. */
static bool is_folder(const char *url)
{
    return !ash_tier_is_url(url) && !is_stripe(url);
}

static int add_place(struct ash_places *places, const char *url, size_t keep, struct ash_err *err)
{
    if (strncmp(url, SHARED, strlen(SHARED)) == 0) url += strlen(SHARED); /* saves assume no more of any folder */
    if (is_stripe(url) && strchr(url, ',') == NULL)
        return ash_err_set(err, -EINVAL,
                           "save.to: '%s' is one folder, and a stripe has several: give it in a job file, as one item, "
                           "\"stripe:/a,/b\"",
                           url);
    if (places->count == ASH_PLACES_MAX)
        return ash_err_set(err, -EINVAL, "save.to: more than %d places", ASH_PLACES_MAX);
    if (url[0] == '\0') return ash_err_set(err, -EINVAL, "save.to: a place is empty");
    for (size_t i = 0; i < places->count; i++)
        if (strcmp(places->urls[i], url) == 0) return ash_err_set(err, -EINVAL, "save.to: %s is there twice", url);
    places->urls[places->count] = strdup(url);
    if (places->urls[places->count] == NULL) return ash_err_set(err, -ENOMEM, "out of memory");
    places->keep[places->count++] = keep;
    places->has_remote = places->has_remote || ash_tier_is_url(url);
    return 0;
}

/* save.keep of a place, or train.keep. */
static int parse_keep(const struct ash_job *job, size_t index, size_t *keep_out, struct ash_err *err)
{
    const struct ash_opt_list *list = &job->save.keep;
    char *end = NULL;

    *keep_out = (size_t)job->train.keep;
    if (index >= list->count) return 0;
    *keep_out = (size_t)strtoul(list->items[index], &end, 10);
    if (list->items[index][0] >= '0' && list->items[index][0] <= '9' && *end == '\0') return 0;
    return ash_err_set(err, -EINVAL, "save.keep: '%s' is not a number of checkpoints", list->items[index]);
}

static int fill(struct ash_places *places, const struct ash_job *job, const char *home, struct ash_err *err)
{
    bool has_folder = false;
    int rc = 0;

    if (job->save.keep.count > job->save.to.count && job->save.keep.count > 1)
        return ash_err_set(err, -EINVAL, "save.keep: it has %zu numbers for %zu places", job->save.keep.count,
                           job->save.to.count);
    for (size_t i = 0; rc == 0 && i < job->save.to.count; i++) {
        size_t keep;

        rc = parse_keep(job, i, &keep, err);
        if (rc == 0) rc = add_place(places, job->save.to.items[i], keep, err);
        if (rc == 0 && !has_folder && is_folder(job->save.to.items[i])) {
            places->current = i;
            has_folder = true;
        }
    }
    if (rc < 0 || has_folder) return rc;
    places->current = places->count; /* the others get their copies from a folder of the run */
    size_t keep;
    rc = parse_keep(job, places->count, &keep, err);
    return rc < 0 ? rc : add_place(places, home, keep, err);
}

int ash_places_init(struct ash_places *places, const struct ash_job *job, const char *home, struct ash_err *err)
{
    int rc = fill(places, job, home, err);

    if (rc == 0) rc = ash_namespace_settings_init(&places->settings, err);
    if (rc < 0) ash_places_fini(places);
    return rc;
}

static int pass_over(void *ctx, const char *key, const struct ash_tier_object *object)
{
    (void)ctx;
    (void)key;
    (void)object;
    return 0;
}

/* Does it stay wrong, however often it is tried? */
static bool is_mistake(int rc)
{
    return rc == -ENOENT || rc == -EACCES || rc == -EINVAL || rc == -EHOSTUNREACH || rc == -EPROTO;
}

int ash_places_check(const struct ash_places *places, struct ash_err *err)
{
    struct ash_s3_opts s3 = places->settings.s3;

    s3.retry_s = s3.retry_s < CHECK_S ? s3.retry_s : CHECK_S;
    for (size_t i = 0; i < places->count; i++) {
        struct ash_tier *tier = NULL;
        struct ash_err why = {0};
        int rc;

        if (!ash_s3_url_is(places->urls[i])) continue;
        rc = ash_tier_open(places->urls[i], &s3, &tier, &why);
        if (rc == 0) rc = ash_tier_list(tier, "step-", false, pass_over, NULL, &why);
        ash_tier_close(tier);
        if (rc == -EINTR || is_mistake(rc)) return ash_err_set(err, rc, "save.to: %s", why.text);
        if (rc < 0)
            ash_log(ASH_LOG_WARN, "save.to: %s; checkpoints wait for it in %s", why.text, ash_places_root(places));
    }
    return 0;
}

int ash_places_check_empty(const struct ash_places *places, struct ash_err *err)
{
    struct ash_s3_opts s3 = places->settings.s3;
    int rc = 0;

    s3.retry_s = s3.retry_s < CHECK_S ? s3.retry_s : CHECK_S;
    s3.on_retry = NULL;
    for (size_t i = 0; rc == 0 && i < places->count; i++) {
        struct ash_place *place = NULL;
        uint64_t *steps = NULL;
        size_t count = 0;

        if (i == places->current || ash_place_open(places->urls[i], &s3, &place, NULL) < 0) continue;
        if (ash_place_steps(place, &steps, &count, NULL) == 0 && count > 0)
            rc = ash_err_set(err, -EEXIST,
                             "save.to: %s holds checkpoints already (step %llu): choose another place, or add --resume "
                             "to continue that run",
                             places->urls[i], (unsigned long long)steps[0]);
        free(steps);
        ash_place_close(place);
    }
    return rc;
}

void ash_places_fini(struct ash_places *places)
{
    for (size_t i = 0; i < places->count; i++)
        free(places->urls[i]);
    ash_namespace_settings_fini(&places->settings);
    *places = (struct ash_places){0};
}

const char *ash_places_root(const struct ash_places *places)
{
    return places->urls[places->current];
}

size_t ash_places_others(const struct ash_places *places, const char **others_out)
{
    size_t count = 0;

    for (size_t pass = 0; pass < 2; pass++) /* folders are nearer than buckets */
        for (size_t i = 0; i < places->count; i++)
            if (i != places->current && ash_tier_is_url(places->urls[i]) == (pass == 1))
                others_out[count++] = places->urls[i];
    return count;
}

size_t ash_places_next(const struct ash_places *places)
{
    for (size_t i = 1; i < places->count; i++) {
        size_t index = (places->current + i) % places->count;
        if (is_folder(places->urls[index])) return index;
    }
    return places->current;
}
