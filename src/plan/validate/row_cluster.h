/* row_cluster - the machines that a published measurement ran on, from what its row says of them. */
#ifndef ASH_PLAN_ROW_CLUSTER_H
#define ASH_PLAN_ROW_CLUSTER_H

#include "infra/catalog.h"
#include "base/csv.h"

/* gpus GPUs of the kind in the column gpu, in machines of the column system if that names one with such GPUs, else
 * in the usual machine for them, or, if the catalog has none, in one of eight with a network port of 400 Gbps each.
 * A network or a size of the NVLink domain that the column interconnect states replaces the catalog's. -EINVAL (a
 * sentence says why) for a GPU that is not known and an impossible number of them. */
int ash_row_cluster(const struct ash_catalog *catalog, const struct ash_csv *csv, size_t row, double gpus,
                    struct ash_cluster *cluster_out, struct ash_err *err);

#endif
