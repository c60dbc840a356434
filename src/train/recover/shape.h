/* shape - the layout of a job whose ranks have become fewer, or more again. A pure function. */
#ifndef ASH_TRAIN_RECOVER_SHAPE_H
#define ASH_TRAIN_RECOVER_SHAPE_H

#include "ashlar/err.h"
#include "model/config.h"
#include "train/job/job.h"

/* Can the model be laid out like this? sizes: resolved. Returns 0, or -EINVAL saying what does not fit. */
int ash_shape_check(const struct ash_job *job, const struct ash_model_config *config, const struct ash_job_mesh *sizes,
                    struct ash_err *err);
/* The sizes of a mesh for at most `ranks` ranks, of a resolved job whose wanted sizes are job->mesh: those where they
 * fit. Else the data axes shrink first: of all layouts that the model can have, the one that splits a replica over most
 * ranks, then the one with most ranks. Ranks beyond it have nothing to do. Returns 0, or -EINVAL where no layout
 * fits. */
int ash_shape_choose(const struct ash_job *job, const struct ash_model_config *config, size_t ranks,
                     struct ash_job_mesh *mesh_out, struct ash_err *err);
/* How many ranks a mesh has. */
size_t ash_shape_ranks(const struct ash_job_mesh *mesh);

#endif
