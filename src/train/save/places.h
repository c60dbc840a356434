/* places - where a run's checkpoints go: the folder that all ranks write to, and places that get copies. */
#ifndef ASH_TRAIN_PLACES_H
#define ASH_TRAIN_PLACES_H

#include "ashlar/err.h"
#include "storage/namespace/settings.h"
#include "train/job/job.h"

#define ASH_PLACES_MAX 8

/* Zero-initialise, free with ash_places_fini. */
struct ash_places {
    char *urls[ASH_PLACES_MAX]; /* in the order of save.to */
    size_t keep[ASH_PLACES_MAX];
    size_t count;
    size_t current;  /* the one that ranks write to: a folder */
    bool has_remote; /* one is a bucket */
    uint64_t run;    /* whose checkpoints these are: in their manifests; 0: not known yet */
    struct ash_namespace_settings settings;
};

/* Of a job. home: the folder where save.to is not set, and where all of it are buckets. Returns 0, -EINVAL naming the
 * setting, or -ENOMEM. */
int ash_places_init(struct ash_places *places, const struct ash_job *job, const char *home, struct ash_err *err);
/* Contact every bucket once, for a few seconds at most. Returns 0, or a negative errno naming save.to if bucket, keys,
 * region, clock, certificate or address are wrong: no later save would arrive. A server that is only unreachable is a
 * warning. */
int ash_places_check(const struct ash_places *places, struct ash_err *err);
/* A new run: does any place hold checkpoints already? Returns 0, or -EEXIST naming save.to. A server that does not
 * answer is checked again before the first copy. */
int ash_places_check_empty(const struct ash_places *places, struct ash_err *err);
/* Free the members. */
void ash_places_fini(struct ash_places *places);
/* The folder that ranks write to. */
const char *ash_places_root(const struct ash_places *places);
/* All but that one, in order; others_out has ASH_PLACES_MAX. Returns how many. */
size_t ash_places_others(const struct ash_places *places, const char **others_out);
/* The next folder after one that does not work: its index; the current one if there is none. */
size_t ash_places_next(const struct ash_places *places);

#endif
