/* What the files of validate share. */
#ifndef ASH_PLAN_VALIDATE_PRIV_H
#define ASH_PLAN_VALIDATE_PRIV_H

#include "base/csv.h"
#include "plan/shape.h"
#include "plan/validate/validate.h"

struct ash_validate_context {
    const struct ash_consts *consts;
    const struct ash_catalog *catalog;
    const struct ash_csv *csv;
};

/* Give columns that others named otherwise the names that are asked for, and say which form of file it is. -EINVAL
 * if it has no measurement of either. */
int ash_validate_form(struct ash_csv *csv, const char *path, bool *training_out, struct ash_err *err);

/* Fill measured and expected of one training row, or return -EINVAL with the reason in row. */
int ash_validate_training(const struct ash_validate_context *context, size_t index, struct ash_validate_row *row);

/* "dense", "moe" or "hybrid". */
const char *ash_validate_kind(const struct ash_shape *shape);
/* Put the reason into row; returns -EINVAL. */
int ash_validate_refuse(struct ash_validate_row *row, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
