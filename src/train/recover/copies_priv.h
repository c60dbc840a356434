/* copies_priv - between copies.c and copies_send.c. */
#ifndef ASH_TRAIN_RECOVER_COPIES_PRIV_H
#define ASH_TRAIN_RECOVER_COPIES_PRIV_H

#include "train/recover/copies.h"

/* Split sends and receives into messages. sends: another rank holds copies of this one. Returns 0 or
 * -ENOMEM. */
int ash_copies_open_messages(struct ash_copies *copies, const struct ash_model *outline, bool sends,
                             struct ash_err *err);
/* Free that; half-open is fine. Nothing is under way. */
void ash_copies_close_messages(struct ash_copies *copies);
/* Wait for requests in flight. Returns 0 or the first error. */
int ash_copies_settle(struct ash_copies *copies, struct ash_err *err);

#endif
