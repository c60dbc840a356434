/* layer_memo - layers of one job on one kind of machine that were predicted before. Searches ask for the same ones
 * repeatedly: other numbers of stages, replicas and chunks, other batches and more machines do not change it. */
#ifndef ASH_PLAN_LAYER_MEMO_H
#define ASH_PLAN_LAYER_MEMO_H

#include "plan/train/layer.h"

struct ash_plan_layer_memo;

/* For one model, sequence length, stack and set of constants on one kind of machine; NULL where memory is short, which
 * is as good as none. */
struct ash_plan_layer_memo *ash_plan_layer_memo_open(void);
/* NULL is a no-op. */
void ash_plan_layer_memo_close(struct ash_plan_layer_memo *memo);
/* ash_plan_layer_predict and ash_plan_head_predict, from memory where memo (may be NULL) has them. */
void ash_plan_layer_memo_predict(struct ash_plan_layer_memo *memo, const struct ash_consts *consts,
                                 const struct ash_plan_job *job, const struct ash_layout *layout,
                                 enum ash_plan_recompute recompute, struct ash_plan_layer *layer_out,
                                 struct ash_plan_layer *head_out);
/* Only the seconds of a layer's forward and backward pass, and of its expert traffic before overlap. */
double ash_plan_layer_memo_work(struct ash_plan_layer_memo *memo, const struct ash_consts *consts,
                                const struct ash_plan_job *job, const struct ash_layout *layout,
                                enum ash_plan_recompute recompute, double *dispatch_s_out);

#endif
