/* checkpoint - a training state on disk: a Hugging Face folder that can be served as it is, the optimizer's moments
 * next to the weights, and a manifest, written last, with the run and the step. A crash or a full disk while
 * saving leaves the earlier checkpoints as they were. One owner thread. */
#ifndef ASH_TRAIN_CHECKPOINT_H
#define ASH_TRAIN_CHECKPOINT_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ashlar/err.h"
#include "base/json.h"
#include "train/layout/stages.h"

/* Contents of a checkpoint's manifest. Zero-initialise, free with ash_checkpoint_fini. */
struct ash_checkpoint {
    char dir[PATH_MAX];
    uint64_t step, updates, state_hash, data_hash;
    uint64_t run;          /* the run that made it; 0: unknown */
    uint64_t weights_hash; /* state_hash of weights, moments and counters */
    json_t *kept;          /* precomputed data of later steps (struct ash_trainer_parts); NULL: none */
    struct ash_guard_stats guard;
    char *job_yaml;   /* the effective job that made it */
    char *arithmetic; /* as in struct ash_trainer_facts */
};
/* Free the members. */
void ash_checkpoint_fini(struct ash_checkpoint *checkpoint);

/* Members of a checkpoint's manifest other than the state's counters. */
struct ash_checkpoint_facts {
    const char *job_yaml;
    const char *arithmetic; /* as in struct ash_trainer_facts */
    uint64_t data_hash, state_hash, weights_hash, run;
    json_t *kept; /* as in struct ash_checkpoint; taken over */
};

/* The state of a checkpoint's manifest; the caller's. NULL when out of memory. train/save/saver.h writes the rest. */
json_t *ash_checkpoint_encode(const struct ash_state *state, const struct ash_checkpoint_facts *facts);

/* Remove all but the newest `keep` complete ones (0: keep all), and what killed saves left. Returns 0 or a negative
 * errno. */
int ash_checkpoint_prune(const char *root, size_t keep, struct ash_err *err);
/* The same of complete ones alone, while another may be written; that of step `pinned` stays (UINT64_MAX: none). */
int ash_checkpoint_prune_complete(const char *root, size_t keep, uint64_t pinned, struct ash_err *err);

/* Where the checkpoint of a step is: root/step-NNNNNN. Returns 0 or -ENAMETOOLONG. */
int ash_checkpoint_path(const char *root, uint64_t step, char *buf, size_t buf_bytes);
/* How many checkpoints there are, damaged ones too, but not those whose saving was killed. */
size_t ash_checkpoint_count(const char *root);
/* The step of the newest one that looks complete, without reading its files. Returns 0 or -ENOENT. */
int ash_checkpoint_newest(const char *root, uint64_t *step_out);
/* Decode a manifest into a checkpoint whose dir is set. Returns 0, -EBADMSG or -ENOMEM. */
int ash_checkpoint_decode(const json_t *manifest, struct ash_checkpoint *checkpoint, struct ash_err *err);
/* A run continues from step `step`: newer folders, which were passed over, are in the way of the next saves. Those
 * whose saving was killed are removed, damaged ones are renamed to step-NNNNNN.damaged. */
int ash_checkpoint_clear_newer(const char *root, uint64_t step, struct ash_err *err);
/* After ash_restore_read: take over the counters, compute derived values, and compare the state with the saved hash:
 * -EUCLEAN if they differ. All ranks call it. */
int ash_checkpoint_load(const struct ash_checkpoint *checkpoint, struct ash_stages *stages, struct ash_err *err);

#endif
