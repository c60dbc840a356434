/* collect - whole tensors of a job's state, one after the other, out of the parts that its ranks hold: for checkpoints
 * and exports. The first rank asks for them in order and writes; the others bring their parts. A whole state needs
 * nobody: its tensors are read where they lie. One owner thread. */
#ifndef ASH_TRAIN_COLLECT_H
#define ASH_TRAIN_COLLECT_H

#include "train/layout/stages.h"

enum ash_collect_kind { ASH_COLLECT_WEIGHTS, ASH_COLLECT_M, ASH_COLLECT_V };

struct ash_collect;

/* moments: after the weights of all parameters, m and v of each trained one, in turn. All ranks call it with the same.
 * Borrows stages until close. */
int ash_collect_open(struct ash_stages *stages, bool moments, struct ash_collect **collect_out, struct ash_err *err);
/* The first rank after a failure, and all others: bring what has not been asked for. *rc_out is what the first rank
 * gives for rc, everywhere. */
int ash_collect_close(struct ash_collect *collect, int rc, int *rc_out, struct ash_err *err);

/* The list of the whole model's parameters. */
const struct ash_model *ash_collect_outline(const struct ash_collect *collect);
/* First rank only: the tensor of parameter index, valid until the next call; later ones only. Returns 0 or the group's
 * error. */
int ash_collect_tensor(struct ash_collect *collect, enum ash_collect_kind kind, size_t index, const float **values_out,
                       struct ash_err *err);

#endif
