/* moe_nodes - rows that go to experts on other nodes, each once. A token whose experts are on several ranks of another
 * node crosses to it once: its sender gives it to the rank in its own place there, with a list of the pairs that it is
 * for, and that rank forwards it to its neighbours. */
#ifndef ASH_MODEL_PASS_MOE_NODES_H
#define ASH_MODEL_PASS_MOE_NODES_H

#include "model/pass/moe_pairs.h"
#include "model/pass/step.h"

/* Are the ranks of ep on several nodes? The rest, but open, close and bytes, is for where they are. */
bool ash_moe_crosses_nodes(const struct ash_model *model, const struct ash_axes *axes);
/* Returns 0 or -ENOMEM; close takes what a failed open left, and a zeroed struct. */
int ash_moe_nodes_open(struct ash_moe_nodes *nodes, const struct ash_model *model, const struct ash_exec *exec,
                       const struct ash_pass_opts *opts, const struct ash_axes *axes, struct ash_err *err);
/* Free; accepts a zeroed struct and what a failed open left. */
void ash_moe_nodes_close(struct ash_moe_nodes *nodes);
/* As ash_moe_exchange_bytes. */
size_t ash_moe_nodes_bytes(const struct ash_model *model, const struct ash_pass_opts *opts,
                           const struct ash_axes *axes);

/* Which tokens go to which nodes: before counts are sent, and before gradients go the same way. */
void ash_moe_nodes_choose(const struct ash_pass_step *step, size_t layer);
/* Words that rank `from` of ep sends rank `to` along with the counts of its experts; 0 where ep is on one node. */
size_t ash_moe_nodes_words(const struct ash_moe_nodes *nodes, size_t from, size_t to);
/* Those that this rank sends rank `to`: how many rows for all of its node, and pairs for each rank there. */
void ash_moe_nodes_fill(const struct ash_pass_step *step, size_t layer, size_t to, uint32_t *words);
/* Such words that rank `rank` receives at most, from all ranks: what route.forwarded has room for, for each. */
size_t ash_moe_nodes_max_words(const struct ash_moe_nodes *nodes, size_t rank);
/* Bring the rows of x to the inboxes: to this rank's pairs at `to`, by source. weighted: as in ash_moe_gather_rows. */
void ash_moe_nodes_dispatch(const struct ash_pass_step *step, size_t layer, const float *x, bool weighted, float *to);

#endif
