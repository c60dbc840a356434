/* agree - ranks that were started with different settings, data or weights must not train together. All that must be
 * equal is written as lines; ranks compare one hash of them, and exchange the lines only if it differs. */
#ifndef ASH_TRAIN_JOB_AGREE_H
#define ASH_TRAIN_JOB_AGREE_H

#include <stdbool.h>
#include <stdint.h>
#include "ashlar/err.h"
#include "base/str.h"
#include "collective/group.h"
#include "compute/ops.h"
#include "train/job/job.h"

/* Append every setting of a resolved job that all ranks must share, one line "section.name value" each. Left out are
 * paths, which may differ between machines (compare a hash of their files), and section runtime. Returns 0 or
 * -ENOMEM. */
int ash_agree_add_job(struct ash_str *lines, const struct ash_job *job);
/* Append "name HASH", or "name none" for 0. name must not contain a space. Returns 0 or -ENOMEM. */
int ash_agree_add_hash(struct ash_str *lines, const char *name, uint64_t hash);
/* Identity of the weights in a Hugging Face folder or a GGUF file: of config.json, and of the name, size, header and
 * some evenly spaced pages of every weights file, which is cheap however large they are; is_whole: of all their bytes.
 * Returns 0 or a negative errno. */
int ash_agree_hash_model(const char *path, bool is_whole, uint64_t *hash_out, struct ash_err *err);

#define ASH_ARITHMETIC_BYTES 64
/* What sums and products of a job's precision are like on these ops: where the names are equal, so are the bits. */
void ash_agree_name_arithmetic(const struct ash_job *job, const struct ash_exec *exec, char name[ASH_ARITHMETIC_BYTES]);

/* Have all ranks of group (NULL: alone) the same lines? All of them call it. Returns 0, the group's error, or on every
 * rank -EBADE and a sentence that names the first lines that differ, both values and the ranks. */
int ash_agree_check(struct ash_group *group, const struct ash_str *lines, struct ash_err *err);

#endif
