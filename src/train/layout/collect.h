/* collect - whole tensors of a job's state, one after the other, out of the parts that its ranks hold: for checkpoints
 * and exports. The first rank requests them in order and writes; the others send their parts. Tensors of a whole state
 * are read in place. One owner thread. */
#ifndef ASH_TRAIN_COLLECT_H
#define ASH_TRAIN_COLLECT_H

#include "train/layout/stages.h"

enum ash_collect_kind { ASH_COLLECT_WEIGHTS, ASH_COLLECT_M, ASH_COLLECT_V };

struct ash_collect;

/* Begin. moments: after the weights of all parameters, m and v of each trained one. All ranks call it with the same.
 * Borrows stages until close. Returns 0 or -ENOMEM; on 0 the caller owns *collect_out. */
int ash_collect_open(struct ash_stages *stages, bool moments, struct ash_collect **collect_out, struct ash_err *err);
/* End and free: all ranks work through the tensors that the first one has not requested (after a failure there, all of
 * them), and get the first rank's rc in *rc_out. Returns 0 or the group's error. */
int ash_collect_close(struct ash_collect *collect, int rc, int *rc_out, struct ash_err *err);

/* First rank only: the whole tensor of parameter index, valid until the next call. Tensors are requested in ascending
 * order: weights of all, then m and v of each. Returns 0 or the group's error. */
int ash_collect_tensor(struct ash_collect *collect, enum ash_collect_kind kind, size_t index, const float **values_out,
                       struct ash_err *err);

/* The whole model's weights on every rank: into model, owned, of the same config and not sliced. All ranks call it, at
 * a step's end or later. Returns 0 or the group's error. */
int ash_collect_model(struct ash_stages *stages, struct ash_model *model, struct ash_err *err);

#endif
