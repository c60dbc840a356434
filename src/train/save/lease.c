/* lease: a word in an object. */
#include "train/save/lease.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEY "lease"
#define WORD_BYTES 17 /* 16 digits and a line's end */
#define BEGIN_S 3.0   /* of retries with a server when an epoch begins */

static int fail_stale(const struct ash_lease *lease, struct ash_err *err)
{
    return ash_err_set(err, -ESTALE,
                       "another process saves to %s now (%s/" KEY
                       " is not this one's any more): its checkpoints are left alone",
                       lease->url, lease->url);
}

/* Read the current holder's token. */
static int look(struct ash_lease *lease)
{
    struct ash_tier_object object = {0};
    int rc = ash_tier_stat(lease->tier, KEY, &object, NULL);

    if (rc < 0 && rc != -ENOENT) return rc;
    lease->is_seen = true;
    memcpy(lease->version, rc == 0 ? object.version : "", rc == 0 ? sizeof(lease->version) : 1);
    return 0;
}

/* Write the word, where the object is as it was seen. */
static int take(struct ash_lease *lease)
{
    struct ash_s3_condition condition = {.wants_absent = lease->version[0] == '\0',
                                         .etag = lease->version[0] != '\0' ? lease->version : NULL};
    char text[WORD_BYTES + 1];
    int rc;

    snprintf(text, sizeof(text), "%016" PRIx64 "\n", lease->word);
    rc = ash_tier_write_if(lease->tier, KEY, text, WORD_BYTES, &condition, NULL);
    if (rc == -ENOTSUP) rc = ash_tier_write_if(lease->tier, KEY, text, WORD_BYTES, NULL, NULL);
    lease->is_taken = rc == 0;
    return rc == -EEXIST ? -ESTALE : rc;
}

void ash_lease_begin(struct ash_lease *lease, const char *url, const struct ash_s3_opts *s3, uint64_t word)
{
    struct ash_s3_opts opts = *s3;

    ash_lease_fini(lease);
    *lease = (struct ash_lease){.url = url, .word = word};
    if (word == 0) return;
    opts.retry_s = opts.retry_s < BEGIN_S ? opts.retry_s : BEGIN_S;
    opts.on_retry = NULL;
    if (ash_tier_open(url, &opts, &lease->tier, NULL) < 0) {
        lease->word = 0; /* the first copy reports the error */
        return;
    }
    if (look(lease) == 0) (void)take(lease); /* else later, on the same condition */
}

/* Is another token there? False if it cannot be read. */
static bool is_anothers(const struct ash_lease *lease)
{
    char text[WORD_BYTES + 1] = {0};
    const struct ash_tier_range range = {.key = KEY, .size_bytes = WORD_BYTES};

    return ash_tier_read(lease->tier, &range, text, NULL) == 0 && strtoull(text, NULL, 16) != lease->word;
}

int ash_lease_hold(struct ash_lease *lease, struct ash_err *err)
{
    if (lease->word == 0) return 0;
    if (lease->is_taken) return is_anothers(lease) ? fail_stale(lease, err) : 0;
    if (!lease->is_seen && look(lease) < 0) return 0;
    return take(lease) == -ESTALE && is_anothers(lease) ? fail_stale(lease, err) : 0;
}

void ash_lease_fini(struct ash_lease *lease)
{
    ash_tier_close(lease->tier);
    *lease = (struct ash_lease){0};
}
