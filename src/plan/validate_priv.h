/* What the files of validate share. */
#ifndef ASH_PLAN_VALIDATE_PRIV_H
#define ASH_PLAN_VALIDATE_PRIV_H

#include "plan/csv.h"
#include "plan/validate.h"

struct ash_validate_world {
    const struct ash_consts *consts;
    const struct ash_catalog *catalog;
    const struct ash_csv *csv;
};

/* Fill measured and expected of one training row, or return -EINVAL with the reason in row. */
int ash_validate_training(const struct ash_validate_world *world, size_t index, struct ash_validate_row *row);

/* The machines that a row with so many GPUs ran on. */
int ash_validate_cluster(const struct ash_validate_world *world, size_t index, double gpus,
                         struct ash_cluster *cluster_out, struct ash_validate_row *row);
/* Put the reason into row; returns -EINVAL. */
int ash_validate_refuse(struct ash_validate_row *row, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
