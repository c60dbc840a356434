/* exchange_priv - between exchange.c, which plans the moves, and exchange_rounds.c, which runs them. */
#ifndef ASH_TRAIN_RECOVER_EXCHANGE_PRIV_H
#define ASH_TRAIN_RECOVER_EXCHANGE_PRIV_H

#include "train/recover/exchange.h"
#include "train/recover/range_index.h"

struct ash_exchange {
    struct ash_group *group;
    const struct ash_patches *have, *need;
    const struct ash_exchange_gate *gate; /* or NULL */
    struct ash_range_index have_index, need_index;
    size_t rank, ranks;
    struct ash_move *moves; /* all ranks', the same list everywhere */
    size_t move_count;
};

/* Make all moves. All ranks of the group call it. Fills in counts. Returns as ash_exchange_run. */
int ash_exchange_move(const struct ash_exchange *exchange, struct ash_exchange_counts *counts, struct ash_err *err);

#endif
