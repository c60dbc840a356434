/* saver - asynchronous saves of a job's state. Each rank copies its own ranges into buffers and writes them to the
 * files of one folder, in its own thread. The files are those of a Hugging Face folder, the same bytes in every layout.
 * The first rank writes the manifest when all are done.
 *
 *     step 10        begin ──► copy, sum, write ...            the thread of each rank
 *     step 11        forward, backward │ release: copied?      only then weights change
 *                    poll: all written? ──► sums added up ──► manifest      the first rank's thread
 *     step 12        result: step 10 is saved
 *
 * Calls are for one owner thread; if the job has several ranks, all make the same calls in the same order. */
#ifndef ASH_TRAIN_SAVER_H
#define ASH_TRAIN_SAVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ashlar/err.h"
#include "base/json.h"
#include "train/job/job.h"
#include "train/layout/stages.h"
#include "train/save/fence.h"

#define ASH_SAVER_WEIGHTS_FILE "model.safetensors"
#define ASH_SAVER_MOMENTS_FILE "optimizer.safetensors"

struct ash_saver;

struct ash_saver_opts {
    struct ash_stages *stages;       /* borrowed until close */
    const struct ash_job_mesh *mesh; /* its sizes, resolved */
    struct ash_group *group;         /* the ranks of the job; NULL: alone. Borrowed until close */
    const char *root;                /* a folder in which saves will be: do all ranks see it? Made when missing */
    size_t memory_bytes;             /* for copies, in this process */
    const struct ash_fence *fence;   /* the writer's token; copied */
};

/* All ranks call it. Ranks that do not see root send their ranges to the first one, while the step waits. Returns 0,
 * -ENOMEM, -EAGAIN, or the group's or the folder's error. The caller owns *saver_out. */
int ash_saver_open(const struct ash_saver_opts *opts, struct ash_saver **saver_out, struct ash_err *err);
/* End saves that wait for their manifests, give up those that are being written, stop the thread and free. NULL is a
 * no-op. */
void ash_saver_close(struct ash_saver *saver);

struct ash_save_opts {
    const char *dir;           /* the folder that is written, in place; its name is used up when it fails */
    bool is_export;            /* weights alone, and dir appears as a whole, in exchange for an older one */
    bool is_alone;             /* the other ranks are lost; this one holds everything */
    const char *tokenizer_dir; /* its tokenizer files are copied; NULL: none */
    json_t *state;             /* first rank: for the manifest; the saver's from begin on; NULL: empty */
    uint64_t number;           /* for the result: the step */
    size_t place;              /* the same: an index of the caller's */
    int flush_fd;              /* first rank: flushed before the manifest is written; -1: none. The caller's */
    int refused_rc;            /* first rank: a negative errno ends the save for all, with this sentence */
    const char *refused;
    /* First rank, may be NULL: called in the saver's thread when the save is durable (rc 0), or has failed and its
     * folder is gone. */
    void (*ended)(void *ctx, const struct ash_save_opts *save, int rc);
    void *ctx;
};

/* Begin a save. Earlier ones may be under way: they share the memory, and end in order. Waits for the oldest if there
 * are many. Returns 0 or the group's error; the save's failures are in the result. */
int ash_saver_begin(struct ash_saver *saver, const struct ash_save_opts *save, struct ash_err *err);
/* Wait until the state has been copied as far as a save needs it: before it changes. Returns the nanoseconds that took.
 * No other rank takes part. */
uint64_t ash_saver_release(struct ash_saver *saver);
/* At the edge of a step: of the saves under way, which have all ranks written? Their sums are added up and the first
 * rank's thread commits them. A process that writes alone needs no such look. Returns 0 or the group's error. */
int ash_saver_poll(struct ash_saver *saver, struct ash_err *err);

/* How a save ended. */
struct ash_save_result {
    uint64_t number;
    size_t place;
    int rc; /* 0: it survives a loss of power */
    struct ash_err err;
    double seconds;      /* since begin */
    uint64_t size_bytes; /* of the large files */
};
/* First rank: the next result that was not taken yet. Returns false if there is none. */
bool ash_saver_take_result(struct ash_saver *saver, struct ash_save_result *result_out);
/* Wait until everything is written and committed. waiting (may be NULL) is called about every second. Returns 0 or the
 * group's error; results are taken as ever. */
int ash_saver_finish(struct ash_saver *saver, void (*waiting)(void *ctx), void *ctx, struct ash_err *err);
/* Other ranks are lost: wait for the manifests of saves that all had written; give up those that are being written.
 * Returns whether there was one of these. */
bool ash_saver_drop(struct ash_saver *saver);
/* The largest number of bytes that copies have taken so far. */
size_t ash_saver_peak_bytes(const struct ash_saver *saver);

#endif
